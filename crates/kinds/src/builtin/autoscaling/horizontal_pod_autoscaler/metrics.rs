//! Metrics of an autoscaler, and its scaling behaviour.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::{Quantity, names};
use serde_json::Value;

use crate::empties;
use crate::validate::{kind_and_name, list, quantity, resources, rule, text};

/// Longest stabilization window, and longest period of a policy.
const MAX_WINDOW_SECONDS: i64 = 3600;
const MAX_PERIOD_SECONDS: i64 = 1800;
/// The kinds of metrics and their fields, in upstream's order.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];
const KINDS: [&str; 5] = [
    "ContainerResource",
    "External",
    "Object",
    "Pods",
    "Resource",
];

/// Checks all metrics.
pub(super) fn all(metrics: &[Value], path: &Path, errors: &mut ErrorList) {
    for (index, metric) in metrics.iter().enumerate() {
        one(metric, &path.index(index), errors);
    }
}

fn one(metric: &Value, path: &Path, errors: &mut ErrorList) {
    let kind = text(metric, "type");
    let at = path.child("type");
    if kind.is_empty() {
        let detail = "must specify a metric source type";
        errors.push(Error::required(&at, detail));
    }
    if !KINDS.contains(&kind) {
        errors.push(Error::not_supported(&at, kind, &KINDS));
    }
    let present: Vec<&str> = SOURCES
        .iter()
        .map(|(_, key)| *key)
        .filter(|key| metric[*key].is_object())
        .collect();
    if let Some(key) = present.first() {
        source(&metric[*key], key, &path.child(key), errors);
    }
    let wanted = SOURCES.iter().find(|(known, _)| *known == kind);
    let wanted = wanted.map_or("", |(_, key)| key);
    if wanted.is_empty() {
        // Upstream reports it twice.
        errors.push(Error::not_supported(&at, kind, &KINDS));
    } else if !present.contains(&wanted) {
        let detail = "must populate information for the given metric source";
        errors.push(Error::required(&path.child(wanted), detail));
    }
    if present.len() > 1 {
        for other in present.iter().filter(|key| **key != wanted) {
            let detail = "must populate the given metric source only";
            errors.push(Error::forbidden(&path.child(other), detail));
        }
    }
}

fn source(source: &Value, key: &str, path: &Path, errors: &mut ErrorList) {
    if key == "object" {
        let (object, at) = (&source["describedObject"], path.child("describedObject"));
        kind_and_name(object, &at, errors);
        let version = text(object, "apiVersion");
        if version.matches('/').count() > 1 {
            let detail = format!("unexpected GroupVersion string: {version}");
            errors.push(Error::invalid(&at.child("apiVersion"), version, detail));
        }
    }
    if key.to_ascii_lowercase().ends_with("resource") {
        let of_container = key == "containerResource";
        let (name, at) = (text(source, "name"), path.child("name"));
        if name.is_empty() {
            errors.push(Error::required(&at, "must specify a resource name"));
        } else if of_container {
            resources::resource_name(name, &at, errors);
        }
        if of_container {
            let (name, at) = (text(source, "container"), path.child("container"));
            if name.is_empty() {
                errors.push(Error::required(&at, "must specify a container"));
            } else {
                rule(names::dns1123_label(name), name, &at, errors);
            }
        }
    } else {
        let (name, at) = (
            text(&source["metric"], "name"),
            path.child("metric").child("name"),
        );
        if name.is_empty() {
            errors.push(Error::required(&at, "must specify a metric name"));
        } else {
            rule(names::path_segment_name(name), name, &at, errors);
        }
    }
    let (target, path) = (&source["target"], path.child("target"));
    self::target(target, &path, errors);
    let has = |key: &str| !target[key].is_null();
    let average = path.child("averageValue");
    match key {
        "object" if !has("value") && !has("averageValue") => {
            let detail = "must set either a target value or averageValue";
            errors.push(Error::required(&average, detail));
        }
        "external" if !has("value") && !has("averageValue") => {
            let detail = "must set either a target value for metric or a per-pod target";
            errors.push(Error::required(&average, detail));
        }
        "external" if has("value") && has("averageValue") => {
            let detail = "may not set both a target value for metric and a per-pod target";
            errors.push(Error::forbidden(&path.child("value"), detail));
        }
        "pods" if !has("averageValue") => {
            let detail = "must specify a positive target averageValue";
            errors.push(Error::required(&average, detail));
        }
        "resource" | "containerResource" => {
            match (has("averageUtilization"), has("averageValue")) {
                (false, false) => {
                    let detail = "must set either a target raw value or a target utilization";
                    errors.push(Error::required(&path.child("averageUtilization"), detail));
                }
                (true, true) => {
                    let detail = "may not set both a target raw value and a target utilization";
                    errors.push(Error::forbidden(&average, detail));
                }
                _ => {}
            }
        }
        _ => {}
    }
}

