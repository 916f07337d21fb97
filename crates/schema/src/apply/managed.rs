//! The entries of `metadata.managedFields`.

use std::collections::BTreeMap;

use serde::Deserialize;
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

/// A manager: appliers are identified by name and subresource, updaters by version as well.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The manager's name.
    pub manager: String,
    /// Whether the manager wrote by server-side apply or otherwise.
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
    /// The paths of the owned fields.
    pub fields: Set,
}

/// All owners of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Managed {
    pub(super) owners: BTreeMap<Owner, Entry>,
}

/// Reads entries; none where one of them is not valid.
pub(super) fn read(entries: &[Value]) -> Option<Managed> {
    let owners = entries
        .iter()
        .map(|entry| Published::deserialize(entry).ok()?.owner());
    let owners = owners.collect::<Option<_>>()?;
    Some(Managed { owners })
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
pub(super) fn strip(object: &mut Value) -> Option<Value> {
    object
        .get_mut("metadata")?
        .as_object_mut()?
        .remove("managedFields")
}

/// An entry as it is published.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Published {
    #[serde(default)]
    manager: Option<String>,
    #[serde(default)]
    operation: Option<String>,
    #[serde(default)]
    api_version: Option<String>,
    #[serde(default)]
    time: Option<String>,
    #[serde(default)]
    fields_type: Option<String>,
    #[serde(default, rename = "fieldsV1")]
    fields: Option<Set>,
    #[serde(default)]
    subresource: Option<String>,
}

impl Published {
    fn owner(self) -> Option<(Owner, Entry)> {
        let operation = match self.operation.as_deref() {
            Some("Apply") => Operation::Apply,
            Some("Update") => Operation::Update,
            _ => return None,
        };
        let api_version = self.api_version.unwrap_or_default();
        if api_version.is_empty() || self.fields_type.as_deref() != Some("FieldsV1") {
            return None;
        }
        let owner = Owner {
            manager: self.manager.unwrap_or_default(),
            operation,
            version: if operation == Operation::Update {
                api_version.clone()
            } else {
                String::new()
            },
            subresource: self.subresource.unwrap_or_default(),
        };
        let entry = Entry {
            api_version,
            time: self.time,
            fields: self.fields.unwrap_or_default(),
        };
        Some((owner, entry))
    }
}

impl<'de> Deserialize<'de> for Managed {
    /// Reads the published list, without a JSON tree in between.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entries = Option::<Vec<Published>>::deserialize(deserializer)?.unwrap_or_default();
        let owners = entries.into_iter().map(Published::owner).collect();
        let owners: Option<BTreeMap<_, _>> = owners;
        owners
            .map(|owners| Self { owners })
            .ok_or_else(|| serde::de::Error::custom("an entry is not valid"))
    }
}

impl Managed {
    /// No owner.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// The owners of an object; none where its entries cannot be read.
    pub fn of(object: &Value) -> Self {
        Self::deserialize(&object["metadata"]["managedFields"]).unwrap_or_default()
    }

    /// Takes the entries out of an object and reads them.
    pub fn take(object: &mut Value) -> Self {
        strip(object)
            .and_then(|entries| Self::deserialize(&entries).ok())
            .unwrap_or_default()
    }

    /// Whether the entries of an object can be read.
    ///
    /// # Errors
    /// What is wrong with the first that cannot.
    pub fn check(entries: &Value) -> Result<(), String> {
        for (index, entry) in entries.as_array().into_iter().flatten().enumerate() {
            let text = |key: &str| entry[key].as_str().unwrap_or_default();
            if !matches!(text("operation"), "Apply" | "Update") {
                return Err("operation must be `Apply` or `Update`".to_owned());
            }
            if text("apiVersion").is_empty() {
                return Err("apiVersion must not be empty".to_owned());
            }
            match text("fieldsType") {
                "FieldsV1" => {}
                "" => {
                    return Err(format!(
                        "missing fieldsType in managed fields entry {index}"
                    ));
                }
                other => {
                    return Err(format!(
                        "invalid fieldsType {other:?} in managed fields entry {index}"
                    ));
                }
            }
            if Published::deserialize(entry).is_err() {
                return Err(format!("error decoding managed fields entry {index}"));
            }
        }
        Ok(())
    }

