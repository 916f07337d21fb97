//! Shared informers: one list and watch per kind, an in-memory cache with indexes, and handlers that receive every
//! change in order.
//!
//! Invariant: handlers see the same history as the store; when a handler runs, the store already
//! holds the new state. Own writes may be fed back with [`Informer::assume`], so that a controller
//! never acts twice because its cache lags behind its writes (this replaces "expectations").

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use allot_reflector::{Collection, Observed, Readable, reflect};
use kube::api::Api;
use kube::{Resource, ResourceExt};
use parking_lot::{Mutex, RwLock};
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::members::SharedKey;
use super::slim;

mod store;
#[cfg(test)]
mod tests;

use store::{Extract, Index, State};

/// `namespace/name`, or `name` for cluster-scoped objects.
pub type Key = String;

/// The key of an object in a store.
pub fn key_of<K: Resource>(obj: &K) -> Key {
    let meta = obj.meta();
    key(
        meta.namespace.as_deref(),
        meta.name.as_deref().unwrap_or_default(),
    )
}

/// Joins a namespace and a name to a key.
pub fn key(namespace: Option<&str>, name: &str) -> Key {
    match namespace {
        Some(ns) if !ns.is_empty() => format!("{ns}/{name}"),
        _ => name.to_owned(),
    }
}

/// Splits a key into namespace (empty for cluster-scoped objects) and name.
pub fn split_key(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}

/// One change of the store, as handlers see it.
#[derive(Debug)]
pub enum Change<K> {
    /// The object is new in the store.
    Added(Arc<K>),
    /// The object changed; old and new state.
    Updated(Arc<K>, Arc<K>),
    /// The object was deleted; its last known state.
    Deleted(Arc<K>),
}

impl<K> Change<K> {
    /// The newest known state.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Added(o) | Self::Updated(_, o) | Self::Deleted(o) => o,
        }
    }

    /// The state before, if there was one.
    pub fn old(&self) -> Option<&Arc<K>> {
        match self {
            Self::Updated(o, _) => Some(o),
            Self::Added(_) | Self::Deleted(_) => None,
        }
    }

    /// Whether the change is a deletion; [`Change::object`] is the last state then.
    pub fn is_delete(&self) -> bool {
        matches!(self, Self::Deleted(_))
    }
}

/// What an object type needs so that it can be cached.
pub trait Cached:
    Resource<DynamicType: Clone + Debug + Eq + Hash + Send + Sync + 'static>
    + Clone
    + Debug
    + Readable
    + Send
    + Sync
    + 'static
{
}

impl<K> Cached for K where
    K: Resource<DynamicType: Clone + Debug + Eq + Hash + Send + Sync + 'static>
        + Clone
        + Debug
        + Readable
        + Send
        + Sync
        + 'static
{
}

type Handler<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;
struct Inner<K> {
    state: RwLock<State<K>>,
    handlers: RwLock<Vec<Handler<K>>>,
    /// Serialises store change + handlers, so that handlers see changes in order.
    order: Mutex<()>,
    synced: watch::Sender<bool>,
}

/// A cache of all objects of one kind; cheap to clone.
pub struct Informer<K>(Arc<Inner<K>>);

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Cached> Default for Informer<K> {
    fn default() -> Self {
        Self::new()
    }
}

fn version<K: Resource>(obj: &K) -> u64 {
    obj.meta()
        .resource_version
        .as_deref()
        .and_then(|v| v.parse().ok())
        .unwrap_or(0)
}

impl<K: Cached> Informer<K> {
    /// An empty cache that is filled by [`Informer::run`] (or by hand in tests).
    pub fn new() -> Self {
        Self(Arc::new(Inner {
            state: RwLock::new(State {
                objects: FxHashMap::default(),
                indexes: Vec::new(),
                seen: 0,
                gone: FxHashSet::default(),
            }),
            handlers: RwLock::new(Vec::new()),
            order: Mutex::new(()),
            synced: watch::Sender::new(false),
        }))
    }

    /// Adds an index; a second one of the same name is ignored. Call before the informer runs.
    pub fn index(&self, name: &'static str, extract: Extract<K>) -> &Self {
        let mut state = self.0.state.write();
        if state.indexes.iter().all(|i| i.name != name) {
            let mut index = Index::new(name, extract);
            for (key, obj) in &state.objects {
                index.add(key, obj);
            }
            state.indexes.push(index);
        }
        self
    }

    /// Adds a handler. Call before the informer runs: existing objects are not passed to it.
    pub fn on(&self, handler: impl Fn(&Change<K>) + Send + Sync + 'static) -> &Self {
        self.0.handlers.write().push(Box::new(handler));
        self
    }

    /// Like [`Informer::on`], at any time: the handler first receives the existing objects.
    pub fn follow(&self, handler: impl Fn(&Change<K>) + Send + Sync + 'static) {
        let _order = self.0.order.lock();
        for object in self.list() {
            handler(&Change::Added(object));
        }
        self.0.handlers.write().push(Box::new(handler));
    }

    /// Marks the first content as complete; for caches that are filled by hand.
    pub fn set_synced(&self) {
        self.0.synced.send_replace(true);
    }

    /// The object of that key.
    pub fn get(&self, key: &str) -> Option<Arc<K>> {
        self.0.state.read().objects.get(key).cloned()
    }

    /// The object of that namespace and name.
    pub fn find(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.get(&key(Some(namespace), name))
    }

