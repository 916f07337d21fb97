//! The node that an allocation is for, and node selectors.

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

/// Why a node selector cannot be compiled; the text is that of upstream's `nodeaffinity.NewNodeSelector`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "failed to parse node selector {selector}: nodeSelectorTerms[{term}].{list}[{index}]{reason}"
)]
pub struct NodeSelectorError {
    /// The whole selector in Go's format.
    selector: String,
    /// Index of the term.
    term: usize,
    /// `matchExpressions` or `matchFields`.
    list: &'static str,
    /// Index of the requirement in the list.
    index: usize,
    reason: RequirementError,
}

/// Why a requirement of a node selector cannot be compiled. The text begins with the field of the requirement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum RequirementError {
    #[error(".values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty")]
    NoValues,
    #[error(".values: Invalid value: [{}]: values set must be empty for exists and does not exist", quoted(.0))]
    Values(Vec<String>),
    #[error(".values: Invalid value: for 'Gt', 'Lt' operators, exactly one value is required")]
    NotOneValue,
    #[error(".values[0]: Invalid value: for 'Gt', 'Lt' operators, the value must be an integer")]
    NotAnInteger,
    #[error(".operator: Invalid value: {0:?}: not a valid selector operator")]
    Operator(String),
}

fn quoted(values: &[String]) -> String {
    let quoted: Vec<_> = values.iter().map(|value| format!("{value:?}")).collect();
    quoted.join(",")
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
    /// Compiles a selector.
    ///
    /// # Errors
    /// The first requirement that is invalid.
    pub(crate) fn compile(selector: &core::NodeSelector) -> Result<Self, NodeSelectorError> {
        let mut terms = Vec::new();
        for (index, term) in selector.node_selector_terms.iter().enumerate() {
            let expressions = term.match_expressions.as_deref().unwrap_or_default();
            let fields = term.match_fields.as_deref().unwrap_or_default();
            if expressions.is_empty() && fields.is_empty() {
                // An empty term selects nothing, so it can be left out.
                continue;
            }
            let compile = |requirements: &[core::NodeSelectorRequirement], list: &'static str| {
                let compiled = requirements.iter().enumerate().map(|(i, requirement)| {
                    Requirement::compile(requirement).map_err(|reason| NodeSelectorError {
                        selector: go_text(selector),
                        term: index,
                        list,
                        index: i,
                        reason,
                    })
                });
                compiled.collect::<Result<Vec<_>, _>>()
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
    fn compile(requirement: &core::NodeSelectorRequirement) -> Result<Self, RequirementError> {
        let values = requirement.values.as_deref().unwrap_or_default();
        let list = || values.iter().map(SmolStr::new).collect::<Vec<_>>();
        let op = match requirement.operator.as_str() {
            "In" | "NotIn" if values.is_empty() => {
                return Err(RequirementError::NoValues);
            }
            "In" => Operator::In(list()),
            "NotIn" => Operator::NotIn(list()),
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                return Err(RequirementError::Values(values.to_vec()));
            }
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" | "Lt" => {
                let [value] = values else {
                    return Err(RequirementError::NotOneValue);
                };
                let bound = value.parse();
                let bound = bound.map_err(|_| RequirementError::NotAnInteger)?;
                if requirement.operator == "Gt" {
                    Operator::Greater(bound)
                } else {
                    Operator::Less(bound)
                }
            }
            other => return Err(RequirementError::Operator(other.to_owned())),
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
