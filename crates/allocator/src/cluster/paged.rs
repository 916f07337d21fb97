//! Containers whose copies share what did not change.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use rustc_hash::{FxBuildHasher, FxHashMap};

const PAGE: usize = 64;
const SHARDS: usize = 256;

/// A growing array. A copy shares all pages; writing copies the one page that is touched.
#[derive(Debug)]
pub(crate) struct Paged<T> {
    pages: Vec<Arc<Vec<Arc<T>>>>,
    len: usize,
}

impl<T> Clone for Paged<T> {
    fn clone(&self) -> Self {
        Self {
            pages: self.pages.clone(),
            len: self.len,
        }
    }
}

impl<T> Default for Paged<T> {
    fn default() -> Self {
        Self {
            pages: Vec::new(),
            len: 0,
        }
    }
}

impl<T: Clone> Paged<T> {
    pub(crate) fn push(&mut self, value: T) -> usize {
        if self.len.is_multiple_of(PAGE) {
            self.pages.push(Arc::new(Vec::with_capacity(PAGE)));
        }
        let page = self.pages.last_mut().expect("a page was just made sure of");
        Arc::make_mut(page).push(Arc::new(value));
        self.len += 1;
        self.len - 1
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, index: usize) -> &T {
        &self.pages[index / PAGE][index % PAGE]
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> &mut T {
        Arc::make_mut(&mut Arc::make_mut(&mut self.pages[index / PAGE])[index % PAGE])
    }
}

/// Pools, each with how many of its slices are counted here; nearly always one.
#[derive(Debug, Clone)]
pub(crate) enum PoolCounts {
    One((u32, u32)),
    More(Arc<[(u32, u32)]>),
}

impl PoolCounts {
    pub(crate) fn new(list: Vec<(u32, u32)>) -> Self {
        match list[..] {
            [one] => Self::One(one),
            _ => Self::More(list.into()),
        }
    }

    pub(crate) fn as_slice(&self) -> &[(u32, u32)] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::More(list) => list,
        }
    }
}

/// A hash map. A copy shares all shards; writing copies the one shard that is touched.
#[derive(Debug)]
pub(crate) struct Sharded<K, V> {
    shards: Vec<Arc<FxHashMap<K, V>>>,
}

impl<K, V> Clone for Sharded<K, V> {
    fn clone(&self) -> Self {
        Self {
            shards: self.shards.clone(),
        }
    }
}

impl<K, V> Default for Sharded<K, V> {
    fn default() -> Self {
        let empty = Arc::new(FxHashMap::default());
        Self {
            shards: vec![empty; SHARDS],
        }
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Sharded<K, V> {
    fn shard<Q: Hash + ?Sized>(key: &Q) -> usize {
        // The map inside uses the low and the highest bits.
        (FxBuildHasher.hash_one(key) >> 24) as usize % SHARDS
    }

    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: std::borrow::Borrow<Q>,
    {
        self.shards[Self::shard(key)].get(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        Arc::make_mut(&mut self.shards[Self::shard(&key)]).insert(key, value)
    }

    pub(crate) fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: std::borrow::Borrow<Q>,
    {
        let shard = &mut self.shards[Self::shard(key)];
        if !shard.contains_key(key) {
            return None;
        }
        Arc::make_mut(shard).remove(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.shards.iter().flat_map(|shard| shard.iter())
    }
}
