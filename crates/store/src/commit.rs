//! The single writer: checks conditions, assigns revisions, writes durably, publishes.
//!
//! When the disk is full, only what frees space is written: see [`Committer::commit_short`].

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

use crate::disk::{Disk, Failure};
use crate::record::Record;
use crate::reserve::Reserve;
use crate::state::{State, Trimmed};
use crate::{Entry, Error, Expect, Operation, Options, Write};

/// The result of one write.
pub(crate) type Answer = Result<Arc<Entry>, Error>;

/// A write and the channel for its result.
pub(crate) struct Job {
    pub write: Write,
    pub answer: oneshot::Sender<Answer>,
}

/// The state of a key after the writes of a group, before it is durable.
type Pending = FxHashMap<(Arc<str>, Arc<str>), Option<Arc<Entry>>>;

/// Longest collection name or key: the record has 16 bits for it.
const MAX_NAME: usize = u16::MAX as usize;

/// The average overhead of a put on disk, in bytes.
const PUT_OVERHEAD: u64 = 4 << 10;
/// Space freed by deletes that other writes cannot use: it is for copies of changed pages.
const MARGIN: u64 = 32 << 10;

/// The disk was full and may still be.
struct Short {
    /// Bytes inside the file that deletes have freed since.
    freed: u64,
    /// The error for other writes.
    error: Error,
}

/// Whether a write frees space or fits into the freed space, from which its size is then subtracted.
fn takes(freed: &mut u64, write: &Write) -> bool {
    let Operation::Put(draft) = &write.operation else {
        return true;
    };
    let needed = draft.size() as u64 + PUT_OVERHEAD;
    let fits = *freed >= needed + MARGIN;
    if fits && !write.frees {
        *freed -= needed;
    }
    fits || write.frees
}

pub(crate) struct Committer {
    state: Arc<RwLock<State>>,
    disk: Option<Disk>,
    options: Options,
    /// Changes that left the windows but are still on disk: they are removed with the next write.
    trimmed: Trimmed,
    /// The same for changes that left the windows because of their age.
    aged: Arc<Mutex<Trimmed>>,
    reserve: Option<Box<dyn Reserve>>,
    /// Something has been written.
    begun: bool,
    short: Option<Short>,
}

impl Committer {
    /// A committer without a disk.
    pub fn in_memory(state: Arc<RwLock<State>>, options: Options) -> Self {
        Committer {
            state,
            disk: None,
            options,
            trimmed: Trimmed::default(),
            aged: Arc::default(),
            reserve: None,
            begun: false,
            short: None,
        }
    }

    /// A committer for a disk; some of its content can be removed with the next write.
    pub fn new(
        state: Arc<RwLock<State>>,
        disk: Disk,
        trimmed: Trimmed,
        reserve: Option<Box<dyn Reserve>>,
        options: Options,
    ) -> Self {
        Committer {
            disk: Some(disk),
            trimmed,
            reserve,
            ..Committer::in_memory(state, options)
        }
    }

    /// Commits a group of writes with one sync; returns one result per write, in order.
    pub fn commit(&mut self, writes: Vec<Write>) -> Vec<Answer> {
        if self.is_short(&writes) {
            return self.commit_short(&writes);
        }
        if !std::mem::replace(&mut self.begun, true)
            && let Some(reserve) = &mut self.reserve
        {
            // Without space for it, the store starts without a reserve.
            reserve.fill();
        }
        let mut records = Vec::with_capacity(writes.len());
        let mut answers = self.decide(writes.iter(), &mut records);
        if records.is_empty() {
            return answers;
        }
        match self.append(&records) {
            Ok(()) => self.publish(records),
            Err(failure) if failure.full && writes.iter().any(|write| write.frees) => {
                tracing::warn!(error = %failure.error, "only deletes are possible");
                if let Some(reserve) = &mut self.reserve {
                    reserve.release();
                }
                let error = failure.error;
                self.short = Some(Short { freed: 0, error });
                return self.commit_short(&writes);
            }
            Err(Failure { error, .. }) => {
                tracing::error!(%error, writes = records.len(), "commit failed");
                // Rejected writes fail as well: their rejection may depend on writes of this group that were not stored.
                answers.fill(Err(error));
            }
        }
        answers
    }

    /// The channel for changes that left the windows without a write; `None` for a store without a disk.
    pub fn aged(&self) -> Option<Arc<Mutex<Trimmed>>> {
        self.disk.is_some().then(|| self.aged.clone())
    }

    /// Writes records, and removes history that left the windows.
    fn append(&mut self, records: &[Record]) -> Result<(), Failure> {
        self.take_aged();
        if let Some(disk) = &mut self.disk {
            disk.append(records, &self.trimmed)?;
            self.trimmed = Trimmed::default();
        }
        Ok(())
    }

