//! Objects of older versions, in the version that everything here works on.

use allot_model::{GROUP, Kind, Version, convert, defaults};
use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::Value;

use crate::cmd::manifests::title;

/// An object of `resource.k8s.io` in `v1`; one of an older version with the defaults of that. Other objects, and those
/// in `v1` already, are not changed. `now` replaces a missing time of creation.
///
/// # Errors
/// It is in a version that does not exist, or is no object; the message names it.
pub fn current(object: Value, now: Timestamp) -> anyhow::Result<Value> {
    match version_of(&object)? {
        None | Some((_, Version::V1)) => Ok(object),
        Some((kind, version)) => converted(kind, version, object, now),
    }
}

/// Like [`current`], for user input: defaults are set in any version.
///
/// # Errors
/// As [`current`].
pub fn completed(object: Value, now: Timestamp) -> anyhow::Result<Value> {
    match version_of(&object)? {
        None => Ok(object),
        Some((kind, version)) => converted(kind, version, object, now),
    }
}

fn version_of(object: &Value) -> anyhow::Result<Option<(Kind, Version)>> {
    let text = |field: &str| {
        object
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let Some(kind) = Kind::from_name(text("kind")) else {
        return Ok(None);
    };
    let version = text("apiVersion");
    match version.split_once('/') {
        // A kind of another group with the same name.
        Some((group, _)) if group != GROUP => Ok(None),
        _ => {
            let version: Version = version
                .parse()
                .with_context(|| format!("{}: apiVersion {version:?}", title(object)))?;
            Ok(Some((kind, version)))
        }
    }
}

fn converted(kind: Kind, version: Version, object: Value, now: Timestamp) -> anyhow::Result<Value> {
    let title = title(&object);
    let mut object = object;
    defaults::default(kind, version, &mut object, now);
    // The versions of the others do not differ.
    if kind.hub() != Version::V1 {
        return Ok(object);
    }
    convert::convert(kind, version, Version::V1, object).with_context(|| title)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(object: Value, expected: &Value) {
        let found = current(object, Timestamp::UNIX_EPOCH).expect("it can be read");
        for (pointer, value) in expected.as_object().expect("pointers") {
            assert_eq!(found.pointer(pointer), Some(value), "{pointer} of {found}");
        }
    }

    #[test]
    fn all_versions_of_a_slice_are_read_alike() {
        let slice = |version: &str, device: Value| {
            json!({"apiVersion": format!("resource.k8s.io/{version}"), "kind": "ResourceSlice",
                "metadata": {"name": "s"}, "spec": {"driver": "d", "devices": [device]}})
        };
        let expected = json!({
            "/apiVersion": "resource.k8s.io/v1",
            "/spec/devices/0/capacity/memory/value": "1Gi",
        });
        let nested = json!({"memory": {"value": "1Gi"}});
        let basic = |capacity: Value| json!({"name": "a", "basic": {"capacity": capacity}});
        check(
            slice("v1alpha3", basic(json!({"memory": "1Gi"}))),
            &expected,
        );
        check(slice("v1beta1", basic(nested.clone())), &expected);
        for version in ["v1beta2", "v1"] {
            check(
                slice(version, json!({"name": "a", "capacity": nested})),
                &expected,
            );
        }
    }

    #[test]
    fn a_request_of_v1beta1_gets_its_defaults() {
        let claim = json!({"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceClaim",
            "metadata": {"name": "c", "namespace": "n"},
            "spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "gpu"}]}}});
        let expected = json!({
            "/spec/devices/requests/0/exactly/deviceClassName": "gpu",
            "/spec/devices/requests/0/exactly/allocationMode": "ExactCount",
            "/spec/devices/requests/0/exactly/count": 1,
        });
        check(claim, &expected);
    }

    #[test]
    fn others_stay_and_unknown_versions_are_named() {
        let other = json!({"apiVersion": "example.com/v1", "kind": "DeviceClass", "x": 1});
        check(
            other.clone(),
            &json!({"/x": 1, "/apiVersion": "example.com/v1"}),
        );
        let unknown = json!({"apiVersion": "resource.k8s.io/v9", "kind": "DeviceClass",
            "metadata": {"name": "c"}});
        let error = current(unknown, Timestamp::UNIX_EPOCH).expect_err("unknown");
        let expected = "DeviceClass c: apiVersion \"resource.k8s.io/v9\"";
        assert_eq!(error.to_string(), expected);
    }
}
