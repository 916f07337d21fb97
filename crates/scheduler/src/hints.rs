//! Which events may make which unschedulable pods schedulable (upstream's queueing hints).

use crate::framework::{EventKind, Plugin, PluginSet};
use crate::node::NodeInfo;
use crate::plugins::affinity::NodeAffinity;
use crate::plugins::volumes::disks;
use crate::plugins::{simple, taints};
use crate::pod::{Key, PodInfo};
use crate::storage;

/// A change of the cluster.
#[derive(Debug, Clone, Copy)]
pub enum ClusterEvent<'a> {
    /// A node was added.
    NodeAdded(&'a NodeInfo),
    /// A node changed.
    NodeChanged {
        /// The node before the change.
        old: &'a NodeInfo,
        /// The node after the change.
        new: &'a NodeInfo,
    },
    /// A node was deleted; the topology domains of spread constraints may have changed.
    NodeRemoved,
    /// A pod was added to a node.
    PodAdded(&'a PodInfo),
    /// Labels of a pod on a node changed.
    PodChanged(&'a PodInfo),
    /// A pod on a node was resized.
    PodResized {
        /// The pod before the change.
        old: &'a PodInfo,
        /// The pod after the change.
        new: &'a PodInfo,
    },
    /// A pod on a node finished or was deleted.
    PodGone(&'a PodInfo),
    /// Devices of a claim may be free.
    DevicesFreed,
    /// Devices were added or changed.
    DevicesChanged,
    /// A device class was added or changed.
    ClassChanged,
    /// Quotas of this namespace on allocated devices changed.
    QuotaChanged(&'a str),
    /// Labels of a namespace changed.
    NamespaceChanged,
    /// A PersistentVolumeClaim was added or changed.
    VolumeClaimChanged(&'a Key),
    /// A volume, a storage class, a CSINode, CSIDriver or CSIStorageCapacity was added or changed.
    StorageChanged,
}

/// The event that a claim changed.
pub const CLAIM: &str = allot_framework::claim_plugin::CLAIM_EVENT;

impl ClusterEvent<'_> {
    /// What plugins register for.
    fn kind(&self) -> EventKind {
        match self {
            Self::NodeAdded(_) | Self::NodeChanged { .. } => EventKind::Node,
            Self::NodeRemoved => EventKind::NodeRemoved,
            Self::PodAdded(_) | Self::PodChanged(_) => EventKind::Pod,
            Self::PodResized { .. } => EventKind::PodResized,
            Self::PodGone(_) => EventKind::PodGone,
            Self::DevicesFreed | Self::DevicesChanged | Self::QuotaChanged(_) => EventKind::Devices,
            Self::ClassChanged => EventKind::DeviceClass,
            Self::NamespaceChanged => EventKind::Namespace,
            Self::VolumeClaimChanged(_) => EventKind::VolumeClaim,
            Self::StorageChanged => EventKind::Storage,
        }
    }

    /// The event's name in metrics, one of upstream's or formed like those.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NodeAdded(_) => "NodeAdd",
            Self::NodeChanged { .. } => "NodeUpdate",
            Self::NodeRemoved => "NodeDelete",
            Self::PodAdded(_) => "AssignedPodAdd",
            Self::PodChanged(_) => "AssignedPodUpdate",
            Self::PodResized { .. } => "AssignedPodUpdatePodScaleDown",
            Self::PodGone(_) => "AssignedPodDelete",
            Self::DevicesFreed => CLAIM,
            Self::DevicesChanged => "resource.k8s.io/ResourceSliceUpdate",
            Self::ClassChanged => "resource.k8s.io/DeviceClassUpdate",
            Self::QuotaChanged(_) => "ResourceQuotaUpdate",
            Self::NamespaceChanged => "NamespaceUpdate",
            Self::VolumeClaimChanged(_) => "PersistentVolumeClaimUpdate",
            Self::StorageChanged => "PersistentVolumeUpdate",
        }
    }
}

/// The plugins with a queueing hint for the event; pods that only other plugins rejected are not requeued.
pub fn interested(event: &ClusterEvent<'_>) -> PluginSet {
    let kind = event.kind();
    let plugins = Plugin::ALL.iter().copied();
    plugins
        .filter(|plugin| plugin.definition().events.contains(&kind))
        .collect()
}

/// Whether the event may help a pod that a plugin rejected.
pub fn may_help(plugin: Plugin, pod: &PodInfo, event: &ClusterEvent<'_>) -> bool {
    match event {
        ClusterEvent::NodeAdded(node) => node_suits(plugin, pod, node),
        ClusterEvent::NodeChanged { old, new } => node_change_helps(plugin, pod, old, new),
        ClusterEvent::PodResized { old, new } => {
            old.requests.has_more_of(&pod.requests, &new.requests)
        }
        ClusterEvent::PodGone(gone) => match plugin {
            Plugin::NodePorts => gone
                .ports
                .iter()
                .any(|p| pod.ports.iter().any(|q| p.conflicts(q))),
            // A place in the number of pods is always free then.
            Plugin::NodeResourcesFit => true,
            Plugin::PodTopologySpread => gone.key.namespace == pod.key.namespace,
            Plugin::VolumeRestrictions => {
                disks::conflict(pod, gone)
                    || storage::claims_of(gone)
                        .any(|(used, _)| storage::claims_of(pod).any(|(k, _)| k == used))
            }
            Plugin::NodeVolumeLimits => storage::claims_of(gone).next().is_some(),
            _ => true,
        },
        ClusterEvent::PodAdded(other) | ClusterEvent::PodChanged(other) => match plugin {
            Plugin::PodTopologySpread => other.key.namespace == pod.key.namespace,
            // Namespace labels are not looked up here: better one attempt too many than none.
            Plugin::InterPodAffinity => {
                let terms = pod.required_affinity.iter();
                matches!(event, ClusterEvent::PodChanged(_))
                    || terms
                        .into_iter()
                        .any(|t| t.selector.matches(other.labels()))
            }
            _ => true,
        },
        ClusterEvent::QuotaChanged(namespace) => *pod.key.namespace == **namespace,
        ClusterEvent::VolumeClaimChanged(claim) => {
            storage::claims_of(pod).any(|(key, _)| key == **claim)
        }
        _ => true,
    }
}

/// Whether the pod fits the node as far as the plugin's check of node properties can tell.
fn node_suits(plugin: Plugin, pod: &PodInfo, node: &NodeInfo) -> bool {
    match plugin {
        Plugin::NodeUnschedulable => simple::unschedulable(pod.tolerations(), node).is_ok(),
        Plugin::NodeName => simple::node_name(pod, node).is_ok(),
        Plugin::TaintToleration => taints::filter(pod.tolerations(), node).is_ok(),
        Plugin::PodTopologySpread | Plugin::InterPodAffinity => true,
        // All other requirements must hold on a node that the pod selects.
        _ => NodeAffinity::new(pod).matches(node),
    }
}

fn node_change_helps(plugin: Plugin, pod: &PodInfo, old: &NodeInfo, new: &NodeInfo) -> bool {
    let labels = old.labels() != new.labels();
    let allocatable = old.allocatable != new.allocatable || old.allowed_pods != new.allowed_pods;
    let changed = match plugin {
        Plugin::NodeUnschedulable => {
            old.is_unschedulable() != new.is_unschedulable() || old.taints() != new.taints()
        }
        Plugin::TaintToleration => old.taints() != new.taints(),
        Plugin::NodeAffinity | Plugin::VolumeBinding | Plugin::VolumeZone => labels,
        Plugin::NodeResourcesFit => allocatable,
        Plugin::PodTopologySpread | Plugin::InterPodAffinity => {
            labels || old.taints() != new.taints()
        }
        Plugin::DynamicResources => labels || allocatable,
        Plugin::NodeDeclaredFeatures => old.declared_features() != new.declared_features(),
        // What they look at does not change on a node.
        Plugin::NodeName | Plugin::NodePorts | Plugin::NodeVolumeLimits => false,
        // A plugin without a rule here: one attempt too many is better than none.
        _ => true,
    };
    // A node that the pod did not select before was rejected for that reason only.
    let selected = labels && !NodeAffinity::new(pod).matches(old);
    (changed || selected) && node_suits(plugin, pod, new)
}

#[cfg(test)]
mod tests;
