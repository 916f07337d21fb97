//! The current state and the window of recent changes, in memory.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use tokio::sync::watch;

use crate::{Entry, Error, Event, EventKind, ListOptions, Options, Page};

/// The number of newest changes that keep their encodings. Watchers that keep up use these encodings; those that are
/// further behind encode the events themselves. So do those that come after the next two runs of [`State::age`].
pub(crate) const SHARED_ENCODINGS: usize = 1024;

/// The number of changes of a collection that are kept regardless of their age, for watchers that reconnect.
pub(crate) const KEPT: usize = 512;

/// The minimum age of changes before they are removed from a window that is not full, as in kube-apiserver's watch
/// cache.
pub(crate) const FRESH: Duration = Duration::from_secs(75);

/// One collection: its objects, and recent changes.
pub(crate) struct Collection {
    pub entries: BTreeMap<Arc<str>, Arc<Entry>>,
    /// The sum of the sizes of the values.
    pub bytes: usize,
    /// Recent changes, oldest first.
    pub window: VecDeque<Arc<Event>>,
    window_bytes: usize,
    /// The newest revision that has left the window: older states are not available.
    pub floor: u64,
    /// The encodings of changes up to this revision were forgotten because of their age.
    unencoded: u64,
    /// Wakes the watchers of this collection.
    pub changed: watch::Sender<u64>,
}

impl Collection {
    fn new(floor: u64) -> Self {
        Collection {
            entries: BTreeMap::new(),
            bytes: 0,
            window: VecDeque::new(),
            window_bytes: 0,
            floor,
            unencoded: 0,
            changed: watch::Sender::new(0),
        }
    }

    /// Removes the oldest changes from the window while `is_excess` says so, but none of the newest `kept`. No watch can
    /// start before them any longer: the new floor is noted in `trimmed`.
    fn remove_oldest(
        &mut self,
        name: &Arc<str>,
        kept: usize,
        trimmed: &mut Trimmed,
        is_excess: impl Fn(&Self) -> bool,
    ) -> Vec<Arc<Event>> {
        let mut removed = Vec::new();
        while self.window.len() > kept
            && is_excess(self)
            && let Some(event) = self.window.pop_front()
        {
            self.window_bytes -= event.entry.value.len();
            self.floor = event.revision();
            trimmed.forget(&event);
            removed.push(event);
        }
        if !removed.is_empty() {
            trimmed.floors.push((name.clone(), self.floor));
        }
        removed
    }

    /// The changes up to `revision` that may have encodings which watchers no longer need.
    fn old_encodings(&mut self, revision: u64) -> impl Iterator<Item = Arc<Event>> {
        let shared = self.window.len().saturating_sub(SHARED_ENCODINGS);
        let from = self.position_after(self.unencoded).max(shared);
        let to = self.position_after(revision).max(from);
        self.unencoded = self.unencoded.max(revision);
        self.window.range(from..to).cloned()
    }

    /// The changes after `revision`, as an index into the window.
    pub fn position_after(&self, revision: u64) -> usize {
        self.window
            .partition_point(|event| event.revision() <= revision)
    }
}

/// All collections at one revision.
#[derive(Default)]
pub(crate) struct State {
    pub revision: u64,
    pub collections: FxHashMap<Arc<str>, Collection>,
    /// The revisions at the most recent runs of [`State::age`], oldest first.
    moments: VecDeque<(Instant, u64)>,
}

/// What [`State::age`] found to be old.
#[derive(Default)]
pub(crate) struct Aged {
    /// Changes that left the windows, to be dropped outside of the lock.
    pub removed: Vec<Arc<Event>>,
    /// Changes that watchers which keep up have seen: their encodings are to be forgotten, outside of the lock.
    pub seen: Vec<Arc<Event>>,
    /// The history that can be removed from disk.
    pub trimmed: Trimmed,
}

/// The history that left the windows and can be removed from disk.
#[derive(Debug, Default)]
pub(crate) struct Trimmed {
    pub revisions: Vec<u64>,
    pub floors: Vec<(Arc<str>, u64)>,
}

impl Trimmed {
    pub fn is_empty(&self) -> bool {
        self.revisions.is_empty() && self.floors.is_empty()
    }

    /// Records that a change, and with it the version that it replaced, has left a window.
    fn forget(&mut self, event: &Event) {
        if let Some(previous) = &event.previous {
            self.revisions.push(previous.revision);
        }
        if event.kind == EventKind::Deleted {
            self.revisions.push(event.revision());
        }
    }

    pub fn append(&mut self, mut other: Trimmed) {
        self.revisions.append(&mut other.revisions);
        self.floors.append(&mut other.floors);
    }
}

impl State {
    pub fn collection_mut(&mut self, name: &Arc<str>) -> &mut Collection {
        self.collections
            .entry(name.clone())
            .or_insert_with(|| Collection::new(0))
    }

    pub fn get(&self, collection: &str, key: &str) -> Option<&Arc<Entry>> {
        self.collections.get(collection)?.entries.get(key)
    }