    fn take_aged(&mut self) {
        let aged = std::mem::take(&mut *self.aged.lock());
        self.trimmed.append(aged);
    }

    /// Whether the disk is full: the reserve has been released and is still needed, or cannot be allocated.
    fn is_short(&mut self, writes: &[Write]) -> bool {
        let Some(short) = &self.short else {
            return false;
        };
        let mut freed = short.freed;
        let enough = writes.iter().all(|write| takes(&mut freed, write));
        if !enough && self.reserve.as_mut().is_none_or(|it| it.fill()) {
            self.short = None;
            tracing::info!("the disk has space again");
        }
        self.short.is_some()
    }

    /// Commits the writes of a group that free space or fit into the freed space; the others are rejected.
    ///
    /// Writes a deletion without the last state. The collection's history on disk ends with it, so that it is not
    /// incomplete after a restart; current watchers get it from memory. When the deletion is durable all versions of
    /// the object are removed, which frees space inside of the file.
    fn commit_short(&mut self, writes: &[Write]) -> Vec<Answer> {
        let Some(short) = &mut self.short else {
            return Vec::new();
        };
        let chosen: Vec<bool> = writes
            .iter()
            .map(|write| takes(&mut short.freed, write))
            .collect();
        let error = short.error.clone();
        let mut records = Vec::new();
        let taken = writes.iter().zip(&chosen).filter(|(_, taken)| **taken);
        let mut decided = self
            .decide(taken.map(|(write, _)| write), &mut records)
            .into_iter();
        let answers = chosen.iter().map(|taken| match taken {
            true => decided.next().unwrap_or(Err(Error::Closed)),
            false => Err(error.clone()),
        });
        let mut answers: Vec<Answer> = answers.collect();
        if records.is_empty() {
            return answers;
        }
        let bare: Vec<Record> = records
            .iter()
            .map(|record| {
                if record.deleted {
                    record.bare()
                } else {
                    record.clone()
                }
            })
            .collect();
        let gone: Vec<Record> = records.iter().filter(|it| it.deleted).cloned().collect();
        let ends = gone
            .iter()
            .map(|it| (it.collection.clone(), it.entry.revision));
        self.trimmed.floors.extend(ends);
        if let Err(Failure { error, .. }) = self.append(&bare) {
            tracing::error!(%error, writes = records.len(), "commit failed");
            answers.fill(Err(error));
            return answers;
        }
        self.publish(records);
        let freed = self.forget(&gone);
        if let Some(short) = &mut self.short {
            short.freed += freed;
        }
        if !self.trimmed.is_empty() {
            // The remaining history is removed with the next write.
            let _ = self.append(&[]);
        }
        answers
    }

    /// Removes all versions of deleted objects; returns their size in bytes.
    fn forget(&mut self, gone: &[Record]) -> u64 {
        let state = self.state.read();
        let mut freed = 0;
        for record in gone {
            let Some(collection) = state.collections.get(&record.collection) else {
                continue;
            };
            let key = &record.entry.key;
            let versions = collection.window.iter().filter(|event| {
                // An object that was created again with this key is kept.
                event.entry.key == *key && event.revision() <= record.entry.revision
            });
            for event in versions {
                let previous = event.previous.iter();
                for entry in previous.chain([&event.entry]) {
                    freed += entry.value.len() as u64;
                    self.trimmed.revisions.push(entry.revision);
                }
            }
        }
        freed
    }

    /// The result of each write of the group, given the ones before it.
    fn decide<'a>(
        &self,
        writes: impl Iterator<Item = &'a Write>,
        records: &mut Vec<Record>,
    ) -> Vec<Answer> {
        let state = self.state.read();
        let mut revision = state.revision;
        let mut pending = Pending::default();
        writes
            .map(|write| {
                let Write {
                    collection,
                    key,
                    expect,
                    operation,
                    ..
                } = write;
                if collection.len() > MAX_NAME || key.len() > MAX_NAME {
                    return Err(Error::Write("the key is too long".into()));
                }
                let place = (collection.clone(), key.clone());
                let current = match pending.get(&place) {
                    Some(entry) => entry.as_ref(),
                    None => state.get(&place.0, &place.1),
                };
                match (*expect, current) {
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

    /// Removes history that left the windows from disk; called at shutdown.
    pub fn flush(&mut self) {
        self.take_aged();
        if let Some(disk) = &mut self.disk
            && !self.trimmed.is_empty()
            && disk.append(&[], &self.trimmed).is_ok()
        {
            self.trimmed = Trimmed::default();
        }
    }
}
