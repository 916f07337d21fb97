//! Events about resizes, with the kubelet's texts.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use serde::Serialize;

use crate::events::{Kind, Recorder};

/// An event about the resize of a pod.
#[derive(Debug)]
pub(crate) struct ResizeEvent {
    pub(super) pod: Arc<Pod>,
    pub(super) kind: Kind,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// Records events about resizes.
pub(crate) fn record_events(recorder: &Recorder, events: Vec<ResizeEvent>) {
    for it in events {
        recorder.pod(&it.pod, None, it.kind, it.reason, it.message);
    }
}

impl ResizeEvent {
    /// The requested resources are allocated to the pod.
    pub(super) fn started(pod: &Arc<Pod>, generation: i64) -> Self {
        let what = "Pod resize started";
        Self::new(pod, Kind::Normal, ("ResizeStarted", what), generation, "")
    }

    /// The containers of the pod have the allocated resources.
    pub(super) fn completed(pod: &Arc<Pod>, generation: i64) -> Self {
        let what = "Pod resize completed";
        Self::new(pod, Kind::Normal, ("ResizeCompleted", what), generation, "")
    }

    /// The requested resources do not fit on the node now; `reason` is the kubelet's, such as `OutOfcpu`.
    pub(super) fn deferred(pod: &Arc<Pod>, generation: i64, reason: &str, why: &str) -> Self {
        let what = format!("Pod resize {reason}");
        let said = ("ResizeDeferred", what.as_str());
        Self::new(pod, Kind::Warning, said, generation, why)
    }

    /// The containers of the pod could not get the allocated resources.
    pub(super) fn failed(pod: &Arc<Pod>, generation: i64, error: &str) -> Self {
        let said = ("ResizeError", "Pod resize error");
        Self::new(pod, Kind::Warning, said, generation, error)
    }

    fn new(
        pod: &Arc<Pod>,
        kind: Kind,
        (reason, what): (&'static str, &str),
        generation: i64,
        error: &str,
    ) -> Self {
        Self {
            message: format!("{what}: {}", summary(pod, generation, error)),
            pod: Arc::clone(pod),
            kind,
            reason,
        }
    }
}

/// The requested resources of a pod as JSON, in the form of the kubelet's events.
fn summary(pod: &Pod, generation: i64, error: &str) -> String {
    #[derive(Serialize)]
    struct OfContainer {
        name: String,
        resources: ResourceRequirements,
    }

    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct OfPod<'a> {
        #[serde(skip_serializing_if = "Vec::is_empty")]
        init_containers: Vec<OfContainer>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        containers: Vec<OfContainer>,
        generation: i64,
        #[serde(skip_serializing_if = "str::is_empty")]
        error: &'a str,
    }

    let spec = pod.spec.as_ref();
    let shown = |container: &Container| OfContainer {
        name: container.name.clone(),
        resources: container.resources.clone().unwrap_or_default(),
    };
    let init = spec.and_then(|spec| spec.init_containers.as_deref());
    let others = spec.map(|spec| spec.containers.as_slice());
    let whole = OfPod {
        init_containers: init.unwrap_or_default().iter().map(shown).collect(),
        containers: others.unwrap_or_default().iter().map(shown).collect(),
        generation,
        error,
    };
    serde_json::to_string(&whole).unwrap_or_default()
}
