//! Nodes that no longer report.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use serde_json::json;

use super::{BY_NODE, Nodes, ready_condition};
use crate::Error;
use crate::controller::api::{self, Part};
use crate::controller::clock::rfc3339;
use crate::controller::events::{Level, reference};
use crate::controller::meta;
use crate::controller::whole::Whole;
use crate::workload::set_condition;

impl Nodes {
    /// Sets the conditions of a silent node to Unknown; `None` if the cached state is not the newest.
    pub(super) async fn set_unknown(
        &self,
        node: &Node,
        now: Timestamp,
    ) -> Result<Option<Arc<Node>>, Error> {
        let whole: Api<Whole<Node>> = Api::all(self.client.clone());
        let live = api::get(&whole, meta::name(node)).await?;
        // A newer state than the cached one may contain a heartbeat: it is checked when it arrives.
        let version = &node.metadata.resource_version;
        let Some(node) = live.filter(|n| n.metadata.resource_version == *version) else {
            return Ok(None);
        };
        let stamp = rfc3339(now);
        let mut conditions = node
            .at("/status/conditions")
            .as_array()
            .cloned()
            .unwrap_or_default();
        for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
            let never = conditions.iter().all(|c| c["type"] != kind);
            let (reason, message) = if never {
                (
                    "NodeStatusNeverUpdated",
                    "Kubelet never posted node status.",
                )
            } else {
                ("NodeStatusUnknown", "Kubelet stopped posting node status.")
            };
            let heartbeat = conditions
                .iter()
                .find(|c| c["type"] == kind)
                .map(|c| c["lastHeartbeatTime"].clone());
            set_condition(&mut conditions, kind, "Unknown", reason, message, &stamp);
            if let Some(c) = conditions.iter_mut().find(|c| c["type"] == kind) {
                c["lastHeartbeatTime"] = heartbeat
                    .filter(|h| !h.is_null())
                    .unwrap_or_else(|| json!(node.metadata.creation_timestamp));
            }
        }
        let body = json!({"metadata": api::unchanged(&node), "status": {"conditions": conditions}});
        let api: Api<Node> = Api::all(self.client.clone());
        let updated = api::patch(&api, meta::name(&node), Part::Status, &body).await?;
        if ready_condition(&node).is_some_and(|c| c.status == "True") {
            let name = meta::name(&node);
            let message = format!("Node {name} status is now: NodeNotReady");
            let node = reference(&*node);
            self.events
                .event(node, Level::Normal, "NodeNotReady", message);
        }
        // The write above is not a heartbeat.
        if let Some(seen) = self.seen.lock().get_mut(meta::name(&node)) {
            seen.heartbeat =
                ready_condition(&updated).and_then(|c| c.last_heartbeat_time.as_ref().map(|t| t.0));
        }
        self.nodes.assume(updated.clone());
        Ok(Some(Arc::new(updated)))
    }

    /// Pods of a silent node are set to not ready, regardless of their last status.
    pub(super) async fn mark_pods(&self, node: &str) -> Result<(), Error> {
        for pod in self.pods.by_index(BY_NODE, node) {
            if !meta::is_ready(&pod) {
                continue;
            }
            let api: Api<Pod> = Api::namespaced(self.client.clone(), meta::namespace(&*pod));
            let stamp = rfc3339(self.clock.now());
            let body = json!({
                "metadata": api::unchanged(&*pod),
                "status": {"conditions": [
                    {"type": "Ready", "status": "False", "lastTransitionTime": stamp},
                ]},
            });
            match api::patch_strategic(&api, meta::name(&*pod), Part::Status, &body).await {
                Ok(pod) => self.pods.assume(pod),
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error),
            }
            let message = "Node is not ready".to_owned();
            self.events
                .event(reference(&*pod), Level::Warning, "NodeNotReady", message);
        }
        Ok(())
    }
}
