//! Binding conditions: devices that have to be made ready before their pod is bound.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceRequestAllocationResult, ResourceClaim,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// How far the devices of a claim are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// All conditions are true, or there are none.
    Ready,
    /// Some condition is not true yet.
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

/// How far the devices of a claim are, by what the driver reports in the claim's status.
pub fn readiness(claim: &ResourceClaim) -> Readiness {
    let reported = claim
        .status
        .as_ref()
        .and_then(|s| s.devices.as_deref())
        .unwrap_or_default();
    let mut all_ready = true;
    for result in results(claim).filter(|r| has_conditions(r)) {
        // A device that is shared reports for each share.
        let status = reported.iter().find(|d| {
            d.driver == result.driver
                && d.pool == result.pool
                && d.device == result.device
                && (result.share_id.is_none()
                    || d.share_id.is_none()
                    || d.share_id == result.share_id)
        });
        let conditions: &[Condition] = status
            .and_then(|s| s.conditions.as_deref())
            .unwrap_or_default();
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

/// When the conditions of a claim have to be true at the latest.
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

/// Whether an allocated claim is of no use any more: its devices failed, or took too long.
pub fn is_hopeless(claim: &ResourceClaim, timeout: Duration, now: Timestamp) -> bool {
    match readiness(claim) {
        Readiness::Ready => false,
        Readiness::Failed { .. } => true,
        Readiness::Waiting => deadline(claim, timeout).is_some_and(|deadline| deadline <= now),
    }
}

#[cfg(test)]
mod tests;
