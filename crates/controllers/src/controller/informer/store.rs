//! The store of an informer: objects by key, and indexes that are kept in step with them.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::Key;

/// Computes the values under which an index has an object.
pub(super) type Extract<K> = fn(&K) -> Vec<String>;

/// The keys of the objects by values that are computed from them.
pub(super) struct Index<K> {
    pub(super) name: &'static str,
    pub(super) extract: Extract<K>,
    pub(super) keys: FxHashMap<String, FxHashSet<Key>>,
}

/// The objects of an informer with their indexes.
pub(super) struct State<K> {
    pub(super) objects: FxHashMap<Key, Arc<K>>,
    pub(super) indexes: Vec<Index<K>>,
    /// The highest resourceVersion that the watch has delivered.
    pub(super) seen: u64,
    /// UIDs of objects that we deleted and whose deletion the watch has not delivered yet.
    pub(super) gone: FxHashSet<String>,
}

impl<K> State<K> {
    pub(super) fn insert(&mut self, key: &Key, obj: Arc<K>) -> Option<Arc<K>> {
        let old = self.objects.insert(key.clone(), obj.clone());
        for index in &mut self.indexes {
            if let Some(old) = &old {
                index.remove(key, old);
            }
            index.add(key, &obj);
        }
        old
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<Arc<K>> {
        let old = self.objects.remove(key)?;
        for index in &mut self.indexes {
            index.remove(key, &old);
        }
        Some(old)
    }
}

impl<K> Index<K> {
    pub(super) fn add(&mut self, key: &Key, obj: &K) {
        for value in (self.extract)(obj) {
            self.keys.entry(value).or_default().insert(key.clone());
        }
    }

    fn remove(&mut self, key: &Key, obj: &K) {
        for value in (self.extract)(obj) {
            if let Some(keys) = self.keys.get_mut(&value) {
                keys.remove(key);
                if keys.is_empty() {
                    self.keys.remove(&value);
                }
            }
        }
    }
}
