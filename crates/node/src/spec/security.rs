//! The user of a container's program, its privileges and limits.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The security context of a container, with everything decided that the API leaves open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Security {
    /// User; root when absent.
    pub user: Option<u32>,
    /// User of the image that must be looked up in the container's `/etc/passwd`; [`Security::user`] takes precedence.
    pub user_name: Option<String>,
    /// Group; the user's from the container's `/etc/passwd`, or else root, when absent.
    pub group: Option<u32>,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Also the groups that the container's `/etc/group` gives the user.
    pub merge_groups: bool,
    /// Capabilities, `CAP_*`.
    pub capabilities: Vec<String>,
    /// A program that is executed cannot have more privileges than the one that executes it.
    pub no_new_privileges: bool,
    /// All devices, nothing masked.
    pub privileged: bool,
    /// The root directory cannot be written to.
    pub read_only_root: bool,
    /// `/proc` without masked and read-only paths.
    pub unmasked: bool,
    /// Which system calls are refused.
    pub seccomp: Seccomp,
    /// AppArmor profile and SELinux label.
    pub confinement: Confinement,
    /// Kernel parameters of the container's namespaces.
    pub sysctls: BTreeMap<String, String>,
    /// Sees the processes of the host.
    pub host_pid: bool,
    /// Uses the IPC namespace of the host.
    pub host_ipc: bool,
    /// The system calls for keyrings are refused, also in a privileged container: the process could not leave the session
    /// keyring of the agent. Set by the shim.
    pub no_keyrings: bool,
}

/// A filter for system calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seccomp {
    /// All are permitted.
    #[default]
    Unconfined,
    /// The runtime's own profile.
    RuntimeDefault,
    /// A profile in the format of Docker and containerd, as JSON text.
    Profile(String),
}

/// Names for the kernel's security modules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Confinement {
    /// Profile of AppArmor.
    pub apparmor: Option<String>,
    /// Label of SELinux for the processes.
    pub selinux: Option<String>,
}

/// Limits that the kernel enforces by cgroups. Absent ones are not enforced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Share of the CPU when there is not enough for all: 1024 for one.
    pub cpu_shares: Option<u64>,
    /// Microseconds of CPU time in every period of 100 ms, or of [`Limits::cpu_period`].
    pub cpu_quota: Option<i64>,
    /// Microseconds in which CPU time is counted, if they are not 100 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_period: Option<u64>,
    /// The processors, as a list such as `0-3,7`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// The memory nodes, as a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mems: Option<String>,
    /// Files of the cgroup with their contents, in the second version of cgroups.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unified: BTreeMap<String, String>,
    /// Bytes of memory.
    pub memory: Option<i64>,
    /// Number of processes and threads.
    pub pids: Option<i64>,
    /// Bytes of huge pages by the kernel's name for their size, such as `2MB`.
    pub huge_pages: BTreeMap<String, u64>,
    /// Bytes of the root directory in memory.
    pub root: Option<u64>,
    /// Readiness of the kernel to kill the container when the machine has no memory left.
    pub oom_score_adj: Option<i32>,
    /// Those of the container's pod.
    pub pod: PodLimits,
}

/// Limits for all containers of a pod together. Absent ones are not enforced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodLimits {
    /// Share of the CPU when there is not enough for all pods: 1024 for one.
    pub cpu_shares: Option<u64>,
    /// Microseconds of CPU time in every period of 100 ms.
    pub cpu_quota: Option<i64>,
    /// Bytes of memory.
    pub memory: Option<i64>,
    /// Number of processes and threads.
    pub pids: Option<i64>,
}
