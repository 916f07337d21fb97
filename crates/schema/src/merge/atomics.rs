//! Parts of a value that a merge replaces as a whole.

use serde_json::Value;

use super::resolve;
use crate::{
    fields::{PathElement, display_path},
    node::{Atom, Node, Relation},
};

/// The paths of atomic lists and objects in a configuration: what it does not say of them, a merge takes away.
pub fn atomics(value: &Value, node: Node<'_>) -> Vec<String> {
    let mut found = Vec::new();
    collect(value, node, &mut Vec::new(), &mut found);
    found
}

fn collect(value: &Value, node: Node<'_>, path: &mut Vec<PathElement>, found: &mut Vec<String>) {
    match (resolve(node, Some(value)), value) {
        (Atom::Map(map), Value::Object(entries)) => {
            if map.atomic {
                found.push(display_path(path));
            }
            for (key, value) in entries {
                let Some((node, true)) = map.field(key) else {
                    continue;
                };
                path.push(PathElement::Field(key.as_str().into()));
                collect(value, node, path, found);
                path.pop();
            }
        }
        (Atom::List(list), Value::Array(items)) => {
            if matches!(list.relation, Relation::Atomic) {
                found.push(display_path(path));
            }
            for (index, item) in items.iter().enumerate() {
                path.push(PathElement::Index(index));
                collect(item, list.element, path, found);
                path.pop();
            }
        }
        _ => {}
    }
}
