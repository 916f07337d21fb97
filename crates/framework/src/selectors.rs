//! Label and node selectors, compiled once per pod and evaluated per node or pod.

use std::collections::BTreeMap;

use allot_apimachinery::names;
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// One requirement on a label.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Op {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    Gt(i64),
    Lt(i64),
    /// An operator or value that the API server would have rejected: matches nothing.
    Never,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    op: Op,
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        match (&self.op, value) {
            (Op::In(set), Some(v)) => set.iter().any(|s| s == v),
            (Op::NotIn(set), Some(v)) => !set.iter().any(|s| s == v),
            (Op::NotIn(_) | Op::DoesNotExist, None) => true,
            (Op::Exists, v) => v.is_some(),
            (Op::Gt(bound), Some(v)) => v.parse::<i64>().is_ok_and(|v| v > *bound),
            (Op::Lt(bound), Some(v)) => v.parse::<i64>().is_ok_and(|v| v < *bound),
            _ => false,
        }
    }
}

/// A compiled label selector.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Labels {
    requirements: Vec<Requirement>,
    /// A missing selector matches nothing, an empty one everything.
    nothing: bool,
}

/// Labels of an object as the API gives them.
pub type LabelMap = BTreeMap<String, String>;

impl Labels {
    /// Compiles a selector; `None` matches nothing, as upstream's conversion does.
    pub fn new(selector: Option<&LabelSelector>) -> Self {
        let Some(selector) = selector else {
            return Self {
                requirements: Vec::new(),
                nothing: true,
            };
        };
        let mut requirements = Vec::new();
        for (key, value) in selector.match_labels.iter().flatten() {
            requirements.push(Requirement {
                key: key.clone(),
                op: Op::In(vec![value.clone()]),
            });
        }
        for e in selector.match_expressions.iter().flatten() {
            let values = || e.values.clone().unwrap_or_default();
            let op = match e.operator.as_str() {
                "In" => Op::In(values()),
                "NotIn" => Op::NotIn(values()),
                "Exists" => Op::Exists,
                "DoesNotExist" => Op::DoesNotExist,
                _ => Op::Never,
            };
            requirements.push(Requirement {
                key: e.key.clone(),
                op,
            });
        }
        Self {
            requirements,
            nothing: false,
        }
    }

    /// Adds `key in (value)`; used for matchLabelKeys.
    pub fn require_in(&mut self, key: &str, value: &str) {
        self.requirements.push(Requirement {
            key: key.to_owned(),
            op: Op::In(vec![value.to_owned()]),
        });
    }

    /// Adds `key notin (value)`; used for mismatchLabelKeys.
    pub fn require_not_in(&mut self, key: &str, value: &str) {
        self.requirements.push(Requirement {
            key: key.to_owned(),
            op: Op::NotIn(vec![value.to_owned()]),
        });
    }

    /// Whether the labels satisfy all requirements.
    pub fn matches(&self, labels: Option<&LabelMap>) -> bool {
        !self.nothing
            && self
                .requirements
                .iter()
                .all(|r| r.matches(labels.and_then(|l| l.get(&r.key)).map(String::as_str)))
    }

    /// Whether the selector has no requirement and so matches everything.
    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }
}

/// One compiled term of a node selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeTerm {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

impl NodeTerm {
    /// Compiles a term.
    pub fn new(term: &NodeSelectorTerm) -> Self {
        Self {
            labels: term
                .match_expressions
                .iter()
                .flatten()
                .map(node_requirement)
                .collect(),
            fields: term
                .match_fields
                .iter()
                .flatten()
                .map(field_requirement)
                .collect(),
        }
    }

    /// Whether a node satisfies the term. An empty term matches no node.
    pub fn matches(&self, name: &str, labels: &LabelMap) -> bool {
        if self.labels.is_empty() && self.fields.is_empty() {
            return false;
        }
        self.labels
            .iter()
            .all(|r| r.matches(labels.get(&r.key).map(String::as_str)))
            && self.fields.iter().all(|r| match r.key.as_str() {
                "metadata.name" => r.matches(Some(name)),
                // A field that nodes do not have is empty.
                _ => r.matches(Some("")),
            })
    }

    /// The node names this term is restricted to by `metadata.name in (…)`, if it is.
    pub fn names(&self) -> Option<Vec<&str>> {
        let mut lists = self.fields.iter().filter_map(|r| match &r.op {
            Op::In(names) if r.key == "metadata.name" => Some(names),
            _ => None,
        });
        let mut names: Vec<&str> = lists.next()?.iter().map(String::as_str).collect();
        for list in lists {
            names.retain(|name| list.iter().any(|other| other == name));
        }
        Some(names)
    }
}

fn node_requirement(r: &NodeSelectorRequirement) -> Requirement {
    let values = r.values.as_deref().unwrap_or_default();
    let bound = || match values {
        [value] => value.parse::<i64>().ok(),
        _ => None,
    };
    let op = match r.operator.as_str() {
        "In" if !values.is_empty() => Op::In(values.to_vec()),
        "NotIn" if !values.is_empty() => Op::NotIn(values.to_vec()),
        "Exists" if values.is_empty() => Op::Exists,
        "DoesNotExist" if values.is_empty() => Op::DoesNotExist,
        "Gt" => bound().map_or(Op::Never, Op::Gt),
        "Lt" => bound().map_or(Op::Never, Op::Lt),
        _ => Op::Never,
    };
    // No node has such a label, yet `NotIn` would match. The API server accepts some of them, such as `Gt` of `-1`.
    let valid = names::qualified_name(&r.key).is_empty()
        && values.iter().all(|v| names::label_value(v).is_empty());
    Requirement {
        key: r.key.clone(),
        op: if valid { op } else { Op::Never },
    }
}

fn field_requirement(r: &NodeSelectorRequirement) -> Requirement {
    let values = r.values.as_deref().unwrap_or_default();
    let op = match (r.operator.as_str(), values) {
        ("In", [value]) => Op::In(vec![value.clone()]),
        ("NotIn", [value]) => Op::NotIn(vec![value.clone()]),
        _ => Op::Never,
    };
    Requirement {
        key: r.key.clone(),
        op,
    }
}

/// A compiled node selector: any of the terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nodes {
    terms: Vec<NodeTerm>,
}

impl Nodes {
    /// Compiles a selector.
    pub fn new(selector: &NodeSelector) -> Self {
        Self {
            terms: selector
                .node_selector_terms
                .iter()
                .map(NodeTerm::new)
                .collect(),
        }
    }

    /// Whether a node satisfies at least one term.
    pub fn matches(&self, name: &str, labels: &LabelMap) -> bool {
        self.terms.iter().any(|t| t.matches(name, labels))
    }

    /// The only nodes that can match, when every term names nodes.
    pub fn names(&self) -> Option<Vec<&str>> {
        let mut names = Vec::new();
        for term in &self.terms {
            names.extend(term.names()?);
        }
        (!self.terms.is_empty()).then_some(names)
    }
}

#[cfg(test)]
mod tests;
