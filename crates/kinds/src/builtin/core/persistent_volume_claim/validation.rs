//! Validation of persistent volume claims.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::well_known::BETA_STORAGE_CLASS_ANNOTATION;
use allot_apimachinery::{Quantity, names};
use serde_json::Value;

use crate::empties;
use crate::validate::{IMMUTABLE, entries, immutable, pod_diff, quantity, rule, storage, text};

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
    let check = |amount: &Value, at: &Path, errors: &mut ErrorList| {
        let whole = quantity(amount).map(|amount| amount.value());
        if let Some(whole) = whole.filter(|whole| *whole < 0) {
            let detail = "must be a valid resource quantity";
            errors.push(Error::invalid(at, whole, detail));
        }
    };
    for (name, amount) in entries(status, "capacity") {
        check(amount, &path.child("capacity").key(name), errors);
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
            check(amount, &at.key(name), errors);
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
    let [annotation, annotation_before] = [object, old]
        .map(|it| it["metadata"]["annotations"][BETA_STORAGE_CLASS_ANNOTATION].as_str());
    let named = object["spec"]["storageClassName"].as_str();
    let unnamed = old["spec"]["storageClassName"].is_null();
    // The class may be set where there was none, to that of the annotation if there is one.
    let gets_class =
        unnamed && named.is_some() && (annotation_before.is_none() || annotation_before == named);
    // With the class the annotation may go.
    let moves_class = gets_class
        && annotation_before.is_some()
        && (annotation.is_none() || annotation == annotation_before);
    let annotation = annotation.unwrap_or_default();
    if !moves_class && annotation != annotation_before.unwrap_or_default() {
        let at = Path::new("metadata").child("annotations");
        errors.push(Error::invalid(
            &at.child(BETA_STORAGE_CLASS_ANNOTATION),
            annotation,
            IMMUTABLE,
        ));
    }
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
        let sent = empties::shown_spec(&now, |_| false);
        let shown = pod_diff::of("PersistentVolumeClaimSpec", &before, &sent);
        let detail = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{shown}"
        );
        errors.push(Error::forbidden(&path, detail));
    }
    let amount = |part: &Value| quantity(&part["storage"]);
    let requested = |object: &Value| amount(&object["spec"]["resources"]["requests"]);
    let (now, before) = (requested(object), requested(old));
    // The request may shrink to the current capacity: that is how a failed expansion is abandoned.
    let least = amount(&old["status"]["capacity"]).unwrap_or(Quantity::ZERO);
    if now < before && now.is_none_or(|now| now <= least) {
        let at = path.child("resources").child("requests").child("storage");
        let detail = "field can not be less than status.capacity";
        errors.push(Error::forbidden(&at, detail));
    }
    let (now, before) = (&object["spec"], &old["spec"]);
    let mode = "volumeMode";
    immutable(now, before, mode, &Path::new(mode), errors);
    let class = "volumeAttributesClassName";
    let applied = !old["status"]["currentVolumeAttributesClassName"].is_null();
    if applied && now[class] != before[class] {
        let to = match now[class].as_str() {
            None => "nil",
            Some("") => "empty string",
            Some(_) => return,
        };
        let detail = format!(
            "update to {to} is forbidden when status.currentVolumeAttributesClassName is not nil"
        );
        errors.push(Error::forbidden(&path.child(class), detail));
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn update(new: &Value, old: &Value) -> Vec<String> {
        let mut errors = ErrorList::new();
        validate_update(new, old, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    fn claim() -> Value {
        json!({
            "metadata": {"annotations": {}}, "status": {"phase": "Bound"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                "volumeMode": "Filesystem", "volumeName": "v",
            },
        })
    }

    #[test]
    fn the_class_of_the_annotation_is_fixed() {
        let class = BETA_STORAGE_CLASS_ANNOTATION;
        let mut old = claim();
        old["metadata"]["annotations"][class] = "a".into();
        let mut new = claim();
        assert_eq!(
            update(&new, &old),
            [format!(
                "metadata.annotations.{class}: Invalid value: \"\": field is immutable"
            )]
        );
        // It moves into the spec.
        new["spec"]["storageClassName"] = "a".into();
        assert_eq!(update(&new, &old), Vec::<String>::new());
        new["spec"]["storageClassName"] = "b".into();
        assert_eq!(update(&new, &old).len(), 2);
    }

    #[test]
    fn the_volume_mode_is_named_as_well() {
        let (mut new, old) = (claim(), claim());
        new["spec"]["volumeMode"] = "Block".into();
        let errors = update(&new, &old);
        assert!(errors[0].starts_with("spec: Forbidden: spec is immutable"));
        assert_eq!(
            errors[1..],
            ["volumeMode: Invalid value: \"Block\": field is immutable"]
        );
    }

    #[test]
    fn an_attributes_class_in_effect_stays() {
        let (mut new, mut old) = (claim(), claim());
        old["spec"]["volumeAttributesClassName"] = "a".into();
        assert_eq!(update(&new, &old), Vec::<String>::new());
        old["status"]["currentVolumeAttributesClassName"] = "a".into();
        for (class, to) in [(Value::Null, "nil"), ("".into(), "empty string")] {
            new["spec"]["volumeAttributesClassName"] = class;
            let errors = update(&new, &old);
            let expected = format!(
                "spec.volumeAttributesClassName: Forbidden: update to {to} is forbidden when \
                 status.currentVolumeAttributesClassName is not nil"
            );
            assert!(errors.contains(&expected), "{errors:?}");
        }
        new["spec"]["volumeAttributesClassName"] = "b".into();
        assert_eq!(update(&new, &old), Vec::<String>::new());
    }
}
