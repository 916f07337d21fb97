//! The usage of a pod in a quota.

use std::collections::{BTreeMap, BTreeSet};

use allot_apimachinery::amounts::{self, Amounts};
use allot_apimachinery::well_known::is_terminal_phase;
use serde::Deserialize;
use serde_json::Value;

use super::{Usage, add};
use crate::view::View;

/// The sum of `field` (`requests` or `limits`) of the containers of a pod, or of an init container that needs
/// more on top of the sidecars before it.
pub fn of_containers(pod: &Value, field: &str) -> Amounts {
    of_spec(pod.at("spec"), field)
}

/// As [`of_containers`], by the spec of the pod.
pub fn of_spec(spec: &Value, field: &str) -> Amounts {
    let of = |container: &Value| amounts::from_json(container.at("resources").at(field));
    let sidecar = |container: &Value| container.text("restartPolicy") == "Always";
    amounts::at_once(
        spec.list("containers").iter().map(of),
        spec.list("initContainers")
            .iter()
            .map(|it| (of(it), sidecar(it))),
    )
}

/// The amounts of `field` of a pod: those of its containers plus overhead; pod-level amounts replace the sums.
pub fn requests(pod: &Value, field: &str) -> Amounts {
    let spec = pod.at("spec");
    let mut total = of_containers(pod, field);
    for (name, amount) in amounts::from_json(spec.at("resources").at(field)) {
        total.insert(name, amount);
    }
    let overhead = amounts::from_json(spec.at("overhead"));
    if field == "requests" {
        amounts::add(&mut total, &overhead);
    } else {
        let limited: Amounts = overhead
            .into_iter()
            .filter(|(n, _)| total.contains_key(n))
            .collect();
        amounts::add(&mut total, &limited);
    }
    total
}

fn is_terminal(pod: &Value) -> bool {
    is_terminal_phase(pod.at("status").text("phase"))
}

/// Adds the usage of a pod. Finished pods count only as objects.
pub(super) fn usage(pod: &Value, usage: &mut Usage) {
    if is_terminal(pod) {
        return;
    }
    add(usage, "pods", 1.into());
    for (name, amount) in requests(pod, "requests") {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage")
            || name.starts_with("hugepages-")
        {
            add(usage, name.as_str(), amount.clone());
        }
        add(usage, format!("requests.{name}"), amount);
    }
    for (name, amount) in requests(pod, "limits") {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            add(usage, format!("limits.{name}"), amount);
        }
    }
}

/// Whether every pod has to state the resource when a quota limits it.
pub(super) fn must_be_stated(name: &str) -> bool {
    matches!(
        name,
        "cpu" | "memory" | "requests.cpu" | "requests.memory" | "limits.cpu" | "limits.memory"
    )
}

/// The containers that do not state a resource; none if the pod as a whole states any.
pub(super) fn silent<'a>(pod: &'a Value, resource: &str) -> BTreeSet<&'a str> {
    let spec = pod.at("spec");
    let (field, name) = resource.split_once('.').unwrap_or(("requests", resource));
    let own =
        ["requests", "limits"].map(|field| amounts::from_json(spec.at("resources").at(field)));
    if own
        .iter()
        .flat_map(BTreeMap::keys)
        .any(|name| is_pod_level(name))
    {
        return BTreeSet::new();
    }
    let lists = ["containers", "initContainers"].map(|list| spec.list(list));
    lists
        .into_iter()
        .flatten()
        .filter(|it| !it.at("resources").at(field).has(name))
        .map(|it| it.text("name"))
        .collect()
}

/// Pods can state it as a whole.
fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

fn is_best_effort(pod: &Value) -> bool {
    let compute = |list: Amounts| {
        list.iter()
            .any(|(n, q)| matches!(n.as_str(), "cpu" | "memory") && !q.is_zero())
    };
    let own = pod.at("spec").at("resources");
    !["requests", "limits"].into_iter().any(|field| {
        compute(of_containers(pod, field)) || compute(amounts::from_json(own.at(field)))
    })
}

