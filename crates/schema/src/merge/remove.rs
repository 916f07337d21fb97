//! Cutting paths out of an object.

use serde_json::{Map as JsonMap, Value};

use super::{element, resolve};
use crate::{
    fields::{PathElement, Set},
    node::{Atom, Node, Relation},
};

/// The object without the paths of `set`. Containers that lose all their content stay, empty; atomic ones lose nothing inside.
pub fn remove(value: &Value, set: &Set, node: Node<'_>) -> Value {
    cut(value, set, node).unwrap_or(Value::Null)
}

fn cut(value: &Value, set: &Set, node: Node<'_>) -> Option<Value> {
    match (resolve(node, Some(value)), value) {
        (Atom::List(list), Value::Array(items)) => {
            if items.is_empty() || matches!(list.relation, Relation::Atomic) {
                return None;
            }
            let mut kept = Vec::new();
            let mut touched = false;
            for item in items {
                let Ok(place) = element::of(list, item) else {
                    kept.push(item.clone());
                    continue;
                };
                if set.has_member(&place) {
                    continue;
                }
                match set.below(&place) {
                    Some(below) => {
                        touched = true;
                        kept.push(cut(item, below, list.element).unwrap_or_else(|| emptied(item)));
                    }
                    None => kept.push(item.clone()),
                }
            }
            (!kept.is_empty() || touched).then_some(Value::Array(kept))
        }
        (Atom::Map(map), Value::Object(entries)) => {
            if entries.is_empty() || map.atomic {
                return None;
            }
            let mut kept = JsonMap::new();
            let mut touched = false;
            for (key, value) in entries {
                let place = PathElement::Field(key.into());
                if set.has_member(&place) {
                    continue;
                }
                let value = match set.below(&place) {
                    Some(below) => {
                        touched = true;
                        let node = map.field(key).map_or(Node::Deduced, |(node, _)| node);
                        cut(value, below, node).unwrap_or_else(|| emptied(value))
                    }
                    None => value.clone(),
                };
                kept.insert(key.clone(), value);
            }
            (!kept.is_empty() || touched).then_some(Value::Object(kept))
        }
        (Atom::Scalar(_) | Atom::Deduced | Atom::Whole, value) => Some(value.clone()),
        _ => None,
    }
}

fn emptied(value: &Value) -> Value {
    match value {
        Value::Object(_) => Value::Object(JsonMap::new()),
        Value::Array(_) => Value::Array(Vec::new()),
        _ => Value::Null,
    }
}
