//! Which permissions a change of a claim's status needs beyond `update` on `resourceclaims/status`.
//!
//! With `DRAResourceClaimGranularStatusAuthorization`, a component that allocates or reserves claims needs permission
//! on the synthetic resource `resourceclaims/binding`, and a driver that reports on its devices needs permission on
//! `resourceclaims/driver`, by its name, for devices on its own node or on any. This module only returns the checks to
//! make; the API server calls its authorizer and turns denials into errors with [`Check::denied`].

use std::collections::{BTreeMap, BTreeSet};

use allot_apimachinery::field::{Error, Path};
use serde_json::Value;

use crate::features::{Feature, Features};
use crate::shape::{self, tables};
use crate::strategy::DeviceKey;
use crate::view::View;

/// The extra attribute of a ServiceAccount's identity that names the node its pod runs on.
pub const NODE_NAME_EXTRA: &str = "authentication.kubernetes.io/node-name";

/// The user that changes the status.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The user name.
    pub user: &'a str,
    /// The extra attributes of the identity.
    pub extra: &'a BTreeMap<String, Vec<String>>,
}

/// Attributes for the authorizer, in `resource.k8s.io`, for a subresource of `resourceclaims`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    /// `update`, `patch`, or one of them after `associated-node:` or `arbitrary-node:`.
    pub verb: String,
    /// `binding` or `driver`.
    pub subresource: &'static str,
    /// The namespace, "" for cluster-wide.
    pub namespace: String,
    /// The name, "" for any.
    pub name: String,
}

/// One requirement: it is met when any of the permissions is granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The permissions, checked in this order.
    pub any_of: Vec<Permission>,
    path: Path,
    text: String,
}

impl Check {
    /// The error when none of the permissions is granted; `reason` is the authorizer's.
    pub fn denied(&self, reason: &str) -> Error {
        Error::forbidden(&self.path, format!("{}: {reason}", self.text))
    }
}

/// The checks before the status of `old` becomes that of `value`. `verb` is that of the request.
pub fn status_checks(
    value: &Value,
    old: &Value,
    verb: &str,
    caller: Caller<'_>,
    features: &Features,
) -> Vec<Check> {
    if !features.enabled(Feature::DRAResourceClaimGranularStatusAuthorization) {
        return Vec::new();
    }
    let (new_status, old_status) = (value.at("status"), old.at("status"));
    let mut checks = Vec::new();
    let same_allocation = shape::equal(
        tables::ALLOCATION,
        new_status.at("allocation"),
        old_status.at("allocation"),
    ) && new_status.has("allocation") == old_status.has("allocation");
    if !same_allocation
        || !shape::equal(
            tables::RESERVED_FOR,
            new_status.at("reservedFor"),
            old_status.at("reservedFor"),
        )
    {
        checks.push(Check {
            any_of: vec![Permission {
                verb: verb.to_owned(),
                subresource: "binding",
                namespace: String::new(),
                name: String::new(),
            }],
            path: Path::new("status").child("allocation"),
            text: format!(
                "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"{verb}\" permission"
            ),
        });
    }
    if !new_status.has("allocation") {
        return checks;
    }
    let own_node = caller_node(caller)
        .is_some_and(|node| allocated_node(new_status.at("allocation")) == Some(node));
    let mut verbs = Vec::with_capacity(2);
    if own_node {
        verbs.push(format!("associated-node:{verb}"));
    }
    verbs.push(format!("arbitrary-node:{verb}"));
    for driver in changed_drivers(new_status.list("devices"), old_status.list("devices")) {
        let any_of = verbs.iter().map(|verb| Permission {
            verb: verb.clone(),
            subresource: "driver",
            namespace: value.at("metadata").text("namespace").to_owned(),
            name: driver.clone(),
        });
        checks.push(Check {
            any_of: any_of.collect(),
            path: Path::new("status").child("devices"),
            text: format!(
                "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"{}\" permission",
                shown_verbs(&verbs)
            ),
        });
    }
    checks
}

/// Upstream's format of the verbs: a Go slice of strings.
fn shown_verbs(verbs: &[String]) -> String {
    format!("[{}]", verbs.join(" "))
}

/// The node that a ServiceAccount's token is bound to.
fn caller_node(caller: Caller<'_>) -> Option<&str> {
    if !caller.user.starts_with("system:serviceaccount:") {
        return None;
    }
    match caller.extra.get(NODE_NAME_EXTRA).map(Vec::as_slice) {
        Some([node]) if !node.is_empty() => Some(node),
        _ => None,
    }
}

/// The node that an allocation is limited to: a node selector with only one `metadata.name In [node]`.
fn allocated_node(allocation: &Value) -> Option<&str> {
    let [term] = allocation.at("nodeSelector").list("nodeSelectorTerms") else {
        return None;
    };
    let [field] = term.list("matchFields") else {
        return None;
    };
    if !term.list("matchExpressions").is_empty()
        || field.text("key") != "metadata.name"
        || field.text("operator") != "In"
    {
        return None;
    }
    match field.list("values") {
        [node] => node.as_str().filter(|node| !node.is_empty()),
        _ => None,
    }
}

/// The drivers with added, changed or removed device status, sorted.
fn changed_drivers(new: &[Value], old: &[Value]) -> BTreeSet<String> {
    let by_key = |list: &[Value]| -> BTreeMap<DeviceKey, Value> {
        list.iter()
            .map(|device| (DeviceKey::of(device), device.clone()))
            .collect()
    };
    let (new, old) = (by_key(new), by_key(old));
    let mut drivers = BTreeSet::new();
    for (key, device) in &new {
        if !old
            .get(key)
            .is_some_and(|before| shape::equal(tables::STATUS_DEVICE, before, device))
        {
            drivers.insert(key.driver.clone());
        }
    }
    drivers.extend(
        old.keys()
            .filter(|key| !new.contains_key(key))
            .map(|key| key.driver.clone()),
    );
    drivers
}

#[cfg(test)]
mod tests;
