//! The revision log in a redb file.

use std::cell::Cell;
use std::os::unix::fs::OpenOptionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use crate::record::{Record, RecordError};
use crate::state::{State, Trimmed};
use crate::{Error, FILE_NAME};

/// revision -> record. Revisions only grow, so writes touch the right edge of the tree.
pub(crate) const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
/// collection -> newest revision that has left its window.
pub(crate) const FLOORS: TableDefinition<'_, &str, u64> = TableDefinition::new("floors");
/// Facts about the file itself.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const FORMAT: u64 = 1;
/// Pages that redb caches: everything is in memory anyway, so only the edge of the tree is worth caching.
const CACHE_BYTES: usize = 8 << 20;

/// Opens the database; called again after a failed write. Tests put a faulty disk behind it.
pub type Opener = Box<dyn Fn() -> Result<Database, redb::DatabaseError> + Send>;

/// Why the write failed.
pub(crate) struct Failure {
    pub error: Error,
    /// The disk has no space.
    pub full: bool,
}

impl From<redb::Error> for Failure {
    fn from(error: redb::Error) -> Self {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        Failure {
            full: matches!(&error, redb::Error::Io(io) if matches!(io.kind(), StorageFull | QuotaExceeded)),
            error: Error::Write(error.to_string().into()),
        }
    }
}

/// The log on disk.
pub(crate) struct Disk {
    path: PathBuf,
    open: Opener,
    /// `None` after a failed write, until the file has been opened again.
    database: Option<Database>,
    /// The newest revision that was reported as durable.
    durable: u64,
}

/// Opens or creates the file of a data directory.
pub(crate) fn file_opener(directory: &Path) -> Result<(PathBuf, Opener), Error> {
    let path = directory.join(FILE_NAME);
    if !path.exists() {
        create(&path)?;
    }
    let file = path.clone();
    Ok((
        path,
        Box::new(move || Database::builder().set_cache_size(CACHE_BYTES).open(&file)),
    ))
}

/// Creates an empty store under another name first, so that a file with the real name is always complete.
fn create(path: &Path) -> Result<(), Error> {
    let failed = |detail: String| Error::Open {
        path: path.to_owned(),
        detail,
    };
    let fresh = path.with_extension("new");
    let _ = std::fs::remove_file(&fresh);
    {
        // Secrets are in it.
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options
            .open(&fresh)
            .map_err(|error| failed(error.to_string()))?;
        let database = Database::builder()
            .create_file(file)
            .map_err(|error| failed(error.to_string()))?;
        prepare(&database).map_err(|error| failed(error.to_string()))?;
    }
    std::fs::rename(&fresh, path).map_err(|error| failed(error.to_string()))?;
    if let Some(directory) = path.parent() {
        std::fs::File::open(directory)
            .and_then(|file| file.sync_all())
            .map_err(|error| failed(error.to_string()))?;
    }
    Ok(())
}

/// Creates the tables of an empty database.
fn prepare(database: &Database) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    write.open_table(LOG)?;
    write.open_table(FLOORS)?;
    write.open_table(META)?.insert("format", FORMAT)?;
    write.commit()?;
    Ok(())
}

/// Prepares a provided database, if it has never been used.
pub(crate) fn prepare_if_empty(path: &Path, open: &Opener) -> Result<(), Error> {
    guarded(path, || {
        let database = open().map_err(|error| open_error(path, error))?;
        let made = || -> Result<(), redb::Error> {
            if database.begin_read()?.list_tables()?.next().is_none() {
                prepare(&database)?;
            }
            Ok(())
        };
        made().map_err(|error| Error::Open {
            path: path.to_owned(),
            detail: error.to_string(),
        })
    })
}

impl Disk {
    /// Opens the file and replays it; returns its content and the history that can be removed.
    pub fn open(path: PathBuf, open: Opener) -> Result<(Self, State, Trimmed), Error> {
        let (database, (state, garbage)) = guarded(&path, || {
            let database = open().map_err(|error| open_error(&path, error))?;
            let state = replay(&path, &database)?;
            Ok((database, state))
        })?;
        let durable = state.revision;
        Ok((
            Disk {
                path,
                open,
                database: Some(database),
                durable,
            },
            state,
            garbage,
        ))
    }

    /// Writes records, and removes history that left the windows, in one durable transaction.
    pub fn append(&mut self, records: &[Record], trimmed: &Trimmed) -> Result<(), Failure> {
        let database = match self.database.take() {
            Some(database) => database,
            None => self.reopen()?,
        };
        match write(&database, records, trimmed) {
            Ok(()) => {
                self.durable = records
                    .last()
                    .map_or(self.durable, |record| record.entry.revision);
                self.database = Some(database);
                Ok(())
            }
            // redb does not continue after an I/O error; the next write opens the file again.
            Err(error) => Err(error.into()),
        }
    }

