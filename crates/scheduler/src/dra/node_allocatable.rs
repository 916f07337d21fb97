//! Resources of the node itself (CPU, memory, huge pages) that devices provide (DRANodeAllocatableResources).
//!
//! A device may declare an amount of node resources. A pod's share is added to the requests of its containers, must fit
//! on the node, and is recorded in the pod's status, from where it counts as long as the pod exists.

use std::collections::BTreeMap;
use std::str::FromStr;

use allot_apimachinery::quantity::Quantity;
use k8s_openapi::api::core::v1::{
    ContainerExtendedResourceRequest, NodeAllocatableResourceClaimStatus, Pod,
};
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceRequestAllocationResult, NodeAllocatableResourceMapping, ResourceSlice,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use rustc_hash::FxHashMap;

use super::extended;
use crate::framework::Plugin;
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::resources::Resources;
use crate::resources::node_allocatable::{besides_pod_level, total};
use crate::status::Rejection;

const PLUGIN: Plugin = Plugin::DynamicResources;

/// Driver, pool and name.
type DeviceId = (String, String, String);
type PerResource = BTreeMap<String, NodeAllocatableResourceMapping>;

/// The node resources of devices. Only devices that have any are included.
#[derive(Debug, Default)]
pub struct Mappings {
    by_device: FxHashMap<DeviceId, PerResource>,
    by_slice: FxHashMap<String, Vec<DeviceId>>,
}

impl Mappings {
    /// Adds or replaces a slice.
    pub fn set(&mut self, slice: &ResourceSlice) {
        let name = slice.metadata.name.clone().unwrap_or_default();
        self.remove(&name);
        let mut devices = Vec::new();
        for device in slice.spec.devices.iter().flatten() {
            let Some(mappings) = &device.node_allocatable_resource_mappings else {
                continue;
            };
            let (driver, pool) = (slice.spec.driver.clone(), slice.spec.pool.name.clone());
            let id = (driver, pool, device.name.clone());
            self.by_device.insert(id.clone(), mappings.clone());
            devices.push(id);
        }
        if !devices.is_empty() {
            self.by_slice.insert(name, devices);
        }
    }

    /// Removes a slice.
    pub fn remove(&mut self, slice: &str) {
        for device in self.by_slice.remove(slice).into_iter().flatten() {
            self.by_device.remove(&device);
        }
    }

    /// Whether there is any.
    pub fn is_empty(&self) -> bool {
        self.by_device.is_empty()
    }

    /// The node resources of an allocation, by resource.
    pub fn of(&self, allocation: &AllocationResult) -> BTreeMap<String, ApiQuantity> {
        let mut sums: BTreeMap<String, Quantity> = BTreeMap::new();
        let results = allocation.devices.iter().flat_map(|d| d.results.iter());
        for result in results.flatten() {
            let (driver, pool) = (result.driver.clone(), result.pool.clone());
            let Some(mappings) = self.by_device.get(&(driver, pool, result.device.clone())) else {
                continue;
            };
            for (resource, mapping) in mappings {
                let Some(amount) = amount(result, mapping) else {
                    continue;
                };
                let sum = match sums.get(resource) {
                    Some(sum) => sum.checked_add(&amount).unwrap_or_else(|| sum.clone()),
                    None => amount,
                };
                sums.insert(resource.clone(), sum);
            }
        }
        let api = |(name, q): (String, Quantity)| (name, ApiQuantity(q.to_string()));
        sums.into_iter().map(api).collect()
    }
}

/// The node resources of one device: the consumed capacity, if a capacity is named, times the multiplier.
fn amount(
    result: &DeviceRequestAllocationResult,
    mapping: &NodeAllocatableResourceMapping,
) -> Option<Quantity> {
    let read = |q: &ApiQuantity| Quantity::from_str(&q.0).ok();
    let multiplier = mapping.allocation_multiplier.as_ref().and_then(read);
    let Some(key) = &mapping.capacity_key else {
        return multiplier;
    };
    let consumed = read(result.consumed_capacity.as_ref()?.get(key)?)?;
    let Some(multiplier) = multiplier else {
        return Some(consumed);
    };
    if let Some(factor) = multiplier.as_i64() {
        return consumed.checked_mul(factor);
    }
    const NANO: i128 = 1_000_000_000;
    let nanos = consumed.nanos().checked_mul(multiplier.nanos())? / NANO;
    let text = match nanos % NANO {
        0 => (nanos / NANO).to_string(),
        _ => format!("{}m", (nanos + 999_999) / 1_000_000),
    };
    Quantity::from_str(&text).ok()
}

