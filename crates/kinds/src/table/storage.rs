//! Rows of volumes, their claims and classes, and storage drivers.

use serde_json::{Value, json};

use super::age;
use super::format::{self, access_modes, name, or_none, storage};
use crate::object::{items, meta, strings, text};

pub(crate) fn storage_class(object: &Value) -> Vec<Value> {
    let default =
        object["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] == "true";
    let title = if default {
        format!("{} (default)", meta(object, "name"))
    } else {
        meta(object, "name").to_owned()
    };
    vec![
        json!(title),
        json!(text(object, &["provisioner"])),
        json!(object["reclaimPolicy"].as_str().unwrap_or("Delete")),
        json!(object["volumeBindingMode"].as_str().unwrap_or("<unset>")),
        json!(object["allowVolumeExpansion"].as_bool().unwrap_or(false)),
        age(object),
    ]
}

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
        json!(storage(&spec["capacity"])),
        json!(access_modes(&spec["accessModes"])),
        json!(text(spec, &["persistentVolumeReclaimPolicy"])),
        json!(phase),
        json!(claim),
        json!(format::storage_class(object)),
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
            storage(&status["capacity"]),
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
        json!(format::storage_class(object)),
        json!(
            spec["volumeAttributesClassName"]
                .as_str()
                .unwrap_or("<unset>")
        ),
        age(object),
        json!(spec["volumeMode"].as_str().unwrap_or("<unset>")),
    ]
}

pub(crate) fn volume_attachment(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    vec![
        name(object),
        json!(text(spec, &["attacher"])),
        json!(text(spec, &["source", "persistentVolumeName"])),
        json!(text(spec, &["nodeName"])),
        json!(object["status"]["attached"].as_bool().unwrap_or(false)),
        age(object),
    ]
}

pub(crate) fn volume_attributes_class(object: &Value) -> Vec<Value> {
    vec![
        name(object),
        json!(text(object, &["driverName"])),
        age(object),
    ]
}

pub(crate) fn csi_node(object: &Value) -> Vec<Value> {
    vec![
        name(object),
        json!(items(&object["spec"]["drivers"]).len()),
        age(object),
    ]
}

pub(crate) fn csi_driver(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let flag = |key: &str, default: bool| json!(spec[key].as_bool().unwrap_or(default));
    let tokens: Vec<&str> = items(&spec["tokenRequests"])
        .iter()
        .filter_map(|it| it["audience"].as_str())
        .collect();
    let tokens = if spec["tokenRequests"].is_null() {
        "<unset>".to_owned()
    } else {
        tokens.join(",")
    };
    vec![
        name(object),
        flag("attachRequired", true),
        flag("podInfoOnMount", false),
        flag("storageCapacity", false),
        json!(tokens),
        flag("requiresRepublish", false),
        json!(or_none(strings(&spec["volumeLifecycleModes"]).join(","))),
        age(object),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_show_modes_once_and_the_class_of_the_old_annotation() {
        let object = json!({
            "metadata": {
                "name": "v",
                "annotations": {"volume.beta.kubernetes.io/storage-class": "old"},
            },
            "spec": {
                "accessModes": ["ReadWriteMany", "ReadWriteOnce", "ReadWriteOnce"],
                "storageClassName": "new",
            },
        });
        let cells = volume(&object);
        assert_eq!(cells[1..3], [json!("0"), json!("RWO,RWX")]);
        assert_eq!(cells[6], "old");
    }
}
