//! Maintenance of a store file that is not in use: `allot store`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Database, ReadableDatabase, ReadableTable};

use crate::disk::{guarded, open_error, replay};
use crate::lock::DirectoryLock;
use crate::{Error, FILE_NAME};

/// What [`check`] found in an intact store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckReport {
    /// The path of the checked file.
    pub path: PathBuf,
    /// Its newest revision.
    pub revision: u64,
    /// Objects per collection, sorted by name.
    pub collections: Vec<(String, usize)>,
    /// Changes kept for watches.
    pub window: usize,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// The file had not been closed in order and was repaired.
    pub repaired: bool,
}

fn existing(directory: &Path) -> Result<(DirectoryLock, PathBuf), Error> {
    let path = directory.join(FILE_NAME);
    if !path.exists() {
        return Err(Error::Open {
            path,
            detail: "there is no store here".to_owned(),
        });
    }
    Ok((DirectoryLock::take(directory)?, path))
}

/// Reads everything, verifies all checksums and repairs what an interrupted process left behind.
///
/// # Errors
/// [`Error::Corrupt`] if the content cannot be trusted; [`Error::Locked`], [`Error::Open`].
pub fn check(directory: &Path) -> Result<CheckReport, Error> {
    let (_lock, path) = existing(directory)?;
    guarded(&path, || {
        let mut database = Database::open(&path).map_err(|error| open_error(&path, error))?;
        let intact = database
            .check_integrity()
            .map_err(|error| open_error(&path, error))?;
        let (state, _) = replay(&path, &database)?;
        let mut collections: Vec<_> = state
            .collections
            .iter()
            .map(|(name, collection)| (name.to_string(), collection.entries.len()))
            .collect();
        collections.sort();
        Ok(CheckReport {
            revision: state.revision,
            collections,
            window: state
                .collections
                .values()
                .map(|collection| collection.window.len())
                .sum(),
            bytes: std::fs::metadata(&path).map_or(0, |meta| meta.len()),
            repaired: !intact,
            path: path.clone(),
        })
    })
}

/// Writes every present object as one line: collection, key, revision, value, separated by tabs. Line breaks and tabs in values
/// are left out: JSON has them only between tokens.
///
/// # Errors
/// As [`check`]; a failing `out` is [`Error::Open`] without a path.
pub fn dump(directory: &Path, out: &mut dyn Write) -> Result<(), Error> {
    let (_lock, path) = existing(directory)?;
    guarded(&path, || {
        let database = Database::open(&path).map_err(|error| open_error(&path, error))?;
        let (state, _) = replay(&path, &database)?;
        let mut names: Vec<_> = state.collections.keys().collect();
        names.sort();
        for name in names {
            for entry in state.collections[name].entries.values() {
                let in_line = |byte: &u8| !matches!(byte, b'\n' | b'\r' | b'\t');
                let value: Vec<u8> = entry.value.iter().copied().filter(in_line).collect();
                write!(out, "{name}\t{}\t{}\t", entry.key, entry.revision)
                    .and_then(|()| out.write_all(&value))
                    .and_then(|()| out.write_all(b"\n"))
                    .map_err(|error| Error::Output(Arc::new(error)))?;
            }
        }
        Ok(())
    })
}

/// Drops the history, keeps the current state, and makes the file as small as possible.
///
/// Returns the size before and after, in bytes. Watches that started before have to list again.
///
/// # Errors
/// As [`check`].
pub fn compact(directory: &Path) -> Result<(u64, u64), Error> {
    let (_lock, path) = existing(directory)?;
    let size = || std::fs::metadata(&path).map_or(0, |meta| meta.len());
    let before = size();
    guarded(&path, || {
        let mut database = Database::open(&path).map_err(|error| open_error(&path, error))?;
        let (state, _) = replay(&path, &database)?;
        let live: rustc_hash::FxHashSet<u64> = state
            .collections
            .values()
            .flat_map(|collection| collection.entries.values().map(|entry| entry.revision))
            .collect();
        let forget = || -> Result<(), redb::Error> {
            let revisions: Vec<u64> = {
                let read = database.begin_read()?;
                let log = read.open_table(crate::disk::LOG)?;
                log.iter()?
                    .map(|item| item.map(|(revision, _)| revision.value()))
                    .collect::<Result<_, _>>()?
            };
            let write = database.begin_write()?;
            {
                let mut log = write.open_table(crate::disk::LOG)?;
                for revision in revisions {
                    if !live.contains(&revision) {
                        log.remove(revision)?;
                    }
                }
                // The floors also keep the revision counter from decreasing.
                let mut floors = write.open_table(crate::disk::FLOORS)?;
                for name in state.collections.keys() {
                    floors.insert(&**name, state.revision)?;
                }
            }
            write.commit()?;
            Ok(())
        };
        forget().map_err(|error| Error::Write(error.to_string().into()))?;
        while database
            .compact()
            .map_err(|error| Error::Write(error.to_string().into()))?
        {}
        Ok(())
    })?;
    Ok((before, size()))
}
