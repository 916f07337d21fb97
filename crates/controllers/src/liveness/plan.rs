//! Which devices of a slice have no running driver.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use serde_json::{Value, json};

use super::{DRIVERS, TAINT};
use crate::controller::meta;

#[cfg(test)]
mod tests;

/// The nodes that a slice or its devices belong to by name. Devices that several nodes can reach do not depend on one
/// node, and are skipped.
pub(super) fn nodes(slice: &ResourceSlice) -> BTreeSet<String> {
    let devices = slice.spec.devices.iter().flatten();
    slice
        .spec
        .node_name
        .iter()
        .chain(devices.filter_map(|d| d.node_name.as_ref()))
        .filter(|n| !n.is_empty())
        .cloned()
        .collect()
}

pub(super) fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    // A node without conditions counts as running.
    conditions
        .filter(|c| c.type_ == "Ready")
        .all(|c| c.status == "True")
}

fn serves(node: Option<&Arc<Node>>, driver: &str) -> bool {
    node.is_some_and(|node| {
        is_ready(node)
            && meta::annotation(&**node, DRIVERS).is_none_or(|drivers| names(drivers, driver))
    })
}

/// Whether the list of a node's drivers includes a driver. An asterisk means all drivers that a simulated node
/// replaces, which are those without their own entry; the entry of a disconnected driver begins with an exclamation
/// mark.
fn names(drivers: &str, driver: &str) -> bool {
    let mut entries = drivers.split(',').map(str::trim);
    let any = entries.clone().any(|entry| entry == "*");
    let gone = |entry: &str| entry.strip_prefix('!') == Some(driver);
    entries.clone().any(|entry| entry == driver) || (any && !entries.any(gone))
}

/// The indexes of the devices without a running driver.
pub(super) fn dead_devices(
    slice: &ResourceSlice,
    node: impl Fn(&str) -> Option<Arc<Node>>,
) -> BTreeSet<usize> {
    let driver = &slice.spec.driver;
    let own = slice.spec.node_name.as_deref().filter(|n| !n.is_empty());
    let own_dead = own.is_some_and(|n| !serves(node(n).as_ref(), driver));
    indexes(slice, |device| {
        let its = device.node_name.as_deref().filter(|n| !n.is_empty());
        own_dead || its.is_some_and(|n| !serves(node(n).as_ref(), driver))
    })
}

/// The indexes of the devices that have the taint of this controller.
pub(super) fn tainted(slice: &ResourceSlice) -> BTreeSet<usize> {
    indexes(slice, |device| {
        device.taints.iter().flatten().any(|t| t.key == TAINT)
    })
}

/// The indexes of the devices of a slice that satisfy a condition.
fn indexes(slice: &ResourceSlice, condition: impl Fn(&Device) -> bool) -> BTreeSet<usize> {
    let devices = slice.spec.devices.iter().flatten().enumerate();
    let matching = devices.filter(|(_, device)| condition(device));
    matching.map(|(index, _)| index).collect()
}

/// The devices as JSON, with the taint of this controller on exactly those with the indexes `dead`.
pub(super) fn with_taints(devices: &Value, dead: &BTreeSet<usize>, now: &str) -> Value {
    let mut devices = devices.clone();
    for (index, device) in devices.as_array_mut().into_iter().flatten().enumerate() {
        let mut taints = device["taints"].as_array().cloned().unwrap_or_default();
        let has = taints.iter().any(|t| t["key"] == TAINT);
        match (dead.contains(&index), has) {
            (true, false) => {
                taints.push(json!({"key": TAINT, "effect": "NoSchedule", "timeAdded": now}))
            }
            (false, true) => taints.retain(|t| t["key"] != TAINT),
            _ => continue,
        }
        if let Some(device) = device.as_object_mut() {
            if taints.is_empty() {
                device.remove("taints");
            } else {
                device.insert("taints".to_owned(), json!(taints));
            }
        }
    }
    devices
}

/// The name of the rule that replaces the taints of a slice.
pub(super) fn rule_name(slice: &str) -> String {
    format!("allot-driver-gone-{slice}")
}

/// The rule that taints the pool of a slice of one node; it ends with the slice. A pool of several nodes may have devices
/// that are served, for which there is none.
pub(super) fn rule(slice: &ResourceSlice, api_version: &str, now: &str) -> Option<Value> {
    slice.spec.node_name.as_deref().filter(|n| !n.is_empty())?;
    Some(json!({
        "apiVersion": api_version,
        "kind": "DeviceTaintRule",
        "metadata": {
            "name": rule_name(meta::name(slice)),
            "ownerReferences": [{
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
                "name": meta::name(slice), "uid": meta::uid(slice),
            }],
        },
        "spec": {
            "deviceSelector": {"driver": slice.spec.driver, "pool": slice.spec.pool.name},
            "taint": {"key": TAINT, "effect": "NoSchedule", "timeAdded": now},
        },
    }))
}
