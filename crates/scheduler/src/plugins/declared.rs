//! NodeDeclaredFeatures: rejects nodes that do not declare the features a pod needs.
//!
//! Nodes list in their status the Kubernetes features that not every node has yet. Which of them a pod needs follows
//! from its specification; the rules are those of 1.36. Features that only updates of running pods need do not matter
//! here.

use super::{Filter, Plugin};
use crate::cache::Snapshot;
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::status::Rejection;

/// Rules by which a container restarts all containers of its pod.
const RESTART_ALL: &str = "RestartAllContainersOnContainerExits";
/// User namespaces for pods in the network of the host.
const USERS_IN_HOST_NETWORK: &str = "UserNamespacesHostNetworkSupport";

/// The filter for a pod that needs features.
pub(super) fn prepare(pod: &PodInfo, _: &Snapshot) -> Option<Box<dyn Filter>> {
    Some(Box::new(NeededFeatures::new(pod)?))
}

/// The features that a pod needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededFeatures(Vec<&'static str>);

impl NeededFeatures {
    /// The features that a pod needs; `None` if it needs none.
    pub fn new(pod: &PodInfo) -> Option<Self> {
        let spec = pod.spec();
        let mut needed = Vec::new();
        let containers = spec
            .containers
            .iter()
            .chain(spec.init_containers.iter().flatten());
        let mut rules = containers.flat_map(|c| c.restart_policy_rules.iter().flatten());
        if rules.any(|r| r.action == "RestartAllContainers") {
            needed.push(RESTART_ALL);
        }
        if spec.host_network == Some(true) && spec.host_users == Some(false) {
            needed.push(USERS_IN_HOST_NETWORK);
        }
        (!needed.is_empty()).then_some(Self(needed))
    }
}

impl Filter for NeededFeatures {
    /// Rejects nodes that do not declare all of them.
    fn filter(&self, node: &NodeInfo) -> Result<(), Rejection> {
        let declared = node.declared_features();
        if self.0.iter().all(|f| declared.iter().any(|d| d == f)) {
            return Ok(());
        }
        Err(Rejection::unresolvable(
            Plugin::NodeDeclaredFeatures,
            "node(s) didn't match Pod's required features",
        ))
    }
}
