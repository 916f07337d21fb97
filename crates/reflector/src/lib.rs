//! List and watch one kind, forever: what the caches of the scheduler and of the controllers are filled from.
//!
//! Differs from kube-runtime's watcher in two things that a cache of claims needs: a list is delivered as a whole
//! together with its resource version, so that a deletion missed during a disconnect can be told from an object that
//! is newer than the list; and it reconnects from the last version seen, without a new list, as long as the server
//! still has the history. Errors are retried with a growing delay, and no event is delivered twice in between.
//!
//! It knows no kinds. How much of an object is read is said by a [`Wire`] type of the caller's:
//!
//! ```
//! use allot_reflector::{Collection, Observed, Wire, reflect};
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use serde::Deserialize;
//! # use tokio_util::sync::CancellationToken;
//!
//! #[derive(Debug, Clone, Deserialize)]
//! #[serde(transparent)]
//! struct Whole(ConfigMap);
//!
//! impl Wire for Whole {
//!     type Object = ConfigMap;
//!
//!     fn into_object(self) -> ConfigMap {
//!         self.0
//!     }
//! }
//!
//! # async fn follow(client: kube::Client, shutdown: CancellationToken) {
//! let all = Collection::new(kube::Api::<ConfigMap>::all(client), None);
//! reflect::<Whole, _>(all, shutdown, |observed| {
//!     match observed {
//!         Observed::Listed { items, version } => println!("{} at {version}", items.len()),
//!         Observed::Applied(map) => println!("changed: {:?}", map.metadata.name),
//!         Observed::Deleted(map) => println!("gone: {:?}", map.metadata.name),
//!     }
//!     true
//! })
//! .await;
//! # }
//! ```

#![forbid(unsafe_code)]

use std::fmt::Debug;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, pin_mut};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::Request;
use kube::{Api, Client, ResourceExt};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

#[cfg(test)]
mod tests;

/// How an object is read.
pub trait Wire: DeserializeOwned + Clone + Debug + Send + 'static {
    /// The object, with its metadata.
    type Object: ResourceExt + Send;

    /// What was read.
    fn into_object(self) -> Self::Object;
}

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

#[derive(Deserialize)]
struct List<W> {
    metadata: ListMeta,
    items: Vec<W>,
}

/// A collection to watch.
#[derive(Clone)]
pub struct Collection {
    client: Client,
    url: String,
    fields: Option<String>,
}

impl Collection {
    /// The objects of a kind, as far as a field selector takes them in.
    pub fn new<K: kube::Resource>(api: Api<K>, fields: Option<&str>) -> Self {
        Self {
            url: api.resource_url().to_owned(),
            client: api.into_client(),
            fields: fields.map(str::to_owned),
        }
    }
}

/// Watches until `shutdown`, handing everything to `sink`; stops early when `sink` returns false.
pub async fn reflect<W, F>(of: Collection, shutdown: CancellationToken, sink: F)
where
    W: Wire,
    F: Fn(Observed<W::Object>) -> bool + Send,
{
    let mut version: Option<String> = None;
    let mut failures = 0u32;
    while !shutdown.is_cancelled() {
        let step = async {
            let from = match version.take() {
                Some(from) => from,
                None => {
                    let (items, listed) = list::<W>(&of).await?;
                    if !sink(Observed::Listed {
                        items,
                        version: listed.clone(),
                    }) {
                        return Ok(None);
                    }
                    listed
                }
            };
            watch::<W, F>(&of, from, &sink).await
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
                tracing::warn!(url = of.url, %error, ?pause, "watch failed");
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return,
                    () = tokio::time::sleep(pause) => {}
                }
            }
        }
    }
}

async fn list<W: Wire>(of: &Collection) -> Result<(Vec<W::Object>, String), kube::Error> {
    let mut params = ListParams {
        field_selector: of.fields.clone(),
        ..ListParams::default()
    }
    .limit(PAGE);
    let mut items = Vec::new();
    loop {
        let request = Request::new(&of.url)
            .list(&params)
            .map_err(kube::Error::BuildRequest)?;
        let page: List<W> = of.client.request(request).await?;
        items.extend(page.items.into_iter().map(Wire::into_object));
        match page.metadata.continue_.filter(|c| !c.is_empty()) {
            Some(next) => params.continue_token = Some(next),
            None => return Ok((items, page.metadata.resource_version.unwrap_or_default())),
        }
    }
}

/// Follows a watch to its end. Says from which version to go on; `Some(None)` asks for a new list, `None` for the end.
async fn watch<W, F>(
    of: &Collection,
    from: String,
    sink: &F,
) -> Result<Option<Option<String>>, kube::Error>
where
    W: Wire,
    F: Fn(Observed<W::Object>) -> bool,
{
    let params = WatchParams {
        field_selector: of.fields.clone(),
        ..WatchParams::default()
    };
    let mut version = from;
    let request = Request::new(&of.url)
        .watch(&params, &version)
        .map_err(kube::Error::BuildRequest)?;
    let stream = match of.client.request_events::<W>(request).await {
        Ok(stream) => stream,
        Err(kube::Error::Api(status)) if status.code == 410 => return Ok(Some(None)),
        Err(error) => return Err(error),
    };
    pin_mut!(stream);
    let mut stream = stream.into_stream();
    while let Some(event) = stream.next().await {
        let observed = match event {
            Ok(WatchEvent::Added(read) | WatchEvent::Modified(read)) => {
                let object = read.into_object();
                version = object.resource_version().unwrap_or(version);
                Observed::Applied(Box::new(object))
            }
            Ok(WatchEvent::Deleted(read)) => {
                let object = read.into_object();
                version = object.resource_version().unwrap_or(version);
                Observed::Deleted(Box::new(object))
            }
            Ok(WatchEvent::Bookmark(bookmark)) => {
                version = bookmark.metadata.resource_version;
                continue;
            }
            Ok(WatchEvent::Error(status)) => {
                tracing::debug!(url = of.url, code = status.code, message = %status.message, "watch ended");
                return Ok(Some(None));
            }
            Err(error) => {
                // The connection broke: what came before it counts, so go on from there.
                tracing::debug!(url = of.url, %error, "watch broke off");
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
    /// Converts the objects.
    pub fn map<T>(self, f: impl Fn(K) -> T) -> Observed<T> {
        match self {
            Self::Listed { items, version } => Observed::Listed {
                items: items.into_iter().map(f).collect(),
                version,
            },
            Self::Applied(k) => Observed::Applied(Box::new(f(*k))),
            Self::Deleted(k) => Observed::Deleted(Box::new(f(*k))),
        }
    }

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