    /// Makes a durable change visible. Watchers are woken by [`State::wake`].
    pub fn apply(&mut self, collection: &Arc<str>, entry: Arc<Entry>, deleted: bool) {
        self.revision = self.revision.max(entry.revision);
        let collection = self.collection_mut(collection);
        let previous = if deleted {
            collection.entries.remove(&entry.key)
        } else {
            collection.bytes += entry.value.len();
            collection.entries.insert(entry.key.clone(), entry.clone())
        };
        collection.bytes -= previous.as_ref().map_or(0, |entry| entry.value.len());
        if entry.revision <= collection.floor {
            return; // Replayed from disk, and older than the window.
        }
        let kind = match (deleted, &previous) {
            (true, _) => EventKind::Deleted,
            (false, None) => EventKind::Added,
            (false, Some(_)) => EventKind::Modified,
        };
        collection.window_bytes += entry.value.len();
        collection
            .window
            .push_back(Arc::new(Event::new(kind, entry, previous)));
        let newest = collection.window.len();
        if let Some(old) = newest.checked_sub(SHARED_ENCODINGS + 1) {
            collection.window[old].forget_encodings();
        }
    }

    /// Shortens the window of a collection that has outgrown its limits.
    pub fn trim(&mut self, name: &Arc<str>, options: &Options) -> Trimmed {
        let mut trimmed = Trimmed::default();
        let Some(collection) = self.collections.get_mut(name) else {
            return trimmed;
        };
        // An eighth of slack, so that trimming happens now and then and not on every write.
        let over = |len: usize, limit: usize| len > limit + limit / 8;
        if !over(collection.window.len(), options.window_events)
            && !over(collection.window_bytes, options.window_bytes)
        {
            return trimmed;
        }
        collection.remove_oldest(name, 1, &mut trimmed, |collection| {
            collection.window.len() > options.window_events
                || collection.window_bytes > options.window_bytes
        });
        trimmed
    }

    /// Removes changes that are no longer recent from the windows, so that memory used by a burst is released, and finds
    /// changes from before the previous run, whose encodings only double their memory.
    pub fn age(&mut self, now: Instant) -> Aged {
        let mut aged = Aged::default();
        let previous = self.moments.back().map_or(0, |(_, revision)| *revision);
        self.moments.push_back((now, self.revision));
        let mut old = 0;
        while let Some((moment, revision)) = self.moments.front()
            && now.saturating_duration_since(*moment) >= FRESH
        {
            old = *revision;
            self.moments.pop_front();
        }
        for (name, collection) in &mut self.collections {
            let removed = collection.remove_oldest(name, KEPT, &mut aged.trimmed, |collection| {
                let oldest = collection.window.front();
                oldest.is_some_and(|event| event.revision() <= old)
            });
            if !removed.is_empty() {
                collection.window.shrink_to(KEPT);
                aged.removed.extend(removed);
            }
            aged.seen.extend(collection.old_encodings(previous));
        }
        aged
    }

    /// Notifies the watchers of a collection about changes.
    pub fn wake(&self, name: &str) {
        if let Some(collection) = self.collections.get(name) {
            collection.changed.send_replace(self.revision);
        }
    }

    /// See [`crate::Backend::list`].
    pub fn list(&self, name: &str, options: ListOptions<'_>) -> Result<Page, Error> {
        let at = options.at.unwrap_or(self.revision);
        if at > self.revision {
            return Err(Error::Future {
                requested: at,
                current: self.revision,
            });
        }
        let Some(collection) = self.collections.get(name) else {
            return Ok(Page {
                entries: Vec::new(),
                revision: at,
                remaining: 0,
            });
        };
        if at < collection.floor {
            return Err(Error::Expired {
                requested: at,
                oldest: collection.floor,
            });
        }
        let start = match options.after {
            Some(after) if after >= options.prefix => Bound::Excluded(after),
            _ => Bound::Included(options.prefix),
        };
        let current = collection
            .entries
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(options.prefix));
        let limit = if options.limit == 0 {
            usize::MAX
        } else {
            options.limit
        };
        if at == self.revision || collection.position_after(at) == collection.window.len() {
            let mut current = current;
            let entries: Vec<_> = current
                .by_ref()
                .take(limit)
                .map(|(_, entry)| entry.clone())
                .collect();
            let remaining = if entries.len() < limit {
                0
            } else {
                current.count()
            };
            return Ok(Page {
                entries,
                revision: at,
                remaining,
            });
        }
        // An older state: revert the changes since, newest first.
        let mut entries: BTreeMap<Arc<str>, Arc<Entry>> = current
            .map(|(key, entry)| (key.clone(), entry.clone()))
            .collect();
        let wanted = |key: &str| {
            key.starts_with(options.prefix) && options.after.is_none_or(|after| key > after)
        };
        for event in collection
            .window
            .range(collection.position_after(at)..)
            .rev()
        {
            if !wanted(&event.entry.key) {
                continue;
            }
            match &event.previous {
                Some(previous) => entries.insert(previous.key.clone(), previous.clone()),
                None => entries.remove(&event.entry.key),
            };
        }
        let total = entries.len();
        let entries: Vec<_> = entries.into_values().take(limit).collect();
        let remaining = total - entries.len();
        Ok(Page {
            entries,
            revision: at,
            remaining,
        })
    }
}
