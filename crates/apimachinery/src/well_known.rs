//! Well-known labels, annotations and taints, by the names of upstream's constants in `k8s.io/api/core/v1` and
//! `k8s.io/api/resource/v1`.

/// The node's host name; of most nodes it is their name.
pub const LABEL_HOSTNAME: &str = "kubernetes.io/hostname";
/// The zone of a node or volume.
pub const LABEL_TOPOLOGY_ZONE: &str = "topology.kubernetes.io/zone";
/// The region of a node or volume.
pub const LABEL_TOPOLOGY_REGION: &str = "topology.kubernetes.io/region";
/// [`LABEL_TOPOLOGY_ZONE`] before 1.17.
pub const LABEL_FAILURE_DOMAIN_BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
/// [`LABEL_TOPOLOGY_REGION`] before 1.17.
pub const LABEL_FAILURE_DOMAIN_BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
/// The type of machine that a node is.
pub const LABEL_INSTANCE_TYPE_STABLE: &str = "node.kubernetes.io/instance-type";
/// [`LABEL_INSTANCE_TYPE_STABLE`] before 1.17.
pub const LABEL_INSTANCE_TYPE: &str = "beta.kubernetes.io/instance-type";
/// The operating system of a node, as Go names it.
pub const LABEL_OS_STABLE: &str = "kubernetes.io/os";
/// [`LABEL_OS_STABLE`] before 1.14.
pub const LABEL_OS: &str = "beta.kubernetes.io/os";
/// The processor architecture of a node, as Go names it.
pub const LABEL_ARCH_STABLE: &str = "kubernetes.io/arch";
/// [`LABEL_ARCH_STABLE`] before 1.14.
pub const LABEL_ARCH: &str = "beta.kubernetes.io/arch";

/// Names the StorageClass of a volume or claim, from before `storageClassName`.
pub const BETA_STORAGE_CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// With the value `true` on a claim that a scheduler created for the extended resources of a pod.
pub const EXTENDED_RESOURCE_CLAIM_ANNOTATION: &str =
    "resource.kubernetes.io/extended-resource-claim";

/// The `Ready` condition of the node is false. Set by the node lifecycle controller.
pub const TAINT_NODE_NOT_READY: &str = "node.kubernetes.io/not-ready";
/// The `Ready` condition of the node is unknown: its kubelet does not report. Set by the node lifecycle controller.
pub const TAINT_NODE_UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// The node is cordoned.
pub const TAINT_NODE_UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// The node has little memory left.
pub const TAINT_NODE_MEMORY_PRESSURE: &str = "node.kubernetes.io/memory-pressure";
/// The node has little disk space left.
pub const TAINT_NODE_DISK_PRESSURE: &str = "node.kubernetes.io/disk-pressure";
/// The node has few process IDs left.
pub const TAINT_NODE_PID_PRESSURE: &str = "node.kubernetes.io/pid-pressure";
/// The network of the node is not configured.
pub const TAINT_NODE_NETWORK_UNAVAILABLE: &str = "node.kubernetes.io/network-unavailable";

/// Taints, with their effects, that the pods of a DaemonSet tolerate. Pods in the host's network tolerate
/// [`TAINT_NODE_NETWORK_UNAVAILABLE`] as well.
pub const DAEMON_POD_TOLERATIONS: [(&str, &str); 6] = [
    (TAINT_NODE_NOT_READY, "NoExecute"),
    (TAINT_NODE_UNREACHABLE, "NoExecute"),
    (TAINT_NODE_DISK_PRESSURE, "NoSchedule"),
    (TAINT_NODE_MEMORY_PRESSURE, "NoSchedule"),
    (TAINT_NODE_PID_PRESSURE, "NoSchedule"),
    (TAINT_NODE_UNSCHEDULABLE, "NoSchedule"),
];

/// Phase of a pod whose containers have all ended with success, for good.
pub const POD_SUCCEEDED: &str = "Succeeded";
/// Phase of a pod whose containers have all ended, at least one of them in failure, for good.
pub const POD_FAILED: &str = "Failed";

/// Whether a pod with this `status.phase` has finished: no container of it runs again, and it uses no resources. A pod
/// keeps such a phase.
pub fn is_terminal_phase(phase: &str) -> bool {
    matches!(phase, POD_SUCCEEDED | POD_FAILED)
}
