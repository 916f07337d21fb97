//! The embedded backend.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{mpsc, oneshot};

use crate::commit::{Answer, Committer, Job};
use crate::disk::{self, Disk, Opener};
use crate::lock::DirectoryLock;
use crate::reserve::{FileReserve, Reserve};
use crate::state::{Aged, State, Trimmed};
use crate::{Backend, Entry, Error, ListOptions, Options, Page, Size, Watcher, Write};

/// How writes reach the committer.
enum Writer {
    /// The caller commits synchronously.
    Inline(Box<Mutex<Committer>>),
    /// A dedicated thread drains the queue, so that writes that wait for one sync share the next.
    Thread {
        jobs: mpsc::Sender<Job>,
        thread: Mutex<Option<JoinHandle<()>>>,
        _lock: Option<DirectoryLock>,
    },
}

/// State in memory, log in a file (or none).
pub struct Embedded {
    state: Arc<RwLock<State>>,
    writer: Option<Writer>,
    /// The history that the writer can remove.
    aged: Option<Arc<Mutex<Trimmed>>>,
}

impl Embedded {
    /// A store that ends with the process.
    pub fn in_memory(options: Options) -> Self {
        let state = Arc::new(RwLock::new(State::default()));
        let committer = Committer::in_memory(state.clone(), options);
        Embedded {
            state,
            writer: Some(Writer::Inline(Box::new(Mutex::new(committer)))),
            aged: None,
        }
    }

    /// The store of a data directory, which is created if it does not exist.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process has it, [`Error::Corrupt`] or [`Error::Open`] naming the file.
    pub fn open(directory: &Path, options: Options) -> Result<Self, Error> {
        let lock = DirectoryLock::take(directory)?;
        let (path, opener) = disk::file_opener(directory)?;
        let mut reserve = Box::new(FileReserve::of(directory));
        // A process that starts on a full disk writes a few files before it can delete anything.
        reserve.release();
        Self::start(path, opener, options, Some(reserve), Some(lock))
    }

    /// A store on a database that the caller provides: for tests of a failing disk.
    ///
    /// # Errors
    /// As [`Embedded::open`].
    pub fn with_opener(opener: Opener, options: Options) -> Result<Self, Error> {
        Self::on(opener, None, options)
    }

    /// Like [`Embedded::with_opener`], with space that is reserved for deletes.
    ///
    /// # Errors
    /// As in [`Embedded::with_opener`].
    pub fn with_reserve(
        opener: Opener,
        reserve: Box<dyn Reserve>,
        options: Options,
    ) -> Result<Self, Error> {
        Self::on(opener, Some(reserve), options)
    }

    fn on(
        opener: Opener,
        reserve: Option<Box<dyn Reserve>>,
        options: Options,
    ) -> Result<Self, Error> {
        let path = std::path::PathBuf::from("(given)");
        disk::prepare_if_empty(&path, &opener)?;
        Self::start(path, opener, options, reserve, None)
    }

    fn start(
        path: std::path::PathBuf,
        opener: Opener,
        options: Options,
        reserve: Option<Box<dyn Reserve>>,
        lock: Option<DirectoryLock>,
    ) -> Result<Self, Error> {
        let (disk, state, garbage) = Disk::open(path.clone(), opener)?;
        let state = Arc::new(RwLock::new(state));
        let group = options.group.max(1);
        let mut committer = Committer::new(state.clone(), disk, garbage, reserve, options);
        let aged = committer.aged();
        let (jobs, mut queue) = mpsc::channel::<Job>(4096);
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || {
                let mut batch = Vec::with_capacity(group);
                while queue.blocking_recv_many(&mut batch, group) > 0 {
                    let (writes, answers): (Vec<_>, Vec<_>) =
                        batch.drain(..).map(|job| (job.write, job.answer)).unzip();
                    for (answer, to) in committer.commit(writes).into_iter().zip(answers) {
                        // The caller was dropped: the write is valid nevertheless.
                        let _ = to.send(answer);
                    }
                }
                committer.flush();
            })
            .map_err(|error| Error::Open {
                path,
                detail: error.to_string(),
            })?;
        let writer = Writer::Thread {
            jobs,
            thread: Mutex::new(Some(thread)),
            _lock: lock,
        };
        Ok(Embedded {
            state,
            writer: Some(writer),
            aged,
        })
    }

    /// [`Backend::commit`] for callers outside of an async runtime.
    ///
    /// # Errors
    /// As [`Backend::commit`].
    pub fn commit_blocking(&self, write: Write) -> Answer {
        match &self.writer {
            Some(Writer::Inline(committer)) => commit_one(&mut committer.lock(), write),
            Some(Writer::Thread { jobs, .. }) => {
                let (answer, receive) = oneshot::channel();
                jobs.blocking_send(Job { write, answer })
                    .map_err(|_| Error::Closed)?;
                receive.blocking_recv().map_err(|_| Error::Closed)?
            }
            None => Err(Error::Closed),
        }
    }
}

