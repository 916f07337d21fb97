//! Updates from a running driver: its published devices, and the status of the devices of a claim.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::resource::v1::AllocatedDeviceStatus;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::watch;

use crate::AccessError;
use crate::api::{ResourceApi, answered};
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
        Ok(answered(published).await??)
    }
}

impl std::fmt::Debug for Controls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controls")
            .field("driver_name", &self.driver_name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use http_body_util::BodyExt as _;
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn an_event_is_about_the_claim_and_its_note_is_bounded() {
        let (sent, mut requests) = mpsc::unbounded_channel();
        let service = tower::service_fn(move |request: Request<Body>| {
            let sent = sent.clone();
            async move {
                let path = format!("{} {}", request.method(), request.uri().path());
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let event: Value = serde_json::from_slice(&body).unwrap();
                sent.send((path, event)).unwrap();
                Ok::<_, Infallible>(Response::new(Body::from(body.to_vec())))
            }
        });
        let controls = Controls {
            desired: watch::Sender::new(None),
            can_publish: false,
            metrics: Arc::default(),
            api: Arc::new(ResourceApi::new(Client::new(service, "default"))),
            driver_name: "leds.example.com".into(),
        };
        let claim = ClaimRef {
            namespace: "team-a".into(),
            name: "led".into(),
            uid: "u1".into(),
        };
        let note = "ü".repeat(MAX_NOTE);
        let published = controls.event(&claim, EventType::Warning, "LedBroken", &note);
        published.await.unwrap();
        let (path, event) = requests.recv().await.unwrap();
        assert_eq!(path, "POST /apis/events.k8s.io/v1/namespaces/team-a/events");
        let about = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "namespace": "team-a",
            "name": "led", "uid": "u1"});
        assert_eq!(event["regarding"], about);
        assert_eq!(event["type"], "Warning");
        assert_eq!(event["reason"], "LedBroken");
        assert_eq!(event["reportingController"], "leds.example.com");
        let note = event["note"].as_str().unwrap();
        assert!(!note.is_empty() && note.len() <= MAX_NOTE, "{}", note.len());
    }
}
