//! Updates from a running driver: its published devices, and the status of the devices of a claim.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::resource::v1::AllocatedDeviceStatus;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::watch;

use crate::AccessError;
use crate::api::ResourceApi;
use crate::bounds::ANSWER_LIMIT;
use crate::claim::ClaimRef;
use crate::error::Error;
use crate::metrics::Metrics;
use crate::publisher::Resources;

/// Limit of the API for the text of an event, in bytes; a character has at most four.
const MAX_NOTE: usize = 1024;

/// A handle of a running plugin for tasks of the driver; made by [`crate::Plugin::controls`].
#[derive(Clone)]
pub struct Controls {
    pub(crate) desired: watch::Sender<Option<Arc<Resources>>>,
    pub(crate) can_publish: bool,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) api: Arc<ResourceApi>,
    pub(crate) driver_name: String,
}

impl Controls {
    /// Like [`crate::Plugin::publish`].
    ///
    /// # Errors
    /// When neither a node name nor a pool for the whole cluster was configured.
    pub fn publish(&self, resources: Resources) -> Result<(), Error> {
        if !self.can_publish {
            return Err(Error::Config(
                "no NodeName was set to publish resources".into(),
            ));
        }
        let slices = resources.pools.values().flat_map(|pool| &pool.slices);
        let devices = slices.map(|slice| slice.devices.len()).sum();
        self.metrics.set_devices(devices);
        self.desired.send_replace(Some(Arc::new(resources)));
        Ok(())
    }

    /// Like [`crate::Plugin::set_device_status`].
    ///
    /// # Errors
    /// The claim was replaced by another one of the same name, it has no such device, or the API server refuses.
    pub async fn set_device_status(
        &self,
        claim: &ClaimRef,
        devices: impl IntoIterator<Item = AllocatedDeviceStatus>,
    ) -> Result<(), AccessError> {
        let devices = devices.into_iter().map(|device| AllocatedDeviceStatus {
            driver: self.driver_name.clone(),
            ..device
        });
        self.api
            .apply_device_status(claim, &self.driver_name, None, devices.collect())
            .await
    }

    /// Like [`crate::Plugin::event`].
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
        let reporter = Reporter {
            controller: self.driver_name.clone(),
            instance: None,
        };
        let recorder = Recorder::new(self.api.client().clone(), reporter);
        let regarding = ObjectReference {
            api_version: Some(format!("{}/{}", allot_model::GROUP, self.api.version())),
            kind: Some("ResourceClaim".into()),
            namespace: Some(claim.namespace.clone()),
            name: Some(claim.name.clone()),
            uid: Some(claim.uid.clone()),
            ..ObjectReference::default()
        };
        let event = Event {
            type_: kind,
            reason: reason.to_owned(),
            note: Some(note.chars().take(MAX_NOTE / 4).collect()),
            action: "Driver".to_owned(),
            secondary: None,
        };
        let published = recorder.publish(&event, &regarding);
        let published = tokio::time::timeout(ANSWER_LIMIT, published).await;
        Ok(published.map_err(|_| AccessError::NoAnswer(ANSWER_LIMIT))??)
    }
}

impl std::fmt::Debug for Controls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controls")
            .field("driver_name", &self.driver_name)
            .finish_non_exhaustive()
    }
}
