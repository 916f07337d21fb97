//! What may change in a pod that exists.

use std::collections::HashSet;

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_model::validate::pod as pod_claims;
use serde_json::{Map, Value, json};

use super::validation;
use crate::empties;
use crate::validate::{between, by_name, entries, list, pod_annotations, pod_diff, text};

const FORBIDDEN: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Checks a change of a pod.
pub(super) fn validate(object: &Value, old: &Value, errors: &mut ErrorList) {
    let (spec, before, path) = (&object["spec"], &old["spec"], Path::new("spec"));
    validation::validate(object, Some(old), errors);
    pod_annotations::check_update(object, old, errors);
    for key in ["containers", "initContainers"] {
        if list(spec, key).len() != list(before, key).len() {
            let detail = "pod updates may not add or remove containers";
            errors.push(Error::forbidden(&path.child(key), detail));
            return;
        }
        images(list(spec, key), &path.child(key), errors);
    }
    if !deadline(spec, before, &path, errors) {
        return;
    }
    additions_only(spec, before, &path, errors);
    gates(spec, before, &path, errors);
    let gated = !list(before, "schedulingGates").is_empty();
    if gated {
        selectors(spec, before, &path, errors);
        node_affinity(spec, before, &path, errors);
    }
    // Mutable fields are made equal; the rest must be equal.
    let mut copy = spec.clone();
    if let Value::Object(map) = &mut copy {
        for key in ["containers", "initContainers"] {
            keep_images(map, before, key);
        }
        for key in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
            keep(map, before, key);
        }
        if gated {
            keep(map, before, "nodeSelector");
            keep_node_affinity(map, before);
        }
        let negative = before["terminationGracePeriodSeconds"]
            .as_i64()
            .is_some_and(|seconds| seconds < 0);
        if negative && spec["terminationGracePeriodSeconds"] == 1 {
            keep(map, before, "terminationGracePeriodSeconds");
        }
    }
    if copy != *before {
        let sent = empties::shown_spec(&copy, |it| is_made_equal(it, gated));
        let shown = pod_diff::diff(before, &sent);
        errors.push(Error::forbidden(&path, format!("{FORBIDDEN}\n{shown}")));
    }
}

/// Whether a list or map, named by its pointer, is that of the pod before in the comparison, and not the one that was sent.
fn is_made_equal(pointer: &str, gated: bool) -> bool {
    const LISTS: [&str; 4] = [
        "/spec/containers",
        "/spec/initContainers",
        "/spec/tolerations",
        "/spec/schedulingGates",
    ];
    let free =
        pointer == "/spec/nodeSelector" || pointer.starts_with("/spec/affinity/nodeAffinity/");
    LISTS.contains(&pointer) || gated && free
}

fn keep(map: &mut Map<String, Value>, before: &Value, key: &str) {
    match before.get(key) {
        Some(value) => map.insert(key.to_owned(), value.clone()),
        None => map.remove(key),
    };
}

fn keep_images(map: &mut Map<String, Value>, before: &Value, key: &str) {
    let Some(Value::Array(containers)) = map.get_mut(key) else {
        return;
    };
    for (container, old) in containers.iter_mut().zip(list(before, key)) {
        if let Value::Object(container) = container {
            keep(container, old, "image");
        }
    }
}

fn images(containers: &[Value], path: &Path, errors: &mut ErrorList) {
    for (index, container) in containers.iter().enumerate() {
        let (image, at) = (text(container, "image"), path.index(index).child("image"));
        if image.is_empty() {
            errors.push(Error::required(&at, ""));
        }
        if image.trim() != image {
            let detail = "must not have leading or trailing whitespace";
            errors.push(Error::invalid(&at, image, detail));
        }
    }
}

/// Scheduling gates can only be removed.
fn gates(spec: &Value, before: &Value, path: &Path, errors: &mut ErrorList) {
    let old = by_name(list(before, "schedulingGates"));
    for (index, gate) in list(spec, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        if !old.contains_key(name) {
            let detail =
                format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.push(Error::forbidden(
                &path.child("schedulingGates").index(index).child("name"),
                detail,
            ));
        }
    }
}

/// Validates a new deadline; returns whether to continue.
fn deadline(spec: &Value, before: &Value, path: &Path, errors: &mut ErrorList) -> bool {
    let at = path.child("activeDeadlineSeconds");
    let new = spec["activeDeadlineSeconds"].as_i64();
    match (new, before["activeDeadlineSeconds"].as_i64()) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            let detail = between(0, i32::MAX.into());
            errors.push(Error::invalid(&at, new, detail));
            return false;
        }
        (Some(new), Some(old)) if new > old => {
            let detail = "must be less than or equal to previous value";
            errors.push(Error::invalid(&at, new, detail));
            return false;
        }
        (None, Some(_)) => {
            let detail = "must not update from a positive integer to nil value";
            let seconds = &spec["activeDeadlineSeconds"];
            errors.push(Error::invalid(&at, seconds, detail));
        }
        _ => {}
    }
    true
}

