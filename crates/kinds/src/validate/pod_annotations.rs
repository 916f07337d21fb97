//! Annotations of pods and pod templates that have rules: mirror pods, what a deletion costs, and the profiles that are
//! fields today.

use std::cell::LazyCell;
use std::collections::HashMap;

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::{Map, Value, json};

use super::{by_name, list, security, text};

use allot_model::validate::pod::MIRROR_ANNOTATION as MIRROR;
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// The profile of a pod.
pub const SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/pod";
/// The profile of a container, whose name follows.
pub const SECCOMP_PREFIX: &str = "container.seccomp.security.alpha.kubernetes.io/";
/// As before, for AppArmor.
pub const APP_ARMOR_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";

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

fn containers(spec: &Value) -> HashMap<&str, &Value> {
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    by_name(lists.iter().flat_map(|key| list(spec, key)))
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
        Some(file) => security::descending(file, path, errors),
    }
}

/// Validates the annotations in `metadata`, which are at `path`. An invalid deletion cost is tolerated if `old` has
/// one, too.
pub(crate) fn check(
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
    let containers = LazyCell::new(|| containers(spec));
    for (key, value) in of(metadata) {
        let Some(container) = key.strip_prefix(APP_ARMOR_PREFIX) else {
            continue;
        };
        if !containers.contains_key(container) {
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

/// Validates changes of annotations that are immutable in a pod, then all of them.
pub(crate) fn check_update(object: &Value, old: &Value, errors: &mut ErrorList) {
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

/// The value of the field that has replaced an annotation: a type, and for `Localhost` a name.
fn as_field(annotation: &str) -> Option<(&'static str, Option<&str>)> {
    Some(match annotation {
        "unconfined" => ("Unconfined", None),
        "runtime/default" => ("RuntimeDefault", None),
        _ => ("Localhost", Some(annotation.strip_prefix("localhost/")?)),
    })
}

/// The profile of a valid AppArmor annotation.
pub fn app_armor_field(annotation: &str) -> Option<Value> {
    let profile = match as_field(annotation)? {
        (kind, Some(name)) => json!({"type": kind, "localhostProfile": name}),
        (kind, None) => json!({"type": kind}),
    };
    let mut errors = ErrorList::new();
    security::app_armor(&profile, &Path::new(""), &mut errors);
    errors.is_empty().then_some(profile)
}

/// Validates that annotations and fields of a new pod, or of a template, name the same profiles.
pub(crate) fn check_match(pod: &Value, path: &Path, errors: &mut ErrorList) {
    const FIELD: &str = "seccompProfile";
    let (spec, annotations) = (&pod["spec"], &pod["metadata"]["annotations"]);
    let context = path.child("securityContext");
    let own = &spec["securityContext"][FIELD];
    if let (true, Some(found)) = (own.is_object(), annotations[SECCOMP].as_str()) {
        matches("seccomp", found, own, &context.child(FIELD), errors);
    }
    visit(spec, path, |container, at| {
        let field = &container["securityContext"][FIELD];
        let key = format!("{SECCOMP_PREFIX}{}", text(container, "name"));
        if let (true, Some(found)) = (field.is_object(), annotations[&key].as_str()) {
            let at = at.child("securityContext").child(FIELD);
            matches("seccomp", found, field, &at, errors);
        }
    });
    if text(&spec["os"], "name") == "windows" {
        return;
    }
    const ARMOR: &str = "appArmorProfile";
    let shared = &spec["securityContext"][ARMOR];
    visit(spec, path, |container, at| {
        let field = match &container["securityContext"][ARMOR] {
            own if own.is_object() => own,
            _ => shared,
        };
        let key = format!("{APP_ARMOR_PREFIX}{}", text(container, "name"));
        if let (true, Some(found)) = (field.is_object(), annotations[&key].as_str()) {
            let at = at.child("securityContext").child(ARMOR);
            matches("apparmor", found, field, &at, errors);
        }
    });
}

fn visit(spec: &Value, path: &Path, mut check: impl FnMut(&Value, &Path)) {
    for key in ["initContainers", "containers", "ephemeralContainers"] {
        for (index, container) in list(spec, key).iter().enumerate() {
            check(container, &path.child(key).index(index));
        }
    }
}

fn matches(what: &str, annotation: &str, field: &Value, path: &Path, errors: &mut ErrorList) {
    let wanted = match annotation {
        "docker/default" if what == "seccomp" => Some(("RuntimeDefault", None)),
        other => as_field(other),
    };
    let kind = text(field, "type");
    if !matches!(kind, "Localhost" | "RuntimeDefault" | "Unconfined") {
        return;
    }
    match wanted {
        Some((wanted, name)) if wanted == kind => {
            if name.is_some() && field["localhostProfile"].as_str() != name {
                let detail = format!("{what} profile in annotation and field must match");
                errors.push(Error::forbidden(&path.child("localhostProfile"), detail));
            }
        }
        _ => {
            let detail = format!("{what} type in annotation and field must match");
            errors.push(Error::forbidden(&path.child("type"), detail));
        }
    }
}
