//! One at a time works on the network of a pod: a worker, or what removes the remains of deleted pods.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// Locks by UID. Those that nothing waits for are removed.
#[derive(Default)]
pub(super) struct Turns(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

/// Others wait until it is dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    uid: String,
    held: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    pub(super) async fn take(&self, uid: &str) -> Turn<'_> {
        let lock = Arc::clone(self.0.lock().entry(uid.to_owned()).or_default());
        // Before it waits: a future that is dropped while it waits removes its entry as well.
        let mut turn = Turn {
            turns: self,
            uid: uid.to_owned(),
            held: None,
        };
        turn.held = Some(lock.lock_owned().await);
        turn
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.held = None;
        let mut all = self.turns.0.lock();
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
    async fn one_at_a_time_has_its_turn_and_nothing_is_left() {
        let turns = Turns::default();
        let first = turns.take("a").await;
        let mut second = Box::pin(turns.take("a"));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(turns.take("b").now_or_never().is_some());
        drop(first);
        let held = second.await;
        let mut third = Box::pin(turns.take("a"));
        assert!(third.as_mut().now_or_never().is_none());
        drop(held);
        // It never had its turn.
        drop(third);
        assert!(turns.0.lock().is_empty());
    }
}
