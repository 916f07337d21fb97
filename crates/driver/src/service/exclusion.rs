//! How calls exclude each other.

use std::path::{Path, PathBuf};

use allot_client::KeyMutex;
use tokio::sync::{Mutex, MutexGuard, OwnedMutexGuard};

/// Mutual exclusion of calls. Calls for the same claim are always serialised: a late one must not revert another.
pub(crate) enum Serialization {
    /// Only those for the same claim, by its UID.
    Claims(KeyMutex<String>),
    /// Within this process.
    Process(Mutex<()>),
    /// Also against the process that this one replaces, through a lock file.
    Host(Mutex<()>, PathBuf),
}

/// Held while a driver works.
pub(crate) struct Exclusive<'a> {
    _claims: Vec<OwnedMutexGuard<()>>,
    _process: Option<MutexGuard<'a, ()>>,
    /// The lock is released with the file.
    host: Option<std::fs::File>,
}

impl Exclusive<'_> {
    /// Whether another process may have changed the checkpoint.
    pub(crate) fn is_shared(&self) -> bool {
        self.host.is_some()
    }
}

impl Serialization {
    /// Waits until no other call works on these claims, or on any.
    pub(crate) async fn exclusive<'a>(
        &'a self,
        uids: impl IntoIterator<Item = &str>,
    ) -> std::io::Result<Exclusive<'a>> {
        let mut exclusive = Exclusive {
            _claims: Vec::new(),
            _process: None,
            host: None,
        };
        match self {
            Self::Claims(claims) => {
                let uids = uids.into_iter().map(str::to_owned).collect();
                exclusive._claims = claims.lock(uids).await;
            }
            Self::Process(mutex) => exclusive._process = Some(mutex.lock().await),
            Self::Host(mutex, path) => {
                exclusive._process = Some(mutex.lock().await);
                let path = path.clone();
                let locked = tokio::task::spawn_blocking(move || lock(&path)).await;
                exclusive.host = Some(locked.map_err(std::io::Error::other)??);
            }
        }
        Ok(exclusive)
    }

    /// Locks one more claim while others are held; `None` if another call works on it.
    pub(crate) fn another(&self, uid: &str) -> Option<Option<OwnedMutexGuard<()>>> {
        match self {
            Self::Claims(claims) => claims.try_lock(uid.to_owned()).map(Some),
            // All claims are held.
            Self::Process(_) | Self::Host(..) => Some(None),
        }
    }
}

/// Takes the lock file; another process may hold it for as long as one call takes.
fn lock(path: &Path) -> std::io::Result<std::fs::File> {
    let file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
    Ok(file)
}
