//! Pressure on the memory, disks and process IDs of the node: the kubelet's eviction signals and thresholds, the conditions of the
//! Node that follow from them, and which resource has to be reclaimed. What is done about it is up to [`crate::eviction`].

mod decide;
mod observe;
mod thresholds;

use std::collections::BTreeMap;

pub(crate) use decide::{Decider, Reclaim};
pub(crate) use observe::{Places, observe};
pub use thresholds::{EVICTION_HARD, Eviction, Reclaims, ThresholdError, Thresholds};

/// What is observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Signal {
    Memory,
    /// The file system of the node's directory.
    NodeSpace,
    NodeInodes,
    /// The file system of the images.
    ImageSpace,
    ImageInodes,
    Processes,
}

/// What a node is short of, and what pods use of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    Memory,
    Storage,
    Inodes,
    Processes,
}

impl Resource {
    /// Whether a disk is short of it.
    pub(crate) fn is_on_disk(self) -> bool {
        matches!(self, Self::Storage | Self::Inodes)
    }

    /// The name in messages and events.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Storage => "ephemeral-storage",
            Self::Inodes => "inodes",
            Self::Processes => "pids",
        }
    }
}

impl Signal {
    /// Whether it is about the file system of the images.
    pub(crate) fn is_of_images(self) -> bool {
        matches!(self, Self::ImageSpace | Self::ImageInodes)
    }

    pub(crate) fn resource(self) -> Resource {
        match self {
            Self::Memory => Resource::Memory,
            Self::NodeSpace | Self::ImageSpace => Resource::Storage,
            Self::NodeInodes | Self::ImageInodes => Resource::Inodes,
            Self::Processes => Resource::Processes,
        }
    }
}

/// The available amount and the capacity of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) available: u64,
    pub(crate) capacity: u64,
}

/// What was observed at one time. A signal that cannot be observed is missing, and is no pressure.
pub(crate) type Observations = BTreeMap<Signal, Amount>;

/// The kinds of pressure that the node is under.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Pressed {
    pub(crate) memory: bool,
    pub(crate) disk: bool,
    pub(crate) processes: bool,
}

impl Pressed {
    /// The types of the Node's conditions.
    pub(crate) fn conditions(self) -> Vec<&'static str> {
        let all = [
            (self.memory, "MemoryPressure"),
            (self.disk, "DiskPressure"),
            (self.processes, "PIDPressure"),
        ];
        let pressed = all.into_iter().filter(|(pressed, _)| *pressed);
        pressed.map(|(_, name)| name).collect()
    }
}
