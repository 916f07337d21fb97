//! Persistent volumes.

use allot_apimachinery::well_known::BETA_STORAGE_CLASS_ANNOTATION;
use serde_json::{Value, json};

use crate::object::{self, child_mut, items};
use crate::registry::{Builtin, CLUSTER, Rules, STATUS};
use crate::request::Part;
use crate::table::age;
use crate::table::format::{access_modes, name, storage, storage_class};
use crate::warnings;

pub(in crate::builtin) mod validation;

pub(super) static PERSISTENT_VOLUME: Builtin = Builtin {
    kind: "PersistentVolume",
    plural: "persistentvolumes",
    short: &["pv"],
    subresources: &[STATUS],
    rules: Rules {
        protection_finalizer: Some("kubernetes.io/pv-protection"),
        initialize: Some(|volume| {
            let now = crate::object::now();
            volume["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": now});
        }),
        prepare_update: Some(|volume, old, part| {
            if part == Part::Status {
                record_transition(volume, old);
            }
        }),
        validate: validation::validate,
        validate_update: Some(validation::validate_update),
        checks_metadata_change: |_| false,
        warnings: of_volume,
        delete_returns_object: |_| true,
        table: Some((
            "Name|Capacity|Access Modes|Reclaim Policy|Status|Claim|StorageClass|VolumeAttributesClass|Reason|Age|VolumeMode::1",
            row,
        )),
        ..Rules::DEFAULT
    },
    ..CLUSTER
};

/// Records when the phase of a volume changed, unless the request says when.
fn record_transition(volume: &mut Value, old: &Value) {
    const TIME: &str = "lastPhaseTransitionTime";
    let phase = |volume: &Value| {
        let phase = volume["status"]["phase"].as_str().unwrap_or_default();
        match phase {
            "" => "Pending".to_owned(),
            phase => phase.to_owned(),
        }
    };
    let (sent, known) = (&volume["status"][TIME], &old["status"][TIME]);
    let time = match phase(volume) == phase(old) {
        true if sent.is_null() => known.clone(),
        false if sent.is_null() || sent == known => crate::object::now().into(),
        _ => return,
    };
    let status = child_mut(volume, "status");
    match time {
        Value::Null => status.remove(TIME),
        time => status.insert(TIME.to_owned(), time),
    };
}

fn row(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let claim = match &spec["claimRef"] {
        Value::Null => String::new(),
        claim => format!(
            "{}/{}",
            object::text(claim, &["namespace"]),
            object::text(claim, &["name"])
        ),
    };
    let phase = if object["metadata"]["deletionTimestamp"].is_string() {
        "Terminating"
    } else {
        object::text(object, &["status", "phase"])
    };
    vec![
        name(object),
        json!(storage(&spec["capacity"])),
        json!(access_modes(&spec["accessModes"])),
        json!(object::text(spec, &["persistentVolumeReclaimPolicy"])),
        json!(phase),
        json!(claim),
        json!(storage_class(object)),
        json!(
            spec["volumeAttributesClassName"]
                .as_str()
                .unwrap_or("<unset>")
        ),
        json!(object::text(object, &["status", "reason"])),
        age(object),
        json!(spec["volumeMode"].as_str().unwrap_or("<unset>")),
    ]
}

/// Annotations of volumes and claims that were replaced by fields, and the warnings about them.
pub(super) const OLD_CLASS: (&str, &str) = (
    BETA_STORAGE_CLASS_ANNOTATION,
    "deprecated since v1.8; use \"storageClassName\" attribute instead",
);

const OLD_OPTIONS: (&str, &str) = (
    "volume.beta.kubernetes.io/mount-options",
    "deprecated since v1.31; use \"mountOptions\" attribute instead",
);

pub(super) fn annotation(object: &Value, (key, message): (&str, &str)) -> Vec<String> {
    let found = object["metadata"]["annotations"].get(key);
    let text = |_| format!("metadata.annotations[{key}]: {message}");
    found.map(text).into_iter().collect()
}

/// Sources of volumes that are no longer supported, in upstream's order: their names in the API and in warnings, and since
/// when they are deprecated and do nothing.
const OLD_SOURCES: [(&str, &str, &str, &str); 6] = [
    ("cephfs", "cephfs", "v1.28", "v1.31"),
    (
        "photonPersistentDisk",
        "photonPersistentDisk",
        "v1.11",
        "v1.16",
    ),
    ("scaleIO", "scaleIO", "v1.16", "v1.22"),
    ("storageos", "storageOS", "v1.22", "v1.25"),
    ("glusterfs", "glusterfs", "v1.25", "v1.26"),
    ("rbd", "rbd", "v1.28", "v1.31"),
];

fn of_volume(object: &Value) -> Vec<String> {
    let mut found = annotation(object, OLD_CLASS);
    found.extend(annotation(object, OLD_OPTIONS));
    if object["spec"]["persistentVolumeReclaimPolicy"] == "Recycle" {
        found.push("spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.".to_owned());
    }
    let terms = &object["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
    for (index, term) in items(terms).iter().enumerate() {
        let place = format!("spec.nodeAffinity.required.nodeSelectorTerms[{index}]");
        warnings::pod::expressions(term, &place, &mut found);
    }
    for (key, name, since, without) in OLD_SOURCES {
        if object["spec"][key].is_object() {
            found.push(format!(
                "spec.{name}: deprecated in {since}, non-functional in {without}+"
            ));
        }
    }
    found
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
        let cells = row(&object);
        assert_eq!(cells[1..3], [json!("0"), json!("RWO,RWX")]);
        assert_eq!(cells[6], "old");
    }
}
