//! What may change in a pod that exists.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_model::validate::pod as pod_claims;
use serde_json::{Map, Value};

use super::{ip, list, pod, pod_diff, text};

const FORBIDDEN: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Checks a change of a pod.
pub(super) fn validate(object: &Value, old: &Value, errors: &mut ErrorList) {
    let (spec, before, path) = (&object["spec"], &old["spec"], Path::new("spec"));
    pod::validate(object, errors);
    gates(spec, before, &path, errors);
    if list(spec, "containers").len() != list(before, "containers").len() {
        errors.push(Error::forbidden(
            &path.child("containers"),
            "pod updates may not add or remove containers",
        ));
        return;
    }
    if list(spec, "initContainers").len() != list(before, "initContainers").len() {
        errors.push(Error::forbidden(
            &path.child("initContainers"),
            "pod updates may not add or remove containers",
        ));
        return;
    }
    deadline(spec, before, &path, errors);
    additions_only(spec, before, &path, errors);
    let gated = !list(before, "schedulingGates").is_empty();
    if gated {
        selectors(spec, before, &path, errors);
    }
    // What may change is made equal; the rest has to be.
    let mut copy = spec.clone();
    if let Value::Object(map) = &mut copy {
        for key in ["containers", "initContainers"] {
            keep_images(map, before, key);
        }
        for key in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
            keep(map, before, key);
        }
        if gated {
            for key in ["nodeSelector", "affinity"] {
                keep(map, before, key);
            }
        }
        let negative = before["terminationGracePeriodSeconds"]
            .as_i64()
            .is_some_and(|seconds| seconds < 0);
        if negative && spec["terminationGracePeriodSeconds"] == 1 {
            keep(map, before, "terminationGracePeriodSeconds");
        }
    }
    if copy != *before {
        let shown = pod_diff::diff(before, &copy);
        errors.push(Error::forbidden(&path, format!("{FORBIDDEN}\n{shown}")));
    }
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

/// Gates may only be taken away.
fn gates(spec: &Value, before: &Value, path: &Path, errors: &mut ErrorList) {
    let old = list(before, "schedulingGates");
    for (index, gate) in list(spec, "schedulingGates").iter().enumerate() {
        if !old.contains(gate) {
            let name = text(gate, "name");
            let detail =
                format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.push(Error::forbidden(
                &path.child("schedulingGates").index(index).child("name"),
                detail,
            ));
        }
    }
}

fn deadline(spec: &Value, before: &Value, path: &Path, errors: &mut ErrorList) {
    let at = path.child("activeDeadlineSeconds");
    match (
        spec["activeDeadlineSeconds"].as_i64(),
        before["activeDeadlineSeconds"].as_i64(),
    ) {
        (Some(new), Some(old)) if new > old => {
            let detail = "must be less than or equal to previous value";
            errors.push(Error::invalid(&at, new, detail));
        }
        (None, Some(_)) => {
            let detail = "must not update from a positive integer to nil value";
            let seconds = &spec["activeDeadlineSeconds"];
            errors.push(Error::invalid(&at, seconds, detail));
        }
        _ => {}
    }
}

fn additions_only(spec: &Value, before: &Value, path: &Path, errors: &mut ErrorList) {
    let new = list(spec, "tolerations");
    let without_seconds = |toleration: &Value| {
        let mut map = toleration.as_object().cloned().unwrap_or_default();
        map.remove("tolerationSeconds");
        map
    };
    let kept = list(before, "tolerations").iter().all(|old| {
        new.iter()
            .any(|t| without_seconds(t) == without_seconds(old))
    });
    if !kept {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(Error::forbidden(&path.child("tolerations"), detail));
    }
}

/// While gates hold a pod, node selectors may be narrowed.
fn selectors(spec: &Value, before: &Value, path: &Path, errors: &mut ErrorList) {
    let (new, old) = (&spec["nodeSelector"], &before["nodeSelector"]);
    let kept =
        super::entries(before, "nodeSelector").all(|(key, value)| new.get(key) == Some(value));
    if new != old && !kept {
        let detail = "only additions are allowed (no mutations or deletions)";
        errors.push(Error::invalid(&path.child("nodeSelector"), new, detail));
    }
}

