//! Reading a claim through the version of the other generation.
//!
//! Classic and current claims and templates share their names in URLs. A cluster that serves both stores each object in
//! the form it was created in; a client of the other generation sees as much of it as that form can represent, and the
//! original in an annotation. Sending it back restores the original: such a client can change only the metadata.
//!
//! | classic | newer |
//! |---|---|
//! | `spec.resourceClassName` | the class of the only request, named `device` |
//! | `status.allocation.availableOnNodes` | `status.allocation.nodeSelector` |
//! | `status.reservedFor` | `status.reservedFor` |
//! | everything else | in the annotation |

use serde_json::{Value, json};

use super::Kind;
use crate::kind::Version;
use crate::view::{View, remove, set};

/// The annotation that holds the original of a classic object.
pub const CLASSIC: &str = "allot.dev/classic-object";
/// The annotation that holds the original of a newer object.
pub const NEWER: &str = "allot.dev/v1-object";

/// The request under which a classic claim shows.
const REQUEST: &str = "device";

/// A classic claim or template as a v1 client sees it; `None` for kinds that have no counterpart.
pub fn to_v1(kind: Kind, classic: &Value) -> Option<Value> {
    if let Some(original) = restored(classic, NEWER) {
        return Some(original);
    }
    let mut object = match kind {
        Kind::ResourceClaim => {
            let status = classic.at("status");
            let mut new = json!({});
            if status.has("allocation") {
                let mut allocation = json!({"devices": {}});
                if status.at("allocation").has("availableOnNodes") {
                    set(
                        &mut allocation,
                        "nodeSelector",
                        status.at("allocation").at("availableOnNodes").clone(),
                    );
                }
                set(&mut new, "allocation", allocation);
            }
            if !status.list("reservedFor").is_empty() {
                set(&mut new, "reservedFor", status.at("reservedFor").clone());
            }
            json!({"spec": claim_spec(classic.at("spec")), "status": new})
        }
        Kind::ResourceClaimTemplate => {
            let spec = classic.at("spec");
            json!({"spec": {"metadata": spec.at("metadata"), "spec": claim_spec(spec.at("spec"))}})
        }
        _ => return None,
    };
    describe(
        &mut object,
        classic,
        Version::V1.api_version(),
        kind.name(),
        CLASSIC,
    );
    Some(object)
}

/// A v1 claim or template as a classic client of `api_version` (with the group) sees it.
pub fn from_v1(kind: Kind, newer: &Value, api_version: &str) -> Option<Value> {
    if let Some(original) = restored(newer, CLASSIC) {
        return Some(original);
    }
    let mut object = match kind {
        Kind::ResourceClaim => {
            let status = newer.at("status");
            let mut old = json!({});
            if status.has("allocation") {
                let mut allocation = json!({"shareable": true});
                if status.at("allocation").has("nodeSelector") {
                    set(
                        &mut allocation,
                        "availableOnNodes",
                        status.at("allocation").at("nodeSelector").clone(),
                    );
                }
                set(&mut old, "allocation", allocation);
            }
            if !status.list("reservedFor").is_empty() {
                set(&mut old, "reservedFor", status.at("reservedFor").clone());
            }
            json!({"spec": classic_spec(newer.at("spec")), "status": old})
        }
        Kind::ResourceClaimTemplate => {
            let spec = newer.at("spec");
            json!({"spec": {"metadata": spec.at("metadata"), "spec": classic_spec(spec.at("spec"))}})
        }
        _ => return None,
    };
    describe(&mut object, newer, api_version, kind.name(), NEWER);
    Some(object)
}

fn claim_spec(spec: &Value) -> Value {
    let request = json!({"name": REQUEST, "exactly": {
        "deviceClassName": spec.text("resourceClassName"), "allocationMode": "ExactCount", "count": 1}});
    json!({"devices": {"requests": [request]}})
}

fn classic_spec(spec: &Value) -> Value {
    let first = spec.at("devices").list("requests").first();
    let class = first.map_or("", |request| {
        let alternatives = request.list("firstAvailable").first();
        alternatives
            .unwrap_or_else(|| request.at("exactly"))
            .text("deviceClassName")
    });
    json!({"resourceClassName": class, "allocationMode": "WaitForFirstConsumer"})
}

/// Copies the metadata of the original to an object, and the original itself into an annotation.
fn describe(object: &mut Value, original: &Value, api_version: &str, kind: &str, annotation: &str) {
    let mut metadata = original.at("metadata").clone();
    if !metadata.is_object() {
        metadata = json!({});
    }
    let mut kept = original.clone();
    remove(&mut kept, "metadata");
    if !metadata.has("annotations") {
        set(&mut metadata, "annotations", json!({}));
    }
    if let Some(annotations) = metadata.get_mut("annotations") {
        set(annotations, annotation, kept.to_string());
    }
    set(object, "apiVersion", api_version);
    set(object, "kind", kind);
    set(object, "metadata", metadata);
}

/// The original out of an annotation, with the metadata that the object has now.
fn restored(object: &Value, annotation: &str) -> Option<Value> {
    let text = object
        .at("metadata")
        .at("annotations")
        .opt_text(annotation)?;
    let mut original: Value = serde_json::from_str(text).ok().filter(Value::is_object)?;
    let mut metadata = object.at("metadata").clone();
    if let Some(annotations) = metadata.get_mut("annotations") {
        remove(annotations, annotation);
    }
    if metadata.entries("annotations").len() == 0 {
        remove(&mut metadata, "annotations");
    }
    set(&mut original, "metadata", metadata);
    Some(original)
}
