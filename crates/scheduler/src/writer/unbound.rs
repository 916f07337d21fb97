//! The parts of a pod's status about claims that only its scheduler creates: the extended resource claim, and the node
//! resources of its devices. They are written while the pod is pending. Once it has a node, they describe the decision
//! of the scheduler that bound it; a request of another scheduler, or a late one, must not change them.

use serde_json::{Value, json};

use super::binding::{log, send_pod_status};
use super::*;

impl Writer {
    /// Records the extended resource claim in the pod's status.
    pub(super) async fn record_extended_resource_claim(
        &self,
        pod: &PodInfo,
        status: &Value,
    ) -> Result<(), kube::Error> {
        let status = json!({"extendedResourceClaimStatus": status});
        self.write_unbound(pod, &status, |p| Patch::Strategic(p))
            .await
    }

    /// Records in a pod's status the node resources that come with its devices.
    pub(super) async fn record_node_allocatable(
        &self,
        pod: &PodInfo,
        node_allocatable: &NodeAllocatableRequests,
    ) -> Result<(), kube::Error> {
        let status = json!({"nodeAllocatableResourceClaimStatuses": node_allocatable.0});
        // The whole list: a strategic patch would add to what an earlier attempt left.
        self.write_unbound(pod, &status, |p| Patch::Merge(p)).await
    }

    /// Reverts that after the binding failed, before the next attempt records something.
    pub(super) fn clear_node_allocatable(&self, pod: Arc<PodInfo>) {
        // No other attempt is running: this one is over, and the next has not begun.
        let turn = self.demands.of(&pod.uid).try_lock_owned();
        self.clone().spawn(async move |w| {
            let _turn = turn;
            let write = async || {
                w.record_node_allocatable(&pod, &NodeAllocatableRequests::default())
                    .await
            };
            let cleared = until_known(write, async || Ok(None)).await;
            log(
                "clear node-allocatable resources",
                &pod.key,
                cleared.map(drop),
            );
        });
    }

    /// Writes into the status of a pod in a version that has no node.
    async fn write_unbound(
        &self,
        pod: &PodInfo,
        status: &Value,
        kind: fn(&Value) -> Patch<&Value>,
    ) -> Result<(), kube::Error> {
        let mut version = self.versions.newest(pod);
        loop {
            let patch = json!({
                "metadata": {"uid": &*pod.uid, "resourceVersion": version},
                "status": status,
            });
            let error = match send_pod_status(&self.client, &pod.key, &kind(&patch)).await {
                Ok(version) => {
                    self.versions.note(&pod.uid, version);
                    return Ok(());
                }
                Err(error) => error,
            };
            if code(&error) != 409 {
                return Err(error);
            }
            let current = observe::get(&self.pods(&pod.key), &pod.key.name).await?;
            let same = |p: &Pod| p.metadata.uid.as_deref() == Some(&*pod.uid);
            let has_node = |p: &Pod| p.spec.as_ref().is_some_and(|s| s.node_name.is_some());
            let Some(current) = current.filter(|p| same(p) && !has_node(p)) else {
                return Err(error);
            };
            if current.metadata.resource_version == version {
                return Err(error);
            }
            version = current.metadata.resource_version;
        }
    }
}