fn commit_one(committer: &mut Committer, write: Write) -> Answer {
    committer
        .commit(vec![write])
        .pop()
        .unwrap_or(Err(Error::Closed))
}

impl Drop for Embedded {
    /// Waits until accepted writes are on disk and the file is closed.
    fn drop(&mut self) {
        if let Some(Writer::Thread {
            jobs,
            thread,
            _lock,
        }) = self.writer.take()
        {
            drop(jobs);
            if let Some(thread) = thread.lock().take() {
                // A panic in the writer has been reported by the panic hook already.
                let _ = thread.join();
            }
        }
    }
}

impl Backend for Embedded {
    fn revision(&self) -> u64 {
        self.state.read().revision
    }

    fn get<'a>(
        &'a self,
        collection: &'a str,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<Entry>>, Error>> {
        ready(Ok(self.state.read().get(collection, key).cloned())).boxed()
    }

    fn list<'a>(
        &'a self,
        collection: &'a str,
        options: ListOptions<'a>,
    ) -> BoxFuture<'a, Result<Page, Error>> {
        ready(self.state.read().list(collection, options)).boxed()
    }

    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Arc<Entry>, Error>> {
        match &self.writer {
            Some(Writer::Inline(committer)) => {
                ready(commit_one(&mut committer.lock(), write)).boxed()
            }
            Some(Writer::Thread { jobs, .. }) => async move {
                let (answer, receive) = oneshot::channel();
                jobs.send(Job { write, answer })
                    .await
                    .map_err(|_| Error::Closed)?;
                receive.await.map_err(|_| Error::Closed)?
            }
            .boxed(),
            None => ready(Err(Error::Closed)).boxed(),
        }
    }

    fn watch(&self, collection: &str, prefix: &str, from: u64) -> Result<Watcher, Error> {
        let name: Arc<str> = collection.into();
        let known = |state: &State| -> Option<Result<Watcher, Error>> {
            let found = state.collections.get(&name)?;
            if from > state.revision {
                return Some(Err(Error::Future {
                    requested: from,
                    current: state.revision,
                }));
            }
            if from < found.floor {
                return Some(Err(Error::Expired {
                    requested: from,
                    oldest: found.floor,
                }));
            }
            let changed = found.changed.subscribe();
            Some(Ok(Watcher::new(
                self.state.clone(),
                name.clone(),
                prefix.to_owned(),
                from,
                changed,
            )))
        };
        if let Some(watcher) = known(&self.state.read()) {
            return watcher;
        }
        let mut state = self.state.write();
        state.collection_mut(&name);
        known(&state).unwrap_or(Err(Error::Closed))
    }

    fn tidy(&self, now: Instant) {
        let Aged {
            removed,
            seen,
            trimmed,
        } = self.state.write().age(now);
        if let Some(aged) = &self.aged {
            aged.lock().append(trimmed);
        }
        drop(removed);
        for event in seen {
            event.forget_encodings();
        }
    }

    fn counts(&self) -> Vec<(Arc<str>, usize)> {
        let state = self.state.read();
        state
            .collections
            .iter()
            .map(|(name, collection)| (name.clone(), collection.entries.len()))
            .collect()
    }

    fn size(&self, collection: &str) -> Size {
        let state = self.state.read();
        let collection = state.collections.get(collection);
        collection.map_or_else(Size::default, |collection| Size {
            entries: collection.entries.len(),
            bytes: collection.bytes,
        })
    }
}
