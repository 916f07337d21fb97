//! How calls exclude each other.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{Mutex, MutexGuard, OwnedMutexGuard};

/// Mutual exclusion of calls. Calls for the same claim are always serialised: a late one must not revert another.
pub(crate) enum Serialization {
    /// Only those for the same claim.
    Claims(Claims),
    /// Within this process.
    Process(Mutex<()>),
    /// Also against the process that this one replaces, through a lock file.
    Host(Mutex<()>, PathBuf),
}

/// A lock for each claim, by UID.
#[derive(Default)]
pub(crate) struct Claims(parking_lot::Mutex<HashMap<String, Arc<Mutex<()>>>>);

impl Claims {
    fn lock(&self, uid: &str) -> Arc<Mutex<()>> {
        let mut locks = self.0.lock();
        // Locks that only the map holds have no waiters.
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(locks.entry(uid.to_owned()).or_default())
    }
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
                // In order, so that two calls with the same claims cannot deadlock.
                for uid in uids.into_iter().collect::<BTreeSet<_>>() {
                    let guard = claims.lock(uid).lock_owned().await;
                    exclusive._claims.push(guard);
                }
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
            Self::Claims(claims) => claims.lock(uid).try_lock_owned().ok().map(Some),
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
