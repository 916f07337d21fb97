//! A mutex for each key, as `k8s.io/utils/keymutex`: operations on one object follow each other, those on different
//! objects run at the same time.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// With more keys than this, those that nothing holds or awaits are removed.
const MOST_UNUSED: usize = 1024;

/// Mutexes by key. There is no limit for those in use.
#[derive(Debug)]
pub struct KeyMutex<K>(Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>);

impl<K> Default for KeyMutex<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash + Ord> KeyMutex<K> {
    /// Locks all of the keys until the result is dropped. Two calls cannot deadlock: each locks in the order of the keys.
    pub async fn lock(&self, keys: BTreeSet<K>) -> Vec<OwnedMutexGuard<()>> {
        let mut guards = Vec::with_capacity(keys.len());
        for key in keys {
            let mutex = Arc::clone(self.0.lock().entry(key).or_default());
            guards.push(mutex.lock_owned().await);
        }
        self.forget_unused();
        guards
    }

    /// Locks one more key while others may be held; `None` if another call holds or awaits it.
    pub fn try_lock(&self, key: K) -> Option<OwnedMutexGuard<()>> {
        let mutex = Arc::clone(self.0.lock().entry(key).or_default());
        let guard = mutex.try_lock_owned().ok();
        self.forget_unused();
        guard
    }

    fn forget_unused(&self) {
        let mut mutexes = self.0.lock();
        if mutexes.len() > MOST_UNUSED {
            mutexes.retain(|_, mutex| Arc::strong_count(mutex) > 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::poll;

    use super::*;

    #[tokio::test]
    async fn only_one_operation_holds_a_key() {
        let locks = KeyMutex::default();
        let first = locks.lock([1, 2].into()).await;
        let mut second = pin!(locks.lock([2, 3].into()));
        assert!(poll!(&mut second).is_pending());
        let other = locks.lock([3].into()).await;
        drop(first);
        assert!(poll!(&mut second).is_pending());
        drop(other);
        assert_eq!(second.await.len(), 2);
    }

    #[tokio::test]
    async fn a_key_that_is_held_is_not_waited_for() {
        let locks = KeyMutex::default();
        let held = locks.lock([1].into()).await;
        assert!(locks.try_lock(1).is_none());
        let other = locks.try_lock(2);
        assert!(other.is_some() && locks.try_lock(2).is_none());
        drop((held, other));
        assert_eq!(locks.lock([1, 2].into()).await.len(), 2);
    }

    #[tokio::test]
    async fn keys_that_are_not_in_use_are_forgotten() {
        let locks = KeyMutex::default();
        let held = locks.lock([0].into()).await;
        for key in 1..=MOST_UNUSED {
            drop(locks.lock([key].into()).await);
        }
        assert_eq!(locks.0.lock().len(), 2);
        drop(held);
    }
}
