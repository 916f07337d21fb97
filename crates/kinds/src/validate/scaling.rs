//! Autoscalers and the limits of namespaces.

use std::collections::{BTreeMap, BTreeSet};

use allot_apimachinery::Quantity;
use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use super::{entries, list, resources, rule, text};

mod metrics;

/// Checks an autoscaler.
pub(crate) fn autoscaler(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let least = spec["minReplicas"].as_i64();
    if let Some(least) = least.filter(|least| *least < 1) {
        let detail = "must be greater than or equal to 1";
        errors.push(Error::invalid(&path.child("minReplicas"), least, detail));
    }
    let most = spec["maxReplicas"].as_i64().unwrap_or_default();
    let at = path.child("maxReplicas");
    if most == 0 {
        errors.push(Error::required(&at, "must be set and greater than 0"));
    } else if most < 1 {
        let detail = "must be greater than or equal to 1";
        errors.push(Error::invalid(&at, most, detail));
    }
    if least.is_some_and(|least| most < least) {
        let detail = "must be greater than or equal to `minReplicas`";
        errors.push(Error::invalid(&at, most, detail));
    }
    let (target, at) = (&spec["scaleTargetRef"], path.child("scaleTargetRef"));
    reference(target, &at, errors);
    let version = text(target, "apiVersion");
    let detail = match version.matches('/').count() {
        count if count == 0 || version.starts_with('/') && count == 1 => {
            "apiVersion must specify API group".to_owned()
        }
        1 => String::new(),
        _ => format!("unexpected GroupVersion string: {version}"),
    };
    if !detail.is_empty() {
        errors.push(Error::invalid(&at.child("apiVersion"), version, detail));
    }
    let (all, at) = (list(spec, "metrics"), path.child("metrics"));
    metrics::all(all, &at, errors);
    let says_when = |metric: &Value| matches!(text(metric, "type"), "Object" | "External");
    if least == Some(0) && !all.iter().any(says_when) {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.push(Error::forbidden(&at, detail));
    }
    for direction in ["scaleUp", "scaleDown"] {
        let rules = &spec["behavior"][direction];
        if rules.is_object() {
            metrics::rules(rules, &path.child("behavior").child(direction), errors);
        }
    }
}

/// An object by kind and name.
fn reference(reference: &Value, path: &Path, errors: &mut ErrorList) {
    for key in ["kind", "name"] {
        let (value, at) = (text(reference, key), path.child(key));
        if value.is_empty() {
            errors.push(Error::required(&at, ""));
        } else {
            rule(names::path_segment_name(value), value, &at, errors);
        }
    }
}

/// Validates the current and desired replicas of an autoscaler.
pub(crate) fn status(object: &Value, errors: &mut ErrorList) {
    let (status, path) = (&object["status"], Path::new("status"));
    for key in ["currentReplicas", "desiredReplicas"] {
        super::not_negative(&status[key], &path.child(key), errors);
    }
}

const LIMIT_TYPES: [&str; 3] = ["Container", "PersistentVolumeClaim", "Pod"];

fn quantities(item: &Value, key: &str) -> BTreeMap<String, Quantity> {
    entries(item, key)
        .filter_map(|(name, amount)| Some((name.clone(), amount.as_str()?.parse().ok()?)))
        .collect()
}

/// Checks the limits of a namespace.
pub(crate) fn limit_range(object: &Value, errors: &mut ErrorList) {
    let path = Path::new("spec").child("limits");
    let mut kinds = BTreeSet::new();
    for (index, item) in list(&object["spec"], "limits").iter().enumerate() {
        let at = path.index(index);
        let kind = text(item, "type");
        let texts = names::qualified_name(kind);
        if !texts.is_empty() {
            rule(texts, kind, &at.child("type"), errors);
        } else if !kind.contains('/') && !LIMIT_TYPES.contains(&kind) {
            let detail = "must be a standard limit type or fully qualified";
            errors.push(Error::invalid(&at.child("type"), kind, detail));
        }
        if !kinds.insert(kind) {
            errors.push(Error::duplicate(&at.child("type"), kind));
        }
        names_of(item, kind, &["max", "min"], &at, errors);
        let [max, min] = ["max", "min"].map(|key| quantities(item, key));
        let (mut default, mut request) = (BTreeMap::new(), BTreeMap::new());
        if kind == "Pod" {
            for key in ["default", "defaultRequest"] {
                if entries(item, key).next().is_some() {
                    let detail = "may not be specified when `type` is 'Pod'";
                    errors.push(Error::forbidden(&at.child(key), detail));
                }
            }
        } else {
            names_of(item, kind, &["default", "defaultRequest"], &at, errors);
            default = quantities(item, "default");
            request = quantities(item, "defaultRequest");
        }
        if kind == "PersistentVolumeClaim"
            && !min.contains_key("storage")
            && !max.contains_key("storage")
        {
            let detail =
                "either minimum or maximum storage value is required, but neither was provided";
            errors.push(Error::required(&at.child("limits"), detail));
        }
        names_of(item, kind, &["maxLimitRequestRatio"], &at, errors);
        let wanted = quantities(item, "maxLimitRequestRatio");
        let amounts = Amounts {
            max,
            min,
            default,
            request,
        };
        amounts.check(&at, errors);
        ratios(&wanted, &amounts.min, &amounts.max, &at, errors);
    }
}

