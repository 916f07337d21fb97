//! Deletion: the changes to a deleted object, and the response.

use allot_schema::definition;
use serde_json::Value;

use super::is_definition;
use crate::object::{self, meta, metadata_mut, strings};
use crate::pods;
use crate::registry::Resource;
use crate::request::{DeleteOptions, Propagation};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
/// The priority classes of critical system pods.
const SYSTEM_CLASSES: [&str; 2] = ["system-node-critical", "system-cluster-critical"];

/// The reason why clients cannot delete the object with this name; `None` if they can.
pub fn refuses_delete(resource: &Resource, name: &str) -> Option<&'static str> {
    let system_class =
        resource.is("scheduling.k8s.io", "priorityclasses") && SYSTEM_CLASSES.contains(&name);
    system_class.then_some("this is a system priority class and cannot be deleted")
}

/// Sets the deletion timestamp of an object; returns whether it can be removed immediately.
pub fn prepare_for_delete(resource: &Resource, new: &mut Value, options: &DeleteOptions) -> bool {
    let defines = is_definition(resource);
    if defines && meta(new, "deletionTimestamp").is_empty() {
        mark_definition_deleted(new);
    }
    let generation = new["metadata"].get("generation").cloned();
    let gone = mark(resource, new, options);
    if defines {
        // Upstream sets the deletion timestamp of a CRD with an update that changes only that.
        let metadata = metadata_mut(new);
        metadata.remove("deletionGracePeriodSeconds");
        if let Some(generation) = generation {
            metadata.insert("generation".to_owned(), generation);
        }
    }
    gone
}

/// Marks a CRD that a client deletes for deletion: its custom objects are deleted first.
fn mark_definition_deleted(definition: &mut Value) {
    let metadata = metadata_mut(definition);
    let mut finalizers = strings(metadata.get("finalizers").unwrap_or(&Value::Null));
    if !finalizers
        .iter()
        .any(|finalizer| finalizer == definition::CLEANUP_FINALIZER)
    {
        finalizers.push(definition::CLEANUP_FINALIZER.to_owned());
    }
    metadata.insert("finalizers".to_owned(), finalizers.into());
    let message =
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    definition::set_condition(
        definition,
        "Terminating",
        "True",
        "InstanceDeletionPending",
        message,
        &object::now(),
    );
}

/// Kinds whose dependents are orphaned if the client sets no propagation policy. kubectl always sets one.
fn orphans_by_default(resource: &Resource) -> bool {
    resource.is("batch", "jobs") || resource.is("", "replicationcontrollers")
}

/// Sets the deletion timestamp of an object; returns whether it can be removed immediately.
fn mark(resource: &Resource, object: &mut Value, options: &DeleteOptions) -> bool {
    let namespaces = resource.is("", "namespaces");
    let mut finalizers = strings(&object["metadata"]["finalizers"]);
    let decided = |it: &String| it == ORPHAN || it == FOREGROUND;
    let by_default = match orphans_by_default(resource) && !finalizers.iter().any(decided) {
        true => Some(Propagation::Orphan),
        false => None,
    };
    if let Some(wanted) = options.propagation.or(by_default) {
        finalizers.retain(|finalizer| finalizer != ORPHAN && finalizer != FOREGROUND);
        match wanted {
            Propagation::Orphan => finalizers.push(ORPHAN.to_owned()),
            Propagation::Foreground => finalizers.push(FOREGROUND.to_owned()),
            Propagation::Background => {}
        }
    }
    let held = !finalizers.is_empty()
        || (namespaces
            && object["spec"]["finalizers"]
                .as_array()
                .is_some_and(|list| !list.is_empty()));
    let grace = if resource.is("", "pods") {
        pods::grace_period(object, options.grace_period_seconds)
    } else {
        0
    };
    let already = object["metadata"]["deletionTimestamp"].is_string();
    let known_grace = object["metadata"]["deletionGracePeriodSeconds"]
        .as_i64()
        .unwrap_or(0);
    if !held && grace == 0 && !resource.is("", "pods") {
        return true;
    }
    let metadata = metadata_mut(object);
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".to_owned(), finalizers.into());
    }
    if !already || grace < known_grace {
        let seconds = if grace > 0 { grace } else { 0 };
        let end = jiff::Timestamp::now()
            + jiff::SignedDuration::from_secs(seconds.min(i64::from(u32::MAX)));
        if !already && let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
            metadata.insert("generation".to_owned(), (generation + 1).into());
        }
        metadata.insert(
            "deletionTimestamp".to_owned(),
            object::timestamp(end).into(),
        );
        // A namespace has no grace period: it is removed when it is empty.
        if !namespaces {
            metadata.insert("deletionGracePeriodSeconds".to_owned(), seconds.into());
        }
    }
    if namespaces {
        object["status"]["phase"] = "Terminating".into();
    }
    !held && grace == 0
}

/// Whether an object that is being deleted has no finalizers and no grace period left: the update that causes this
/// removes it.
pub fn is_finished(resource: &Resource, object: &Value) -> bool {
    let metadata = &object["metadata"];
    metadata["deletionTimestamp"].is_string()
        && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && metadata["finalizers"].as_array().is_none_or(Vec::is_empty)
        && !(resource.is("", "namespaces")
            && object["spec"]["finalizers"]
                .as_array()
                .is_some_and(|list| !list.is_empty()))
}

/// Kinds for which a delete returns the object instead of a `Status`.
///
/// Taint rules do not in the version that 1.37 added.
pub fn returns_deleted_object(resource: &Resource, version: &str) -> bool {
    match resource.group.as_str() {
        "" => matches!(
            resource.plural.as_str(),
            "pods"
                | "podtemplates"
                | "persistentvolumeclaims"
                | "persistentvolumes"
                | "resourcequotas"
                | "serviceaccounts"
                | "services"
        ),
        "resource.k8s.io" => resource.plural != "devicetaintrules" || version != "v1",
        "storage.k8s.io" => resource.plural != "csistoragecapacities",
        "policy" => false,
        _ => false,
    }
}
