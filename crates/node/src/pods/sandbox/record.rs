//! What is known of the networks of pods, and its record on disk.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cni::{self, Attachment, Network};
use crate::error::PathError;
use crate::spec;

/// Where the records of pods are, below the directory of a node.
pub(crate) const RECORDS: &str = "cni/pods";

/// A pod in a network, on disk.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Record {
    /// The configuration of its network.
    pub(super) network: Network,
    /// What its plugins were asked, and what they have answered.
    pub(super) pod: Attachment,
    /// Where its plugins were; the next agent may look elsewhere.
    #[serde(default)]
    pub(super) bin_dirs: Vec<PathBuf>,
}

impl Record {
    /// The addresses of the pod; `None` if plugins have not answered yet.
    pub(super) fn addresses(&self) -> Option<Vec<IpAddr>> {
        self.pod.result.as_ref().map(cni::addresses)
    }
}

/// What is known of a pod.
#[derive(Debug, Clone)]
pub(super) enum Known {
    /// ADD was called, and its result is not known: DEL comes first. `None` if the file is damaged.
    Begun(Option<Box<Record>>),
    /// It has these addresses.
    Open(Box<Record>, Vec<IpAddr>),
    /// It had them; the status of a pod that has ended keeps them.
    Closed(Vec<IpAddr>),
    /// It was started by an agent that gave it the host's network, and stays there.
    Shared,
}

impl Known {
    /// Whether plugins were asked, and have not undone it.
    pub(super) fn is_to_be_undone(&self) -> bool {
        matches!(self, Self::Begun(_) | Self::Open(..))
    }
}

/// The directory with the records of a node, a file for each pod by its UID.
#[derive(Debug)]
pub(super) struct Records(PathBuf);

impl Records {
    /// Those of a node, by its directory.
    pub(super) fn of(root: &Path) -> Self {
        Self(root.join(RECORDS))
    }

    fn file(&self, uid: &str) -> PathBuf {
        self.0.join(format!("{uid}.json"))
    }

    /// What earlier agents left, by the UID of the pod.
    pub(super) fn read(&self) -> HashMap<String, Known> {
        let mut known = HashMap::new();
        let entries = std::fs::read_dir(&self.0).into_iter().flatten();
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(uid) = name.to_str().and_then(|name| name.strip_suffix(".json")) else {
                continue;
            };
            let state = match spec::read::<Record>(&entry.path()) {
                Err(error) => {
                    tracing::warn!(%error, "a record of a pod's network is damaged");
                    Known::Begun(None)
                }
                Ok(record) => match record.addresses() {
                    Some(addresses) => Known::Open(Box::new(record), addresses),
                    None => Known::Begun(Some(Box::new(record))),
                },
            };
            known.insert(uid.to_owned(), state);
        }
        known
    }

    /// Records a pod, in place of what was recorded of it.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(super) fn write(&self, uid: &str, record: &Record) -> Result<(), PathError> {
        spec::write(&self.file(uid), record)
    }

    /// Removes the record of a pod, if there is one.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(super) fn remove(&self, uid: &str) -> io::Result<()> {
        match std::fs::remove_file(self.file(uid)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
