//! The entries of `metadata.managedFields`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::fields::Set;

/// How a manager wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// By server-side apply.
    Apply,
    /// In any other way.
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// Who owns: appliers are told apart by name and subresource, updaters by version as well.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The manager's name.
    pub manager: String,
    /// How it wrote.
    pub operation: Operation,
    /// The version of an updater; empty for appliers.
    pub version: String,
    /// The subresource it wrote through, or empty.
    pub subresource: String,
}

/// What an owner owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The version in which the paths are meant.
    pub api_version: String,
    /// The last write that changed the entry.
    pub time: Option<String>,
    /// The paths.
    pub fields: Set,
}

/// All owners of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Managed {
    pub(super) owners: BTreeMap<Owner, Entry>,
}

/// The entries as an object carries them.
pub(super) fn read(object: &Value) -> Option<Vec<Value>> {
    object
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array)
        .cloned()
}

/// A list that is empty, or of one empty entry, asks to forget all owners.
pub(super) fn is_reset(entries: &[Value]) -> bool {
    match entries {
        [] => true,
        [only] => only.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// Takes the entries out of an object.
pub(super) fn strip(object: &mut Value) {
    if let Some(Value::Object(meta)) = object.get_mut("metadata") {
        meta.remove("managedFields");
    }
}

impl Managed {
    /// No owner.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// The owners of an object; none where its entries cannot be read.
    pub fn of(object: &Value) -> Self {
        read(object)
            .and_then(|entries| Self::decode(&entries))
            .unwrap_or_default()
    }

    /// Reads entries; none where one of them is not valid.
    pub fn decode(entries: &[Value]) -> Option<Self> {
        let mut managed = Self::default();
        for entry in entries {
            let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
            let operation = match entry["operation"].as_str() {
                Some("Apply") => Operation::Apply,
                Some("Update") => Operation::Update,
                _ => return None,
            };
            let api_version = text("apiVersion");
            if api_version.is_empty() || entry["fieldsType"] != "FieldsV1" {
                return None;
            }
            let fields = match &entry["fieldsV1"] {
                Value::Null => Set::default(),
                fields => Set::from_fields_v1(fields)?,
            };
            let owner = Owner {
                manager: text("manager"),
                operation,
                version: if operation == Operation::Update {
                    api_version.clone()
                } else {
                    String::new()
                },
                subresource: text("subresource"),
            };
            managed.owners.insert(
                owner,
                Entry {
                    api_version,
                    time: entry["time"].as_str().map(str::to_owned),
                    fields,
                },
            );
        }
        Some(managed)
    }

    /// Puts the entries into an object.
    pub fn write(&self, object: &mut Value) {
        let Some(map) = object.as_object_mut() else {
            return;
        };
        let meta = map.entry("metadata").or_insert_with(|| json!({}));
        let Value::Object(meta) = meta else { return };
        if self.owners.is_empty() {
            meta.remove("managedFields");
        } else {
            meta.insert("managedFields".to_owned(), Value::Array(self.encode()));
        }
    }

    fn encode(&self) -> Vec<Value> {
        let mut owners: Vec<(&Owner, &Entry)> = self.owners.iter().collect();
        // RFC 3339 in UTC sorts by text; an entry without a time is as old as can be.
        owners.sort_by(|(a, x), (b, y)| {
            (
                a.operation,
                &x.time,
                &a.manager,
                &x.api_version,
                &a.subresource,
            )
                .cmp(&(
                    b.operation,
                    &y.time,
                    &b.manager,
                    &y.api_version,
                    &b.subresource,
                ))
        });
        let encode = |(owner, entry): (&Owner, &Entry)| {
            let mut value = Map::new();
            if !owner.manager.is_empty() {
                value.insert("manager".to_owned(), owner.manager.clone().into());
            }
            value.insert("operation".to_owned(), owner.operation.name().into());
            value.insert("apiVersion".to_owned(), entry.api_version.clone().into());
            if let Some(time) = &entry.time {
                value.insert("time".to_owned(), time.clone().into());
            }
            value.insert("fieldsType".to_owned(), "FieldsV1".into());
            value.insert("fieldsV1".to_owned(), entry.fields.to_fields_v1());
            if !owner.subresource.is_empty() {
                value.insert("subresource".to_owned(), owner.subresource.clone().into());
            }
            Value::Object(value)
        };
        owners.into_iter().map(encode).collect()
    }
}
