//! What the kubelet and the container runtime got for a claim.

use allot_cdi::ContainerEdits;

use super::DeviceAnswer;
use crate::ClaimRef;

/// A claim that was prepared: what the kubelet and the container runtime got.
#[derive(Debug, Clone, PartialEq)]
pub struct TestPrepared {
    claim: ClaimRef,
    devices: Vec<DeviceAnswer>,
    edits: ContainerEdits,
}

impl TestPrepared {
    pub(super) fn new(claim: ClaimRef, devices: Vec<DeviceAnswer>, edits: ContainerEdits) -> Self {
        Self {
            claim,
            devices,
            edits,
        }
    }

    /// Namespace, name and UID of the claim.
    pub fn reference(&self) -> &ClaimRef {
        &self.claim
    }

    /// The devices of the driver's answer, in its order.
    pub fn devices(&self) -> &[DeviceAnswer] {
        &self.devices
    }

    /// What a container with all devices of the claim gets from the CDI files.
    pub fn edits(&self) -> &ContainerEdits {
        &self.edits
    }

    /// A variable in the environment of such a container.
    pub fn env(&self, name: &str) -> Option<&str> {
        let variables = self.edits.env.iter().rev();
        let mut pairs = variables.filter_map(|variable| variable.split_once('='));
        pairs.find(|(other, _)| *other == name).map(|(_, it)| it)
    }
}
