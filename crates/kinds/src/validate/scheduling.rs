//! Affinity, tolerations, taints, spread.

use std::collections::{BTreeSet, HashMap, HashSet};

use allot_apimachinery::field::{BadValue, Error, ErrorList, ErrorType, Path};
use allot_apimachinery::quote::quote;
use allot_apimachinery::{names, strconv};
use allot_model::tolerations::is_comparison_operator;
use serde_json::Value;

use super::{label_selector, list, one_of, rule, text};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Checks tolerations.
pub fn tolerations(tolerations: &[Value], path: &Path, errors: &mut ErrorList) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let at = path.index(index);
        let (key, operator, value) = (
            text(toleration, "key"),
            text(toleration, "operator"),
            text(toleration, "value"),
        );
        let effect = text(toleration, "effect");
        if !key.is_empty() {
            rule(names::qualified_name(key), key, &at.child("key"), errors);
        }
        if key.is_empty() && operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(Error::invalid(&at.child("operator"), operator, detail));
        }
        if toleration["tolerationSeconds"].is_i64() && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(Error::invalid(&at.child("effect"), effect, detail));
        }
        match operator {
            "Equal" | "" => rule(
                names::label_value(value),
                value,
                &at.child("operator"),
                errors,
            ),
            "Exists" => {
                if !value.is_empty() {
                    let detail = "value must be empty when `operator` is 'Exists'";
                    errors.push(Error::invalid(&at.child("operator"), value, detail));
                }
            }
            other => {
                // As long as comparison operators are disabled upstream's message about one includes them all the same. Where they
                // are allowed, `allow_comparison_operators` replaces the error.
                let known: &[&str] = match is_comparison_operator(other) {
                    true => &["Equal", "Exists", "Lt", "Gt"],
                    false => &["Equal", "Exists"],
                };
                errors.push(Error::not_supported(&at.child("operator"), other, known));
            }
        }
        one_of(effect, &EFFECTS, false, &at.child("effect"), errors);
    }
}

/// Replaces the errors about the operators `Lt` and `Gt` by those about the values that they compare.
pub(crate) fn allow_comparison_operators(
    tolerations: &[Value],
    path: &Path,
    errors: &mut ErrorList,
) {
    let compared: HashMap<String, (Path, &str)> = tolerations
        .iter()
        .enumerate()
        .filter(|(_, toleration)| is_comparison_operator(text(toleration, "operator")))
        .map(|(index, toleration)| {
            let at = path.index(index);
            let operator = at.child("operator").as_str().to_owned();
            (operator, (at.child("value"), text(toleration, "value")))
        })
        .collect();
    if compared.is_empty() {
        return;
    }
    errors.replace_each(|error| match compared.get(&error.field) {
        Some((at, value)) if error.kind == ErrorType::NotSupported => {
            let texts = names::decimal_integer(value).into_iter();
            let texts = texts.chain(strconv::parse_int(value).err());
            texts.map(|text| Error::invalid(at, *value, text)).collect()
        }
        _ => vec![error],
    });
}

/// A toleration as upstream's errors show it.
pub(crate) fn shown_toleration(toleration: &Value) -> BadValue {
    let part = |key: &str| quote(text(toleration, key));
    BadValue::raw(format!(
        "{{\"Key\":{},\"Operator\":{},\"Value\":{},\"Effect\":{},\"TolerationSeconds\":{}}}",
        part("key"),
        part("operator"),
        part("value"),
        part("effect"),
        toleration["tolerationSeconds"]
    ))
}

