//! Conversion between the versions of a kind, without loss.
//!
//! v1beta1 differs in structure: its device requests are flat where the others have `exactly`, and its devices keep
//! everything but their name in `basic`. v1alpha3 of 1.31 to 1.33 is like it, with capacities as plain quantities; what
//! it had for allocation by drivers (`spec.controller` and the like) is kept as unknown members. Members that this crate does not know travel with the part of the
//! object they were found in, so that fields of newer releases survive a round trip.

use serde_json::{Map, Value};

use crate::kind::{Kind, Version};
use crate::shape::{self, tables};
use crate::view::{View, items_mut, object, remove, set};

#[cfg(test)]
mod tests;

/// Why an object cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The kind does not exist in that version.
    #[error("{kind} does not exist in {version}", version = .version.api_version())]
    NoSuchVersion {
        /// The kind of the object.
        kind: Kind,
        /// The requested version.
        version: Version,
    },
    /// The value is not a JSON object.
    #[error("{0} is not a JSON object")]
    NotAnObject(Kind),
}

/// Converts an object of `kind` from one version to another and sets its `apiVersion`.
///
/// Neither defaults nor validates. A list kind is converted item by item by the caller.
///
/// # Errors
/// The kind does not exist in one of the versions, or the value is not an object.
pub fn convert(kind: Kind, from: Version, to: Version, mut value: Value) -> Result<Value, Error> {
    for version in [from, to] {
        if !exists(kind, version) {
            return Err(Error::NoSuchVersion { kind, version });
        }
    }
    let Some(root) = object(&mut value) else {
        return Err(Error::NotAnObject(kind));
    };
    root.insert("apiVersion".to_owned(), Value::from(to.api_version()));
    if from == to {
        return Ok(value);
    }
    if from == Version::V1Alpha3 {
        devices_of_v1alpha3(kind, &mut value, nest_capacity);
    }
    if is_flat(from) && !is_flat(to) {
        from_v1beta1(kind, &mut value);
    } else if !is_flat(from) && is_flat(to) {
        to_v1beta1(kind, &mut value);
    }
    if to == Version::V1Alpha3 {
        devices_of_v1alpha3(kind, &mut value, flatten_capacity);
    }
    Ok(value)
}

/// Whether some release had the kind in the version.
fn exists(kind: Kind, version: Version) -> bool {
    kind.versions().contains(&version) || kind.versions().contains(&Version::V1)
}

/// Whether requests are flat and devices are not.
fn is_flat(version: Version) -> bool {
    matches!(version, Version::V1Beta1 | Version::V1Alpha3)
}

fn devices_of_v1alpha3(kind: Kind, value: &mut Value, change: fn(&mut Value)) {
    if kind != Kind::ResourceSlice {
        return;
    }
    let Some(spec) = value.get_mut("spec") else {
        return;
    };
    for device in items_mut(spec, "devices") {
        let capacity = device.pointer_mut("/basic/capacity").and_then(object);
        capacity
            .into_iter()
            .flatten()
            .for_each(|(_, member)| change(member));
    }
}

fn nest_capacity(capacity: &mut Value) {
    if !capacity.is_object() {
        *capacity = serde_json::json!({"value": capacity});
    }
}

/// Replaces a capacity by its value; one with further fields has no form in v1beta1 and stays as it is.
fn flatten_capacity(capacity: &mut Value) {
    if let Some(map) = object(capacity)
        && map.len() == 1
        && let Some(value) = map.remove("value")
    {
        *capacity = value;
    }
}

/// Brings an object in hub form into the canonical form in which upstream would return it: empty members that
/// disappear on the wire are removed, those that are always there are added, quantities and times are rewritten
/// (`1.5Gi` → `1536Mi`). Members it does not know stay. Applying it twice changes nothing.
///
/// Do this after validation and before storing: validation can tell an empty list from a missing one.
pub fn normalize(kind: Kind, value: &mut Value) {
    shape::normalize(tables::of(kind), value);
}

fn claim_specs(kind: Kind, value: &mut Value) -> Option<&mut Value> {
    match kind {
        Kind::ResourceClaim => value.get_mut("spec"),
        Kind::ResourceClaimTemplate => value.get_mut("spec")?.get_mut("spec"),
        _ => None,
    }
}

/// Removes zero values from the node fields of a slice's spec: v1beta1 has plain values where the hub has pointers.
fn drop_zero_node_fields(spec: &mut Value) {
    if spec.opt_text("nodeName") == Some("") {
        remove(spec, "nodeName");
    }
    if spec.opt_bool("allNodes") == Some(false) {
        remove(spec, "allNodes");
    }
}

fn from_v1beta1(kind: Kind, value: &mut Value) {
    if let Some(devices) = claim_specs(kind, value).and_then(|spec| spec.get_mut("devices")) {
        items_mut(devices, "requests").for_each(nest_request);
    }
    if kind == Kind::ResourceSlice
        && let Some(spec) = value.get_mut("spec")
    {
        drop_zero_node_fields(spec);
        items_mut(spec, "devices").for_each(flatten_device);
    }
}

fn to_v1beta1(kind: Kind, value: &mut Value) {
    if let Some(devices) = claim_specs(kind, value).and_then(|spec| spec.get_mut("devices")) {
        items_mut(devices, "requests").for_each(flatten_request);
    }
    if kind == Kind::ResourceSlice
        && let Some(spec) = value.get_mut("spec")
    {
        drop_zero_node_fields(spec);
        items_mut(spec, "devices").for_each(nest_device);
    }
}

/// Whether any of the flat fields of a v1beta1 request is set, which makes it an exact request.
pub(crate) fn is_exact_v1beta1(request: &Value) -> bool {
    !request.text("deviceClassName").is_empty()
        || !request.text("allocationMode").is_empty()
        || request.int("count") != 0
        || ["selectors", "adminAccess", "tolerations", "capacity"]
            .iter()
            .any(|key| request.has(key))
}

fn nest_request(request: &mut Value) {
    let exact = is_exact_v1beta1(request);
    let Some(map) = object(request) else { return };
    if !exact {
        for key in EXACT_FIELDS {
            map.remove(key);
        }
        return;
    }
    let mut nested = Map::new();
    let flat = std::mem::take(map);
    for (key, member) in flat {
        if matches!(key.as_str(), "name" | "firstAvailable") {
            map.insert(key, member);
        } else {
            nested.insert(key, member);
        }
    }
    map.insert("exactly".to_owned(), Value::Object(nested));
}

const EXACT_FIELDS: [&str; 7] = [
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
];

fn flatten_request(request: &mut Value) {
    let Some(map) = object(request) else { return };
    if let Some(Value::Object(exactly)) = map.remove("exactly") {
        for (key, member) in exactly {
            if !matches!(key.as_str(), "name" | "firstAvailable") {
                map.insert(key, member);
            }
        }
    }
    // Not a pointer and always encoded in v1beta1.
    map.entry("deviceClassName")
        .or_insert_with(|| Value::from(""));
}

fn flatten_device(device: &mut Value) {
    let Some(map) = object(device) else { return };
    if let Some(Value::Object(basic)) = map.remove("basic") {
        for (key, member) in basic {
            if key != "name" {
                map.insert(key, member);
            }
        }
    }
}

fn nest_device(device: &mut Value) {
    let Some(map) = object(device) else { return };
    let name = map.remove("name");
    let basic = std::mem::take(map);
    if let Some(name) = name {
        map.insert("name".to_owned(), name);
    }
    set(device, "basic", basic);
}
