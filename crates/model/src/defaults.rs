//! Defaults, as upstream applies them to every object that it decodes.

use jiff::Timestamp;
use serde_json::Value;

use crate::kind::{Kind, Version};
use crate::shape::format_time;
use crate::view::{View, items_mut, set};

/// Default limit of pools in a ResourcePoolStatusRequest.
pub const POOL_STATUS_LIMIT: i64 = 100;

/// Sets the defaults of an object of `kind` in `version`.
///
/// `now` becomes the time of device taints that have none, cut to whole seconds. A driver that sends a taint again
/// without its time therefore gets a new one, as upstream does it.
pub fn default(kind: Kind, version: Version, value: &mut Value, now: Timestamp) {
    match kind {
        Kind::DeviceClass => {}
        Kind::ResourceClaim => {
            if let Some(spec) = value.get_mut("spec") {
                claim_spec(version, spec);
            }
            if let Some(devices) = value.pointer_mut("/status/allocation/devices") {
                items_mut(devices, "results").for_each(tolerations);
            }
        }
        Kind::ResourceClaimTemplate => {
            if let Some(spec) = value.pointer_mut("/spec/spec") {
                claim_spec(version, spec);
            }
        }
        Kind::ResourceSlice => {
            if let Some(spec) = value.get_mut("spec") {
                for device in items_mut(spec, "devices") {
                    let device = match version {
                        Version::V1Beta1 | Version::V1Alpha3 => device.get_mut("basic"),
                        _ => Some(device),
                    };
                    if let Some(device) = device {
                        self::device(device, now);
                    }
                }
            }
        }
        Kind::DeviceTaintRule => {
            // The taint is a plain struct: one that is missing gets its default, too.
            if let Some(spec) = value.get_mut("spec") {
                if spec.is_object() && !spec.has("taint") {
                    set(spec, "taint", Value::Object(serde_json::Map::new()));
                }
                if let Some(taint) = spec.get_mut("taint") {
                    self::taint(taint, now);
                }
            }
        }
        Kind::ResourcePoolStatusRequest => {
            if let Some(spec) = value.get_mut("spec")
                && !spec.has("limit")
            {
                set(spec, "limit", POOL_STATUS_LIMIT);
            }
        }
    }
}

fn claim_spec(version: Version, spec: &mut Value) {
    let Some(devices) = spec.get_mut("devices") else {
        return;
    };
    for request in items_mut(devices, "requests") {
        if matches!(version, Version::V1Beta1 | Version::V1Alpha3) {
            // A request without a class is one with alternatives; it must not become an exact one.
            if !request.text("deviceClassName").is_empty() {
                allocation_mode(request);
            }
            tolerations(request);
        } else if let Some(exactly) = request.get_mut("exactly") {
            allocation_mode(exactly);
            tolerations(exactly);
        }
        for alternative in items_mut(request, "firstAvailable") {
            allocation_mode(alternative);
            tolerations(alternative);
        }
    }
}

fn allocation_mode(request: &mut Value) {
    if request.text("allocationMode").is_empty() {
        set(request, "allocationMode", "ExactCount");
    }
    if request.text("allocationMode") == "ExactCount" && request.int("count") == 0 {
        set(request, "count", 1);
    }
}

fn tolerations(holder: &mut Value) {
    for toleration in items_mut(holder, "tolerations") {
        if toleration.text("operator").is_empty() {
            set(toleration, "operator", "Equal");
        }
    }
}

fn device(device: &mut Value, now: Timestamp) {
    for taint in items_mut(device, "taints") {
        self::taint(taint, now);
    }
    let mappings = device
        .get_mut("nodeAllocatableResourceMappings")
        .and_then(Value::as_object_mut);
    for (_, mapping) in mappings.into_iter().flatten() {
        if !mapping.has("allocationMultiplier") {
            set(mapping, "allocationMultiplier", "1");
        }
    }
}

fn taint(taint: &mut Value, now: Timestamp) {
    if !taint.has("timeAdded") {
        set(taint, "timeAdded", format_time(now));
    }
}

#[cfg(test)]
mod tests;
