//! Deletion: the changes to a deleted object, and the response.

use serde_json::Value;

use crate::object::{self, items, meta, metadata_mut, strings};
use crate::registry::Resource;
use crate::request::{DeleteOptions, Propagation};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// The reason why clients cannot delete the object with this name; `None` if they can.
pub fn refuses_delete(resource: &Resource, name: &str) -> Option<&'static str> {
    resource.rules.refuses_delete?(name)
}

/// Sets the deletion timestamp of an object; returns whether it can be removed immediately.
pub fn prepare_for_delete(resource: &Resource, new: &mut Value, options: &DeleteOptions) -> bool {
    let by_update = resource.rules.delete_by_update;
    if let Some(update) = by_update
        && meta(new, "deletionTimestamp").is_empty()
    {
        update(new);
    }
    let generation = new["metadata"].get("generation").cloned();
    let gone = mark(resource, new, options);
    if by_update.is_some() {
        // Upstream sets the deletion timestamp with an update that changes only that.
        let metadata = metadata_mut(new);
        metadata.remove("deletionGracePeriodSeconds");
        if let Some(generation) = generation {
            metadata.insert("generation".to_owned(), generation);
        }
    }
    gone
}

/// Sets the deletion timestamp of an object; returns whether it can be removed immediately.
fn mark(resource: &Resource, object: &mut Value, options: &DeleteOptions) -> bool {
    let rules = resource.rules;
    let already = object["metadata"]["deletionTimestamp"].is_string();
    if already && is_held_by_spec(resource, object) {
        // Nothing changes any more until the content of the namespace is gone.
        return false;
    }
    let mut finalizers = strings(&object["metadata"]["finalizers"]);
    let decided = |it: &String| it == ORPHAN || it == FOREGROUND;
    let by_default = match rules.orphans_by_default && !finalizers.iter().any(decided) {
        true => Some(Propagation::Orphan),
        false => None,
    };
    let wanted = options.propagation.or(by_default);
    if let Some(wanted) = wanted.filter(|_| !rules.has_no_dependents) {
        finalizers.retain(|finalizer| finalizer != ORPHAN && finalizer != FOREGROUND);
        match wanted {
            Propagation::Orphan => finalizers.push(ORPHAN.to_owned()),
            Propagation::Foreground => finalizers.push(FOREGROUND.to_owned()),
            Propagation::Background => {}
        }
    }
    let held = !finalizers.is_empty() || is_held_by_spec(resource, object);
    let grace = rules.grace_period.map_or(0, |grace_period| {
        grace_period(object, options.grace_period_seconds)
    });
    let known_grace = object["metadata"]["deletionGracePeriodSeconds"]
        .as_i64()
        .unwrap_or(0);
    if !held && grace == 0 && rules.grace_period.is_none() {
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
        if !rules.spec_finalizers {
            metadata.insert("deletionGracePeriodSeconds".to_owned(), seconds.into());
        }
    }
    if rules.spec_finalizers {
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
        && !is_held_by_spec(resource, object)
}

/// Whether finalizers in the spec keep the object, as those of namespaces do.
fn is_held_by_spec(resource: &Resource, object: &Value) -> bool {
    resource.rules.spec_finalizers && !items(&object["spec"]["finalizers"]).is_empty()
}
