//! Allocations of claims.

use std::collections::BTreeMap;

use allot_apimachinery::quantity::Quantity;
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceAllocationResult, DeviceRequestAllocationResult, ResourceClaim,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

/// The allocation in the status of a claim.
pub fn allocation(claim: &ResourceClaim) -> Option<&AllocationResult> {
    claim.status.as_ref()?.allocation.as_ref()
}

/// How many devices of each class an allocation of the claim has. Of a list the alternative that was chosen decides the
/// class. Devices with admin access are not taken from others, and do not count.
pub fn devices_by_class<'a>(
    claim: &'a ResourceClaim,
    allocation: &AllocationResult,
) -> BTreeMap<&'a str, i64> {
    let mut counts = BTreeMap::new();
    let results = allocation.devices.iter().flat_map(|d| &d.results);
    for result in results.flatten() {
        if result.admin_access != Some(true)
            && let Some(class) = class_of(claim, &result.request)
        {
            *counts.entry(class).or_default() += 1;
        }
    }
    counts
}

/// The class that a request of the claim names, or one of its alternatives: `request` or `request/subrequest`.
fn class_of<'a>(claim: &'a ResourceClaim, named: &str) -> Option<&'a str> {
    let (name, alternative) = match named.split_once('/') {
        Some((name, alternative)) => (name, Some(alternative)),
        None => (named, None),
    };
    let mut requests = claim.spec.devices.as_ref()?.requests.iter().flatten();
    let request = requests.find(|r| r.name == name)?;
    match alternative {
        None => Some(&request.exactly.as_ref()?.device_class_name),
        Some(alternative) => {
            let mut list = request.first_available.iter().flatten();
            let chosen = list.find(|a| a.name == alternative)?;
            Some(&chosen.device_class_name)
        }
    }
}

/// Whether two allocations of a claim give it the same devices. Amounts are compared by value: the server may print
/// `1000000000` as `1G`.
pub fn same_devices(
    one: Option<&DeviceAllocationResult>,
    other: Option<&DeviceAllocationResult>,
) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => {
            let results = |d: &DeviceAllocationResult| d.results.clone().unwrap_or_default();
            let (ours, theirs) = (results(one), results(other));
            // The configuration is copied from classes and the claim, by which the devices were chosen.
            one.config == other.config
                && ours.len() == theirs.len()
                && ours.iter().zip(&theirs).all(|(a, b)| same_device(a, b))
        }
        (one, other) => one.is_none() && other.is_none(),
    }
}

fn same_device(one: &DeviceRequestAllocationResult, other: &DeviceRequestAllocationResult) -> bool {
    one == other || {
        let (a, b) = (&one.consumed_capacity, &other.consumed_capacity);
        let (a, b) = (a.iter().flatten(), b.iter().flatten());
        let without = |result: &DeviceRequestAllocationResult| DeviceRequestAllocationResult {
            consumed_capacity: None,
            ..result.clone()
        };
        a.clone().count() == b.clone().count()
            && a.zip(b)
                .all(|((name, x), (other, y))| name == other && same_amount(x, y))
            && without(one) == without(other)
    }
}

fn same_amount(one: &ApiQuantity, other: &ApiQuantity) -> bool {
    let read = |quantity: &ApiQuantity| quantity.0.parse::<Quantity>().ok();
    one == other || matches!((read(one), read(other)), (Some(a), Some(b)) if a == b)
}

#[cfg(test)]
mod tests;
