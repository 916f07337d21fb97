//! A running plugin.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::builder::Builder;
use crate::claim::{ClaimRef, PreparedDevice};
use crate::error::Error;
use crate::metadata::Writer;
use crate::publisher::Resources;

/// What the kubelet said last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistrationStatus {
    /// It accepted the plugin.
    pub registered: bool,
    /// Why it did not.
    pub error: String,
}

/// A started driver plugin. Dropping it stops everything without waiting; [`Plugin::stop`] waits.
#[derive(Debug)]
pub struct Plugin {
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: JoinSet<Result<(), Error>>,
    pub(crate) registration: watch::Receiver<Option<RegistrationStatus>>,
    pub(crate) desired: watch::Sender<Option<Arc<Resources>>>,
    pub(crate) can_publish: bool,
    pub(crate) metadata: Option<Arc<Writer>>,
}

impl Plugin {
    /// Starts to describe a plugin for `driver_name`, such as `gpu.example.com`.
    pub fn builder<D: crate::Driver>(driver_name: impl Into<String>, driver: D) -> Builder<D> {
        Builder::new(driver_name.into(), driver)
    }

    /// Publishes the devices of this node; replaces what was published before. Returns at once: the slices are
    /// written in the background and kept that way, problems go to [`crate::Driver::handle_error`].
    ///
    /// # Errors
    /// When neither a node name nor a pool for the whole cluster was configured.
    pub fn publish(&self, resources: Resources) -> Result<(), Error> {
        if !self.can_publish {
            return Err(Error::Config(
                "no NodeName was set to publish resources".into(),
            ));
        }
        self.desired.send_replace(Some(Arc::new(resources)));
        Ok(())
    }

    /// Says something new about the devices of a prepared claim's request, such as addresses that are known only when the
    /// pod has its network. Only containers that start after that see it.
    ///
    /// `request` is as in the allocation, `devices` as [`crate::Driver::prepare`] returned them for it, with
    /// [`PreparedDevice::metadata`].
    ///
    /// # Errors
    /// Metadata is not switched on, the claim is not prepared or has no such request, or the file cannot be written.
    pub fn update_metadata(
        &self,
        claim: &ClaimRef,
        request: &str,
        devices: &[PreparedDevice],
    ) -> Result<(), Error> {
        let off = || Error::Config("device metadata is not enabled".into());
        let writer = self.metadata.as_ref().ok_or_else(off)?;
        writer.update(claim, request, devices)
    }

    /// Changes whenever the kubelet accepts or refuses the plugin; `None` until then.
    pub fn registration(&self) -> watch::Receiver<Option<RegistrationStatus>> {
        self.registration.clone()
    }

    /// Waits until the plugin ends by itself, which it only does because of an error.
    ///
    /// # Errors
    /// A server failed.
    pub async fn wait(mut self) -> Result<(), Error> {
        let result = self.next().await;
        self.stop().await;
        result
    }

    /// Like [`Plugin::wait`], and ends without an error when `shutdown` does.
    ///
    /// # Errors
    /// A server failed before that.
    pub async fn wait_until(mut self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        let result = tokio::select! {
            result = self.next() => result,
            () = shutdown => Ok(()),
        };
        self.stop().await;
        result
    }

    async fn next(&mut self) -> Result<(), Error> {
        match self.tasks.join_next().await {
            Some(Ok(result)) => result,
            Some(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
            None => Ok(()),
        }
    }

    /// Stops the servers, removes the sockets and waits for calls in progress. Published slices stay.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
