//! Arguments of NodeAffinity.

use allot_apimachinery::labels::{Operator, Requirement};
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use serde::Deserialize;

use super::super::{ConfigError, invalid, unsupported};
use crate::plugins::affinity::AddedAffinity;
use crate::selectors::{NodeTerm, Nodes};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct AffinityFile {
    added_affinity: Option<Affinity>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Affinity {
    required_during_scheduling_ignored_during_execution: Option<Selector>,
    #[serde(default)]
    preferred_during_scheduling_ignored_during_execution: Vec<Preferred>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Selector {
    #[serde(default)]
    node_selector_terms: Vec<Term>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Preferred {
    #[serde(default)]
    weight: i32,
    preference: Term,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Term {
    #[serde(default)]
    match_expressions: Vec<Expression>,
    #[serde(default)]
    match_fields: Vec<Expression>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expression {
    #[serde(default)]
    key: String,
    #[serde(default)]
    operator: String,
    #[serde(default)]
    values: Vec<String>,
}

impl From<Expression> for NodeSelectorRequirement {
    fn from(e: Expression) -> Self {
        Self {
            key: e.key,
            operator: e.operator,
            values: (!e.values.is_empty()).then_some(e.values),
        }
    }
}

/// Node affinity that applies to all pods of the profile in addition to their own.
pub(super) fn added(path: &str, file: AffinityFile) -> Result<AddedAffinity, ConfigError> {
    let mut out = AddedAffinity::default();
    let Some(affinity) = file.added_affinity else {
        return Ok(out);
    };
    let path = format!("{path}.args.addedAffinity");
    if let Some(selector) = affinity.required_during_scheduling_ignored_during_execution {
        let path =
            format!("{path}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms");
        let terms = selector.node_selector_terms.into_iter().enumerate();
        let node_selector_terms = terms
            .map(|(i, t)| term(&format!("{path}[{i}]"), t))
            .collect::<Result<_, _>>()?;
        out.required = Some(Nodes::new(&NodeSelector {
            node_selector_terms,
        }));
    }
    let path = format!("{path}.preferredDuringSchedulingIgnoredDuringExecution");
    let preferred = affinity.preferred_during_scheduling_ignored_during_execution;
    for (i, preferred) in preferred.into_iter().enumerate() {
        // As in upstream: terms without a weight are not checked.
        if preferred.weight != 0 {
            let term = term(&format!("{path}[{i}]"), preferred.preference)?;
            out.preferred
                .push((i64::from(preferred.weight), NodeTerm::new(&term)));
        }
    }
    Ok(out)
}

fn term(path: &str, term: Term) -> Result<NodeSelectorTerm, ConfigError> {
    for (i, e) in term.match_expressions.iter().enumerate() {
        expression(&format!("{path}.matchExpressions[{i}]"), e)?;
    }
    for (i, e) in term.match_fields.iter().enumerate() {
        let path = format!("{path}.matchFields[{i}]");
        if !matches!(&*e.operator, "In" | "NotIn") {
            let path = format!("{path}.operator");
            return Err(unsupported(&path, &e.operator, &["In", "NotIn"]));
        }
        if e.values.len() != 1 {
            let path = format!("{path}.values");
            let text = "must have one element";
            return Err(invalid(&path, format!("{:?}", e.values), text));
        }
    }
    let list = |list: Vec<Expression>| {
        let list: Vec<_> = list
            .into_iter()
            .map(NodeSelectorRequirement::from)
            .collect();
        (!list.is_empty()).then_some(list)
    };
    Ok(NodeSelectorTerm {
        match_expressions: list(term.match_expressions),
        match_fields: list(term.match_fields),
    })
}

fn expression(path: &str, e: &Expression) -> Result<(), ConfigError> {
    let operator = match &*e.operator {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::GreaterThan,
        "Lt" => Operator::LessThan,
        other => {
            let known = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
            return Err(unsupported(&format!("{path}.operator"), other, &known));
        }
    };
    match Requirement::new(&e.key, operator, e.values.clone()) {
        Ok(_) => Ok(()),
        // The text begins with the field.
        Err(error) => Err(ConfigError::Syntax(format!("{path}.{error}"))),
    }
}
