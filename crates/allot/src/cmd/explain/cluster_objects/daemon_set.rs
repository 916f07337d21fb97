//! The pods of a DaemonSet: one for each node that it wants.

use std::collections::HashMap;

use allot_controllers::daemonset::{pin, target_node, wants_pod_on};
use anyhow::Context as _;
use k8s_openapi::api::apps::v1::DaemonSetSpec;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

use super::add::{MOST_REPLICAS, Workload, pod_of_template};
use super::own_pods::{is_on_node, is_over, owns};
use super::{ClusterObjects, identity};
use crate::cmd::manifests::{title, typed};

/// A pod that a DaemonSet has for a node.
enum OwnPod {
    OnNode,
    /// It waits; its namespace and name.
    Waiting((String, String)),
}

impl ClusterObjects {
    /// Adds the pods that the DaemonSet controller would create. Nodes with a pod of the set get no other.
    ///
    /// # Errors
    /// The set cannot be read, or the nodes are not shown.
    pub(super) fn add_daemon_set(
        &mut self,
        set: &Value,
        number: usize,
    ) -> anyhow::Result<Workload> {
        if let Some(hidden) = self.hidden.iter().find(|hidden| hidden.hides("Node", "")) {
            let (set, nodes) = (title(set), &hidden.resource);
            anyhow::bail!("{set} has a pod on each node, and there is no right to list {nodes}");
        }
        let unreadable = || format!("{} cannot be read", title(set));
        let spec = set["spec"].clone();
        let spec: DaemonSetSpec = serde_json::from_value(spec).with_context(unreadable)?;
        let nodes: Vec<Node> = typed(&self.objects, "Node")?;
        let wanted = nodes.iter();
        let wanted = wanted.filter(|node| wants_pod_on(&spec, node, &self.features));
        let wanted: Vec<String> = wanted.filter_map(|n| n.metadata.name.clone()).collect();
        let replaced = self.remove_replaced(set);
        let mut own = self.daemon_pods(set).with_context(unreadable)?;
        let (mut on_nodes, mut pods, mut of) = (0, Vec::new(), Vec::new());
        let replicas = wanted.len();
        for node in wanted {
            let pod = match own.remove(&node) {
                Some(OwnPod::OnNode) => {
                    on_nodes += 1;
                    continue;
                }
                _ if pods.len() == MOST_REPLICAS => continue,
                Some(OwnPod::Waiting(pod)) => Some(pod),
                None => {
                    let mut pod = pod_of_template(set);
                    let name = set["metadata"]["name"].as_str().unwrap_or_default();
                    pod["metadata"]["name"] = json!(format!("{name}-{node}"));
                    pin(&mut pod, &node);
                    self.add_one(pod, number)?
                }
            };
            of.extend(pod.as_ref().map(|_| node));
            pods.extend(pod);
        }
        Ok(Workload {
            title: title(set),
            replicas,
            on_nodes,
            replaced,
            pods,
            nodes: Some(of),
        })
    }

    /// The pods of the set, by the node that each is on or is meant for. In a rolling update with a surge a node has the next
    /// pod beside the one that runs: that counts.
    fn daemon_pods(&self, set: &Value) -> anyhow::Result<HashMap<String, OwnPod>> {
        let mut found = HashMap::new();
        for object in self.objects.iter().filter(|object| owns(set, object)) {
            let pod: Pod = serde_json::from_value(object.clone())?;
            if is_over(object) {
                continue;
            }
            let (_, namespace, name) = identity(object);
            let own = match is_on_node(object) {
                true => OwnPod::OnNode,
                false => OwnPod::Waiting((namespace, name)),
            };
            let node = target_node(&pod);
            let runs = matches!(own, OwnPod::OnNode);
            if runs || !found.contains_key(&node) {
                found.insert(node, own);
            }
        }
        Ok(found)
    }
}
