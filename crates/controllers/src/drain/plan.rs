//! Which slices are drained and which pods still use their devices.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use serde_json::{Value, json};

use super::{Drain, TAINT};
use crate::controller::informer::key_of;
use crate::controller::whole::Whole;

#[cfg(test)]
mod tests;

/// Whether a slice is part of the drain.
pub(super) fn selects(drain: &Drain, slice: &ResourceSlice) -> bool {
    slice.spec.driver == drain.driver
        && drain
            .node
            .as_ref()
            .is_none_or(|node| slice.spec.node_name.as_ref() == Some(node))
}

/// The devices with the taint on all of them; `None` if they have it.
pub(super) fn tainted(drain: &Drain, devices: &Value, now: &str) -> Option<Value> {
    let effect = if drain.evict {
        "NoExecute"
    } else {
        "NoSchedule"
    };
    let mut devices = devices.clone();
    let mut changed = false;
    for device in devices.as_array_mut().into_iter().flatten() {
        let mut taints = device["taints"].as_array().cloned().unwrap_or_default();
        if taints
            .iter()
            .any(|t| t["key"] == TAINT && t["effect"] == effect)
        {
            continue;
        }
        taints.retain(|t| t["key"] != TAINT);
        taints.push(json!({"key": TAINT, "effect": effect, "timeAdded": now}));
        device["taints"] = json!(taints);
        changed = true;
    }
    changed.then_some(devices)
}

/// The devices without the taint, and how many had it; `None` if none has.
pub(super) fn untainted(devices: &Value) -> Option<(Value, usize)> {
    let mut devices = devices.clone();
    let mut changed = 0;
    for device in devices.as_array_mut().into_iter().flatten() {
        let Some(taints) = device["taints"].as_array_mut() else {
            continue;
        };
        let before = taints.len();
        taints.retain(|t| t["key"] != TAINT);
        if taints.len() == before {
            continue;
        }
        changed += 1;
        if taints.is_empty() {
            device.as_object_mut().map(|d| d.remove("taints"));
        }
    }
    (changed > 0).then_some((devices, changed))
}

/// The claims that hold a device of these slices.
pub(super) fn users(
    slices: &[Arc<Whole<ResourceSlice>>],
    claims: &[Arc<ResourceClaim>],
) -> Vec<String> {
    let drained: BTreeSet<(&str, &str, &str)> = slices
        .iter()
        .flat_map(|s| {
            let devices = s.spec.devices.iter().flatten();
            devices.map(|d| {
                (
                    s.spec.driver.as_str(),
                    s.spec.pool.name.as_str(),
                    d.name.as_str(),
                )
            })
        })
        .collect();
    let mut users: Vec<String> = claims
        .iter()
        .filter(|claim| {
            let allocation = claim.status.iter().filter_map(|s| s.allocation.as_ref());
            let results = allocation
                .filter_map(|a| a.devices.as_ref())
                .flat_map(|d| d.results.iter().flatten());
            results
                .into_iter()
                .any(|r| drained.contains(&(r.driver.as_str(), r.pool.as_str(), r.device.as_str())))
        })
        .map(|claim| key_of(&**claim))
        .collect();
    users.sort();
    users
}