fn positive(amount: &Value) -> bool {
    quantity(amount).is_some_and(|amount| amount > Quantity::ZERO)
}

fn target(target: &Value, path: &Path, errors: &mut ErrorList) {
    let (kind, at) = (text(target, "type"), path.child("type"));
    if kind.is_empty() {
        errors.push(Error::required(&at, "must specify a metric target type"));
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        let detail = "must be either Utilization, Value, or AverageValue";
        errors.push(Error::invalid(&at, kind, detail));
    }
    for key in ["value", "averageValue"] {
        let amount = &target[key];
        if !amount.is_null() && !positive(amount) {
            errors.push(Error::invalid(&path.child(key), amount, "must be positive"));
        }
    }
    let key = "averageUtilization";
    if let Some(percent) = target[key].as_i64().filter(|it| *it < 1) {
        errors.push(Error::invalid(
            &path.child(key),
            percent,
            "must be greater than 0",
        ));
    }
}

/// Validates the scaling rules for one direction.
pub(super) fn rules(rules: &Value, path: &Path, errors: &mut ErrorList) {
    let at = path.child("stabilizationWindowSeconds");
    if let Some(seconds) = rules["stabilizationWindowSeconds"].as_i64() {
        if seconds < 0 {
            let detail = "must be greater than or equal to zero";
            errors.push(Error::invalid(&at, seconds, detail));
        }
        at_most(seconds, MAX_WINDOW_SECONDS, &at, errors);
    }
    let known = ["Disabled", "Max", "Min"];
    if let Some(policy) = rules["selectPolicy"].as_str()
        && !known.contains(&policy)
    {
        let at = path.child("selectPolicy");
        errors.push(Error::not_supported(&at, policy, &known));
    }
    let (policies, place) = (list(rules, "policies"), path.child("policies"));
    // An empty list has got the default policies on its way here, which upstream gives to an absent one only.
    if policies.is_empty() || empties::has(&place) {
        errors.push(Error::required(&place, "must specify at least one Policy"));
    }
    for (index, policy) in policies.iter().enumerate() {
        let at = place.index(index);
        let kind = text(policy, "type");
        let known = ["Percent", "Pods"];
        if !known.contains(&kind) {
            errors.push(Error::not_supported(&at.child("type"), kind, &known));
        }
        for key in ["value", "periodSeconds"] {
            let number = policy[key].as_i64().unwrap_or_default();
            let at = at.child(key);
            if number <= 0 {
                errors.push(Error::invalid(&at, number, "must be greater than zero"));
            }
            if key == "periodSeconds" {
                at_most(number, MAX_PERIOD_SECONDS, &at, errors);
            }
        }
    }
    tolerance(rules, path, errors);
}

/// A tolerance is not negative.
fn tolerance(rules: &Value, path: &Path, errors: &mut ErrorList) {
    if let Some(found) = quantity(&rules["tolerance"]).filter(|it| *it < Quantity::ZERO) {
        let detail = "must be greater than or equal to 0";
        errors.push(Error::invalid(
            &path.child("tolerance"),
            found.to_string(),
            detail,
        ));
    }
}

fn at_most(number: i64, most: i64, path: &Path, errors: &mut ErrorList) {
    if number > most {
        let detail = format!("must be less than or equal to {most}");
        errors.push(Error::invalid(path, number, detail));
    }
}
