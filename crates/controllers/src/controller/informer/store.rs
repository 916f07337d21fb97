//! The store of an informer: objects by key, and indexes that are kept in step with them.
//!
//! Each key is stored once and shared by all indexes, of which pods have six.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::controller::members::{Members, SharedKey};

/// Computes the values under which an index has an object.
pub(super) type Extract<K> = fn(&K) -> Vec<String>;

/// The keys of the objects by values that are computed from them.
pub(super) struct Index<K> {
    pub(super) name: &'static str,
    extract: Extract<K>,
    keys: FxHashMap<Box<str>, Members>,
}

/// The objects of an informer with their indexes.
pub(super) struct State<K> {
    pub(super) objects: FxHashMap<SharedKey, Arc<K>>,
    pub(super) indexes: Vec<Index<K>>,
    /// The highest resourceVersion that the watch has delivered.
    pub(super) seen: u64,
    /// UIDs of objects that we deleted and whose deletion the watch has not delivered yet.
    pub(super) gone: FxHashSet<String>,
}

impl<K> State<K> {
    pub(super) fn insert(&mut self, key: &str, obj: Arc<K>) -> Option<Arc<K>> {
        let known = self.objects.get_key_value(key);
        let key = known.map_or_else(|| key.into(), |(known, _)| known.clone());
        let old = self.objects.insert(key.clone(), obj.clone());
        for index in &mut self.indexes {
            match &old {
                Some(old) => index.replace(&key, old, &obj),
                None => index.add(&key, &obj),
            }
        }
        old
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<Arc<K>> {
        let old = self.objects.remove(key)?;
        for index in &mut self.indexes {
            index.remove(key, &(index.extract)(&old));
        }
        Some(old)
    }
}

impl<K> Index<K> {
    pub(super) fn new(name: &'static str, extract: Extract<K>) -> Self {
        Self {
            name,
            extract,
            keys: FxHashMap::default(),
        }
    }

    /// The keys of the objects with a value.
    pub(super) fn of(&self, value: &str) -> impl Iterator<Item = &SharedKey> {
        self.keys.get(value).into_iter().flat_map(Members::iter)
    }

    pub(super) fn add(&mut self, key: &SharedKey, obj: &K) {
        let values = (self.extract)(obj);
        self.add_values(key, values);
    }

    /// Most changes of an object do not change what it is found by.
    fn replace(&mut self, key: &SharedKey, old: &K, new: &K) {
        let (before, after) = ((self.extract)(old), (self.extract)(new));
        if before != after {
            self.remove(key, &before);
            self.add_values(key, after);
        }
    }

    fn add_values(&mut self, key: &SharedKey, values: Vec<String>) {
        for value in values {
            match self.keys.get_mut(value.as_str()) {
                Some(members) => members.add(key),
                None => {
                    let value = value.into_boxed_str();
                    self.keys.insert(value, Members::new(key));
                }
            }
        }
    }

    fn remove(&mut self, key: &str, values: &[String]) {
        for value in values {
            if let Some(members) = self.keys.get_mut(value.as_str())
                && members.remove(key)
            {
                self.keys.remove(value.as_str());
            }
        }
    }
}
