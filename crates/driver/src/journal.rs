//! The part of the checkpoint that a driver writes while it prepares a claim.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

use crate::checkpoint::Checkpoint;
use crate::error::Failure;
use crate::prepared::{State, decode, encode};

/// Why there is no state to read or write. Claims that reach a driver through the service have a journal.
pub(crate) const NOT_PREPARING: &str = "the claim is not being prepared";

/// Access to the states of claims in the checkpoint.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    pub(crate) checkpoint: Arc<Mutex<Checkpoint>>,
    /// [`crate::Driver::STATE_VERSION`].
    pub(crate) version: u32,
}

impl Journal {
    pub(crate) async fn save(&self, uid: &str, state: &impl Serialize) -> Result<(), Failure> {
        let value = encode(state)?;
        let mut checkpoint = self.checkpoint.lock().await;
        let entry = checkpoint.get(uid).filter(|entry| entry.begun);
        let mut entry = entry.cloned().ok_or(NOT_PREPARING)?;
        entry.state = Some(State {
            version: self.version,
            value,
        });
        Ok(checkpoint.insert(entry)?)
    }

    pub(crate) async fn saved<T: DeserializeOwned>(&self, uid: &str) -> Result<Option<T>, Failure> {
        let checkpoint = self.checkpoint.lock().await;
        let state = checkpoint.get(uid).and_then(|entry| entry.state.as_ref());
        decode(state, self.version)
    }
}
