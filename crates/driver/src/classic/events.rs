//! Events about what a controller could not do.

use allot_client::events::{self, Level};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::api::{ApiResource, DynamicObject};
use tokio_util::sync::CancellationToken;

/// Sends events in the background; never blocks the caller.
#[derive(Clone)]
pub(super) struct Recorder(events::Recorder);

impl Recorder {
    /// A recorder, and the work of sending, which ends when it is dropped.
    pub(super) fn new(
        client: Client,
        driver: &str,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let component = format!("resource driver {driver}");
        let shutdown = CancellationToken::new();
        let (recorder, sending) =
            events::Recorder::new(client, jiff::Timestamp::now, component, shutdown);
        (Self(recorder), sending)
    }

    /// Records a failure about an object.
    pub(super) fn failed(&self, kind: &ApiResource, object: &DynamicObject, message: &str) {
        let metadata = &object.metadata;
        let about = ObjectReference {
            api_version: Some(kind.api_version.clone()),
            kind: Some(kind.kind.clone()),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
            ..ObjectReference::default()
        };
        self.0
            .event(about, Level::Warning, "Failed", message.to_owned());
    }
}
