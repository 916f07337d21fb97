//! Objects as users write them, made into what an API server would store.

use allot_model::features::Features;
use allot_model::{Kind, Version, convert, defaults, migrate, strategy, validate};
use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::{Value, json};

/// What an object is, for messages: `ResourceClaim team/gpu`.
#[must_use]
pub fn title(object: &Value) -> String {
    let kind = text(object, "/kind");
    match (
        text(object, "/metadata/namespace"),
        text(object, "/metadata/name"),
    ) {
        ("", "") => kind.to_owned(),
        ("", name) => format!("{kind} {name}"),
        (namespace, name) => format!("{kind} {namespace}/{name}"),
    }
}

/// The text at a JSON pointer; empty when there is none.
#[must_use]
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Kinds without a namespace, of those that decide where pods go.
const CLUSTER_SCOPED: [&str; 12] = [
    "Node",
    "Namespace",
    "DeviceClass",
    "ResourceSlice",
    "DeviceTaintRule",
    "PriorityClass",
    "PersistentVolume",
    "StorageClass",
    "CSINode",
    "CSIDriver",
    "VolumeAttachment",
    "ResourcePoolStatusRequest",
];

/// An object of DRA as `v1` has it, with defaults; anything else as it is.
///
/// # Errors
/// It is of a version that is not known.
pub fn current(object: Value, now: Timestamp) -> anyhow::Result<Value> {
    let Some(kind) = Kind::from_name(text(&object, "/kind")) else {
        return Ok(object);
    };
    let title = title(&object);
    let version = text(&object, "/apiVersion");
    let version: Version = version
        .parse()
        .with_context(|| format!("{title}: apiVersion {version:?}"))?;
    let mut object = object;
    defaults::default(kind, version, &mut object, now);
    // Their versions do not differ, and there is no v1 of them.
    if kind == Kind::DeviceTaintRule {
        return Ok(object);
    }
    convert::convert(kind, version, Version::V1, object).with_context(|| title)
}

/// An object as an API server with these features would store it: named, in a namespace, converted, with defaults, valid.
///
/// # Errors
/// The API server would refuse it; the message names it and says why.
pub fn stored(
    object: Value,
    namespace: &str,
    features: &Features,
    now: Timestamp,
) -> anyhow::Result<Value> {
    anyhow::ensure!(
        !text(&object, "/metadata/name").is_empty(),
        "{} has no name",
        title(&object)
    );
    let mut object = current(object, now)?;
    let kind = text(&object, "/kind").to_owned();
    if !CLUSTER_SCOPED.contains(&&*kind) && text(&object, "/metadata/namespace").is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    if kind == "Pod" {
        // What a pod may say about claims in the form of 1.30, and what the server would fill in.
        migrate::pod::flatten_claims(&mut object);
        allot_schema::defaults::apply("", "v1", "Pod", &mut object);
    }
    if let Some(kind) = Kind::from_name(&kind) {
        strategy::prepare_for_create(kind, &mut object, features);
        let errors = validate::create(kind, &object, features);
        if let Some(text) = allot_apimachinery::field::aggregate(&errors) {
            anyhow::bail!("{} is invalid: {text}", title(&object));
        }
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(object: Value) -> anyhow::Result<Value> {
        stored(object, "team", &Features::default(), Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn objects_are_stored_as_an_api_server_stores_them() {
        let claim = store(json!({
            "apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceClaim", "metadata": {"name": "c"},
            "spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "gpu"}]}},
        }));
        let claim = claim.expect("a claim");
        assert_eq!(claim["metadata"]["namespace"], "team");
        let exactly = &claim["spec"]["devices"]["requests"][0]["exactly"];
        assert_eq!(
            *exactly,
            json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1})
        );
    }

    #[test]
    fn what_an_api_server_refuses_is_refused() {
        let without_name = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}});
        let error = store(without_name).expect_err("no name").to_string();
        assert_eq!(error, "Pod has no name");
        let wrong = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": ""}}]}},
        });
        let error = store(wrong).expect_err("no class").to_string();
        assert!(
            error.starts_with("ResourceClaim team/c is invalid: "),
            "{error}"
        );
        let unknown = json!({"apiVersion": "resource.k8s.io/v9", "kind": "DeviceClass", "metadata": {"name": "c"}});
        assert!(store(unknown).is_err());
    }
}