/// Checks the taints of a node.
pub(crate) fn taints(taints: &[Value], path: &Path, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    for (index, taint) in taints.iter().enumerate() {
        let at = path.index(index);
        let (key, value, effect) = (
            text(taint, "key"),
            text(taint, "value"),
            text(taint, "effect"),
        );
        rule(names::qualified_name(key), key, &at.child("key"), errors);
        rule(names::label_value(value), value, &at.child("value"), errors);
        one_of(effect, &EFFECTS, true, &at.child("effect"), errors);
        if !seen.insert((key, effect)) {
            let shown = format!(
                "{{\"Key\":{},\"Value\":{},\"Effect\":{},\"TimeAdded\":{}}}",
                quote(key),
                quote(value),
                quote(effect),
                taint["timeAdded"]
            );
            let mut error = Error::duplicate(&at, BadValue::raw(shown));
            error.detail = "taints must be unique by key and effect pair".to_owned();
            errors.push(error);
        }
    }
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Validates a NodeSelector.
pub(crate) fn node_selector(
    selector: &Value,
    any_value: bool,
    path: &Path,
    errors: &mut ErrorList,
) {
    let (terms, at) = (
        list(selector, "nodeSelectorTerms"),
        path.child("nodeSelectorTerms"),
    );
    if terms.is_empty() {
        let detail = "must have at least one node selector term";
        errors.push(Error::required(&at, detail));
    }
    for (index, term) in terms.iter().enumerate() {
        node_term(term, any_value, &at.index(index), errors);
    }
}

/// Validates the affinity of a pod. Values that are no label values are tolerated if the pod had such values before.
pub(crate) fn affinity(affinity: &Value, old: Option<&Value>, path: &Path, errors: &mut ErrorList) {
    let node = &affinity["nodeAffinity"];
    let at = path.child("nodeAffinity");
    let required = &node[REQUIRED];
    if required.is_object() {
        let any_value = old.is_some_and(has_odd_value);
        node_selector(required, any_value, &at.child(REQUIRED), errors);
    }
    for (index, item) in list(node, PREFERRED).iter().enumerate() {
        let at = at.child(PREFERRED).index(index);
        weight(item, &at, errors);
        node_term(&item["preference"], true, &at.child("preference"), errors);
    }
    for key in ["podAffinity", "podAntiAffinity"] {
        let (pods, at) = (&affinity[key], path.child(key));
        for (index, term) in list(pods, REQUIRED).iter().enumerate() {
            pod_term(term, &at.child(REQUIRED).index(index), errors);
        }
        for (index, item) in list(pods, PREFERRED).iter().enumerate() {
            let at = at.child(PREFERRED).index(index);
            weight(item, &at, errors);
            pod_term(
                &item["podAffinityTerm"],
                &at.child("podAffinityTerm"),
                errors,
            );
        }
    }
}

fn has_odd_value(affinity: &Value) -> bool {
    list(&affinity["nodeAffinity"][REQUIRED], "nodeSelectorTerms")
        .iter()
        .flat_map(|term| list(term, "matchExpressions"))
        .flat_map(|expression| list(expression, "values"))
        .any(|value| !names::label_value(value.as_str().unwrap_or_default()).is_empty())
}

fn weight(item: &Value, path: &Path, errors: &mut ErrorList) {
    let weight = item["weight"].as_i64().unwrap_or_default();
    if !(1..=100).contains(&weight) {
        errors.push(Error::invalid(
            &path.child("weight"),
            weight,
            "must be in the range 1-100",
        ));
    }
}

fn pod_term(term: &Value, path: &Path, errors: &mut ErrorList) {
    label_selector(&term["labelSelector"], &path.child("labelSelector"), errors);
    label_selector(
        &term["namespaceSelector"],
        &path.child("namespaceSelector"),
        errors,
    );
    for namespace in list(term, "namespaces") {
        let namespace = namespace.as_str().unwrap_or_default();
        let at = path.child("namespace");
        rule(names::dns1123_label(namespace), namespace, &at, errors);
    }
    label_keys(term, path, errors);
    let key = text(term, "topologyKey");
    let at = path.child("topologyKey");
    if key.is_empty() {
        errors.push(Error::required(&at, "can not be empty"));
    }
    rule(names::qualified_name(key), key, &at, errors);
}

/// Checks the keys whose values in the pod itself have been added to the selector.
fn label_keys(term: &Value, path: &Path, errors: &mut ErrorList) {
    let selector = &term["labelSelector"];
    for name in ["matchLabelKeys", "mismatchLabelKeys"] {
        let (keys, at) = (list(term, name), path.child(name));
        if !keys.is_empty() && !selector.is_object() {
            let detail = "must not be specified when labelSelector is not set";
            errors.push(Error::forbidden(&at, detail));
            continue;
        }
        for (index, key) in keys.iter().enumerate() {
            let key = key.as_str().unwrap_or_default();
            rule(names::qualified_name(key), key, &at.index(index), errors);
        }
    }
    let (keys, others) = (
        list(term, "matchLabelKeys"),
        list(term, "mismatchLabelKeys"),
    );
    let labels = super::entries(selector, "matchLabels").map(|(key, _)| key.as_str());
    let mut selected: BTreeSet<&str> = labels.collect();
    let places = keys.iter().enumerate();
    let last: HashMap<_, _> = places.map(|(index, key)| (key.as_str(), index)).collect();
    for expression in list(selector, "matchExpressions") {
        let key = text(expression, "key");
        if let Some(index) = last.get(&Some(key)).copied()
            && selected.contains(key)
        {
            // Upstream's path lacks the name of the list.
            let detail = "exists in both matchLabelKeys and labelSelector";
            errors.push(Error::invalid(&path.index(index), key, detail));
        }
        selected.insert(key);
    }
    let others: HashSet<_> = others.iter().map(Value::as_str).collect();
    for (index, key) in keys
        .iter()
        .enumerate()
        .filter(|(_, it)| others.contains(&it.as_str()))
    {
        let at = path.child("matchLabelKeys").index(index);
        let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
        errors.push(Error::invalid(&at, key, detail));
    }
}

fn node_term(term: &Value, any_value: bool, path: &Path, errors: &mut ErrorList) {
    for (index, requirement) in list(term, "matchExpressions").iter().enumerate() {
        let at = path.child("matchExpressions").index(index);
        let values = list(requirement, "values");
        match text(requirement, "operator") {
            "In" | "NotIn" => {
                if values.is_empty() {
                    let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                    errors.push(Error::required(&at.child("values"), detail));
                }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    let detail =
                        "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                    errors.push(Error::forbidden(&at.child("values"), detail));
                }
            }
            "Gt" | "Lt" => {
                if values.len() != 1 {
                    let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                    errors.push(Error::required(&at.child("values"), detail));
                }
            }
            other => errors.push(Error::invalid(
                &at.child("operator"),
                other,
                "not a valid selector operator",
            )),
        }
        let key = text(requirement, "key");
        rule(names::qualified_name(key), key, &at.child("key"), errors);
        for (index, value) in values.iter().enumerate().filter(|_| !any_value) {
            let value = value.as_str().unwrap_or_default();
            let at = at.child("values").index(index);
            rule(names::label_value(value), value, &at, errors);
        }
    }
    for (index, requirement) in list(term, "matchFields").iter().enumerate() {
        node_field(requirement, &path.child("matchFields").index(index), errors);
    }
}