    /// The owners and what they own are the same; when they wrote does not count.
    pub fn same_but_times(&self, other: &Self) -> bool {
        let bare = |(owner, entry): (&Owner, &Entry), (other, theirs): (&Owner, &Entry)| {
            owner == other
                && entry.api_version == theirs.api_version
                && entry.fields == theirs.fields
        };
        self.owners.len() == other.owners.len()
            && self
                .owners
                .iter()
                .zip(&other.owners)
                .all(|(a, b)| bare(a, b))
    }

    /// Some name is not plain text of up to 128 bytes.
    pub fn names_are_unusual(&self) -> bool {
        let unusual =
            |name: &str| name.len() > 128 || !name.bytes().all(|byte| (0x20..0x7f).contains(&byte));
        self.owners
            .keys()
            .any(|owner| unusual(&owner.manager) || unusual(&owner.subresource))
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
            let mut text = Vec::new();
            self.write_json(&mut text);
            // What was just written is JSON.
            let entries = serde_json::from_slice(&text).unwrap_or_default();
            meta.insert("managedFields".to_owned(), entries);
        }
    }

    /// Writes the published list as JSON.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        self.write_entries(out, |out, owner, entry| {
            if !owner.manager.is_empty() {
                write_text(out, "\"manager\":", &owner.manager);
                out.push(b',');
            }
            write_text(out, "\"operation\":", owner.operation.name());
            write_text(out, ",\"apiVersion\":", &entry.api_version);
            if let Some(time) = &entry.time {
                write_text(out, ",\"time\":", time);
            }
            out.extend_from_slice(b",\"fieldsType\":\"FieldsV1\",\"fieldsV1\":");
            entry.fields.write_fields_v1(out);
            if !owner.subresource.is_empty() {
                write_text(out, ",\"subresource\":", &owner.subresource);
            }
        });
    }

    /// As [`Managed::write_json`], with the members of each entry sorted by name, as objects without a type have them.
    pub fn write_sorted_json(&self, out: &mut Vec<u8>) {
        self.write_entries(out, |out, owner, entry| {
            write_text(out, "\"apiVersion\":", &entry.api_version);
            out.extend_from_slice(b",\"fieldsType\":\"FieldsV1\",\"fieldsV1\":");
            entry.fields.write_fields_v1(out);
            if !owner.manager.is_empty() {
                write_text(out, ",\"manager\":", &owner.manager);
            }
            write_text(out, ",\"operation\":", owner.operation.name());
            if !owner.subresource.is_empty() {
                write_text(out, ",\"subresource\":", &owner.subresource);
            }
            if let Some(time) = &entry.time {
                write_text(out, ",\"time\":", time);
            }
        });
    }

    fn write_entries(&self, out: &mut Vec<u8>, write: impl Fn(&mut Vec<u8>, &Owner, &Entry)) {
        let mut owners: Vec<(&Owner, &Entry)> = self.owners.iter().collect();
        // RFC 3339 in UTC sorts by text; an entry without a time is as old as can be.
        owners.sort_by_key(|(owner, entry)| {
            (
                owner.operation,
                &entry.time,
                &owner.manager,
                &entry.api_version,
                &owner.subresource,
            )
        });
        out.push(b'[');
        for (index, (owner, entry)) in owners.into_iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            out.push(b'{');
            write(out, owner, entry);
            out.push(b'}');
        }
        out.push(b']');
    }
}

fn write_text(out: &mut Vec<u8>, key: &str, text: &str) {
    out.extend_from_slice(key.as_bytes());
    // Writing JSON to memory does not fail.
    let _ = serde_json::to_writer(out, text);
}
