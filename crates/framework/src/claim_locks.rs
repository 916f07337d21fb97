//! Makes the writes for one object sequential.

use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::OwnedMutexGuard;

use crate::assume_cache::{self, Object};
use crate::pod::Uid;

/// A lock for each claim, or other object, by its UID: pods that share a claim do not conflict with each other.
pub struct ClaimLocks<T>(Mutex<FxHashMap<Uid, ClaimLock<T>>>);

/// The lock of one object, with what the last writer left.
pub type ClaimLock<T> = Arc<tokio::sync::Mutex<Option<Arc<T>>>>;

impl<T> Default for ClaimLocks<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> ClaimLocks<T> {
    /// The lock of an object. Locks that nothing uses are dropped when there are many.
    pub fn of(&self, uid: &str) -> ClaimLock<T> {
        let mut turns = self.0.lock();
        if turns.len() > 1024 {
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        }
        turns.entry(uid.into()).or_default().clone()
    }
}

impl<T: Object> ClaimLocks<T> {
    /// Waits for the turn of a writer with a possibly outdated claim. Returns the newest known version.
    pub async fn take(&self, claim: &Arc<T>) -> (OwnedMutexGuard<Option<Arc<T>>>, Arc<T>) {
        let last = self.of(claim.uid()).lock_owned().await;
        let newest = assume_cache::newest(claim.clone(), last.as_ref());
        (last, newest)
    }
}