fn node_field(requirement: &Value, path: &Path, errors: &mut ErrorList) {
    let values = list(requirement, "values");
    let operator = text(requirement, "operator");
    if !matches!(operator, "In" | "NotIn") {
        let detail = "not a valid selector operator";
        errors.push(Error::invalid(&path.child("operator"), operator, detail));
    } else if values.len() != 1 {
        let detail =
            "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
        errors.push(Error::required(&path.child("values"), detail));
    }
    let key = text(requirement, "key");
    if key != "metadata.name" {
        let detail = "not a valid field selector key";
        errors.push(Error::invalid(&path.child("key"), key, detail));
        return;
    }
    for (index, name) in values.iter().enumerate() {
        let name = name.as_str().unwrap_or_default();
        let at = path.child("values").index(index);
        rule(names::dns1123_subdomain(name), name, &at, errors);
    }
}

/// Checks the spread constraints of a pod.
pub(crate) fn spread_constraints(constraints: &[Value], path: &Path, errors: &mut ErrorList) {
    // Upstream names the first of two that are the same.
    let mut later = HashSet::new();
    let mut is_last = vec![true; constraints.len()];
    for (index, constraint) in constraints.iter().enumerate().rev() {
        let what = (
            text(constraint, "topologyKey"),
            text(constraint, "whenUnsatisfiable"),
        );
        is_last[index] = later.insert(what);
    }
    for (index, constraint) in constraints.iter().enumerate() {
        let at = path.index(index);
        let skew = constraint["maxSkew"].as_i64().unwrap_or_default();
        if skew <= 0 {
            errors.push(Error::invalid(
                &at.child("maxSkew"),
                skew,
                "must be greater than zero",
            ));
        }
        let key = text(constraint, "topologyKey");
        if key.is_empty() {
            errors.push(Error::required(
                &at.child("topologyKey"),
                "can not be empty",
            ));
        }
        let action = text(constraint, "whenUnsatisfiable");
        let actions = ["DoNotSchedule", "ScheduleAnyway"];
        if !actions.contains(&action) {
            let at = at.child("whenUnsatisfiable");
            errors.push(Error::not_supported(&at, action, &actions));
        }
        if !is_last[index] {
            let shown = format!("{{{key}, {action}}}");
            errors.push(Error::duplicate(
                &at.child("{topologyKey, whenUnsatisfiable}"),
                shown,
            ));
        }
        spread_details(constraint, action, &at, errors);
        label_selector(
            &constraint["labelSelector"],
            &at.child("labelSelector"),
            errors,
        );
    }
}

fn spread_details(constraint: &Value, action: &str, path: &Path, errors: &mut ErrorList) {
    if let Some(least) = constraint["minDomains"].as_i64() {
        let at = path.child("minDomains");
        if least <= 0 {
            errors.push(Error::invalid(&at, least, "must be greater than zero"));
        }
        if action != "DoNotSchedule" {
            let detail =
                format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
            errors.push(Error::invalid(&at, least, detail));
        }
    }
    for key in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
        let policy = text(constraint, key);
        one_of(
            policy,
            &["Honor", "Ignore"],
            false,
            &path.child(key),
            errors,
        );
    }
    label_keys(constraint, path, errors);
}
