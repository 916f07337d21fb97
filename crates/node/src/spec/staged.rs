//! What the shim has prepared for a container before its OCI specification is made.

use std::path::PathBuf;

/// What has been put together for a container.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    /// The root directory.
    pub(crate) root: PathBuf,
    /// Sources of [`super::ContainerSpec::mounts`], in their order: a mounted source cannot be exchanged.
    pub(crate) mounts: Vec<PathBuf>,
    /// Sources of [`super::ContainerSpec::devices`], in their order.
    pub(crate) devices: Vec<Device>,
    /// How this machine has its cgroups.
    pub(crate) cgroups: Hierarchy,
}

/// A device node of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Device {
    /// Path on the host.
    pub(crate) source: PathBuf,
    /// `c`, `b` or `p`.
    pub(crate) kind: &'static str,
    /// Numbers of the node.
    pub(crate) numbers: (u32, u32),
    /// Permission bits.
    pub(crate) mode: u32,
    /// User and group.
    pub(crate) owner: (u32, u32),
}

/// The mount on `/sys/fs/cgroup`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Hierarchy {
    /// Nothing writable.
    #[default]
    None,
    /// One file system for every controller, perhaps with an empty second version beside them.
    V1,
    /// The second version only.
    V2,
}

/// User and groups of a container's program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) groups: Vec<u32>,
    pub(crate) home: String,
}
