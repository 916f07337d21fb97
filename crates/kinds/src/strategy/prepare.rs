//! Preparation of objects for create and update: fields that the server sets, and fields that a write cannot change.

use allot_model::features::Features;
use serde_json::{Map, Value, json};

use crate::object::metadata_mut;
use crate::registry::{Generation, Resource};
use crate::request::Part;

/// Sets the initial state of a new object.
pub fn prepare_for_create(features: &Features, resource: &Resource, object: &mut Value) {
    let rules = resource.rules;
    if let Some(steps) = rules.steps {
        return (steps.prepare_for_create)(features, resource, object);
    }
    drop_disabled(features, resource, object, &Value::Null);
    let has_status = resource.subresource("status").is_some();
    match rules.initialize {
        Some(initialize) => initialize(object),
        None if !has_status => {}
        None if resource.custom.is_some() => {
            if let Value::Object(map) = object {
                map.remove("status");
            }
        }
        None => match object["status"] {
            Value::Null => {}
            _ => object["status"] = json!({}),
        },
    }
    match rules.generation {
        Generation::None => {}
        Generation::FromCreate => {
            metadata_mut(object).insert("generation".to_owned(), 1.into());
        }
        Generation::FromChange => {
            metadata_mut(object).remove("generation");
        }
    }
    if let Some(prepare) = rules.prepare_create {
        prepare(object);
    }
}

/// Removes fields of disabled features that the object before does not use.
fn drop_disabled(features: &Features, resource: &Resource, object: &mut Value, old: &Value) {
    crate::pods::drop_disabled_claims(features, resource, object, old);
    crate::pods::drop_disabled_fields(features, resource, object, old);
    if let Some(drop) = resource.rules.drop_disabled {
        drop(features, object, old);
    }
}

/// Sets the generated name of a new object.
pub fn set_generated_name(resource: &Resource, object: &mut Value, name: String) {
    if let Some(also) = resource.rules.on_generated_name {
        also(object, &name);
    }
    metadata_mut(object).insert("name".to_owned(), name.into());
}

/// Reverts the fields of an update that this endpoint must not change.
pub fn prepare_for_update(
    features: &Features,
    resource: &Resource,
    object: &mut Value,
    old: &Value,
    part: Part,
) {
    let rules = resource.rules;
    if let Some(steps) = rules.steps {
        return (steps.prepare_for_update)(features, resource, object, old, part);
    }
    drop_disabled(features, resource, object, old);
    let has_status = resource.subresource("status").is_some();
    match part {
        Part::Main if has_status => keep(object, old, "status"),
        Part::Main | Part::Sub => {}
        Part::Status => keep_all_but_status(resource, object, old),
        _ => {
            if let Some(prepare) = rules.prepare_part {
                prepare(object, old, part);
            }
        }
    }
    if let Some(prepare) = rules.prepare_update {
        prepare(object, old, part);
    }
    if rules.generation != Generation::None {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
        let next = if part != Part::Status && (rules.spec_changed)(object, old) {
            generation + 1
        } else {
            generation
        };
        if next > 0 {
            metadata_mut(object).insert("generation".to_owned(), next.into());
        }
    }
}

/// Restores everything except for the status. Most values are usually unchanged already.
fn keep_all_but_status(resource: &Resource, object: &mut Value, old: &Value) {
    let (Value::Object(map), Value::Object(old)) = (object, old) else {
        return;
    };
    restore(map, old, |key| {
        !matches!(key, "status" | "metadata" | "apiVersion")
    });
    if let (Some(Value::Object(metadata)), Some(Value::Object(old))) =
        (map.get_mut("metadata"), old.get("metadata"))
    {
        restore(metadata, old, |key| match key {
            "labels" | "annotations" | "finalizers" | "ownerReferences" => {
                resource.rules.status_keeps.contains(&key)
            }
            "managedFields" | "resourceVersion" => false,
            // These fields identify the object: validation compares them with those of the current object. For custom
            // objects and flow control upstream uses only the status of the request.
            _ if IDENTITY.contains(&key) => resource.rules.status_ignores_identity,
            "deletionTimestamp" => resource.rules.status_ignores_deletion,
            _ => true,
        });
    }
    if map.get("status").is_some_and(Value::is_null) {
        map.remove("status");
    }
}

/// Metadata that identifies the object, which no strategy may reset before it is compared: a status update for a
/// deleted object must not reach its successor.
const IDENTITY: [&str; 4] = ["uid", "name", "namespace", "deletionGracePeriodSeconds"];

/// Restores the previous values of the chosen members.
fn restore(map: &mut Map<String, Value>, old: &Map<String, Value>, choose: impl Fn(&str) -> bool) {
    map.retain(|key, _| !choose(key) || old.contains_key(key));
    for (key, value) in old {
        if choose(key) && map.get(key) != Some(value) {
            map.insert(key.clone(), value.clone());
        }
    }
}

/// Restores everything except for the value at a path.
pub(crate) fn keep_but(object: &mut Value, old: &Value, path: &[&str]) {
    let sent = crate::object::at(object, path).clone();
    let mut kept = old.clone();
    let mut place = &mut kept;
    for key in path {
        place = crate::object::child_entry(place, key);
    }
    *place = sent;
    adopt(object, kept);
}

/// Replaces the object with the old one, except for `managedFields`, `resourceVersion` and the identifying metadata.
pub(crate) fn adopt(object: &mut Value, mut kept: Value) {
    for key in ["managedFields", "resourceVersion"].iter().chain(&IDENTITY) {
        let key = *key;
        match object["metadata"][key].take() {
            Value::Null => metadata_mut(&mut kept).remove(key),
            value => metadata_mut(&mut kept).insert(key.to_owned(), value),
        };
    }
    kept["apiVersion"] = object["apiVersion"].take();
    kept["kind"] = object["kind"].take();
    *object = kept;
}

/// Restores a member of an object.
pub(crate) fn keep(object: &mut Value, old: &Value, key: &str) {
    match &old[key] {
        Value::Null => {
            if let Value::Object(map) = object {
                map.remove(key);
            }
        }
        // Comparing is cheaper than copying, and a patch usually does not change the value.
        value if object[key] == *value => {}
        value => object[key] = value.clone(),
    }
}
