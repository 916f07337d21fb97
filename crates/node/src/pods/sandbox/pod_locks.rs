//! A lock for each pod, so that its worker and the removal of deleted pods do not change its network at the same time.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// Locks by UID. Those that nothing waits for are removed.
#[derive(Default)]
pub(super) struct PodLocks(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

/// The lock of one pod, held until it is dropped.
pub(super) struct PodLock<'a> {
    locks: &'a PodLocks,
    uid: String,
    held: Option<OwnedMutexGuard<()>>,
}

impl PodLocks {
    pub(super) async fn take(&self, uid: &str) -> PodLock<'_> {
        let lock = Arc::clone(self.0.lock().entry(uid.to_owned()).or_default());
        // Before it waits: a future that is dropped while it waits removes its entry as well.
        let mut guard = PodLock {
            locks: self,
            uid: uid.to_owned(),
            held: None,
        };
        guard.held = Some(lock.lock_owned().await);
        guard
    }
}

impl Drop for PodLock<'_> {
    fn drop(&mut self) {
        self.held = None;
        let mut all = self.locks.0.lock();
        if all
            .get(&self.uid)
            .is_some_and(|lock| Arc::strong_count(lock) == 1)
        {
            all.remove(&self.uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn one_task_has_the_lock_of_a_pod_and_unused_locks_are_removed() {
        let locks = PodLocks::default();
        let first = locks.take("a").await;
        let mut second = Box::pin(locks.take("a"));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(locks.take("b").now_or_never().is_some());
        drop(first);
        let held = second.await;
        let mut third = Box::pin(locks.take("a"));
        assert!(third.as_mut().now_or_never().is_none());
        drop(held);
        // It never had the lock.
        drop(third);
        assert!(locks.0.lock().is_empty());
    }
}
