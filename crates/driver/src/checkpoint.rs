//! Which claims are prepared, on disk.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::claim::{ClaimRef, PreparedDevice};
use crate::error::Error;

#[cfg(test)]
mod tests;

/// A prepared claim, or one that was begun.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) claim: ClaimRef,
    pub(crate) devices: Vec<PreparedDevice>,
    /// The driver was called and did not succeed, or nobody knows: it has to be called again, and for giving back too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) begun: bool,
}

/// The file: the payload as text, so that the checksum is about exactly these bytes.
#[derive(Serialize, Deserialize)]
struct File {
    data: String,
    checksum: u32,
}

/// Prepared claims by UID. Every change is on disk before the call returns.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    path: Option<PathBuf>,
    entries: BTreeMap<String, Entry>,
}

impl Checkpoint {
    /// Reads the file; a missing one is an empty checkpoint. Without a path nothing outlives the process.
    pub(crate) fn open(path: Option<PathBuf>) -> Result<Self, Error> {
        let Some(file) = &path else {
            return Ok(Self {
                path,
                entries: BTreeMap::new(),
            });
        };
        let damaged = |reason: String| Error::Checkpoint {
            path: file.clone(),
            reason,
        };
        let entries = match std::fs::read(file) {
            Ok(bytes) => {
                let content: File =
                    serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
                if crc32fast::hash(content.data.as_bytes()) != content.checksum {
                    return Err(damaged("checksum does not match".into()));
                }
                serde_json::from_str(&content.data).map_err(|error| damaged(error.to_string()))?
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(source) => {
                return Err(Error::Io {
                    path: file.clone(),
                    source,
                });
            }
        };
        Ok(Self { path, entries })
    }

    pub(crate) fn get(&self, uid: &str) -> Option<&Entry> {
        self.entries.get(uid)
    }

    pub(crate) fn insert(&mut self, entry: Entry) -> Result<(), Error> {
        let uid = entry.claim.uid.clone();
        let before = self.entries.insert(uid.clone(), entry);
        self.write().inspect_err(|_| {
            match before {
                Some(before) => self.entries.insert(uid, before),
                None => self.entries.remove(&uid),
            };
        })
    }

    pub(crate) fn remove(&mut self, uid: &str) -> Result<(), Error> {
        let Some(entry) = self.entries.remove(uid) else {
            return Ok(());
        };
        self.write().inspect_err(|_| {
            self.entries.insert(uid.to_owned(), entry);
        })
    }

    fn write(&mut self) -> Result<(), Error> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let io = |source| Error::Io {
            path: path.clone(),
            source,
        };
        let data = serde_json::to_string(&self.entries).map_err(|error| io(error.into()))?;
        let checksum = crc32fast::hash(data.as_bytes());
        let bytes =
            serde_json::to_vec(&File { data, checksum }).map_err(|error| io(error.into()))?;
        allot_cdi::file::write_atomic(path, &bytes, 0o600).map_err(io)
    }
}
