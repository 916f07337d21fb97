//! Versions of pods: a binding names the version of its pod, so that requests of a dead scheduler get a conflict once
//! its successor has created a new version.

use super::*;
use crate::version::is_newer;

/// How many versions are kept of pods that are never bound.
const KEPT: usize = 1024;

/// The versions that this scheduler's writes created of pods being bound: newer than what the watch has shown.
#[derive(Default)]
pub(super) struct Versions(Mutex<FxHashMap<Uid, String>>);

impl Versions {
    /// A write for a pod was answered.
    pub(super) fn note(&self, pod: &Uid, version: String) {
        let mut versions = self.0.lock();
        if versions.len() >= KEPT {
            versions.clear();
        }
        versions.insert(pod.clone(), version);
    }

    /// The newest known version of a pod that is bound now.
    pub(super) fn take(&self, pod: &PodInfo) -> Option<String> {
        let version = self.newest(pod);
        self.0.lock().remove(&pod.uid);
        version
    }

    /// The newest version that is known of a pod.
    pub(super) fn newest(&self, pod: &PodInfo) -> Option<String> {
        let seen = pod.pod.metadata.resource_version.clone();
        let written = self.0.lock().get(&pod.uid).cloned();
        match (seen, written) {
            (Some(seen), Some(written)) if is_newer(&seen, &written) => Some(seen),
            (seen, written) => written.or(seen),
        }
    }
}

impl Writer {
    /// Creates a new version of pods, then runs `then`. Does nothing if one of the pods has a node.
    pub(super) async fn write_fenced(&self, pods: &[Arc<PodInfo>], then: Action) {
        for pod in pods {
            match self.fence(pod).await {
                Ok(false) => {}
                Ok(true) => {
                    tracing::info!(pod = %pod.key, "bound by a scheduler that is gone; its claims stay");
                    return match &then {
                        Action::Deallocate(claim) => self.released(claim, None, None),
                        Action::Unreserve { pod, claim } => {
                            self.released(claim, Some(pod.clone()), None);
                        }
                        _ => {}
                    };
                }
                // Equivalent to success: a scheduler without permission to write pods cannot bind them either.
                Err(error) => log("fence", &pod.key, Err(error)),
            }
        }
        self.start(then);
    }

    /// Creates a new version of a pod. Returns whether it has a node.
    pub(super) async fn fence(&self, pod: &PodInfo) -> Result<bool, kube::Error> {
        let api = self.pods(&pod.key);
        let mut pause = Pause::default();
        let mut is_new = false;
        loop {
            let Some(found) = (match observe::get(&api, &pod.key.name).await {
                Ok(found) => found.filter(|p| p.metadata.uid.as_deref() == Some(&*pod.uid)),
                Err(error @ kube::Error::SerdeError(_)) => return Err(error),
                Err(_) => {
                    pause.wait().await;
                    continue;
                }
            }) else {
                return Ok(false);
            };
            let has_node = found.spec.as_ref().is_some_and(|s| s.node_name.is_some());
            if has_node || is_new {
                return Ok(has_node);
            }
            // Toggle a field that no component reads.
            let conditions = found
                .status
                .iter()
                .flat_map(|s| s.conditions.iter().flatten());
            let mut probed = conditions.filter(|c| c.type_ == "PodScheduled");
            let is_set = probed.any(|c| c.last_probe_time.is_some());
            let time = (!is_set).then(|| rfc3339(self.clock.now()));
            let condition =
                json!({"type": "PodScheduled", "status": "False", "lastProbeTime": time});
            let patch = json!({
                "metadata": {"uid": &*pod.uid, "resourceVersion": found.metadata.resource_version},
                "status": {"conditions": [condition]},
            });
            match self.patch_pod_status(&pod.key, &patch).await {
                Ok(_) => return Ok(false),
                // Another component wrote the pod, and may have bound it.
                Err(error) if code(&error) == 409 => is_new = true,
                Err(error) if code(&error) == 404 => return Ok(false),
                Err(error) if !answered(&error) || code(&error) == 429 => pause.wait().await,
                Err(error) => return Err(error),
            }
        }
    }
}