    /// Every object, in no particular order.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.0.state.read().objects.values().cloned().collect()
    }

    /// The number of cached objects.
    pub fn len(&self) -> usize {
        self.0.state.read().objects.len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The objects with that value in that index; none if there is no such index.
    pub fn by_index(&self, name: &str, value: &str) -> Vec<Arc<K>> {
        let state = self.0.state.read();
        let Some(index) = state.indexes.iter().find(|i| i.name == name) else {
            return Vec::new();
        };
        let mut found: Vec<(&SharedKey, Arc<K>)> = index
            .of(value)
            .filter_map(|k| state.objects.get(k).map(|o| (k, o.clone())))
            .collect();
        found.sort_by(|a, b| a.0.cmp(b.0));
        found.into_iter().map(|(_, o)| o).collect()
    }

    /// Whether the first list is complete.
    pub fn is_synced(&self) -> bool {
        *self.0.synced.borrow()
    }

    /// Waits until the first list is complete.
    pub async fn wait_synced(&self) {
        // The sender lives in `self`, so the channel cannot close.
        let _ = self.0.synced.subscribe().wait_for(|s| *s).await;
    }

    /// Stores the object that a write returned, if it is newer than the watched one. Handlers are called as if the
    /// watch had delivered it.
    pub fn assume(&self, obj: K) {
        let _order = self.0.order.lock();
        let key = key_of(&obj);
        let new = version(&obj);
        {
            let state = self.0.state.read();
            let current = state.objects.get(key.as_str()).map_or(0, |o| version(&**o));
            if new == 0 || new <= state.seen || new <= current {
                return;
            }
        }
        self.store(key, Arc::new(obj));
    }

    /// Takes the knowledge that an object does not exist any longer into the store. What the watch
    /// still delivers of it is ignored.
    pub fn assume_gone(&self, obj: &K) {
        let _order = self.0.order.lock();
        let key = key_of(obj);
        let uid = obj.meta().uid.clone().unwrap_or_default();
        let removed = {
            let mut state = self.0.state.write();
            let known = state
                .objects
                .get(key.as_str())
                .is_some_and(|o| o.meta().uid == obj.meta().uid);
            if !known {
                return;
            }
            state.gone.insert(uid);
            state.remove(&key)
        };
        if let Some(removed) = removed {
            self.notify(&Change::Deleted(removed));
        }
    }

    /// One event of the watch. Public within the crate so that tests can play a history.
    pub(crate) fn apply(&self, obj: K) {
        let _order = self.0.order.lock();
        let key = key_of(&obj);
        let new = version(&obj);
        let stale = {
            let mut state = self.0.state.write();
            state.seen = state.seen.max(new);
            let uid = &obj.meta().uid;
            let gone = uid.as_ref().is_some_and(|uid| state.gone.contains(uid));
            gone || state
                .objects
                .get(key.as_str())
                .is_some_and(|o| o.meta().uid == *uid && new != 0 && version(&**o) >= new)
        };
        if !stale {
            self.store(key, Arc::new(obj));
        }
    }

    fn store(&self, key: Key, obj: Arc<K>) {
        let old = self.0.state.write().insert(&key, obj.clone());
        match old {
            None => self.notify(&Change::Added(obj)),
            Some(old) if old.meta().uid != obj.meta().uid => {
                // Deleted and created again while we were not looking.
                self.notify(&Change::Deleted(old));
                self.notify(&Change::Added(obj));
            }
            Some(old) => self.notify(&Change::Updated(old, obj)),
        }
    }

    pub(crate) fn delete(&self, obj: &K) {
        let _order = self.0.order.lock();
        let key = key_of(obj);
        let removed = {
            let mut state = self.0.state.write();
            state.seen = state.seen.max(version(obj));
            if let Some(uid) = &obj.meta().uid {
                state.gone.remove(uid);
            }
            let same = state
                .objects
                .get(key.as_str())
                .is_some_and(|o| o.meta().uid == obj.meta().uid);
            if same { state.remove(&key) } else { None }
        };
        if removed.is_some() {
            // The event carries the last state, which may be newer than ours.
            self.notify(&Change::Deleted(Arc::new(obj.clone())));
        }
    }

    /// Replaces the whole content after a list.
    pub(crate) fn replace(&self, objects: Vec<K>) {
        let listed: FxHashSet<Key> = objects.iter().map(key_of).collect();
        let gone: Vec<Arc<K>> = {
            let state = self.0.state.read();
            let gone = state
                .objects
                .iter()
                .filter(|(k, _)| !listed.contains(&***k));
            gone.map(|(_, object)| object.clone()).collect()
        };
        // A list is newer than any delete of ours that was answered before; objects with the
        // remembered UIDs are not in it.
        self.0.state.write().gone.clear();
        for obj in gone {
            self.delete(&obj);
        }
        for obj in objects {
            self.apply(obj);
        }
        self.set_synced();
    }

    fn notify(&self, change: &Change<K>) {
        for handler in self.0.handlers.read().iter() {
            handler(change);
        }
    }

    /// Lists and watches until `shutdown`; errors are retried with a growing delay.
    pub async fn run(self, api: Api<K>, shutdown: CancellationToken) {
        self.run_some(api, None, shutdown).await;
    }

    /// As [`Informer::run`], of the objects that a field selector takes in.
    pub async fn run_some(self, api: Api<K>, fields: Option<&str>, shutdown: CancellationToken) {
        let some = Collection::new(api, fields);
        reflect::<K, _>(some, slim::keep::<K>(), shutdown, |observed| {
            match observed {
                Observed::Listed { items, .. } => {
                    self.replace(items.into_iter().map(strip).collect());
                }
                Observed::Applied(obj) => self.apply(strip(*obj)),
                Observed::Deleted(obj) => self.delete(&strip(*obj)),
            }
            true
        })
        .await;
    }
}

/// Drops `managedFields` of objects that are kept as JSON as well, which [`slim::keep`] does not filter.
fn strip<K: Resource + 'static>(mut obj: K) -> K {
    obj.managed_fields_mut().clear();
    slim::tidy(&mut obj);
    obj
}
