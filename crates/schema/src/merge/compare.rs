//! What changed between two objects.

use serde_json::Value;

use super::{atoms, element, is_empty_list, is_empty_map};
use crate::{
    fields::{Member, PathElement, Set, compare_values},
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
    pub fn without(mut self, ignored: &Set) -> Self {
        for set in [&mut self.removed, &mut self.modified, &mut self.added] {
            if !ignored.is_empty() && !set.is_empty() {
                *set = set.recursive_difference(ignored);
            }
        }
        self
    }
}

/// Compares two objects of one schema.
pub fn compare(old: &Value, new: &Value, node: Node<'_>) -> Comparison {
    let change = visit(Some(old), Some(new), node);
    Comparison {
        removed: change.removed.below,
        modified: change.modified.below,
        added: change.added.below,
    }
}

/// What differs at one place and below it. The sets grow from the leaves up: nothing is made for what is equal.
#[derive(Default)]
struct Change {
    removed: Member,
    modified: Member,
    added: Member,
}

/// The changes below a path, by element.
#[derive(Default)]
struct Changes {
    removed: Vec<(PathElement, Member)>,
    modified: Vec<(PathElement, Member)>,
    added: Vec<(PathElement, Member)>,
}

impl Changes {
    fn push(&mut self, place: impl Fn() -> PathElement, change: Change) {
        for (list, member) in [
            (&mut self.removed, change.removed),
            (&mut self.modified, change.modified),
            (&mut self.added, change.added),
        ] {
            if !member.is_empty() {
                list.push((place(), member));
            }
        }
    }

    fn write_to(self, change: &mut Change) {
        for (member, list) in [
            (&mut change.removed, self.removed),
            (&mut change.modified, self.modified),
            (&mut change.added, self.added),
        ] {
            let below = Set::of_members(list);
            // Only where the two sides are of different kinds is something there already.
            member.below = if member.below.is_empty() {
                below
            } else {
                member.below.union(&below)
            };
        }
    }
}

fn visit(old: Option<&Value>, new: Option<&Value>, node: Node<'_>) -> Change {
    let mut change = Change::default();
    if let (Some(old), Some(new)) = (old, new)
        && old == new
    {
        return change;
    }
    let (atom, other) = atoms(node, old, new);
    let mut leaf = false;
    if let Some(other) = other {
        leaf |= visit_atom(old, new, other, &mut change);
    }
    leaf |= visit_atom(old, new, atom, &mut change);
    if !leaf {
        change.added.here |= old.is_none();
        change.removed.here |= old.is_some() && new.is_none();
    }
    change
}

/// Compares two values; returns whether they were compared as a whole, not element by element.
fn visit_atom(
    old: Option<&Value>,
    new: Option<&Value>,
    atom: Atom<'_>,
    change: &mut Change,
) -> bool {
    match atom {
        Atom::Scalar(_) | Atom::Deduced | Atom::Whole => leaf(old, new, change),
        Atom::List(list) => {
            if matches!(list.relation, Relation::Atomic)
                || (is_empty_list(old) && is_empty_list(new))
            {
                return leaf(old, new, change);
            }
            visit_list(old, new, list).write_to(change);
            false
        }
        Atom::Map(map) => {
            if map.atomic || (is_empty_map(old) && is_empty_map(new)) {
                return leaf(old, new, change);
            }
            visit_map(old, new, map).write_to(change);
            false
        }
    }
}

fn leaf(old: Option<&Value>, new: Option<&Value>, change: &mut Change) -> bool {
    match (old, new) {
        (None, _) => change.added.here = true,
        (_, None) => change.removed.here = true,
        (Some(old), Some(new)) => change.modified.here |= compare_values(old, new).is_ne(),
    }
    true
}

fn visit_map(old: Option<&Value>, new: Option<&Value>, map: Map<'_>) -> Changes {
    let empty = serde_json::Map::new();
    let old = old.and_then(Value::as_object).unwrap_or(&empty);
    let new = new.and_then(Value::as_object).unwrap_or(&empty);
    let only_new = new.keys().filter(|key| !old.contains_key(*key));
    let mut changes = Changes::default();
    for key in old.keys().chain(only_new) {
        let node = map.field(key).map_or(Node::Deduced, |(node, _)| node);
        let change = visit(old.get(key), new.get(key), node);
        changes.push(|| PathElement::Field(key.into()), change);
    }
    changes
}

fn visit_list(old: Option<&Value>, new: Option<&Value>, list: List<'_>) -> Changes {
    let items = |value: Option<&'_ Value>, is_new: bool| -> Vec<_> {
        let items = value.and_then(Value::as_array).into_iter().flatten();
        items
            .enumerate()
            .filter_map(|(index, item)| Some((element::of(list, item).ok()?, is_new, index)))
            .collect()
    };
    let at = |is_new: bool, index: usize| -> Option<&Value> {
        let side = if is_new { new } else { old };
        side.and_then(Value::as_array)?.get(index)
    };
    let mut places = items(old, false);
    places.extend(items(new, true));
    places.sort();
    let mut changes = Changes::default();
    for group in places.chunk_by(|a, b| a.0 == b.0) {
        let of = |wanted: bool| -> Vec<&Value> {
            let side = group.iter().filter(|(_, is_new, _)| *is_new == wanted);
            side.filter_map(|(_, is_new, index)| at(*is_new, *index))
                .collect()
        };
        let mut change;
        match (of(false).as_slice(), of(true).as_slice()) {
            // Duplicates count as one value.
            (old @ [_, _, ..], new @ [_, _, ..]) => {
                let same = old.len() == new.len()
                    && old
                        .iter()
                        .zip(new)
                        .all(|(a, b)| compare_values(a, b).is_eq());
                change = Change::default();
                change.modified.here = !same;
            }
            ([_, _, ..], rest) => {
                change = rest.first().map_or_else(Change::default, |item| {
                    visit(None, Some(item), list.element)
                });
                change.removed.here = true;
            }
            (rest, [_, _, ..]) => {
                change = rest.first().map_or_else(Change::default, |item| {
                    visit(Some(item), None, list.element)
                });
                change.added.here = true;
            }
            (old, new) => {
                change = visit(old.first().copied(), new.first().copied(), list.element);
            }
        }
        if let Some((place, _, _)) = group.first() {
            changes.push(|| place.clone(), change);
        }
    }
    changes
}