/// Checks a change of a pod's ephemeral containers: there may be more of them.
pub(super) fn validate_ephemeral(object: &Value, old: &Value, errors: &mut ErrorList) {
    const KEY: &str = "ephemeralContainers";
    pod::validate(object, errors);
    let path = Path::new("spec").child(KEY);
    for before in list(&old["spec"], KEY) {
        let name = text(before, "name");
        let mut now = list(&object["spec"], KEY).iter();
        match now.find(|now| now["name"] == before["name"]) {
            None => {
                let detail = format!("existing ephemeral containers {name:?} may not be removed\n");
                errors.push(Error::forbidden(&path, detail));
            }
            Some(now) if now != before => {
                let detail = format!("existing ephemeral containers {name:?} may not be changed\n");
                errors.push(Error::forbidden(&path, detail));
            }
            Some(_) => {}
        }
    }
}

/// Checks new resources of a running pod.
pub(super) fn validate_resize(object: &Value, old: &Value, errors: &mut ErrorList) {
    pod::validate(object, errors);
    let class = crate::pods::qos_class(object);
    if class != crate::pods::qos_class(old) {
        let detail = "Pod QOS Class may not change as a result of resizing";
        errors.push(Error::invalid(&Path::new("spec"), class, detail));
    }
}

/// What has ended stays so, where the pod does not start it again.
fn endings(object: &Value, old: &Value, path: &Path, errors: &mut ErrorList) {
    let policy = text(&object["spec"], "restartPolicy");
    if !matches!(policy, "Never" | "OnFailure") {
        return;
    }
    let key = "containerStatuses";
    for before in list(&old["status"], key) {
        let ended = &before["state"]["terminated"];
        if !ended.is_object() || (policy == "OnFailure" && ended["exitCode"] != 0) {
            continue;
        }
        let now = list(&object["status"], key).iter().enumerate();
        for (index, _) in now
            .filter(|(_, now)| now["name"] == before["name"])
            .filter(|(_, now)| !now["state"]["terminated"].is_object())
        {
            let at = path.child(key).index(index).child("state");
            let detail = "may not be transitioned to non-terminated state";
            errors.push(Error::forbidden(&at, detail));
        }
    }
}

/// Checks a change of a pod's status.
pub(super) fn validate_status(object: &Value, old: &Value, errors: &mut ErrorList) {
    let (status, spec, path) = (&object["status"], &object["spec"], Path::new("status"));
    for (index, address) in list(status, "podIPs").iter().enumerate() {
        ip::address(
            text(address, "ip"),
            &path.child("podIPs").index(index),
            errors,
        );
    }
    let nominated = text(status, "nominatedNodeName");
    if !nominated.is_empty() {
        super::rule(
            allot_apimachinery::names::dns1123_subdomain(nominated),
            nominated,
            &path.child("nominatedNodeName"),
            errors,
        );
    }
    endings(object, old, &path, errors);
    errors.extend(pod_claims::resource_claim_statuses(status, spec, &path));
    errors.extend(pod_claims::extended_resource_claim_status(
        status, spec, &path,
    ));
    for (statuses, containers) in [
        ("containerStatuses", "containers"),
        ("initContainerStatuses", "initContainers"),
        ("ephemeralContainerStatuses", "ephemeralContainers"),
    ] {
        let (found, of) = (list(status, statuses), list(spec, containers));
        errors.extend(pod_claims::allocated_resources_status(
            found,
            of,
            &path.child(statuses),
        ));
    }
    for (index, condition) in list(status, "conditions").iter().enumerate() {
        let name = text(condition, "type");
        let at = path.child("conditions").index(index).child("type");
        if name.contains('/') {
            super::rule(
                allot_apimachinery::names::qualified_name(name),
                name,
                &at,
                errors,
            );
        }
    }
}
