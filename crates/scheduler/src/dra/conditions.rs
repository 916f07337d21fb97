//! Binding conditions: devices that must become ready before their pod is bound.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceRequestAllocationResult, ResourceClaim,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// Whether the devices of a claim are ready for the pod to be bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// All conditions are true, or there are none.
    Ready,
    /// At least one binding condition is not true yet.
    Waiting,
    /// A failure condition is true.
    Failed {
        /// The condition's reason.
        reason: String,
        /// The condition's message.
        message: String,
    },
}

fn results(claim: &ResourceClaim) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    let allocation = claim.status.as_ref().and_then(|s| s.allocation.as_ref());
    allocation
        .and_then(|a| a.devices.as_ref())
        .and_then(|d| d.results.as_ref())
        .into_iter()
        .flatten()
}

fn has_conditions(result: &DeviceRequestAllocationResult) -> bool {
    result
        .binding_conditions
        .as_ref()
        .is_some_and(|c| !c.is_empty())
}

/// Whether an allocation has devices with conditions.
pub fn in_allocation(allocation: &AllocationResult) -> bool {
    allocation
        .devices
        .as_ref()
        .and_then(|d| d.results.as_ref())
        .into_iter()
        .flatten()
        .any(has_conditions)
}

/// Whether a claim has devices with conditions.
pub fn any(claim: &ResourceClaim) -> bool {
    results(claim).any(has_conditions)
}

/// Drivers of the devices with conditions, for metrics.
pub fn drivers(claim: &ResourceClaim) -> Vec<&str> {
    let mut drivers: Vec<&str> = results(claim)
        .filter(|r| has_conditions(r))
        .map(|r| r.driver.as_str())
        .collect();
    drivers.sort_unstable();
    drivers.dedup();
    drivers
}

/// The conditions that the driver reports for a device of a claim.
fn reported<'a>(
    claim: &'a ResourceClaim,
    result: &DeviceRequestAllocationResult,
) -> &'a [Condition] {
    let devices = claim.status.as_ref().and_then(|s| s.devices.as_deref());
    // A device that is shared reports for each share.
    let status = devices.unwrap_or_default().iter().find(|d| {
        d.driver == result.driver
            && d.pool == result.pool
            && d.device == result.device
            && (result.share_id.is_none() || d.share_id.is_none() || d.share_id == result.share_id)
    });
    status
        .and_then(|s| s.conditions.as_deref())
        .unwrap_or_default()
}

/// A binding condition of a device that is not true yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// `driver/pool/device`.
    pub device: String,
    /// The type of the condition.
    pub condition: String,
    /// What the driver reports about it so far: reason and message.
    pub reported: Option<(String, String)>,
}

/// The binding conditions that the devices of a claim wait for.
pub fn pending(claim: &ResourceClaim) -> Vec<Pending> {
    let mut pending = Vec::new();
    for result in results(claim).filter(|r| has_conditions(r)) {
        let conditions = reported(claim, result);
        for name in result.binding_conditions.iter().flatten() {
            let known = conditions.iter().find(|c| c.type_ == *name);
            if known.is_some_and(|c| c.status == "True") {
                continue;
            }
            pending.push(Pending {
                device: format!("{}/{}/{}", result.driver, result.pool, result.device),
                condition: name.clone(),
                reported: known.map(|c| (c.reason.clone(), c.message.clone())),
            });
        }
    }
    pending
}

/// Whether the devices of a claim are ready, by the conditions in the claim's status.
pub fn readiness(claim: &ResourceClaim) -> Readiness {
    let mut all_ready = true;
    for result in results(claim).filter(|r| has_conditions(r)) {
        let conditions = reported(claim, result);
        let is_true = |name: &String| {
            conditions
                .iter()
                .find(|c| c.type_ == *name && c.status == "True")
        };
        if let Some(failed) = result
            .binding_failure_conditions
            .iter()
            .flatten()
            .find_map(is_true)
        {
            return Readiness::Failed {
                reason: failed.reason.clone(),
                message: failed.message.clone(),
            };
        }
        all_ready &= result
            .binding_conditions
            .iter()
            .flatten()
            .all(|c| is_true(c).is_some());
    }
    if all_ready {
        Readiness::Ready
    } else {
        Readiness::Waiting
    }
}

/// The deadline for the conditions of a claim.
pub fn deadline(claim: &ResourceClaim, timeout: Duration) -> Option<Timestamp> {
    let since = claim
        .status
        .as_ref()?
        .allocation
        .as_ref()?
        .allocation_timestamp
        .as_ref()?;
    since.0.checked_add(timeout).ok()
}

/// Whether an allocated claim is unusable: its devices failed, or the binding conditions timed out.
pub fn is_hopeless(claim: &ResourceClaim, timeout: Duration, now: Timestamp) -> bool {
    match readiness(claim) {
        Readiness::Ready => false,
        Readiness::Failed { .. } => true,
        Readiness::Waiting => deadline(claim, timeout).is_some_and(|deadline| deadline <= now),
    }
}

#[cfg(test)]
mod tests;