    /// After a failed write: opens the file again and removes what was written but never acknowledged.
    fn reopen(&self) -> Result<Database, Failure> {
        let retry = || -> Result<Database, redb::Error> {
            let database = (self.open)()?;
            let write = database.begin_write()?;
            {
                let mut log = write.open_table(LOG)?;
                log.retain_in(self.durable + 1.., |_, _| false)?;
            }
            write.commit()?;
            Ok(database)
        };
        let full = Cell::new(false);
        let opened = guarded(&self.path, || {
            retry().map_err(|error| {
                let failure = Failure::from(error);
                full.set(failure.full);
                failure.error
            })
        });
        opened.map_err(|error| Failure {
            error,
            full: full.get(),
        })
    }
}

fn write(database: &Database, records: &[Record], trimmed: &Trimmed) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    {
        let mut log = write.open_table(LOG)?;
        for record in records {
            log.insert(record.entry.revision, record.encode().as_slice())?;
        }
        for revision in &trimmed.revisions {
            log.remove(revision)?;
        }
    }
    if !trimmed.floors.is_empty() {
        let mut floors = write.open_table(FLOORS)?;
        for (collection, floor) in &trimmed.floors {
            // The value may have been raised above the one in memory.
            let known = floors.get(&**collection)?.map_or(0, |it| it.value());
            floors.insert(&**collection, known.max(*floor))?;
        }
    }
    write.commit()?;
    Ok(())
}

/// Why the log cannot be replayed.
#[derive(Debug, thiserror::Error)]
enum ReplayError {
    #[error(transparent)]
    Database(redb::Error),
    #[error("unknown format {0:?}")]
    Format(Option<u64>),
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl<E: Into<redb::Error>> From<E> for ReplayError {
    fn from(error: E) -> Self {
        Self::Database(error.into())
    }
}

/// Rebuilds the state by applying the log in order; also returns the history that is no longer available to readers.
pub(crate) fn replay(path: &Path, database: &Database) -> Result<(State, Trimmed), Error> {
    replay_log(database).map_err(|error| Error::Corrupt {
        path: path.to_owned(),
        detail: error.to_string(),
    })
}

fn replay_log(database: &Database) -> Result<(State, Trimmed), ReplayError> {
    let read = database.begin_read()?;
    let meta = read.open_table(META)?;
    let format = meta.get("format")?;
    let format = format.map(|value| value.value());
    if format != Some(FORMAT) {
        return Err(ReplayError::Format(format));
    }
    let (mut state, mut garbage) = (State::default(), Trimmed::default());
    let floors = read.open_table(FLOORS)?;
    for item in floors.iter()? {
        let (collection, floor) = item?;
        let name: Arc<str> = collection.value().into();
        state.collection_mut(&name).floor = floor.value();
        state.revision = state.revision.max(floor.value());
    }
    let mut names: rustc_hash::FxHashSet<Arc<str>> = Default::default();
    let log = read.open_table(LOG)?;
    for item in log.iter()? {
        let (revision, bytes) = item?;
        let record = Record::decode(revision.value(), bytes.value())?;
        let name = match names.get(&record.collection) {
            Some(known) => known.clone(),
            None => {
                names.insert(record.collection.clone());
                record.collection
            }
        };
        let collection = state.collection_mut(&name);
        if revision.value() <= collection.floor {
            let previous = collection.entries.get(&record.entry.key);
            garbage.revisions.extend(previous.map(|it| it.revision));
            garbage
                .revisions
                .extend(record.deleted.then(|| revision.value()));
        }
        state.apply(&name, record.entry, record.deleted);
    }
    Ok((state, garbage))
}

thread_local! {
    /// A panic of this thread becomes an error and needs no message.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`; a panic inside the database on damaged input becomes an error, without a panic message.
pub(crate) fn guarded<T>(path: &Path, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !GUARDED.get() {
                usual(info);
            }
        }));
    });
    let outer = GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(outer);
    result.unwrap_or_else(|panic| {
        let detail = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("unreadable");
        Err(Error::Corrupt {
            path: path.to_owned(),
            detail: detail.to_owned(),
        })
    })
}

pub(crate) fn open_error(path: &Path, error: redb::DatabaseError) -> Error {
    use redb::{DatabaseError, StorageError};
    let path = path.to_owned();
    match error {
        DatabaseError::DatabaseAlreadyOpen => Error::Locked {
            path,
            holder: String::new(),
        },
        DatabaseError::Storage(StorageError::Io(io))
            if !matches!(
                io.kind(),
                std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof
            ) =>
        {
            Error::Open {
                path,
                detail: io.to_string(),
            }
        }
        other => Error::Corrupt {
            path,
            detail: other.to_string(),
        },
    }
}
