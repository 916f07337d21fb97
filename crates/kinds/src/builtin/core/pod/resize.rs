//! New resources of a pod that exists.

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::{Map, Value};

use super::validation;
use crate::pods::qos_class;
use crate::strategy::{adopt, keep};
use crate::validate::{by_name, entries, list, text};

const LISTS: [&str; 2] = ["containers", "initContainers"];
const AMOUNTS: [&str; 2] = ["requests", "limits"];

/// Reverts all of an update but the resources of the pod and of its containers, and their resize policies.
pub(super) fn prepare(pod: &mut Value, old: &Value) {
    let mut kept = old.clone();
    for key in LISTS {
        let (sent, before) = (list(&pod["spec"], key), list(&old["spec"], key));
        let known = by_name(before);
        let resized = sent.iter().map(|new| {
            // Validation rejects reordered, added or removed containers.
            let Some(container) = known.get(text(new, "name")) else {
                return new.clone();
            };
            let mut container = (*container).clone();
            keep(&mut container, new, "resources");
            keep(&mut container, new, "resizePolicy");
            container
        });
        let resized = resized.collect::<Vec<_>>();
        if !resized.is_empty() || !before.is_empty() {
            kept["spec"][key] = resized.into();
        }
    }
    keep(&mut kept["spec"], &pod["spec"], "resources");
    adopt(pod, kept);
}

/// Checks new resources of a pod; everything else in it is as it was.
pub(super) fn validate(object: &Value, old: &Value, errors: &mut ErrorList) {
    let (spec, before, path) = (&object["spec"], &old["spec"], Path::new("spec"));
    let refused = if old["metadata"]["annotations"][allot_model::validate::pod::MIRROR_ANNOTATION]
        .is_string()
    {
        Some("static pods cannot be resized")
    } else if text(&before["os"], "name") == "windows" {
        Some("windows pods cannot be resized")
    } else {
        None
    };
    if let Some(detail) = refused {
        *errors = ErrorList::from([Error::forbidden(&Path::new("[]"), detail)]);
        return;
    }
    validation::validate(object, Some(old), errors);
    let class = match text(&old["status"], "qosClass") {
        "" => qos_class(old),
        class => class,
    };
    if class != qos_class(object) {
        let detail = "Pod QOS Class may not change as a result of resizing";
        let shown = text(&object["status"], "qosClass");
        errors.push(Error::invalid(&path, shown, detail));
    }
    if !is_supported(old) {
        let detail = "Pod running on node without support for resize";
        errors.push(Error::forbidden(&path, detail));
    }
    if has_amounts(before) || has_amounts(spec) {
        pod_level(spec, before, &path, errors);
    }
    if !list(&old["status"], "nodeAllocatableResourceClaimStatuses").is_empty() {
        let detail = "pods with node allocatable resource claims cannot be resized";
        errors.push(Error::forbidden(&path, detail));
    }
    let count = errors.len();
    for key in LISTS {
        order(list(spec, key), list(before, key), key, &path, errors);
    }
    if errors.len() > count {
        return;
    }
    for key in ["initContainers", "containers"] {
        let pairs = list(spec, key).iter().zip(list(before, key)).enumerate();
        for (index, (new, old)) in pairs {
            let at = path.child(key).index(index).child("resources");
            removed(
                &new["resources"],
                &old["resources"],
                "resource",
                &at,
                errors,
            );
        }
    }
    for (new, old) in list(spec, "containers")
        .iter()
        .zip(list(before, "containers"))
    {
        if !same_others(&new["resources"], &old["resources"]) {
            let detail = "only cpu and memory resources are mutable";
            errors.push(Error::forbidden(&path, detail));
        }
    }
    let pairs = list(spec, "initContainers")
        .iter()
        .zip(list(before, "initContainers"));
    for (index, (new, old)) in pairs.enumerate() {
        let at = path.child("initContainers").index(index);
        if !same_others(&new["resources"], &old["resources"]) {
            let detail = "only cpu and memory resources for init or sidecar containers are mutable";
            errors.push(Error::forbidden(&at, detail));
        }
        let restarts = list(new, "resizePolicy")
            .iter()
            .any(|policy| text(policy, "restartPolicy") == "RestartContainer");
        if new != old && text(new, "restartPolicy") != "Always" && restarts {
            let detail = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
            errors.push(Error::forbidden(&at, detail));
        }
    }
}

/// The node reports the resources of a running container.
fn is_supported(pod: &Value) -> bool {
    list(&pod["status"], "containerStatuses")
        .iter()
        .find(|status| status["state"]["running"].is_object())
        .is_none_or(|status| status["resources"].is_object())
}

fn has_amounts(spec: &Value) -> bool {
    AMOUNTS.iter().any(|key| {
        let amounts = spec["resources"][*key].as_object();
        amounts.is_some_and(|amounts| !amounts.is_empty())
    })
}

fn pod_level(spec: &Value, before: &Value, path: &Path, errors: &mut ErrorList) {
    let (new, old) = (&spec["resources"], &before["resources"]);
    let at = path.child("resources");
    if old.is_object() && !new.is_object() {
        errors.push(Error::forbidden(
            &at,
            "pod-level resources cannot be removed",
        ));
        return;
    }
    removed(new, old, "pod-level resource", &at, errors);
    if !same_others(new, old) {
        let detail = "only cpu and memory resources are mutable at pod-level";
        errors.push(Error::forbidden(path, detail));
    }
}

fn order(new: &[Value], old: &[Value], key: &str, path: &Path, errors: &mut ErrorList) {
    let path = path.child(key);
    if new.len() != old.len() {
        let detail = format!("{key} may not be added or removed on resize");
        errors.push(Error::forbidden(&path, detail));
        return;
    }
    for (index, (new, old)) in new.iter().zip(old).enumerate() {
        if new["name"] != old["name"] {
            let detail = format!("{key} may not be renamed or reordered on resize");
            errors.push(Error::forbidden(&path.index(index).child("name"), detail));
        }
    }
}

fn removed(new: &Value, old: &Value, what: &str, path: &Path, errors: &mut ErrorList) {
    for key in AMOUNTS {
        let gone = entries(old, key).any(|(name, _)| new[key].get(name).is_none());
        if gone {
            let detail = format!("{what} {key} cannot be removed");
            errors.push(Error::forbidden(&path.child(key), detail));
        }
    }
}

/// Whether two sets of resources are the same but for processors and memory.
fn same_others(new: &Value, old: &Value) -> bool {
    let others = |resources: &Value| {
        let mut all = Map::new();
        for key in AMOUNTS {
            let amounts = entries(resources, key)
                .filter(|(name, _)| !matches!(name.as_str(), "cpu" | "memory"))
                .map(|(name, amount)| (name.clone(), amount.clone()));
            all.insert(key.to_owned(), amounts.collect());
        }
        all.insert("claims".to_owned(), list(resources, "claims").into());
        all
    };
    others(new) == others(old)
}
