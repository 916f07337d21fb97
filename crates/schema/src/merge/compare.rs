//! What changed between two objects.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{atoms, element, is_empty_list, is_empty_map};
use crate::{
    fields::{PathElement, Set, compare_values},
    node::{Atom, List, Map, Node, Relation},
};

/// The paths that differ.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Only the old object has them.
    pub removed: Set,
    /// Both have them, with different values.
    pub modified: Set,
    /// Only the new object has them.
    pub added: Set,
}

impl Comparison {
    /// Nothing differs.
    pub fn is_same(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }

    /// The comparison without paths at or below those of `ignored`.
    pub fn without(&self, ignored: &Set) -> Self {
        Self {
            removed: self.removed.recursive_difference(ignored),
            modified: self.modified.recursive_difference(ignored),
            added: self.added.recursive_difference(ignored),
        }
    }
}

/// Compares two objects of one schema.
pub fn compare(old: &Value, new: &Value, node: Node<'_>) -> Comparison {
    let mut walk = Walk {
        path: Vec::new(),
        result: Comparison::default(),
    };
    walk.visit(Some(old), Some(new), node);
    walk.result
}

struct Walk {
    path: Vec<PathElement>,
    result: Comparison,
}

impl Walk {
    fn visit(&mut self, old: Option<&Value>, new: Option<&Value>, node: Node<'_>) {
        let (atom, other) = atoms(node, old, new);
        let mut leaf = false;
        if let Some(other) = other {
            leaf |= self.visit_atom(old, new, other);
        }
        leaf |= self.visit_atom(old, new, atom);
        if !leaf {
            if old.is_none() {
                self.result.added.insert(&self.path);
            } else if new.is_none() {
                self.result.removed.insert(&self.path);
            }
        }
    }

    /// True where the value was compared as a whole.
    fn visit_atom(&mut self, old: Option<&Value>, new: Option<&Value>, atom: Atom<'_>) -> bool {
        match atom {
            Atom::Scalar(_) | Atom::Deduced | Atom::Whole => self.leaf(old, new),
            Atom::List(list) => {
                if matches!(list.relation, Relation::Atomic)
                    || (is_empty_list(old) && is_empty_list(new))
                {
                    return self.leaf(old, new);
                }
                self.list(old, new, list);
                false
            }
            Atom::Map(map) => {
                if map.atomic || (is_empty_map(old) && is_empty_map(new)) {
                    return self.leaf(old, new);
                }
                self.map(old, new, map);
                false
            }
        }
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) -> bool {
        match (old, new) {
            (None, _) => self.result.added.insert(&self.path),
            (_, None) => self.result.removed.insert(&self.path),
            (Some(old), Some(new)) => {
                if compare_values(old, new).is_ne() {
                    self.result.modified.insert(&self.path);
                }
            }
        }
        true
    }

    fn map(&mut self, old: Option<&Value>, new: Option<&Value>, map: Map<'_>) {
        let empty = serde_json::Map::new();
        let old = old.and_then(Value::as_object).unwrap_or(&empty);
        let new = new.and_then(Value::as_object).unwrap_or(&empty);
        let only_new = new.keys().filter(|key| !old.contains_key(*key));
        for key in old.keys().chain(only_new) {
            let node = map.field(key).map_or(Node::Deduced, |(node, _)| node);
            self.path.push(PathElement::Field(key.clone()));
            self.visit(old.get(key), new.get(key), node);
            self.path.pop();
        }
    }

    fn list(&mut self, old: Option<&Value>, new: Option<&Value>, list: List<'_>) {
        let mut items: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for item in old.and_then(Value::as_array).into_iter().flatten() {
            if let Ok(place) = element::of(list, item) {
                items.entry(place).or_default().0.push(item);
            }
        }
        for item in new.and_then(Value::as_array).into_iter().flatten() {
            if let Ok(place) = element::of(list, item) {
                items.entry(place).or_default().1.push(item);
            }
        }
        for (place, (old, new)) in items {
            self.path.push(place);
            match (old.as_slice(), new.as_slice()) {
                // Duplicates count as one value.
                ([_, _, ..], [_, _, ..]) => {
                    let same = old.len() == new.len()
                        && old
                            .iter()
                            .zip(&new)
                            .all(|(a, b)| compare_values(a, b).is_eq());
                    if !same {
                        self.result.modified.insert(&self.path);
                    }
                }
                ([_, _, ..], rest) => {
                    if let Some(item) = rest.first() {
                        self.visit(None, Some(item), list.element);
                    }
                    self.result.removed.insert(&self.path);
                }
                (rest, [_, _, ..]) => {
                    if let Some(item) = rest.first() {
                        self.visit(Some(item), None, list.element);
                    }
                    self.result.added.insert(&self.path);
                }
                (old, new) => self.visit(old.first().copied(), new.first().copied(), list.element),
            }
            self.path.pop();
        }
    }
}
