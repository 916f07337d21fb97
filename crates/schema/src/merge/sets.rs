//! Field sets of values, and their relation to schemas.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{element, resolve};
use crate::{
    fields::{PathElement, Set},
    node::{Atom, Map, Node, Relation},
};

/// The fields that a manager owns after applying this object.
pub fn field_set(value: &Value, node: Node<'_>) -> Set {
    let mut set = Set::default();
    collect(value, node, &mut Vec::new(), &mut set);
    set
}

fn collect(value: &Value, node: Node<'_>, path: &mut Vec<PathElement>, set: &mut Set) {
    match (resolve(node, Some(value)), value) {
        (Atom::Scalar(_) | Atom::Deduced | Atom::Whole, _) => set.insert(path),
        (Atom::List(list), value) => {
            if matches!(list.relation, Relation::Atomic) {
                set.insert(path);
                return;
            }
            let Value::Array(items) = value else { return };
            let places: Vec<Option<PathElement>> = items
                .iter()
                .map(|item| element::of(list, item).ok())
                .collect();
            let mut seen = BTreeSet::new();
            let mut twice = BTreeSet::new();
            for place in places.iter().flatten() {
                if !seen.insert(place) {
                    twice.insert(place);
                }
            }
            for (item, place) in items.iter().zip(&places) {
                let Some(place) = place else { continue };
                path.push(place.clone());
                if !twice.contains(place) {
                    collect(item, list.element, path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
        (Atom::Map(map), value) => {
            if map.atomic {
                set.insert(path);
                return;
            }
            let Value::Object(entries) = value else {
                return;
            };
            for (key, value) in entries {
                let (node, named) = map.field(key).unwrap_or((Node::Deduced, false));
                path.push(PathElement::Field(key.into()));
                collect(value, node, path, set);
                let empty = match value {
                    Value::Null => true,
                    Value::Object(map) => map.is_empty(),
                    _ => false,
                };
                if empty || !named {
                    set.insert(path);
                }
                path.pop();
            }
        }
    }
}

/// The schema at a path of a set; none where the path leaves the schema.
fn descend<'a>(node: Node<'a>, place: &PathElement) -> Option<(Node<'a>, bool)> {
    match (node.atom(), place) {
        (Atom::Map(map), PathElement::Field(name)) => map.field(name),
        (Atom::List(list), PathElement::Key(_) | PathElement::Value(_) | PathElement::Index(_)) => {
            Some((list.element, false))
        }
        (Atom::Deduced, PathElement::Field(name)) => Map::DEDUCED.field(name),
        _ => None,
    }
}

/// The set with the declared fields on the way to its members, which are usually not listed.
pub fn ensure_named(set: &Set, node: Node<'_>) -> Set {
    set.map_members(&mut |path| {
        let mut at = node;
        let mut named = false;
        for place in path {
            match descend(at, place) {
                Some((next, declared)) => (at, named) = (next, declared),
                None => return false,
            }
        }
        named
    })
}

/// The set for a schema in which a list or map became atomic since the set was written: the whole is owned in place of its
/// parts. `None` if nothing changes.
pub fn reconcile(set: &Set, node: Node<'_>) -> Option<Set> {
    let mut whole = Set::default();
    find_atomic(set, node, false, &mut Vec::new(), &mut whole);
    (!whole.is_empty()).then(|| set.recursive_difference(&whole).union(&whole))
}

fn find_atomic(
    set: &Set,
    node: Node<'_>,
    is_leaf: bool,
    path: &mut Vec<PathElement>,
    whole: &mut Set,
) {
    let atomic = match node.atom() {
        Atom::Map(map) => map.atomic,
        Atom::List(list) => matches!(list.relation, Relation::Atomic),
        Atom::Scalar(_) | Atom::Deduced | Atom::Whole => return,
    };
    if atomic {
        if !is_leaf && !set.is_empty() {
            whole.insert(path);
        }
        return;
    }
    for (place, member, below) in set.elements() {
        if let Some((next, _)) = descend(node, place) {
            path.push(place.clone());
            find_atomic(below, next, member && below.is_empty(), path, whole);
            path.pop();
        }
    }
}
