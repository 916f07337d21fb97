//! Reads and writes of objects, with the rules of their kinds.

use std::collections::{BTreeMap, VecDeque};

use allot_apimachinery::gvk::{GroupKind, GroupVersionResource};
use allot_apimachinery::status::Status;
use allot_model::features::Features;
use allot_model::{GROUP, Kind, Version, convert, defaults, strategy, validate};
use allot_schema::json_patch;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::apply;
use super::{Change, Key, Part, Patch, new_uid};

/// How many changes a watch can be behind.
pub(super) const KEPT_CHANGES: usize = 4096;

/// What clients cannot change in metadata.
const FIXED: [&str; 6] = [
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "resourceVersion",
    "deletionTimestamp",
];

/// Objects by place, without locks: each write is one step.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) revision: u64,
    pub(super) objects: BTreeMap<Key, Value>,
    pub(super) changes: VecDeque<Change>,
    applied: apply::Owned,
}

impl Content {
    pub(super) fn new() -> Self {
        Self {
            revision: 1,
            objects: BTreeMap::new(),
            changes: VecDeque::new(),
            applied: apply::Owned::default(),
        }
    }

    pub(super) fn get(&self, key: &Key) -> Result<Value, Status> {
        let found = self.objects.get(key).cloned();
        found.ok_or_else(|| Status::not_found(&key.resource.group_resource(), &key.name))
    }

