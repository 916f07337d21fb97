//! Persistent volume claims.

use serde_json::{Value, json};

use super::persistent_volume::{OLD_CLASS, annotation};
use crate::object;
use crate::registry::{BASE, Builtin, Rules, STATUS};
use crate::request::Part;
use crate::table::age;
use crate::table::format::{access_modes, name, storage, storage_class};
use crate::warnings::pod::claim_spec;

mod validation;

pub(super) static PERSISTENT_VOLUME_CLAIM: Builtin = Builtin {
    kind: "PersistentVolumeClaim",
    plural: "persistentvolumeclaims",
    short: &["pvc"],
    subresources: &[STATUS],
    rules: Rules {
        protection_finalizer: Some("kubernetes.io/pvc-protection"),
        initialize: Some(|claim| {
            claim["status"] = json!({"phase": "Pending"});
            data_sources(claim, &Value::Null);
        }),
        prepare_update: Some(|claim, old, part| {
            if part == Part::Main {
                data_sources(claim, old);
            }
        }),
        validate: validation::validate,
        validate_update: Some(validation::validate_update),
        validate_status: Some(|claim, _, errors| validation::validate_status(claim, errors)),
        warnings,
        delete_returns_object: |_| true,
        table: Some((
            "Name|Status|Volume|Capacity|Access Modes|StorageClass|VolumeAttributesClass|Age|VolumeMode::1",
            row,
        )),
        ..Rules::DEFAULT
    },
    ..BASE
};

/// Keeps the two data source fields of a claim in sync; `old` is null for a new claim.
fn data_sources(claim: &mut Value, old: &Value) {
    let Some(spec) = claim["spec"].as_object_mut() else {
        return;
    };
    let has = |spec: &Value, key: &str| spec[key].is_object();
    let in_use = has(&old["spec"], "dataSource") || has(&old["spec"], "dataSourceRef");
    let in_namespace = |source: &Value| !crate::object::text(source, &["namespace"]).is_empty();
    // Volumes cannot be populated from other namespaces yet; what is stored already is kept.
    if !has(&old["spec"], "dataSourceRef") && spec.get("dataSourceRef").is_some_and(in_namespace) {
        spec.remove("dataSourceRef");
    }
    // `dataSource` alone only allows the kinds that it has always allowed.
    let source = spec.get("dataSource").unwrap_or(&Value::Null);
    let part = |key: &str| crate::object::text(source, &[key]);
    let allowed = matches!(
        (part("apiGroup"), part("kind")),
        ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
    );
    let alone = spec.get("dataSourceRef").is_none_or(Value::is_null);
    if !in_use && alone && !allowed {
        spec.remove("dataSource");
    }
    for (from, to) in [
        ("dataSource", "dataSourceRef"),
        ("dataSourceRef", "dataSource"),
    ] {
        let source = spec.get(from).filter(|source| source.is_object());
        if let Some(source) = source.cloned()
            && spec.get(to).is_none_or(Value::is_null)
            // `dataSource` has no namespace.
            && !in_namespace(&source)
        {
            spec.insert(to.to_owned(), source);
        }
    }
}

fn row(object: &Value) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let phase = if object["metadata"]["deletionTimestamp"].is_string() {
        "Terminating"
    } else {
        object::text(status, &["phase"])
    };
    let bound = !object::text(spec, &["volumeName"]).is_empty();
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
        json!(object::text(spec, &["volumeName"])),
        json!(capacity),
        json!(modes),
        json!(storage_class(object)),
        json!(
            spec["volumeAttributesClassName"]
                .as_str()
                .unwrap_or("<unset>")
        ),
        age(object),
        json!(spec["volumeMode"].as_str().unwrap_or("<unset>")),
    ]
}

/// Warnings about a claim for a volume.
fn warnings(object: &Value) -> Vec<String> {
    let mut found = annotation(object, OLD_CLASS);
    found.extend(claim_spec(&object["spec"], "spec"));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_references_to_other_namespaces_stay() {
        let source = json!({"kind": "A", "name": "a", "namespace": "other"});
        let with = json!({"spec": {"dataSourceRef": source}});
        let mut new = with.clone();
        data_sources(&mut new, &Value::Null);
        assert_eq!(new, json!({"spec": {}}));
        let mut changed = with.clone();
        data_sources(&mut changed, &with);
        assert_eq!(changed, with);
    }
}
