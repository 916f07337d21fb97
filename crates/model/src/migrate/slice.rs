//! ResourceSlices of 1.30: named resource instances as devices.

use serde_json::{Map, Value, json};

use super::Context;
use crate::kind::Kind;
use crate::limits;
use crate::view::{View, set};

impl<'a> Context<'a> {
    pub(super) fn slice(&mut self, slice: &'a Value) {
        let (node, driver) = (slice.text("nodeName"), slice.text("driverName"));
        let same_pool = |other: &&Value| {
            other.text("kind") == "ResourceSlice"
                && other.has("driverName")
                && other.text("nodeName") == node
                && other.text("driverName") == driver
        };
        let count = self.documents.iter().filter(same_pool).count();
        let instances = slice.at("namedResources").list("instances");
        let devices: Vec<Value> = instances
            .iter()
            .enumerate()
            .map(|(index, instance)| self.device(index, instance))
            .collect();
        let mut spec = json!({
            "driver": driver,
            "pool": {"name": if node.is_empty() { driver } else { node }, "generation": 1, "resourceSliceCount": count},
            "devices": devices,
        });
        if node.is_empty() {
            set(&mut spec, "allNodes", true);
        } else {
            set(&mut spec, "nodeName", node);
        }
        self.emit_v1(Kind::ResourceSlice, slice.at("metadata"), spec);
    }

    fn device(&mut self, index: usize, instance: &Value) -> Value {
        let index = index.to_string();
        let place = ["namedResources", "instances", index.as_str()];
        let name = instance.text("name");
        let label = name.replace('.', "-");
        if label != name {
            let path = [place.as_slice(), &["name"]].concat();
            self.note(
                &path,
                format!("device names have no dots; {name} becomes {label}"),
            );
        }
        let (mut attributes, mut capacity) = (Map::new(), Map::new());
        for attribute in instance.list("attributes") {
            let old = attribute.text("name");
            let new = identifier(old);
            let path = [place.as_slice(), &["attributes", old]].concat();
            if new != old {
                self.note(
                    &path,
                    format!("attribute names are identifiers; {old} becomes {new}"),
                );
            }
            if attribute.has("quantity") {
                capacity.insert(new, json!({"value": attribute.at("quantity")}));
                continue;
            }
            let scalar = ["int", "bool", "string", "version"]
                .into_iter()
                .find(|key| attribute.has(key));
            match scalar {
                Some(key) => {
                    attributes.insert(new, json!({key: attribute.at(key)}));
                }
                None => {
                    self.note(
                        &path,
                        "list-valued attributes need the feature DRAListTypeAttributes",
                    );
                }
            }
        }
        let mut device = json!({"name": label});
        if !attributes.is_empty() {
            set(&mut device, "attributes", attributes);
        }
        if !capacity.is_empty() {
            set(&mut device, "capacity", capacity);
        }
        device
    }
}

/// The nearest name that v1 allows.
pub(super) fn identifier(name: &str) -> String {
    let mut identifier: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .take(limits::QUALIFIED_IDENTIFIER)
        .collect();
    if identifier.starts_with(|c: char| c.is_ascii_digit()) {
        identifier.insert(0, '_');
        identifier.truncate(limits::QUALIFIED_IDENTIFIER);
    }
    identifier
}