/// The resources must be valid for the kind of limit.
fn names_of(item: &Value, kind: &str, keys: &[&str], path: &Path, errors: &mut ErrorList) {
    for key in keys {
        for (name, _) in entries(item, key) {
            let at = path.child(key).key(name);
            match kind {
                "Pod" | "Container" => resources::resource_name(name, &at, errors),
                _ => resources::standard_name(name, &at, errors),
            }
        }
    }
}

/// Checks how many times its request a limit may be.
fn ratios(
    ratios: &BTreeMap<String, Quantity>,
    min: &BTreeMap<String, Quantity>,
    max: &BTreeMap<String, Quantity>,
    path: &Path,
    errors: &mut ErrorList,
) {
    for (name, ratio) in ratios {
        let at = path.child("maxLimitRequestRatio").key(name);
        let number = ratio.milli_value();
        if number < 1000 {
            let detail = format!("ratio {ratio} is less than 1");
            errors.push(Error::invalid(&at, ratio.to_string(), detail));
        }
        let (Some(min), Some(max)) = (min.get(name), max.get(name)) else {
            continue;
        };
        // Amounts are far below what a float holds exactly.
        let most = max.milli_value() as f64 / min.milli_value() as f64;
        if number as f64 / 1000.0 > most {
            let detail = format!("ratio {ratio} is greater than max/min = {most:.6}");
            errors.push(Error::invalid(&at, ratio.to_string(), detail));
        }
    }
}

struct Amounts {
    max: BTreeMap<String, Quantity>,
    min: BTreeMap<String, Quantity>,
    default: BTreeMap<String, Quantity>,
    request: BTreeMap<String, Quantity>,
}

impl Amounts {
    /// Each of the four fits between the others.
    fn check(&self, path: &Path, errors: &mut ErrorList) {
        let names: BTreeSet<&String> = [&self.max, &self.min, &self.default, &self.request]
            .into_iter()
            .flat_map(BTreeMap::keys)
            .collect();
        for name in names {
            let [max, min, default, request] =
                [&self.max, &self.min, &self.default, &self.request].map(|map| map.get(name));
            let mut ordered = |low: Option<&Quantity>,
                               high: Option<&Quantity>,
                               blamed: &str,
                               words: [&str; 2]| {
                let (Some(low), Some(high)) = (low, high) else {
                    return;
                };
                if low > high {
                    // The field that is blamed shows its own amount.
                    let shown = match (blamed, words[1]) {
                        ("defaultRequest", "default request value") => high,
                        ("default", "max value") => high,
                        _ => low,
                    };
                    let detail = format!("{} {low} is greater than {} {high}", words[0], words[1]);
                    let at = path.child(blamed).key(name);
                    errors.push(Error::invalid(&at, shown.to_string(), detail));
                }
            };
            ordered(min, max, "min", ["min value", "max value"]);
            ordered(
                min,
                request,
                "defaultRequest",
                ["min value", "default request value"],
            );
            ordered(min, default, "default", ["min value", "default value"]);
            ordered(
                request,
                max,
                "defaultRequest",
                ["default request value", "max value"],
            );
            ordered(
                request,
                default,
                "defaultRequest",
                ["default request value", "default limit value"],
            );
            ordered(default, max, "default", ["default value", "max value"]);
        }
    }
}
