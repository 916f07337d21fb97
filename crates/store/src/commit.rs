//! The one writer: checks conditions, assigns revisions, makes durable, publishes.

use std::sync::Arc;

use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

use crate::disk::Disk;
use crate::record::Record;
use crate::state::{State, Trimmed};
use crate::{Entry, Error, Expect, Operation, Options, Write};

/// The answer to one write.
pub(crate) type Answer = Result<Arc<Entry>, Error>;

/// A write and where its answer goes.
pub(crate) struct Job {
    pub write: Write,
    pub answer: oneshot::Sender<Answer>,
}

/// What the writes of a group leave in a collection under a key, before it is durable.
type Pending = FxHashMap<(Arc<str>, Arc<str>), Option<Arc<Entry>>>;

/// Longest collection name or key: the record has 16 bits for it.
const MAX_NAME: usize = u16::MAX as usize;

pub(crate) struct Committer {
    state: Arc<RwLock<State>>,
    disk: Option<Disk>,
    options: Options,
    /// Left the windows, not yet forgotten on disk: goes with the next write.
    trimmed: Trimmed,
}

impl Committer {
    pub fn new(state: Arc<RwLock<State>>, disk: Option<Disk>, options: Options) -> Self {
        Committer {
            state,
            disk,
            options,
            trimmed: Trimmed::default(),
        }
    }

    /// Commits a group of writes with one sync; one answer per write, in order.
    pub fn commit(&mut self, writes: Vec<Write>) -> Vec<Answer> {
        let mut records = Vec::with_capacity(writes.len());
        let mut answers = self.decide(writes, &mut records);
        if records.is_empty() {
            return answers;
        }
        if let Some(disk) = &mut self.disk {
            if let Err(error) = disk.append(&records, &self.trimmed) {
                tracing::error!(%error, writes = records.len(), "commit failed");
                // Also the refusals: they may rest on writes of this group that did not happen.
                answers.fill(Err(error));
                return answers;
            }
            self.trimmed = Trimmed::default();
        }
        self.publish(records);
        answers
    }

    /// What each write of the group leads to, given the ones before it.
    fn decide(&self, writes: Vec<Write>, records: &mut Vec<Record>) -> Vec<Answer> {
        let state = self.state.read();
        let mut revision = state.revision;
        let mut pending = Pending::default();
        writes
            .into_iter()
            .map(|write| {
                let Write {
                    collection,
                    key,
                    expect,
                    operation,
                } = write;
                if collection.len() > MAX_NAME || key.len() > MAX_NAME {
                    return Err(Error::Write("the key is too long".into()));
                }
                let place = (collection, key);
                let current = match pending.get(&place) {
                    Some(entry) => entry.as_ref(),
                    None => state.get(&place.0, &place.1),
                };
                match (expect, current) {
                    (Expect::Absent, Some(entry)) => return Err(Error::Exists(entry.clone())),
                    (Expect::Revision(_), None) => return Err(Error::NotFound),
                    (Expect::Revision(expected), Some(entry)) if entry.revision != expected => {
                        return Err(Error::Conflict(entry.clone()));
                    }
                    _ => {}
                }
                revision += 1;
                let (draft, deleted) = match operation {
                    Operation::Put(draft) => (draft, false),
                    Operation::Delete(draft) => (draft, true),
                };
                let entry = Arc::new(Entry::new(
                    place.1.clone(),
                    revision,
                    draft.complete(revision),
                ));
                records.push(Record {
                    collection: place.0.clone(),
                    entry: entry.clone(),
                    deleted,
                });
                pending.insert(place, (!deleted).then(|| entry.clone()));
                Ok(entry)
            })
            .collect()
    }

    /// Makes durable records visible and wakes the watchers.
    fn publish(&mut self, records: Vec<Record>) {
        let mut touched: Vec<Arc<str>> = Vec::new();
        let mut state = self.state.write();
        for record in records {
            state.apply(&record.collection, record.entry, record.deleted);
            if !touched.contains(&record.collection) {
                touched.push(record.collection);
            }
        }
        for name in &touched {
            self.trimmed.append(state.trim(name, &self.options));
        }
        if self.disk.is_none() {
            self.trimmed = Trimmed::default();
        }
        let state = parking_lot::RwLockWriteGuard::downgrade(state);
        for name in &touched {
            state.wake(name);
        }
    }

    /// Forgets on disk what left the windows; for an orderly end.
    pub fn flush(&mut self) {
        if let Some(disk) = &mut self.disk
            && !self.trimmed.is_empty()
            && disk.append(&[], &self.trimmed).is_ok()
        {
            self.trimmed = Trimmed::default();
        }
    }
}
