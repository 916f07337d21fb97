//! Validation of persistent volume claims.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::{Quantity, names};
use serde_json::Value;

use crate::validate::{entries, pod_diff, rule, storage, text};

/// Checks a claim of a volume.
pub(super) fn validate(object: &Value, errors: &mut ErrorList) {
    storage::claim_spec(&object["spec"], &Path::new("spec"), errors);
}

/// Checks the status of a claim: what it got, and how its expansion goes.
pub(super) fn validate_status(object: &Value, errors: &mut ErrorList) {
    const RESIZING: [&str; 5] = [
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    let (status, path) = (&object["status"], Path::new("status"));
    let whole = |amount: &Value| {
        let amount = amount.as_str()?.parse::<Quantity>().ok()?;
        Some(amount.value()).filter(|amount| *amount < 0)
    };
    let negative = |amount: &Value, at: &Path, errors: &mut ErrorList| match whole(amount) {
        Some(amount) => {
            let detail = "must be a valid resource quantity";
            errors.push(Error::invalid(at, amount, detail));
            true
        }
        None => false,
    };
    for (name, amount) in entries(status, "capacity") {
        negative(amount, &path.child("capacity").key(name), errors);
    }
    let at = path.child("allocatedResourceStatuses");
    for (name, state) in entries(status, "allocatedResourceStatuses") {
        claimed_name(name, &at, errors);
        if !state
            .as_str()
            .is_some_and(|state| RESIZING.contains(&state))
        {
            // As upstream: the name, not the state.
            errors.push(Error::not_supported(&at, name.as_str(), &RESIZING));
        }
    }
    let at = path.child("allocatedResources");
    for (name, amount) in entries(status, "allocatedResources") {
        if claimed_name(name, &at, errors) {
            negative(amount, &at.key(name), errors);
        }
    }
}

/// What a claim can have: storage, and resources with a domain.
fn claimed_name(name: &str, path: &Path, errors: &mut ErrorList) -> bool {
    let texts = names::qualified_name(name);
    let valid = texts.is_empty();
    rule(texts, name, path, errors);
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    if valid && native && name != "storage" {
        errors.push(Error::not_supported(path, name, &["storage"]));
        return false;
    }
    valid
}

/// Checks a change of a claim of a volume.
pub(super) fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    validate(object, errors);
    // The requested size of a bound claim may grow.
    let bound = object["status"]["phase"] == "Bound";
    let class = "volume.beta.kubernetes.io/storage-class";
    let is_annotated = |it: &Value| it["metadata"]["annotations"].get(class).is_some();
    let gets_class =
        old["spec"]["storageClassName"].is_null() && !is_annotated(old) && !is_annotated(object);
    // Mutable fields are made equal, the rest must be equal; a binder writes the volume's name once.
    let (mut now, mut before) = (object["spec"].clone(), old["spec"].clone());
    if text(&before, "volumeName").is_empty() {
        follow(&mut before, &now, "volumeName");
    }
    if gets_class {
        follow(&mut now, &before, "storageClassName");
    }
    if bound {
        follow(&mut now, &before, "volumeAttributesClassName");
        let requests = &before["resources"]["requests"];
        follow(&mut now["resources"]["requests"], requests, "storage");
    }
    let path = Path::new("spec");
    if now != before {
        let shown = pod_diff::of("PersistentVolumeClaimSpec", &before, &now);
        let detail = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{shown}"
        );
        errors.push(Error::forbidden(&path, detail));
    }
    let amount = |part: &Value| part["storage"].as_str()?.parse::<Quantity>().ok();
    let requested = |object: &Value| amount(&object["spec"]["resources"]["requests"]);
    let (now, before) = (requested(object), requested(old));
    // Down to what there is, as a way out of an expansion that failed.
    let least = amount(&old["status"]["capacity"]).unwrap_or(Quantity::ZERO);
    if now < before && now.is_none_or(|now| now <= least) {
        let at = path.child("resources").child("requests").child("storage");
        let detail = "field can not be less than status.capacity";
        errors.push(Error::forbidden(&at, detail));
    }
}

/// Sets a member to its value in `other`.
fn follow(object: &mut Value, other: &Value, key: &str) {
    if let Value::Object(map) = object {
        match other.get(key) {
            Some(value) => map.insert(key.to_owned(), value.clone()),
            None => map.remove(key),
        };
    }
}
