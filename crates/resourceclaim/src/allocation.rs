//! Allocations of claims.

use allot_apimachinery::quantity::Quantity;
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceAllocationResult, DeviceRequestAllocationResult, ResourceClaim,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

/// The allocation in the status of a claim.
pub fn allocation(claim: &ResourceClaim) -> Option<&AllocationResult> {
    claim.status.as_ref()?.allocation.as_ref()
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
