//! Rows of volumes, their claims and classes, and storage drivers.

use serde_json::{Value, json};

use super::age;
use crate::object::text;
use crate::table::format::{access_modes, name};

pub(crate) fn volume(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let claim = match &spec["claimRef"] {
        Value::Null => String::new(),
        claim => format!("{}/{}", text(claim, &["namespace"]), text(claim, &["name"])),
    };
    let phase = if object["metadata"]["deletionTimestamp"].is_string() {
        "Terminating"
    } else {
        text(object, &["status", "phase"])
    };
    vec![
        name(object),
        json!(text(spec, &["capacity", "storage"])),
        json!(access_modes(&spec["accessModes"])),
        json!(text(spec, &["persistentVolumeReclaimPolicy"])),
        json!(phase),
        json!(claim),
        json!(text(spec, &["storageClassName"])),
        json!(
            spec["volumeAttributesClassName"]
                .as_str()
                .unwrap_or("<unset>")
        ),
        json!(text(object, &["status", "reason"])),
        age(object),
        json!(spec["volumeMode"].as_str().unwrap_or("<unset>")),
    ]
}

pub(crate) fn volume_claim(object: &Value) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let phase = if object["metadata"]["deletionTimestamp"].is_string() {
        "Terminating"
    } else {
        text(status, &["phase"])
    };
    let bound = !text(spec, &["volumeName"]).is_empty();
    let (capacity, modes) = if bound {
        (
            text(status, &["capacity", "storage"]).to_owned(),
            access_modes(&status["accessModes"]),
        )
    } else {
        (String::new(), String::new())
    };
    vec![
        name(object),
        json!(phase),
        json!(text(spec, &["volumeName"])),
        json!(capacity),
        json!(modes),
        json!(text(spec, &["storageClassName"])),
        json!(
            spec["volumeAttributesClassName"]
                .as_str()
                .unwrap_or("<unset>")
        ),
        age(object),
        json!(spec["volumeMode"].as_str().unwrap_or("<unset>")),
    ]
}
