//! A running plugin.

use std::net::SocketAddr;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::AllocatedDeviceStatus;
use kube::runtime::events::EventType;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::AccessError;
use crate::claim::{ClaimRef, PreparedDevice};
use crate::controls::Controls;
use crate::error::Error;
use crate::metadata_writer::Writer;
use crate::publisher::Resources;
use crate::registrar::RegistrationStatus;

/// A started driver plugin. Dropping it stops everything without waiting; [`Plugin::stop`] waits.
pub struct Plugin {
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: JoinSet<Result<(), Error>>,
    pub(crate) registration: watch::Receiver<Option<RegistrationStatus>>,
    pub(crate) metadata: Option<Arc<Writer>>,
    pub(crate) diagnostics_address: Option<SocketAddr>,
    pub(crate) controls: Controls,
}

impl Plugin {
    /// Publishes the devices of this node; replaces what was published before. Returns at once: the slices are written
    /// and maintained in the background, errors are passed to [`crate::Driver::handle_error`].
    ///
    /// # Errors
    /// When neither a node name nor a pool for the whole cluster was configured.
    pub fn publish(&self, resources: Resources) -> Result<(), Error> {
        self.controls.publish(resources)
    }

    /// A handle to publish devices and set their status from a separate task: valid as long as the plugin runs.
    pub fn controls(&self) -> Controls {
        self.controls.clone()
    }

    /// Updates the metadata of the devices of a prepared claim's request, for example with addresses that are known
    /// only when the pod has its network. Only containers that start after that see it.
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

    /// Replaces the driver's entries in `status.devices` of a claim (KEP-4817): conditions, data, and network data.
    /// `devices` is the complete list; fields of other owners stay, such as the conditions that
    /// [`crate::binding::BindingConditions`] reports. The field `driver` is filled in.
    ///
    /// Needs the right to `patch` `resourceclaims/status`, and from Kubernetes 1.36 on the verb
    /// `associated-node:patch` for the resource `resourceclaims/driver` of this driver's name.
    ///
    /// # Errors
    /// The claim was replaced by another one of the same name, it has no such device, or the API server refuses.
    pub async fn set_device_status(
        &self,
        claim: &ClaimRef,
        devices: impl IntoIterator<Item = AllocatedDeviceStatus>,
    ) -> Result<(), AccessError> {
        self.controls.set_device_status(claim, devices).await
    }

    /// Creates an event about a claim, which `kubectl describe resourceclaim` and `kubectl events` show. `reason` is a word
    /// for programs, `note` at most 256 characters for users; a longer one is cut. Errors that `prepare` and `unprepare`
    /// return reach the pod's events without this.
    ///
    /// Needs the right to `create` and `patch` `events.events.k8s.io` in the claim's namespace.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn event(
        &self,
        claim: &ClaimRef,
        kind: EventType,
        reason: &str,
        note: &str,
    ) -> Result<(), AccessError> {
        self.controls.event(claim, kind, reason, note).await
    }

    /// Address of the endpoint for probes and metrics, with [`Builder::diagnostics`].
    pub fn diagnostics_address(&self) -> Option<SocketAddr> {
        self.diagnostics_address
    }

    /// Changes whenever the kubelet accepts or refuses the plugin; `None` until then.
    pub fn registration(&self) -> watch::Receiver<Option<RegistrationStatus>> {
        self.registration.clone()
    }

    /// Waits until the plugin ends because of an error.
    ///
    /// # Errors
    /// A server failed.
    pub async fn wait(mut self) -> Result<(), Error> {
        let result = self.next().await;
        self.stop().await;
        result
    }

    /// Like [`Plugin::wait`], but returns without an error when `shutdown` completes.
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

/// Does some work for as long as the plugin runs.
pub(crate) async fn until(
    stop: CancellationToken,
    work: impl Future<Output = ()>,
) -> Result<(), Error> {
    tokio::select! {
        () = work => {}
        () = stop.cancelled_owned() => {}
    }
    Ok(())
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plugin")
            .field("driver_name", &self.controls.driver_name)
            .finish_non_exhaustive()
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
