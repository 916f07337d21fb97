//! Continuous list and watch of one kind: the source of the caches of the scheduler and the controllers.
//!
//! Differs from kube-runtime's watcher in two respects that a cache of claims needs: a list is delivered as a whole
//! together with its resource version, so that a deletion missed during a disconnect can be distinguished from an
//! object that is newer than the list; and it reconnects from the last version seen, without a new list, as long as the
//! server still has the history. Errors are retried with exponential back-off, and no event is delivered twice in
//! between.
//!
//! The server cannot use time or memory without a bound: responses and events have a maximum size, requests a deadline, a watch
//! that never ends is renewed, and a watch that always ends at once is repeated only after a pause.
//!
//! The caller selects how much of an object is decoded:
//!
//! ```
//! use allot_reflector::{Collection, Observed, reflect};
//! use k8s_openapi::api::core::v1::ConfigMap;
//! # use tokio_util::sync::CancellationToken;
//!
//! # async fn follow(client: kube::Client, shutdown: CancellationToken) {
//! let all = Collection::new(kube::Api::<ConfigMap>::all(client), None);
//! let keep = |of: &str, field: &str| (of, field) != ("ObjectMeta", "managedFields");
//! reflect::<ConfigMap, _>(all, keep, shutdown, |observed| {
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
//!
//! All code except for decoding is the same for all kinds (`follow`).

#![forbid(unsafe_code)]
// Time, randomness and files are inputs; see clippy.toml.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub use allot_apimachinery::lean::Keep;
use futures::Stream;
use kube::{Api, Client, ResourceExt};
use serde_json::value::RawValue;
use tokio::sync::mpsc::unbounded_channel;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

pub use allot_client::api_message;
pub use read::{Readable, get, list, parse, request};
pub use wire::{PROTOBUF, everything};
pub use writes::Writes;

mod follow;
mod read;
#[cfg(test)]
mod tests;
mod wire;
mod writes;

/// What a reflector reports about the objects of a kind.
#[derive(Debug)]
pub enum Observed<K> {
    /// Everything that exists at a version; all other objects were deleted.
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

/// A collection to watch.
#[derive(Clone)]
pub struct Collection {
    client: Client,
    url: String,
    fields: Option<String>,
    labels: Option<String>,
    optional: bool,
    /// The limit for the whole list, in bytes.
    largest: Option<usize>,
}

impl Collection {
    /// The objects of a kind that a field selector selects.
    pub fn new<K: kube::Resource>(api: Api<K>, fields: Option<&str>) -> Self {
        Self {
            url: api.resource_url().to_owned(),
            client: api.into_client(),
            fields: fields.map(str::to_owned),
            labels: None,
            optional: false,
            largest: None,
        }
    }

    /// Restricts the collection to the objects that a label selector selects.
    #[must_use]
    pub fn labels(mut self, selector: &str) -> Self {
        self.labels = Some(selector.to_owned());
        self
    }

    /// Limits the size of a list, all pages together: a larger list is an error. For callers that know the expected size, and do
    /// not trust the server. Without this, each page and the number of pages have limits.
    #[must_use]
    pub fn largest(mut self, bytes: usize) -> Self {
        self.largest = Some(bytes);
        self
    }

    /// Marks the kind as optional: while the server does not permit listing it, the collection counts as empty. It is
    /// watched as soon as the server permits it.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }
}

/// Watches until `shutdown`, passing everything to `sink`, decoded without the fields that `keep` excludes; stops early
/// when `sink` returns false.
pub async fn reflect<K, F>(of: Collection, keep: Keep, shutdown: CancellationToken, sink: F)
where
    K: Readable + ResourceExt + Send,
    F: Fn(Observed<K>) -> bool + Send,
{
    let mut typed = Typed {
        keep,
        sink,
        items: Vec::new(),
    };
    follow::follow(&of, &shutdown, &mut typed).await;
}

/// Like [`reflect`] with all fields of the objects, as an endless stream. Dropping the stream ends the watch.
pub fn observe<K>(of: Collection) -> impl Stream<Item = Observed<K>> + Send + Unpin
where
    K: Readable + ResourceExt + Send + 'static,
{
    let (sender, mut receiver) = unbounded_channel();
    let watch = reflect::<K, _>(of, everything, CancellationToken::new(), move |observed| {
        sender.send(observed).is_ok()
    });
    let watch = AbortOnDropHandle::new(tokio::spawn(watch));
    futures::stream::poll_fn(move |context| {
        let _ = &watch;
        receiver.poll_recv(context)
    })
}

/// Decodes the objects of a kind and passes them to the caller.
struct Typed<K, F> {
    keep: Keep,
    sink: F,
    /// The list so far.
    items: Vec<K>,
}

impl<K, F> follow::Sink for Typed<K, F>
where
    K: Readable + ResourceExt + Send,
    F: Fn(Observed<K>) -> bool + Send,
{
    fn protobuf(&self) -> Option<Keep> {
        K::PROTOBUF.then_some(self.keep)
    }

    fn begin(&mut self) {
        self.items.clear();
    }

    fn page(&mut self, items: &[&RawValue]) -> serde_json::Result<()> {
        for item in items {
            self.items.push(K::read(item.get(), self.keep)?);
        }
        Ok(())
    }

    fn listed(&mut self, version: String) -> bool {
        let items = std::mem::take(&mut self.items);
        (self.sink)(Observed::Listed { items, version })
    }

    fn changed(
        &mut self,
        deleted: bool,
        object: &str,
        version: &mut String,
    ) -> serde_json::Result<bool> {
        let object = Box::new(K::read(object, self.keep)?);
        if let Some(new) = object.resource_version() {
            *version = new;
        }
        Ok((self.sink)(match deleted {
            true => Observed::Deleted(object),
            false => Observed::Applied(object),
        }))
    }
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

    /// Converts the objects; those that cannot be converted are dropped.
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
