//! Annotations of pods and pod templates that have rules: mirror pods, what a deletion costs, and the profiles that are
//! fields today.

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::{Map, Value};

use super::{list, text};

use allot_model::validate::pod::MIRROR_ANNOTATION as MIRROR;
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// The profile of a pod.
pub(crate) const SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/pod";
/// The profile of a container, whose name follows.
pub(crate) const SECCOMP_PREFIX: &str = "container.seccomp.security.alpha.kubernetes.io/";
/// As before, for AppArmor.
pub(crate) const APP_ARMOR_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";

fn of(metadata: &Value) -> impl Iterator<Item = (&String, &str)> {
    let annotations = metadata["annotations"].as_object().into_iter().flatten();
    annotations.map(|(key, value)| (key, value.as_str().unwrap_or_default()))
}

/// A cost is a number as it would be written: no plus, no zeros before it.
fn is_cost(value: &str) -> bool {
    let canonical = match value.as_bytes() {
        [b'0', rest @ ..] => rest.is_empty(),
        [first, ..] => *first == b'-' || first.is_ascii_digit(),
        [] => false,
    };
    canonical && value.parse::<i32>().is_ok()
}

fn has_container(spec: &Value, name: &str) -> bool {
    ["containers", "initContainers", "ephemeralContainers"]
        .iter()
        .flat_map(|key| list(spec, key))
        .any(|container| text(container, "name") == name)
}

fn seccomp(profile: &str, path: &Path, errors: &mut ErrorList) {
    if matches!(profile, "runtime/default" | "docker/default" | "unconfined") {
        return;
    }
    match profile.strip_prefix("localhost/") {
        None => errors.push(Error::invalid(
            path,
            profile,
            "must be a valid seccomp profile",
        )),
        Some(file) => {
            if file.starts_with('/') {
                errors.push(Error::invalid(path, file, "must be a relative path"));
            }
            if file.split('/').any(|part| part == "..") {
                errors.push(Error::invalid(path, file, "must not contain '..'"));
            }
        }
    }
}

/// Checks the annotations in `metadata`, which are at `path`. A cost that is none may stay where `old` has one, too.
pub(super) fn check(
    metadata: &Value,
    old: Option<&Value>,
    spec: &Value,
    path: &Path,
    errors: &mut ErrorList,
) {
    for (key, value) in of(metadata) {
        if key == MIRROR && text(spec, "nodeName").is_empty() {
            let detail = "must set spec.nodeName if mirror pod annotation is set";
            errors.push(Error::invalid(&path.key(key), value, detail));
        }
    }
    let forgiven = old
        .and_then(|old| old["annotations"][DELETION_COST].as_str())
        .is_some_and(|cost| !is_cost(cost));
    for (key, value) in of(metadata) {
        if key == DELETION_COST && !forgiven && !is_cost(value) {
            let detail = "must be a 32bit integer";
            errors.push(Error::invalid(&path.key(key), value, detail));
        }
    }
    for (key, value) in of(metadata) {
        if key == SECCOMP || key.starts_with(SECCOMP_PREFIX) {
            seccomp(value, &path.child(key), errors);
        }
    }
    for (key, value) in of(metadata) {
        let Some(container) = key.strip_prefix(APP_ARMOR_PREFIX) else {
            continue;
        };
        if !has_container(spec, container) {
            errors.push(Error::invalid(
                &path.key(key),
                container,
                "container not found",
            ));
        }
        let known = matches!(value, "" | "runtime/default" | "unconfined");
        if !known && !value.starts_with("localhost/") {
            let detail = format!("invalid AppArmor profile name: {value:?}");
            errors.push(Error::invalid(&path.key(key), value, detail));
        }
    }
}

/// Checks what a change of a pod does to annotations that are fixed once the pod is there, then all of them.
pub(super) fn check_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    let (metadata, before) = (&object["metadata"], &old["metadata"]);
    let path = Path::new("metadata").child("annotations");
    let none = Map::new();
    let map = |metadata: &'_ Value| metadata["annotations"].as_object().cloned();
    let (new, old) = (
        map(metadata).unwrap_or_else(|| none.clone()),
        map(before).unwrap_or(none),
    );
    let mut complain = |key: &str, what: &str| {
        let subject = if key == MIRROR {
            "mirror pod annotation"
        } else if key.starts_with(APP_ARMOR_PREFIX) {
            "AppArmor annotations"
        } else {
            return;
        };
        let detail = format!("may not {what} {subject}");
        errors.push(Error::forbidden(&path.key(key), detail));
    };
    for (key, value) in &old {
        if new.get(key) != Some(value) {
            complain(key, "remove or update");
        }
    }
    for key in new.keys().filter(|key| !old.contains_key(*key)) {
        complain(key, "add");
    }
    check(metadata, Some(before), &object["spec"], &path, errors);
}
