//! List and watch one kind, forever.
//!
//! Differs from kube-runtime's watcher in two things that the claim cache needs: a list is delivered as a whole
//! together with its resource version, so that a deletion missed during a disconnect can be told from an object that
//! is newer than the list; and it reconnects from the last version seen, without a new list, as long as the server
//! still has the history.

use std::fmt::Debug;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, pin_mut};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

/// What a watch says about a kind.
#[derive(Debug)]
pub enum Observed<K> {
    /// Everything that exists at a version; what is not in it is gone.
    Listed {
        /// The objects.
        items: Vec<K>,
        /// The version of the list.
        version: String,
    },
    /// An object was added or changed.
    Applied(Box<K>),
    /// An object was deleted, in its last state.
    Deleted(Box<K>),
}

/// How many objects a page of a list has.
const PAGE: u32 = 500;
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// Watches until `shutdown`, handing everything to `sink`; stops early when `sink` returns false.
pub async fn reflect<K, F>(
    api: Api<K>,
    fields: Option<String>,
    shutdown: CancellationToken,
    sink: F,
) where
    K: Clone + DeserializeOwned + Debug + ResourceExt + Send + 'static,
    F: Fn(Observed<K>) -> bool + Send,
{
    let mut version: Option<String> = None;
    let mut failures = 0u32;
    while !shutdown.is_cancelled() {
        let step = async {
            let from = match version.take() {
                Some(from) => from,
                None => {
                    let (items, listed) = list(&api, fields.as_deref()).await?;
                    if !sink(Observed::Listed {
                        items,
                        version: listed.clone(),
                    }) {
                        return Ok(None);
                    }
                    listed
                }
            };
            watch(&api, fields.as_deref(), from, &sink).await
        };
        let outcome = tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            outcome = step => outcome,
        };
        match outcome {
            Ok(None) => return,
            Ok(Some(next)) => {
                failures = 0;
                version = next;
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                let pause = RETRY_MIN
                    .saturating_mul(1 << failures.min(7))
                    .min(RETRY_MAX);
                tracing::warn!(url = api.resource_url(), %error, ?pause, "watch failed");
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return,
                    () = tokio::time::sleep(pause) => {}
                }
            }
        }
    }
}

async fn list<K>(api: &Api<K>, fields: Option<&str>) -> Result<(Vec<K>, String), kube::Error>
where
    K: Clone + DeserializeOwned + Debug,
{
    let mut params = ListParams {
        field_selector: fields.map(str::to_owned),
        ..ListParams::default()
    }
    .limit(PAGE);
    let mut items = Vec::new();
    loop {
        let page = api.list(&params).await?;
        items.extend(page.items);
        match page.metadata.continue_.filter(|c| !c.is_empty()) {
            Some(next) => params.continue_token = Some(next),
            None => return Ok((items, page.metadata.resource_version.unwrap_or_default())),
        }
    }
}

/// Follows a watch to its end. Says from which version to go on; `Some(None)` asks for a new list, `None` for the end.
async fn watch<K, F>(
    api: &Api<K>,
    fields: Option<&str>,
    from: String,
    sink: &F,
) -> Result<Option<Option<String>>, kube::Error>
where
    K: Clone + DeserializeOwned + Debug + ResourceExt,
    F: Fn(Observed<K>) -> bool,
{
    let params = WatchParams {
        field_selector: fields.map(str::to_owned),
        ..WatchParams::default()
    };
    let mut version = from;
    let stream = match api.watch(&params, &version).await {
        Ok(stream) => stream,
        Err(kube::Error::Api(status)) if status.code == 410 => return Ok(Some(None)),
        Err(error) => return Err(error),
    };
    pin_mut!(stream);
    let mut stream = stream.into_stream();
    while let Some(event) = stream.next().await {
        let observed = match event {
            Ok(WatchEvent::Added(k) | WatchEvent::Modified(k)) => {
                version = k.resource_version().unwrap_or(version);
                Observed::Applied(Box::new(k))
            }
            Ok(WatchEvent::Deleted(k)) => {
                version = k.resource_version().unwrap_or(version);
                Observed::Deleted(Box::new(k))
            }
            Ok(WatchEvent::Bookmark(bookmark)) => {
                version = bookmark.metadata.resource_version;
                continue;
            }
            Ok(WatchEvent::Error(status)) => {
                tracing::debug!(url = api.resource_url(), code = status.code, message = %status.message, "watch ended");
                return Ok(Some(None));
            }
            Err(error) => {
                // The connection broke: what came before it counts, so go on from there.
                tracing::debug!(url = api.resource_url(), %error, "watch broke off");
                return Ok(Some(Some(version)));
            }
        };
        if !sink(observed) {
            return Ok(None);
        }
    }
    Ok(Some(Some(version)))
}

impl<K> Observed<K> {
    /// Converts the objects; those that can not be converted are left out.
    pub fn filter_map<T>(self, f: impl Fn(K) -> Option<T>) -> Option<Observed<T>> {
        Some(match self {
            Self::Listed { items, version } => Observed::Listed {
                items: items.into_iter().filter_map(f).collect(),
                version,
            },
            Self::Applied(k) => Observed::Applied(Box::new(f(*k)?)),
            Self::Deleted(k) => Observed::Deleted(Box::new(f(*k)?)),
        })
    }
}
