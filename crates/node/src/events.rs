//! Events about pods and nodes, as the kubelet words them.

use allot_apimachinery::truncate;
pub use allot_client::events::Level as Kind;
use allot_client::events::{self, LONGEST_MESSAGE};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::{Client, ResourceExt};
use tokio_util::sync::CancellationToken;

/// Sends events in the background; never blocks the caller.
#[derive(Clone)]
pub struct Recorder(events::Recorder);

/// A text with at most [`LONGEST_MESSAGE`] bytes: others write it, and it is in an object of the API.
pub(crate) fn shorten(text: String) -> String {
    truncate(text, LONGEST_MESSAGE)
}

impl Recorder {
    /// A recorder for one node, and for the simulated ones whose pods name them.
    pub fn new(client: Client, node: String) -> Self {
        // Events are written until the last recorder is dropped, those about the end of the node as well.
        let shutdown = CancellationToken::new();
        let (recorder, write) = events::Recorder::new(client, Timestamp::now, "kubelet", shutdown);
        tokio::spawn(write);
        Self(recorder.host(&node))
    }

    /// Records an event about a pod, or about one of its containers.
    pub fn pod(
        &self,
        pod: &Pod,
        container: Option<&str>,
        kind: Kind,
        reason: &str,
        message: impl Into<String>,
    ) {
        let object = ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            namespace: pod.namespace(),
            name: pod.metadata.name.clone(),
            uid: pod.uid(),
            resource_version: pod.resource_version(),
            field_path: container.map(|name| {
                let init = pod
                    .spec
                    .iter()
                    .flat_map(|spec| spec.init_containers.iter().flatten());
                let ephemeral = pod
                    .spec
                    .iter()
                    .flat_map(|spec| spec.ephemeral_containers.iter().flatten());
                let list = if init.clone().any(|c| c.name == name) {
                    "initContainers"
                } else if ephemeral.clone().any(|c| c.name == name) {
                    "ephemeralContainers"
                } else {
                    "containers"
                };
                format!("spec.{list}{{{name}}}")
            }),
        };
        // One recorder may serve many simulated nodes.
        match pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
            Some(host) => self
                .0
                .host(host)
                .event(object, kind, reason, message.into()),
            None => self.0.event(object, kind, reason, message.into()),
        }
    }

    /// Records an event about the node of this name, which may not be registered yet.
    pub fn node(&self, name: &str, kind: Kind, reason: &str, message: impl Into<String>) {
        let object = ObjectReference {
            kind: Some("Node".into()),
            name: Some(name.to_owned()),
            uid: Some(name.to_owned()),
            ..ObjectReference::default()
        };
        self.0.event(object, kind, reason, message.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut_between_characters() {
        assert_eq!(shorten("ü".into()), "ü");
        let cut = shorten("ü".repeat(600));
        assert!(
            cut.len() <= LONGEST_MESSAGE && cut.ends_with("ü..."),
            "{cut}"
        );
    }
}
