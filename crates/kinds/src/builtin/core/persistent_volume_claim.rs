//! Persistent volume claims.

use serde_json::{Value, json};

use crate::registry::{BASE, Builtin, Rules, STATUS};
use crate::request::Part;
use crate::{table, validate, warnings};

pub(super) static PERSISTENT_VOLUME_CLAIM: Builtin = Builtin {
    kind: "PersistentVolumeClaim",
    plural: "persistentvolumeclaims",
    short: &["pvc"],
    subresources: &[STATUS],
    rules: Rules {
        initialize: Some(|claim| {
            claim["status"] = json!({"phase": "Pending"});
            data_sources(claim, &Value::Null);
        }),
        prepare_update: Some(|claim, old, part| {
            if part == Part::Main {
                data_sources(claim, old);
            }
        }),
        validate: validate::storage::claim,
        validate_update: Some(validate::storage::claim_update),
        validate_status: Some(|claim, _, errors| validate::storage::claim_status(claim, errors)),
        warnings: warnings::volume_claim,
        delete_returns_object: |_| true,
        table: Some((
            "Name|Status|Volume|Capacity|Access Modes|StorageClass|VolumeAttributesClass|Age|VolumeMode::1",
            table::storage::volume_claim,
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
    // Volumes cannot be populated from other namespaces yet.
    if spec.get("dataSourceRef").is_some_and(in_namespace) {
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
        {
            spec.insert(to.to_owned(), source);
        }
    }
}
