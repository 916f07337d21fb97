//! Events about resizes, with the kubelet's texts.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use serde::Serialize;

use crate::events::{Kind, Recorder};

/// An event about the resize of a pod.
#[derive(Debug)]
pub(crate) struct Told {
    pub(super) pod: Arc<Pod>,
    pub(super) kind: Kind,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// Records events about resizes.
pub(crate) fn tell(events: &Recorder, told: Vec<Told>) {
    for it in told {
        events.pod(&it.pod, None, it.kind, it.reason, it.message);
    }
}

impl Told {
    /// The pod gets what it asks for.
    pub(super) fn started(pod: &Arc<Pod>, generation: i64) -> Self {
        let what = "Pod resize started";
        Self::new(pod, Kind::Normal, ("ResizeStarted", what), generation, "")
    }

    /// Its containers have what it was given.
    pub(super) fn completed(pod: &Arc<Pod>, generation: i64) -> Self {
        let what = "Pod resize completed";
        Self::new(pod, Kind::Normal, ("ResizeCompleted", what), generation, "")
    }

    /// It does not fit now, for one of the kubelet's reasons.
    pub(super) fn deferred(pod: &Arc<Pod>, generation: i64, reason: &str, why: &str) -> Self {
        let what = format!("Pod resize {reason}");
        let said = ("ResizeDeferred", what.as_str());
        Self::new(pod, Kind::Warning, said, generation, why)
    }

    /// Its containers could not be given what it was given.
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

/// The resources that a pod asks for, as the kubelet's events have them.
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