fn additions_only(spec: &Value, before: &Value, path: &Path, errors: &mut ErrorList) {
    let without_seconds =
        |toleration| ["key", "operator", "value", "effect"].map(|field| text(toleration, field));
    let new: HashSet<_> = list(spec, "tolerations")
        .iter()
        .map(without_seconds)
        .collect();
    let mut old = list(before, "tolerations").iter().map(without_seconds);
    if !old.all(|toleration| new.contains(&toleration)) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(Error::forbidden(&path.child("tolerations"), detail));
    }
}

/// While gates hold a pod, node selectors may be narrowed.
fn selectors(spec: &Value, before: &Value, path: &Path, errors: &mut ErrorList) {
    let (new, old) = (&spec["nodeSelector"], &before["nodeSelector"]);
    let kept = entries(before, "nodeSelector").all(|(key, value)| new.get(key) == Some(value));
    if new != old && !kept {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.push(Error::invalid(&path.child("nodeSelector"), new, detail));
    }
}

/// While gates hold a pod, its required node affinity may be narrowed, and the preferred one is free.
fn node_affinity(spec: &Value, before: &Value, path: &Path, errors: &mut ErrorList) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const TERMS: &str = "nodeSelectorTerms";
    let required = |spec: &'_ Value| spec["affinity"]["nodeAffinity"][REQUIRED].clone();
    let (new, old) = (required(spec), required(before));
    let shown = |terms: &Value| BadValue::raw(pod_claims::node_selector_terms(terms));
    let all = &new[TERMS];
    let (new, old) = (list(&new, TERMS), list(&old, TERMS));
    let path = path.child("affinity").child("nodeAffinity");
    let path = path.child(REQUIRED).child(TERMS);
    if old.is_empty() {
        return;
    }
    if new.len() != old.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        errors.push(Error::invalid(&path, shown(all), detail));
        return;
    }
    for (index, (new, old)) in new.iter().zip(old).enumerate() {
        let begins = |key: &str| list(new, key).starts_with(list(old, key));
        let is_empty = |term: &Value| {
            list(term, "matchExpressions").is_empty() && list(term, "matchFields").is_empty()
        };
        // An empty term selects nothing; one with any requirement would select more.
        let widened = is_empty(old) && !is_empty(new);
        if widened || !begins("matchExpressions") || !begins("matchFields") {
            let detail = "only additions are allowed (no mutations or deletions)";
            let shown = BadValue::raw(pod_claims::node_selector_term(new));
            errors.push(Error::invalid(&path.index(index), shown, detail));
        }
    }
}

/// Puts the node affinity of before in the place of the new one.
fn keep_node_affinity(map: &mut Map<String, Value>, before: &Value) {
    const KEY: &str = "nodeAffinity";
    let old = &before["affinity"];
    let Some(Value::Object(affinity)) = map.get_mut("affinity") else {
        if old[KEY].is_object() {
            map.insert("affinity".to_owned(), json!({KEY: old[KEY]}));
        }
        return;
    };
    keep(affinity, old, KEY);
    let others = ["podAffinity", "podAntiAffinity"];
    if !old.is_object() && !others.iter().any(|key| affinity.contains_key(*key)) {
        map.remove("affinity");
    }
}

/// Checks a change of a pod's ephemeral containers: there may be more of them.
pub(super) fn validate_ephemeral(object: &Value, old: &Value, errors: &mut ErrorList) {
    const KEY: &str = "ephemeralContainers";
    if old["metadata"]["annotations"][pod_claims::MIRROR_ANNOTATION].is_string() {
        let detail = "static pods do not support ephemeral containers";
        *errors = ErrorList::from([Error::forbidden(&Path::new("[]"), detail)]);
        return;
    }
    validation::validate(object, Some(old), errors);
    pod_annotations::check_update(object, old, errors);
    let path = Path::new("spec").child(KEY);
    let now = by_name(list(&object["spec"], KEY));
    let sent = empties::shown_spec(&object["spec"], |_| false);
    let sent = by_name(list(&sent, KEY));
    for before in list(&old["spec"], KEY) {
        let name = text(before, "name");
        match now.get(name) {
            None => {
                let detail = format!("existing ephemeral containers {name:?} may not be removed\n");
                errors.push(Error::forbidden(&path, detail));
            }
            Some(now) if *now != before => {
                let sent = sent.get(name).unwrap_or(now);
                let shown = pod_diff::of("EphemeralContainer", before, sent);
                let detail =
                    format!("existing ephemeral containers {name:?} may not be changed\n{shown}");
                errors.push(Error::forbidden(&path, detail));
            }
            Some(_) => {}
        }
    }
}
