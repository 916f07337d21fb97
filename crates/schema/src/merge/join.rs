//! Putting an applied configuration into a live object.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map as JsonMap, Value};

use super::{atoms, element, is_empty_list, is_empty_map};
use crate::{
    fields::PathElement,
    node::{Atom, List, Map, Node, Relation},
};

/// The live object with everything that the configuration says; what the configuration does not mention stays.
pub fn merge(live: &Value, config: &Value, node: Node<'_>) -> Value {
    join(Some(live), Some(config), node).unwrap_or(Value::Null)
}

fn join(live: Option<&Value>, config: Option<&Value>, node: Node<'_>) -> Option<Value> {
    let (atom, _) = atoms(node, live, config);
    let keep = || config.or(live).cloned();
    match atom {
        Atom::Scalar(_) | Atom::Deduced | Atom::Whole => keep(),
        Atom::List(list) => {
            if matches!(list.relation, Relation::Atomic)
                || (is_empty_list(live) && is_empty_list(config))
            {
                return keep();
            }
            let items = |value: Option<&Value>| {
                value.and_then(Value::as_array).cloned().unwrap_or_default()
            };
            let merged = join_lists(&items(live), &items(config), list);
            (!merged.is_empty()).then_some(Value::Array(merged))
        }
        Atom::Map(map) => {
            if map.atomic || (is_empty_map(live) && is_empty_map(config)) {
                return keep();
            }
            let merged = join_maps(live, config, map);
            (!merged.is_empty()).then_some(Value::Object(merged))
        }
    }
}

fn join_maps(live: Option<&Value>, config: Option<&Value>, map: Map<'_>) -> JsonMap<String, Value> {
    let empty = JsonMap::new();
    let live = live.and_then(Value::as_object).unwrap_or(&empty);
    let config = config.and_then(Value::as_object).unwrap_or(&empty);
    let only_config = config.keys().filter(|key| !live.contains_key(*key));
    let mut merged = JsonMap::new();
    for key in live.keys().chain(only_config) {
        let node = map.field(key).map_or(Node::Deduced, |(node, _)| node);
        if let Some(value) = join(live.get(key), config.get(key), node) {
            merged.insert(key.clone(), value);
        }
    }
    merged
}

/// Elements of both keep the order that the configuration gives them; elements of the live list only stay where they were, between them.
fn join_lists(live: &[Value], config: &[Value], list: List<'_>) -> Vec<Value> {
    let place = |item: &Value| element::of(list, item).ok();
    // The live list may hold duplicates; the first of them is the one that merges.
    let lefts: Vec<(PathElement, &Value)> = live
        .iter()
        .filter_map(|item| place(item).map(|p| (p, item)))
        .collect();
    let rights: Vec<(PathElement, &Value)> = config
        .iter()
        .filter_map(|item| place(item).map(|p| (p, item)))
        .collect();
    let mut of_left: BTreeMap<&PathElement, Option<&Value>> = BTreeMap::new();
    for (place, item) in &lefts {
        of_left
            .entry(place)
            .and_modify(|found| *found = None)
            .or_insert(Some(item));
    }
    let of_right: BTreeMap<&PathElement, &Value> =
        rights.iter().map(|(place, item)| (place, *item)).collect();
    let mut shared: VecDeque<&PathElement> = rights
        .iter()
        .map(|(place, _)| place)
        .filter(|place| of_left.contains_key(place))
        .collect();
    let mut next_shared = shared.pop_front();
    let mut done: BTreeSet<&PathElement> = BTreeSet::new();
    let mut out = Vec::new();
    let (mut left, mut right) = (0, 0);
    let mut push = |value: Option<Value>| out.extend(value);
    while left < lefts.len() || right < rights.len() {
        if let (Some((at_left, _)), Some((at_right, item))) = (lefts.get(left), rights.get(right)) {
            if at_left == at_right {
                done.insert(at_right);
                push(join(
                    of_left.get(at_left).copied().flatten(),
                    Some(item),
                    list.element,
                ));
                left += 1;
                right += 1;
                next_shared = shared.pop_front();
                continue;
            }
            if of_right.contains_key(at_left) && next_shared.is_some_and(|next| next != at_left) {
                left += 1;
                continue;
            }
        }
        if let Some((at_left, item)) = lefts.get(left) {
            if !of_right.contains_key(at_left) {
                push(join(Some(item), None, list.element));
                left += 1;
                continue;
            } else if done.contains(at_left) {
                left += 1;
            }
        }
        if let Some((at_right, item)) = rights.get(right) {
            done.insert(at_right);
            push(join(
                of_left.get(at_right).copied().flatten(),
                Some(item),
                list.element,
            ));
            right += 1;
            if next_shared == Some(at_right) {
                next_shared = shared.pop_front();
            }
        }
    }
    out
}
