//! Versions of pods: a binding names the one that it is for, so that what a scheduler sent that died is refused once its
//! successor has made another.

use super::*;
use crate::version::is_newer;

/// How many versions are kept of pods that are never bound.
const KEPT: usize = 1024;

/// The versions that our own writes made of pods on their way to a node: newer than what the watch has shown.
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

    /// The newest version that is known of a pod which gets its node now.
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
    /// Makes a new version of pods, then does what must not happen before. Not at all where one of them has a node.
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
                // As good as without: who may not write pods does not bind them either.
                Err(error) => log("fence", &pod.key, Err(error)),
            }
        }
        self.start(then);
    }

    /// Makes a new version of a pod. Says whether it has a node.
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
            // Set where it is not, and the other way round: a field that nobody reads.
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
                // Somebody else made a new version, who may have given it a node.
                Err(error) if code(&error) == 409 => is_new = true,
                Err(error) if code(&error) == 404 => return Ok(false),
                Err(error) if !answered(&error) || code(&error) == 429 => pause.wait().await,
                Err(error) => return Err(error),
            }
        }
    }
}