fn crosses_namespaces(pod: &Value) -> bool {
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let rules = pod.at("spec").at("affinity").at(kind);
        let required = rules
            .list("requiredDuringSchedulingIgnoredDuringExecution")
            .iter();
        let preferred = rules
            .list("preferredDuringSchedulingIgnoredDuringExecution")
            .iter();
        required
            .chain(preferred.map(|p| p.at("podAffinityTerm")))
            .any(|term| !term.list("namespaces").is_empty() || term.has("namespaceSelector"))
    })
}

fn has_scope(pod: &Value, scope: &str) -> bool {
    let terminating = pod
        .at("spec")
        .at("activeDeadlineSeconds")
        .as_i64()
        .is_some_and(|s| s >= 0);
    match scope {
        "Terminating" => terminating,
        "NotTerminating" => !terminating,
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => !pod.at("spec").text("priorityClassName").is_empty(),
        "CrossNamespacePodAffinity" => crosses_namespaces(pod),
        _ => false,
    }
}

/// Whether an update of a pod can make it count for other quotas.
pub fn changes_scope(old: &Value, new: &Value) -> bool {
    has_scope(old, "Terminating") != has_scope(new, "Terminating")
}

/// Whether a quota's scopes match the object. Scopes apply to pods; a quota with scopes counts nothing else.
pub fn in_scopes(quota: &Value, group: &str, resource: &str, object: &Value) -> bool {
    let spec = quota.at("spec");
    let scopes = spec.list("scopes");
    let terms = spec.at("scopeSelector").list("matchExpressions");
    if scopes.is_empty() && terms.is_empty() {
        return true;
    }
    if !group.is_empty() || resource != "pods" {
        return false;
    }
    scopes
        .iter()
        .all(|s| s.as_str().is_some_and(|s| has_scope(object, s)))
        && terms.iter().all(|term| matches_term(object, term))
}

/// Whether a requirement of a quota on a scope matches the pod.
fn matches_term(pod: &Value, term: &Value) -> bool {
    let listed = |class: &str| term.list("values").iter().any(|it| it == class);
    matches(pod, term.text("scopeName"), term.text("operator"), listed)
}

/// Whether a requirement on a scope matches the pod; `listed` says whether its values have a priority class.
fn matches(pod: &Value, scope: &str, operator: &str, listed: impl Fn(&str) -> bool) -> bool {
    let class = pod.at("spec").text("priorityClassName");
    match operator {
        "In" => scope == "PriorityClass" && !class.is_empty() && listed(class),
        "NotIn" => scope == "PriorityClass" && !listed(class),
        "Exists" => has_scope(pod, scope),
        "DoesNotExist" => !has_scope(pod, scope),
        _ => false,
    }
}

/// A requirement on a scope of quotas, for pods that are permitted only where a quota has that scope.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScopeTerm {
    /// The scope.
    pub scope_name: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// The values of the operator.
    pub values: Vec<String>,
}

impl std::fmt::Display for ScopeTerm {
    /// As in upstream's messages.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ScopeTerm {
            scope_name,
            operator,
            values,
        } = self;
        write!(f, "{{{scope_name} {operator} [{}]}}", values.join(" "))
    }
}

impl ScopeTerm {
    /// Whether it matches the object, which only pods can.
    pub fn matches(&self, group: &str, resource: &str, object: &Value) -> bool {
        let listed = |class: &str| self.values.iter().any(|it| it == class);
        group.is_empty()
            && resource == "pods"
            && matches(object, &self.scope_name, &self.operator, listed)
    }
}

/// The scopes of a quota that match the pod, each for itself.
pub fn matching_scopes<'a>(quota: &'a Value, pod: &Value) -> BTreeSet<&'a str> {
    let spec = quota.at("spec");
    let scopes = spec.list("scopes").iter().filter_map(Value::as_str);
    let terms = spec.at("scopeSelector").list("matchExpressions").iter();
    let terms = terms.filter(|term| matches_term(pod, term));
    scopes
        .filter(|scope| has_scope(pod, scope))
        .chain(terms.map(|term| term.text("scopeName")))
        .collect()
}