    pub(super) fn create(
        &mut self,
        resource: &GroupVersionResource,
        namespace: &str,
        mut object: Value,
    ) -> Result<Value, Status> {
        if !object["metadata"].is_object() {
            return Err(Status::bad_request("the object has no metadata"));
        }
        let metadata = &object["metadata"];
        let name = match (metadata["name"].as_str(), metadata["generateName"].as_str()) {
            (Some(name), _) if !name.is_empty() => name.to_owned(),
            (_, Some(prefix)) if !prefix.is_empty() => format!("{prefix}{:05}", self.revision),
            _ => return Err(Status::bad_request("name or generateName is required")),
        };
        let key = Key {
            resource: resource.clone(),
            namespace: namespace.to_owned(),
            name,
        };
        if self.objects.contains_key(&key) {
            return Err(Status::already_exists(
                &resource.group_resource(),
                &key.name,
            ));
        }
        let now = now();
        object["metadata"]["name"] = json!(key.name);
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = json!(namespace);
        }
        object["metadata"]["uid"] = json!(new_uid());
        object["metadata"]["creationTimestamp"] = json!(now.to_string());
        if let Some(kind) = kind_of(resource) {
            let features = Features::default();
            defaults::default(kind, Version::V1, &mut object, now);
            strategy::prepare_for_create(kind, &mut object, &features);
            let errors = validate::create(kind, &object, &features);
            refuse(kind, &key.name, &errors)?;
            convert::normalize(kind, &mut object);
        }
        Ok(self.store(key, None, object))
    }

    pub(super) fn replace(
        &mut self,
        key: &Key,
        mut object: Value,
        part: Part,
    ) -> Result<Value, Status> {
        let old = self.get(key)?;
        for field in ["uid", "resourceVersion"] {
            let (sent, stored) = (&object["metadata"][field], &old["metadata"][field]);
            if sent.as_str().is_some_and(|sent| !sent.is_empty()) && sent != stored {
                let cause = "the object has been modified; please apply your changes to the latest version and try again";
                return Err(Status::conflict(
                    &key.resource.group_resource(),
                    &key.name,
                    cause,
                ));
            }
        }
        let metadata = object.get_mut("metadata");
        let Some(metadata) = metadata.and_then(Value::as_object_mut) else {
            return Err(Status::bad_request("the object has no metadata"));
        };
        for field in FIXED {
            match old["metadata"].get(field) {
                Some(value) => metadata.insert(field.to_owned(), value.clone()),
                None => metadata.remove(field),
            };
        }
        match kind_of(&key.resource) {
            Some(kind) => {
                let (features, now) = (Features::default(), now());
                defaults::default(kind, Version::V1, &mut object, now);
                let errors = match part {
                    Part::Main => {
                        strategy::prepare_for_update(kind, &mut object, &old, &features, now);
                        validate::update(kind, &object, &old, &features)
                    }
                    Part::Status => {
                        strategy::prepare_for_status_update(kind, &mut object, &old, &features);
                        validate::status_update(kind, &object, &old)
                    }
                };
                refuse(kind, &key.name, &errors)?;
                convert::normalize(kind, &mut object);
            }
            None if part == Part::Status => {
                let status = object["status"].take();
                object = old.clone();
                object["status"] = status;
            }
            None => {}
        }
        if old["metadata"]["deletionTimestamp"].is_string() && !has_finalizers(&object) {
            self.remove(key, old);
            return Ok(object);
        }
        match object == old {
            // As in an API server, nothing is written then.
            true => Ok(old),
            false => Ok(self.store(key.clone(), Some(old), object)),
        }
    }

    pub(super) fn patch(
        &mut self,
        key: &Key,
        patch: &Value,
        how: &Patch,
        part: Part,
    ) -> Result<Value, Status> {
        let old = match (self.objects.get(key), how) {
            (Some(old), _) => old.clone(),
            (None, Patch::Apply { .. }) if part == Part::Main => {
                return self.create(&key.resource, &key.namespace, patch.clone());
            }
            (None, _) => return self.get(key),
        };
        let mut object = old.clone();
        match how {
            Patch::Merge => {
                json_patch::merge(&mut object, patch);
                self.replace(key, object, part)
            }
            Patch::Apply { manager, force } => {
                let uid = &patch["metadata"]["uid"];
                if uid.is_string() && *uid != old["metadata"]["uid"] {
                    let cause =
                        "Precondition failed: UID in precondition is not that of the object";
                    return Err(Status::conflict(
                        &key.resource.group_resource(),
                        &key.name,
                        cause,
                    ));
                }
                let configuration = apply::Configuration {
                    patch,
                    manager,
                    force: *force,
                };
                let mut applied = self.applied.clone();
                let kind = kind_of(&key.resource);
                let merged = applied.apply(&mut object, &configuration, key, kind, part);
                merged.map_err(|error| refused(&error))?;
                // The version that it names is a condition.
                if let Some(version) = patch["metadata"].get("resourceVersion") {
                    object["metadata"]["resourceVersion"] = version.clone();
                }
                let stored = self.replace(key, object, part)?;
                // What is refused changes no owner either.
                self.applied = applied;
                Ok(stored)
            }
        }
    }

    pub(super) fn delete(&mut self, key: &Key, options: &Value) -> Result<Value, Status> {
        let mut object = self.get(key)?;
        for field in ["uid", "resourceVersion"] {
            let wanted = &options["preconditions"][field];
            if wanted.is_string() && *wanted != object["metadata"][field] {
                let cause = format!("Precondition failed: {field} in precondition: {wanted}");
                return Err(Status::conflict(
                    &key.resource.group_resource(),
                    &key.name,
                    &cause,
                ));
            }
        }
        if has_finalizers(&object) {
            let old = object.clone();
            object["metadata"]["deletionTimestamp"] = json!(now().to_string());
            return Ok(self.store(key.clone(), Some(old), object));
        }
        self.remove(key, object.clone());
        Ok(object)
    }

    fn store(&mut self, key: Key, before: Option<Value>, mut object: Value) -> Value {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        self.objects.insert(key.clone(), object.clone());
        self.record(key, before, Some(object.clone()));
        object
    }

    fn remove(&mut self, key: &Key, before: Value) {
        self.revision += 1;
        self.objects.remove(key);
        self.applied.forget(key);
        self.record(key.clone(), Some(before), None);
    }

    fn record(&mut self, key: Key, before: Option<Value>, after: Option<Value>) {
        if self.changes.len() == KEPT_CHANGES {
            self.changes.pop_front();
        }
        let revision = self.revision;
        self.changes.push_back(Change {
            revision,
            key,
            before,
            after,
        });
    }
}

/// The kind of a resource whose rules are known.
fn kind_of(resource: &GroupVersionResource) -> Option<Kind> {
    let mut kinds = Kind::ALL.into_iter();
    kinds.find(|kind| resource.group == GROUP && kind.plural() == resource.resource)
}

/// Whether finalizers keep an object that is deleted.
fn has_finalizers(object: &Value) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|finalizers| !finalizers.is_empty())
}

fn now() -> Timestamp {
    let now = Timestamp::now();
    // Times of objects have whole seconds.
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// The answer to an apply that cannot be carried out.
fn refused(error: &apply::Error) -> Status {
    match error {
        apply::Error::Conflict(_) => Status::apply_conflict(Vec::new(), error.to_string()),
        _ => Status::bad_request(error.to_string()),
    }
}

fn refuse(
    kind: Kind,
    name: &str,
    errors: &allot_apimachinery::field::ErrorList,
) -> Result<(), Status> {
    if errors.is_empty() {
        return Ok(());
    }
    let kind = GroupKind {
        group: GROUP.to_owned(),
        kind: kind.name().to_owned(),
    };
    Err(Status::invalid(&kind, name, errors))
}
