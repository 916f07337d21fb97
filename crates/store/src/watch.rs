//! Watches of a collection.

use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::watch;

use crate::state::State;
use crate::{Error, Event};

/// The maximum number of changes that one call returns, which bounds the time under the lock.
const BATCH: usize = 512;

/// A cursor over the changes of a collection.
///
/// There is no queue per watcher: all read the shared window, so a slow watcher costs nothing until its position has
/// left the window; then it gets [`Error::Expired`].
pub struct Watcher {
    state: Arc<RwLock<State>>,
    collection: Arc<str>,
    prefix: String,
    position: u64,
    changed: watch::Receiver<u64>,
}

impl Watcher {
    pub(crate) fn new(
        state: Arc<RwLock<State>>,
        collection: Arc<str>,
        prefix: String,
        from: u64,
        changed: watch::Receiver<u64>,
    ) -> Self {
        Watcher {
            state,
            collection,
            prefix,
            position: from,
            changed,
        }
    }

    /// All changes up to this revision have been returned.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Events since the last call, without waiting; empty if there are none.
    ///
    /// # Errors
    /// [`Error::Expired`] if the watcher fell behind the window.
    pub fn poll_changes(&mut self) -> Result<Vec<Arc<Event>>, Error> {
        let state = self.state.read();
        let Some(collection) = state.collections.get(&self.collection) else {
            return Ok(Vec::new());
        };
        if self.position < collection.floor {
            return Err(Error::Expired {
                requested: self.position,
                oldest: collection.floor,
            });
        }
        let first = collection.position_after(self.position);
        let until = (first + BATCH).min(collection.window.len());
        let events: Vec<_> = collection
            .window
            .range(first..until)
            .filter(|event| event.entry.key.starts_with(&self.prefix))
            .cloned()
            .collect();
        self.position = if until == collection.window.len() {
            state.revision.max(self.position)
        } else {
            collection.window[until - 1].revision()
        };
        Ok(events)
    }

    /// The next changes; waits until there are some.
    ///
    /// # Errors
    /// [`Error::Expired`] if the watcher fell behind the window, [`Error::Closed`] if the store is closed.
    pub async fn changes(&mut self) -> Result<Vec<Arc<Event>>, Error> {
        loop {
            // Marks the current state as seen before reading, so that a change in between is not missed.
            let newest = *self.changed.borrow_and_update();
            let before = self.position;
            let events = self.poll_changes()?;
            if !events.is_empty() {
                return Ok(events);
            }
            if self.position < newest && self.position > before {
                continue; // A full batch of changes that are not ours; there are more.
            }
            self.changed.changed().await.map_err(|_| Error::Closed)?;
        }
    }
}
