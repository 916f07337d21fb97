//! Which claims are prepared, on disk.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use allot_cdi::file::read_bounded;
use serde::{Deserialize, Serialize};

use crate::boot::boot_id_of;
use crate::claim::{ClaimRef, PreparedDevice};
use crate::error::Error;
use crate::prepared::{Boot, PreparedClaim, State};

#[cfg(test)]
mod tests;

/// Largest file that is read, in bytes. A node has at most some thousand claims, each with at most 64 KiB of state.
const MOST_BYTES: u64 = 512 << 20;

/// A prepared claim, or one that was begun.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) claim: ClaimRef,
    pub(crate) devices: Vec<PreparedDevice>,
    /// The driver was called and is not known to have succeeded: it is called again, also to unprepare.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) begun: bool,
    /// Devices that no other claim may have meanwhile, by pool and name. Absent in entries of earlier releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) held: Option<Vec<(String, String)>>,
    /// The pod's name for the claim, if it was created from a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod_claim: Option<String>,
    /// The driver's state of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<State>,
}

impl Entry {
    /// Whether the claim has a device for itself.
    pub(crate) fn holds(&self, pool: &str, device: &str) -> bool {
        match &self.held {
            Some(held) => held.iter().any(|(p, d)| p == pool && d == device),
            None => self.devices.iter().any(|other| {
                other.share_id.is_none() && other.pool == pool && other.device == device
            }),
        }
    }

    /// The claim as passed to the driver; `version` is that of the states it reads.
    pub(crate) fn prepared(&self, version: u32) -> PreparedClaim {
        PreparedClaim {
            reference: self.claim.clone(),
            devices: self.devices.clone(),
            state: self.state.clone(),
            version,
            complete: !self.begun,
        }
    }
}

/// The file: the payload as text, so that the checksum is about exactly these bytes.
#[derive(Serialize, Deserialize)]
struct File {
    data: String,
    checksum: u32,
    /// The boot in which it was written. Absent in files of earlier releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boot: Option<String>,
}

/// Prepared claims by UID. Every change is on disk before the call returns.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    path: Option<PathBuf>,
    entries: BTreeMap<String, Entry>,
    /// The boot that the file names.
    written: Option<String>,
    /// The present boot.
    boot: Option<String>,
}

impl Checkpoint {
    /// Reads the file; a missing one is an empty checkpoint. Without a path the state is in memory only.
    ///
    /// A damaged file is set aside and the checkpoint is empty: a driver that does not start cannot unprepare claims
    /// either, and prevents the node from being drained. Earlier claims are prepared again, and unprepared as unknown
    /// ones.
    pub(crate) fn open(path: Option<PathBuf>) -> Result<Self, Error> {
        let mut checkpoint = Self {
            boot: boot_id_of(path.as_deref()),
            path,
            entries: BTreeMap::new(),
            written: None,
        };
        let Some(file) = &checkpoint.path else {
            return Ok(checkpoint);
        };
        match read_bounded(file, MOST_BYTES) {
            Ok(bytes) => match decode(&bytes) {
                Ok((entries, boot)) => (checkpoint.entries, checkpoint.written) = (entries, boot),
                Err(reason) => set_aside(file, &reason)?,
            },
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // No pipe, directory or device is a checkpoint, and no write of this module is as large.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Other | ErrorKind::FileTooLarge | ErrorKind::IsADirectory
                ) =>
            {
                set_aside(file, &DecodeError::File(error))?;
            }
            Err(source) => {
                return Err(Error::Io {
                    path: file.clone(),
                    source,
                });
            }
        }
        Ok(checkpoint)
    }

    /// Whether the machine was booted since the file was written.
    pub(crate) fn boot(&self) -> Boot {
        match (&self.written, &self.boot) {
            (Some(written), Some(now)) if written == now => Boot::Same,
            (Some(_), Some(_)) => Boot::Changed,
            _ => Boot::Unknown,
        }
    }

    /// Replaces all states, and records the current boot. Written only if something changed.
    pub(crate) fn restored(&mut self, states: BTreeMap<String, State>) -> Result<(), Error> {
        if states.is_empty() && (self.entries.is_empty() || self.boot() == Boot::Same) {
            return Ok(());
        }
        for (uid, state) in states {
            if let Some(entry) = self.entries.get_mut(&uid) {
                entry.state = Some(state);
            }
        }
        self.write()
    }

    pub(crate) fn get(&self, uid: &str) -> Option<&Entry> {
        self.entries.get(uid)
    }

    /// All entries, by UID.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// Entries of other claims that have a device for themselves.
    pub(crate) fn holders<'a>(
        &'a self,
        claim: &'a ClaimRef,
        pool: &'a str,
        device: &'a str,
    ) -> impl Iterator<Item = &'a Entry> {
        let others = self.entries().filter(|entry| entry.claim.uid != claim.uid);
        others.filter(move |entry| entry.holds(pool, device))
    }

    /// Why an entry conflicts with the others.
    pub(crate) fn taken(&self, entry: &Entry) -> Option<String> {
        let mut held = entry.held.iter().flatten();
        held.find_map(|(pool, device)| {
            let holder = self.holders(&entry.claim, pool, device).next()?;
            Some(taken(pool, device, &holder.claim))
        })
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
        let file = File {
            data,
            checksum,
            boot: self.boot.clone(),
        };
        let bytes = serde_json::to_vec(&file).map_err(|error| io(error.into()))?;
        allot_cdi::file::write_atomic(path, &bytes, 0o600).map_err(io)?;
        self.written.clone_from(&self.boot);
        Ok(())
    }
}

/// The content of the file: the entries by UID, and the boot in which it was written.
type Content = (BTreeMap<String, Entry>, Option<String>);

/// Why the file is no checkpoint.
#[derive(Debug, thiserror::Error)]
enum DecodeError {
    #[error(transparent)]
    File(std::io::Error),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("checksum does not match")]
    Checksum,
}

fn decode(bytes: &[u8]) -> Result<Content, DecodeError> {
    let content: File = serde_json::from_slice(bytes)?;
    if crc32fast::hash(content.data.as_bytes()) != content.checksum {
        return Err(DecodeError::Checksum);
    }
    let entries = serde_json::from_str(&content.data)?;
    Ok((entries, content.boot))
}

/// Renames a damaged file, so that it can be inspected later.
fn set_aside(file: &Path, reason: &DecodeError) -> Result<(), Error> {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".damaged-{}", jiff::Timestamp::now().as_second()));
    let aside = PathBuf::from(name);
    std::fs::rename(file, &aside).map_err(|source| Error::Io {
        path: file.to_owned(),
        source,
    })?;
    tracing::error!(
        checkpoint = %file.display(), %reason, kept = %aside.display(),
        "the checkpoint is damaged: it is set aside, and claims that it names are prepared again when the kubelet asks"
    );
    Ok(())
}

/// The error about a device that is prepared for another claim.
pub(crate) fn taken(pool: &str, device: &str, holder: &ClaimRef) -> String {
    format!(
        "device {device} of pool {pool} is prepared for claim {holder} with UID {}",
        holder.uid
    )
}
