//! Maintenance outside of calls: files that were removed, claims that were deleted.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Core, Failure};
use crate::Driver;
use crate::checkpoint::Entry;
use crate::claim::ClaimRef;

/// How often the files of prepared claims are checked. A container that is started in between fails once.
const FILES: Duration = Duration::from_secs(5);
/// How often prepared claims are compared with the API server.
const CLAIMS: Duration = Duration::from_secs(600);
/// How long a claim must be deleted until it is unprepared without a call: the kubelet, which first stops the
/// containers, checks for such claims every minute.
const GONE: Duration = Duration::from_secs(150);

impl<D: Driver> Core<D> {
    /// Writes the files of all prepared claims, or the missing ones, and the common ones. Containers are restarted
    /// without another call: files that were lost with a temporary file system, or removed, must be restored.
    pub(crate) async fn restore_files(&self, all: bool) {
        let checkpoint = self.checkpoint.lock().await;
        if let Some(cdi) = &self.cdi
            && cdi.lacks_common()
            && let Err(error) = cdi.write_common()
        {
            tracing::error!(%error, "the CDI file of the driver could not be written again");
        }
        // An entry whose files cannot be written must not affect others.
        for entry in checkpoint.entries().filter(|entry| !entry.begun) {
            if all || self.lacks_files(entry) {
                match self.write_files(entry, false) {
                    Ok(()) if all => {}
                    Ok(()) => {
                        tracing::info!(claim = %entry.claim, "files of a prepared claim are written again");
                    }
                    Err(error) => {
                        tracing::error!(claim = %entry.claim, error, "files of a prepared claim could not be written again");
                    }
                }
            }
        }
    }

    fn lacks_files(&self, entry: &Entry) -> bool {
        let cdi = self.cdi.as_ref().is_some_and(|cdi| cdi.lacks(entry));
        let metadata = self.metadata.as_ref();
        cdi || metadata.is_some_and(|metadata| metadata.is_missing(&entry.claim, &entry.devices))
    }

    /// Restores files for as long as it is polled.
    pub(crate) async fn keep_files(&self) {
        loop {
            tokio::time::sleep(FILES).await;
            // The checkpoint of another instance is read then.
            match self.exclusive([]).await {
                Ok(_exclusive) => self.restore_files(false).await,
                Err(error) => tracing::warn!(%error, "looking after files"),
            }
        }
    }

    /// Unprepares claims that no longer exist, at the start and now and then.
    pub(crate) async fn unprepare_gone(&self) {
        let mut missing = BTreeSet::new();
        loop {
            let prepared: Vec<ClaimRef> = {
                let checkpoint = self.checkpoint.lock().await;
                checkpoint
                    .entries()
                    .map(|entry| entry.claim.clone())
                    .collect()
            };
            let mut now = BTreeSet::new();
            for claim in prepared {
                // Without an answer the state is not known.
                if !self.api.is_gone(&claim).await.unwrap_or(false) {
                    continue;
                }
                if !missing.contains(&claim.uid) {
                    now.insert(claim.uid);
                } else if let Err(error) = self.unprepare_orphan(&claim).await {
                    tracing::warn!(%claim, error, "a claim that is gone could not be unprepared");
                }
            }
            let pause = if now.is_empty() { CLAIMS } else { GONE };
            missing = now;
            tokio::time::sleep(pause).await;
        }
    }

    async fn unprepare_orphan(&self, claim: &ClaimRef) -> Result<(), Failure> {
        let _exclusive = self.exclusive([claim.uid.as_str()]).await?;
        // The kubelet may have unprepared it meanwhile.
        if self.checkpoint.lock().await.get(&claim.uid).is_none() {
            return Ok(());
        }
        tracing::info!(%claim, "unpreparing a claim that is gone");
        self.unprepare(claim).await
    }
}
