//! Where a pod would be placed, and which devices its claims have or would get.

use allot_scheduler::core::Chosen;
use allot_scheduler::pod::PodInfo;
use allot_scheduler::pod::claims::claim_key;
use k8s_openapi::api::resource::v1::AllocationResult;
use serde::Serialize;

use crate::cmd::explain::cluster_objects::LoadedScheduler;

/// The node that a pod would be placed on.
#[derive(Debug, Serialize)]
pub(super) struct Place {
    pub(super) node: String,
    /// Devices for claims that are not allocated.
    pub(super) claims: Vec<ClaimDevices>,
}

/// A claim with its devices.
#[derive(Debug, Serialize)]
pub(super) struct ClaimDevices {
    pub(super) claim: String,
    pub(super) devices: Vec<Device>,
}

/// A device, and the request that it is for.
#[derive(Debug, Serialize)]
pub(super) struct Device {
    pub(super) request: String,
    pub(super) driver: String,
    pub(super) pool: String,
    pub(super) device: String,
}

/// What the claims of a pod have.
pub(super) fn held(loaded: &LoadedScheduler, pod: &PodInfo) -> Vec<ClaimDevices> {
    let entries = pod.spec().resource_claims.iter().flatten();
    let keys = entries.filter_map(|entry| claim_key(pod, entry).ok().flatten());
    keys.map(|key| {
        let claim = loaded.core.claims().get(&key);
        let allocation = claim.and_then(|claim| claim.status.as_ref()?.allocation.as_ref());
        ClaimDevices {
            claim: key.to_string(),
            devices: allocation.map(devices).unwrap_or_default(),
        }
    })
    .collect()
}

impl From<&Chosen> for Place {
    fn from(chosen: &Chosen) -> Self {
        let claims = chosen
            .allocations
            .iter()
            .map(|(key, allocation)| ClaimDevices {
                claim: key.to_string(),
                devices: devices(allocation),
            });
        Self {
            node: chosen.node.to_string(),
            claims: claims.collect(),
        }
    }
}

fn devices(allocation: &AllocationResult) -> Vec<Device> {
    let results = allocation.devices.iter().filter_map(|d| d.results.as_ref());
    let device = |r: &k8s_openapi::api::resource::v1::DeviceRequestAllocationResult| Device {
        request: r.request.clone(),
        driver: r.driver.clone(),
        pool: r.pool.clone(),
        device: r.device.clone(),
    };
    results.flatten().map(device).collect()
}
