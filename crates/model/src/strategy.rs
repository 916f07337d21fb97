//! Preparation of an object between decoding and validation: fields that a client may not set are reset, fields of
//! disabled features are dropped, and the generation is incremented.
//!
//! All functions take the hub form (see [`Kind::hub`]) after defaulting.

mod disabled;

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::features::{Feature, Features};
use crate::kind::Kind;
use crate::shape::{self, format_time, tables};
use crate::view::{View, object, remove, set};

pub use disabled::drop_disabled_fields;

/// Prepares a new object: no status, first generation, no fields of disabled features.
pub fn prepare_for_create(kind: Kind, value: &mut Value, features: &Features) {
    match kind {
        Kind::ResourceClaim | Kind::DeviceTaintRule => set(value, "status", Map::new()),
        Kind::ResourcePoolStatusRequest => remove(value, "status"),
        _ => {}
    }
    if counts_generations(kind) {
        set_generation(value, 1);
    }
    drop_disabled_fields(kind, value, None, features);
}

/// Prepares an object that replaces `old` through the main endpoint: the status is that of `old`, the generation
/// grows when the spec changes.
pub fn prepare_for_update(
    kind: Kind,
    value: &mut Value,
    old: &Value,
    features: &Features,
    now: Timestamp,
) {
    if kind.has_status() {
        copy(value, old, "status");
    }
    match kind {
        Kind::DeviceTaintRule => touch_time_added(value, old, now),
        // Upstream compares slices before it drops fields, classes afterwards.
        Kind::ResourceSlice => {
            count_generation(kind, value, old);
            drop_disabled_fields(kind, value, Some(old), features);
            return;
        }
        _ => {}
    }
    drop_disabled_fields(kind, value, Some(old), features);
    count_generation(kind, value, old);
}

/// Prepares an object whose status replaces that of `old`: the spec and nearly all metadata are those of `old`, and the status of devices that are no longer allocated goes away.
pub fn prepare_for_status_update(kind: Kind, value: &mut Value, old: &Value, features: &Features) {
    copy(value, old, "spec");
    reset_metadata(value, old);
    drop_disabled_fields(kind, value, Some(old), features);
    if kind == Kind::ResourceClaim {
        drop_deallocated_status_devices(value, old, features);
    }
}

/// Removes `status.devices` entries of devices that `old` had allocated and the new object has not.
pub fn drop_deallocated_status_devices(value: &mut Value, old: &Value, features: &Features) {
    let in_use = !old.at("status").list("devices").is_empty();
    if !features.enabled(Feature::DRAResourceClaimDeviceStatus) && !in_use {
        return;
    }
    let kept: Vec<DeviceKey> = results(value).iter().map(DeviceKey::of).collect();
    let gone: Vec<DeviceKey> = results(old)
        .iter()
        .map(DeviceKey::of)
        .filter(|key| !kept.contains(key))
        .collect();
    let Some(status) = value.get_mut("status") else {
        return;
    };
    if let Some(devices) = status.get_mut("devices").and_then(Value::as_array_mut) {
        devices.retain(|device| !gone.contains(&DeviceKey::of(device)));
        if devices.is_empty() {
            remove(status, "devices");
        }
    }
}

/// The identity of a share of a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DeviceKey {
    pub(crate) driver: String,
    pub(crate) pool: String,
    pub(crate) device: String,
    pub(crate) share: String,
}

impl DeviceKey {
    pub(crate) fn of(value: &Value) -> DeviceKey {
        DeviceKey {
            driver: value.text("driver").to_owned(),
            pool: value.text("pool").to_owned(),
            device: value.text("device").to_owned(),
            share: value.text("shareID").to_owned(),
        }
    }
}

pub(crate) fn results(claim: &Value) -> &[Value] {
    claim
        .at("status")
        .at("allocation")
        .at("devices")
        .list("results")
}

fn counts_generations(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::DeviceClass | Kind::ResourceSlice | Kind::DeviceTaintRule
    )
}

fn count_generation(kind: Kind, value: &mut Value, old: &Value) {
    if !counts_generations(kind) {
        return;
    }
    let before = old.at("metadata").int("generation");
    let changed = match spec_type(kind) {
        Some(spec) => !shape::equal(spec, value.at("spec"), old.at("spec")),
        None => false,
    };
    // A caller cannot choose the generation: it follows from the stored one.
    set_generation(
        value,
        if changed {
            before.saturating_add(1)
        } else {
            before
        },
    );
}

fn spec_type(kind: Kind) -> Option<shape::Ty> {
    match kind {
        Kind::DeviceClass => Some(shape::Ty::Struct(&tables::DEVICE_CLASS_SPEC)),
        Kind::ResourceSlice => Some(shape::Ty::Struct(&tables::SLICE_SPEC)),
        Kind::DeviceTaintRule => Some(shape::Ty::Struct(&tables::TAINT_RULE_SPEC)),
        _ => None,
    }
}

fn set_generation(value: &mut Value, generation: i64) {
    let Some(root) = object(value) else { return };
    let metadata = root
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()));
    if generation == 0 {
        remove(metadata, "generation");
    } else {
        set(metadata, "generation", generation);
    }
}

pub(crate) fn copy(value: &mut Value, old: &Value, key: &str) {
    match old.get(key) {
        // To compare is cheaper than to copy, and most often there is nothing to do.
        Some(member) if value.get(key) == Some(member) => {}
        Some(member) => set(value, key, member.clone()),
        None => remove(value, key),
    }
}

/// Metadata is not writable through `/status`, except for the fields that identify the write.
pub(crate) fn reset_metadata(value: &mut Value, old: &Value) {
    let Some(metadata) = value.get_mut("metadata") else {
        return;
    };
    for key in [
        "deletionTimestamp",
        "generation",
        "selfLink",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
    ] {
        copy(metadata, old.at("metadata"), key);
    }
}

/// The time of a taint is when its effect began: a new effect gets a new time unless the caller sets one.
fn touch_time_added(value: &mut Value, old: &Value, now: Timestamp) {
    let before = old.at("spec").at("taint");
    let Some(taint) = value.pointer_mut("/spec/taint") else {
        return;
    };
    let same_time = shape::equal(
        shape::Ty::Time,
        taint.at("timeAdded"),
        before.at("timeAdded"),
    );
    if taint.text("effect") != before.text("effect") && same_time {
        set(taint, "timeAdded", format_time(now));
    }
}

#[cfg(test)]
mod tests;
