//! Removal of sandboxes and containers, apart from the detection of exits: a removal may take minutes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use allot_protos::cri_v1 as v1;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Inner;

/// Maximum number of concurrent removals.
const TOGETHER: usize = 8;
/// Delay before a failed removal is tried again.
const AGAIN: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Removal {
    Container(String),
    /// The sandbox including its containers.
    Sandbox(String),
}

/// Sandboxes and containers that are to be removed, each once.
#[derive(Debug, Default)]
pub(super) struct Removals {
    /// When each is due; `None` while it is being removed.
    due: Mutex<HashMap<Removal, Option<Instant>>>,
    news: Notify,
}

impl Removals {
    pub(super) fn add(&self, removal: Removal) {
        let now = Some(Instant::now());
        self.due.lock().entry(removal).or_insert(now);
        self.news.notify_one();
    }

    pub(super) fn contains(&self, removal: &Removal) -> bool {
        self.due.lock().contains_key(removal)
    }

    /// The removal that has been due for the longest time, or when the next one will be.
    fn next(&self) -> Result<Removal, Option<Instant>> {
        let mut due = self.due.lock();
        let waiting = due.iter_mut();
        let waiting = waiting.filter_map(|(removal, at)| Some(((*at)?, removal, at)));
        let Some((at, removal, state)) = waiting.min_by_key(|(at, ..)| *at) else {
            return Err(None);
        };
        if at > Instant::now() {
            return Err(Some(at));
        }
        *state = None;
        Ok(removal.clone())
    }

    fn ended(&self, removal: &Removal, done: bool) {
        let mut due = self.due.lock();
        match done {
            true => drop(due.remove(removal)),
            false => drop(due.insert(removal.clone(), Some(Instant::now() + AGAIN))),
        }
    }
}

/// Carries out removals until it is dropped. Those that fail are tried again after the others.
pub(super) async fn carry_out(inner: Arc<Inner>) {
    let mut running = JoinSet::new();
    loop {
        inner.reached().await;
        let mut later = None;
        while running.len() < TOGETHER {
            match inner.removals.next() {
                Ok(removal) => {
                    let inner = Arc::clone(&inner);
                    running.spawn(async move { inner.carry_out(removal).await });
                }
                Err(at) => {
                    later = at;
                    break;
                }
            }
        }
        tokio::select! {
            Some(_) = running.join_next() => {}
            () = inner.removals.news.notified(), if running.len() < TOGETHER => {}
            () = tokio::time::sleep_until(later.unwrap_or_else(Instant::now)), if later.is_some() => {}
        }
    }
}

impl Inner {
    async fn carry_out(&self, removal: Removal) {
        let done = match &removal {
            Removal::Container(id) => {
                let container_id = id.clone();
                let request = v1::RemoveContainerRequest { container_id };
                self.calls.remove_container(request).await.map(drop)
            }
            Removal::Sandbox(id) => self.remove_sandbox(id).await,
        };
        let done = match done {
            Err(failure) if !failure.is_missing() => {
                tracing::warn!(?removal, %failure, "was not removed yet");
                false
            }
            _ => true,
        };
        self.removals.ended(&removal, done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn removals_that_fail_wait_for_the_others() {
        let removals = Removals::default();
        let container = |id: &str| Removal::Container(id.to_owned());
        for id in ["a", "b", "a"] {
            removals.add(container(id));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(removals.next(), Ok(container("a")));
        // One that is being removed is not removed twice.
        removals.add(container("a"));
        assert_eq!(removals.next(), Ok(container("b")));
        assert_eq!(removals.next(), Err(None));
        removals.ended(&container("a"), false);
        removals.ended(&container("b"), true);
        let at = Instant::now() + AGAIN;
        assert_eq!(removals.next(), Err(Some(at)));
        removals.add(container("c"));
        assert_eq!(removals.next(), Ok(container("c")));
        tokio::time::advance(AGAIN).await;
        assert_eq!(removals.next(), Ok(container("a")));
        assert!(removals.contains(&container("a")) && !removals.contains(&container("b")));
    }
}
