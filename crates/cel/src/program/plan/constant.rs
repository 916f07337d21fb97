//! Constants that are computed before the evaluation.

use std::sync::Arc;

use super::{
    super::call_cost::Rule,
    PlanError, Planned,
    node::{MapEntry, Node},
};
use crate::library::Function;
use crate::value::{Fault, List, Map, MapKey, Value};

/// Results of calls with constant arguments. Conversions to the built-in types become constants without cost (and must
/// not fail); parsing of library types is still charged.
pub(super) fn precompute(
    name: &str,
    function: Function,
    args: &[Node],
    rule: Rule,
) -> Planned<Option<Node>> {
    let constants: Option<Vec<Value<'static>>> = args
        .iter()
        .map(|arg| match arg {
            Node::Const(value) => Some(value.clone()),
            _ => None,
        })
        .collect();
    let Some(values) = constants else {
        return Ok(None);
    };
    let free = matches!(
        name,
        "bool"
            | "bytes"
            | "double"
            | "duration"
            | "dyn"
            | "int"
            | "string"
            | "timestamp"
            | "type"
            | "uint"
    );
    let parsed = matches!(
        name,
        "quantity" | "semver" | "ip" | "cidr" | "url" | "isQuantity" | "isSemver"
    );
    if !(free && values.len() == 1 || parsed) {
        return Ok(None);
    }
    let result = match function(&values) {
        Ok(result) => result,
        Err(Fault::Error(text)) if free => return Err(PlanError::Constant(text)),
        Err(_) => return Ok(None),
    };
    if free {
        return Ok(Some(Node::Const(result)));
    }
    let cost = rule.cost(values.iter().map(Some), Some(&result));
    Ok(Some(Node::Folded(result, cost)))
}

/// Values whose membership in a constant list upstream looks up in a hash table.
pub(super) fn is_hashable(value: &Value<'_>) -> bool {
    matches!(
        value,
        Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::String(_)
    )
}

/// A list of constants is a constant.
pub(super) fn fold_list(nodes: Vec<(Node, bool)>) -> Node {
    if !nodes
        .iter()
        .all(|(node, optional)| matches!(node, Node::Const(_)) && !optional)
    {
        return Node::List(nodes);
    }
    let values = nodes.into_iter().filter_map(|(node, _)| match node {
        Node::Const(value) => Some(value),
        _ => None,
    });
    Node::Const(Value::List(List::Shared(Arc::new(values.collect()))))
}

/// A map of constants is a constant.
pub(super) fn fold_map(nodes: Vec<MapEntry>) -> Node {
    let mut map = std::collections::BTreeMap::new();
    for entry in &nodes {
        let (Node::Const(key), Node::Const(value), false) =
            (&entry.key, &entry.value, entry.optional)
        else {
            return Node::Map(nodes);
        };
        let Some(key) = MapKey::new(key) else {
            return Node::Map(nodes);
        };
        map.insert(key, value.clone());
    }
    Node::Const(Value::Map(Map::Shared(Arc::new(map))))
}
