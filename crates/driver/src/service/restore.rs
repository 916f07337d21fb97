//! What happens to the claims of earlier processes at the start.

use std::collections::BTreeMap;

use super::Core;
use crate::checkpoint::Entry;
use crate::prepared::{PreparedClaim, State};
use crate::{BackgroundError, Driver, Error};

impl<D: Driver> Core<D> {
    /// Migrates states of other versions, and passes the known claims to the driver.
    ///
    /// # Errors
    /// The driver refuses to start with them, or the checkpoint cannot be read or written.
    pub(crate) async fn restore_claims(&self) -> Result<(), Error> {
        // Another instance may still prepare claims, and its checkpoint is the newer one.
        let exclusive = self.exclusive([]).await;
        let _exclusive = exclusive.map_err(|status| Error::Restore {
            source: status.message().to_owned().into(),
        })?;
        let (claims, migrated, boot) = {
            let checkpoint = self.checkpoint.lock().await;
            let mut entries: Vec<Entry> = checkpoint.entries().cloned().collect();
            let migrated: BTreeMap<String, State> = entries
                .iter_mut()
                .filter_map(|entry| Some((entry.claim.uid.clone(), self.migrate(entry)?)))
                .collect();
            let claims = entries.iter().map(|entry| entry.prepared(D::STATE_VERSION));
            let claims: Vec<PreparedClaim> = claims.collect();
            (claims, migrated, checkpoint.boot())
        };
        let restored = self.driver.restore(&claims, boot).await;
        restored.map_err(|source| Error::Restore { source })?;
        // Only after the driver succeeded: a driver that is killed before this point is notified of the reboot again.
        self.checkpoint.lock().await.restored(migrated)
    }

    /// The state of an entry in the present version, when that is another one.
    fn migrate(&self, entry: &mut Entry) -> Option<State> {
        let state = entry.state.as_mut()?;
        if state.version == D::STATE_VERSION {
            return None;
        }
        match self
            .driver
            .migrate_state(state.version, state.value.clone())
        {
            Ok(value) => {
                *state = State {
                    version: D::STATE_VERSION,
                    value,
                };
                Some(state.clone())
            }
            Err(source) => {
                self.report(&BackgroundError::State {
                    claim: entry.claim.clone(),
                    version: state.version,
                    source,
                });
                None
            }
        }
    }
}