/// The node resources that a pod gets in addition to the requests of its containers, by claim.
#[derive(Debug, Clone, Default)]
pub struct NodeAllocatableRequests(pub Vec<NodeAllocatableResourceClaimStatus>);

impl NodeAllocatableRequests {
    /// What a claim of the pod adds.
    ///
    /// # Errors
    /// No container of the pod uses the claim.
    pub fn add(
        &mut self,
        pod: &Pod,
        claim: &str,
        entries: &[&str],
        resources: BTreeMap<String, ApiQuantity>,
    ) -> Result<(), Rejection> {
        let spec = pod.spec.iter();
        let all = spec.flat_map(|s| s.init_containers.iter().flatten().chain(&s.containers));
        let uses = |c: &&k8s_openapi::api::core::v1::Container| {
            let used = c.resources.iter().flat_map(|r| r.claims.iter().flatten());
            used.into_iter().any(|u| entries.contains(&u.name.as_str()))
        };
        let containers: Vec<String> = all.filter(uses).map(|c| c.name.clone()).collect();
        if containers.is_empty() {
            let text = format!(
                "claim {claim}: node-allocatable resource claim not referenced by any container within the pod"
            );
            return Err(Rejection::unresolvable(PLUGIN, text));
        }
        self.push(claim, containers, resources);
        Ok(())
    }

    /// Adds the node resources of the extended resource claim; its name is known once it is created.
    pub fn add_extended_resource_claim(
        &mut self,
        uses: &[ContainerExtendedResourceRequest],
        resources: BTreeMap<String, ApiQuantity>,
    ) {
        let mut containers: Vec<String> = uses.iter().map(|u| u.container_name.clone()).collect();
        containers.sort_unstable();
        containers.dedup();
        self.push(extended::IN_MEMORY_NAME, containers, resources);
    }

    fn push(
        &mut self,
        claim: &str,
        containers: Vec<String>,
        resources: BTreeMap<String, ApiQuantity>,
    ) {
        self.0.push(NodeAllocatableResourceClaimStatus {
            resource_claim_name: claim.to_owned(),
            containers: Some(containers),
            resources,
        });
    }

    /// As it is recorded once the claim for extended resources has a name.
    #[must_use]
    pub fn named(mut self, extended: Option<&str>) -> Self {
        let claims = self.0.iter_mut().zip(extended.into_iter().cycle());
        for (claim, name) in
            claims.filter(|(c, _)| c.resource_claim_name == extended::IN_MEMORY_NAME)
        {
            claim.resource_claim_name = name.to_owned();
        }
        self
    }

    /// Whether a node has enough allocatable resources for it and for everything else that the pod requests.
    ///
    /// # Errors
    /// The node resources do not fit on the node.
    pub fn fits(&self, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        let node_allocatable = total(&self.0);
        let declared = pod.spec().resources.as_ref();
        if let Some(declared) = declared.and_then(|r| r.requests.as_ref()) {
            let (level, sum) = (Resources::from_list(Some(declared)), pod.containers());
            for (name, wanted) in amounts(&node_allocatable) {
                let whole = amount_of(&sum, name).saturating_add(wanted);
                if declared.contains_key(name) && amount_of(&level, name) < whole {
                    return Err(Rejection::unresolvable(
                        PLUGIN,
                        format!(
                            "pod level request for {name} is insufficient to cover the aggregated container and node-allocatable DRA requests"
                        ),
                    ));
                }
            }
        }
        let mut total = pod.requests.clone();
        total.add(&besides_pod_level(&pod.pod, node_allocatable.clone()));
        for (name, _) in amounts(&node_allocatable) {
            let left = amount_of(&node.allocatable, name) - amount_of(&node.requested, name);
            if amount_of(&total, name) > left {
                return Err(Rejection::unresolvable(
                    PLUGIN,
                    format!("Insufficient {name}"),
                ));
            }
        }
        Ok(())
    }
}

fn amount_of(resources: &Resources, name: &str) -> i64 {
    match name {
        "cpu" => resources.milli_cpu,
        "memory" => resources.memory,
        "ephemeral-storage" => resources.ephemeral,
        name => resources.scalar(name),
    }
}

fn amounts(resources: &Resources) -> impl Iterator<Item = (&str, i64)> {
    let basic = [
        ("cpu", resources.milli_cpu),
        ("memory", resources.memory),
        ("ephemeral-storage", resources.ephemeral),
    ];
    let others = resources.scalars.iter().map(|(n, a)| (&**n, *a));
    basic.into_iter().chain(others).filter(|(_, a)| *a > 0)
}

#[cfg(test)]
mod tests;
