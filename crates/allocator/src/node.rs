//! The node that an allocation is for, and node selectors.

use std::fmt::Write as _;

use k8s_openapi::api::core::v1 as core;
use smol_str::SmolStr;

use crate::next_id;

/// The allocator's view of a node: its name and its labels.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// Equal only for copies of one node, during the life of the process; zero for the empty node.
    id: u64,
    name: SmolStr,
    /// Sorted by key.
    labels: Vec<(SmolStr, SmolStr)>,
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.labels) == (&other.name, &other.labels)
    }
}

impl Eq for Node {}

impl Node {
    /// A node with a name and labels.
    pub fn new<K: AsRef<str>, V: AsRef<str>>(
        name: &str,
        labels: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let mut labels: Vec<_> = labels
            .into_iter()
            .map(|(k, v)| (SmolStr::new(k.as_ref()), SmolStr::new(v.as_ref())))
            .collect();
        labels.sort();
        labels.dedup_by(|a, b| a.0 == b.0);
        Self {
            id: next_id::next_id(),
            name: SmolStr::new(name),
            labels,
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// `metadata.name`.
    pub fn name(&self) -> &SmolStr {
        &self.name
    }

    /// The labels, sorted by key.
    pub fn labels(&self) -> &[(SmolStr, SmolStr)] {
        &self.labels
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.labels
            .binary_search_by(|(k, _)| k.as_str().cmp(key))
            .ok()
            .map(|i| self.labels[i].1.as_str())
    }
}

impl From<&core::Node> for Node {
    fn from(node: &core::Node) -> Self {
        let labels = node.metadata.labels.iter().flatten();
        Self::new(node.metadata.name.as_deref().unwrap_or_default(), labels)
    }
}

/// A compiled `v1.NodeSelector`: alternatives of which one has to match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeSelector {
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    expressions: Vec<Requirement>,
    fields: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: SmolStr,
    op: Operator,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    In(Vec<SmolStr>),
    NotIn(Vec<SmolStr>),
    Exists,
    DoesNotExist,
    Greater(i64),
    Less(i64),
}

impl NodeSelector {
    /// Compiles a selector. The error has upstream's text.
    pub(crate) fn compile(selector: &core::NodeSelector) -> Result<Self, String> {
        Self::compile_terms(selector).map_err(|error| {
            format!(
                "failed to parse node selector {}: {error}",
                go_text(selector)
            )
        })
    }

    fn compile_terms(selector: &core::NodeSelector) -> Result<Self, String> {
        let mut terms = Vec::new();
        for (index, term) in selector.node_selector_terms.iter().enumerate() {
            let expressions = term.match_expressions.as_deref().unwrap_or_default();
            let fields = term.match_fields.as_deref().unwrap_or_default();
            if expressions.is_empty() && fields.is_empty() {
                // An empty term selects nothing, so it can be left out.
                continue;
            }
            let compile = |list: &[core::NodeSelectorRequirement], what: &str| {
                list.iter()
                    .enumerate()
                    .map(|(i, r)| {
                        Requirement::compile(r)
                            .map_err(|e| format!("nodeSelectorTerms[{index}].{what}[{i}]{e}"))
                    })
                    .collect::<Result<Vec<_>, _>>()
            };
            terms.push(Term {
                expressions: compile(expressions, "matchExpressions")?,
                fields: compile(fields, "matchFields")?,
            });
        }
        Ok(Self { terms })
    }

    pub(crate) fn matches(&self, node: &Node) -> bool {
        self.terms.iter().any(|term| {
            term.expressions
                .iter()
                .all(|r| r.op.accepts(node.label(&r.key)))
                && term.fields.iter().all(|r| {
                    r.op.accepts((r.key == "metadata.name").then_some(node.name.as_str()))
                })
        })
    }
}

/// A selector in Go's format.
fn go_text(selector: &core::NodeSelector) -> String {
    let requirements = |list: &Option<Vec<core::NodeSelectorRequirement>>| {
        let list = list.iter().flatten().map(|r| {
            let values = r.values.as_deref().unwrap_or_default().join(" ");
            let (key, operator) = (&r.key, &r.operator);
            format!("NodeSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
        });
        format!("[]NodeSelectorRequirement{{{}}}", list.collect::<String>())
    };
    let terms = selector.node_selector_terms.iter().map(|term| {
        format!(
            "NodeSelectorTerm{{MatchExpressions:{},MatchFields:{},}},",
            requirements(&term.match_expressions),
            requirements(&term.match_fields)
        )
    });
    format!(
        "&NodeSelector{{NodeSelectorTerms:[]NodeSelectorTerm{{{}}},}}",
        terms.collect::<String>()
    )
}

impl Requirement {
    fn compile(requirement: &core::NodeSelectorRequirement) -> Result<Self, String> {
        let values = requirement.values.as_deref().unwrap_or_default();
        let list = || values.iter().map(SmolStr::new).collect::<Vec<_>>();
        let op = match requirement.operator.as_str() {
            "In" | "NotIn" if values.is_empty() => {
                return Err(".values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty".into());
            }
            "In" => Operator::In(list()),
            "NotIn" => Operator::NotIn(list()),
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let mut shown = String::new();
                for value in values {
                    let _ = write!(
                        shown,
                        "{}{value:?}",
                        if shown.is_empty() { "" } else { "," }
                    );
                }
                return Err(format!(
                    ".values: Invalid value: [{shown}]: values set must be empty for exists and does not exist"
                ));
            }
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" | "Lt" => {
                let [value] = values else {
                    return Err(".values: Invalid value: for 'Gt', 'Lt' operators, exactly one value is required".into());
                };
                let bound = value
                    .parse()
                    .map_err(|_| ".values[0]: Invalid value: for 'Gt', 'Lt' operators, the value must be an integer")?;
                if requirement.operator == "Gt" {
                    Operator::Greater(bound)
                } else {
                    Operator::Less(bound)
                }
            }
            other => {
                return Err(format!(
                    ".operator: Invalid value: {other:?}: not a valid selector operator"
                ));
            }
        };
        Ok(Self {
            key: SmolStr::new(&requirement.key),
            op,
        })
    }
}

impl Operator {
    fn accepts(&self, value: Option<&str>) -> bool {
        match self {
            Self::In(list) => value.is_some_and(|v| list.iter().any(|x| x == v)),
            Self::NotIn(list) => value.is_none_or(|v| list.iter().all(|x| x != v)),
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::Greater(bound) => value
                .and_then(|v| v.parse::<i64>().ok())
                .is_some_and(|v| v > *bound),
            Self::Less(bound) => value
                .and_then(|v| v.parse::<i64>().ok())
                .is_some_and(|v| v < *bound),
        }
    }
}

#[cfg(test)]
mod tests;
