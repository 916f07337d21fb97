//! Limit ranges.

use std::collections::{BTreeMap, BTreeSet};

use allot_apimachinery::amounts::{self, Amounts};
use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::{Quantity, names};
use serde_json::Value;

use crate::registry::{BASE, Builtin, Rules};
use crate::validate::{entries, list, resources, rule, text};

pub(super) static LIMIT_RANGE: Builtin = Builtin {
    kind: "LimitRange",
    plural: "limitranges",
    short: &["limits"],
    rules: Rules {
        create_on_update: true,
        names_by_uuid: true,
        validate,
        checks_metadata_change: |_| false,
        ..Rules::DEFAULT
    },
    ..BASE
};

const LIMIT_TYPES: [&str; 3] = ["Container", "PersistentVolumeClaim", "Pod"];

/// Checks the limits of a namespace.
fn validate(object: &Value, errors: &mut ErrorList) {
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
        let [max, min] = ["max", "min"].map(|key| amounts::from_json(&item[key]));
        let (mut default, mut request) = (Amounts::new(), Amounts::new());
        if kind == "Pod" {
            for key in ["default", "defaultRequest"] {
                if entries(item, key).next().is_some() {
                    let detail = "may not be specified when `type` is 'Pod'";
                    errors.push(Error::forbidden(&at.child(key), detail));
                }
            }
        } else {
            names_of(item, kind, &["default", "defaultRequest"], &at, errors);
            default = amounts::from_json(&item["default"]);
            request = amounts::from_json(&item["defaultRequest"]);
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
        let wanted = amounts::from_json(&item["maxLimitRequestRatio"]);
        let limits = Limits {
            max,
            min,
            default,
            request,
        };
        limits.check(&wanted, &at, errors);
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
fn ratio(
    ratio: &Quantity,
    min: Option<&Quantity>,
    max: Option<&Quantity>,
    path: &Path,
    errors: &mut ErrorList,
) {
    let number = ratio.milli_value();
    if number < 1000 {
        let detail = format!("ratio {ratio} is less than 1");
        errors.push(Error::invalid(path, ratio.to_string(), detail));
    }
    let (Some(min), Some(max)) = (min, max) else {
        return;
    };
    // Amounts are far below what a float holds exactly.
    let most = max.milli_value() as f64 / min.milli_value() as f64;
    if number as f64 / 1000.0 > most {
        let detail = format!("ratio {ratio} is greater than max/min = {most:.6}");
        errors.push(Error::invalid(path, ratio.to_string(), detail));
    }
}

/// Whether the limit of a resource may exceed its request: that of native resources other than huge pages.
fn may_be_overcommitted(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    native && !name.starts_with("hugepages-")
}

struct Limits {
    max: Amounts,
    min: Amounts,
    default: Amounts,
    request: Amounts,
}

impl Limits {
    /// Each of the four fits between the others, and the ratios between limits and requests fit, too.
    fn check(&self, ratios: &Amounts, path: &Path, errors: &mut ErrorList) {
        let all = [&self.max, &self.min, &self.default, &self.request, ratios];
        let names: BTreeSet<&String> = all.into_iter().flat_map(BTreeMap::keys).collect();
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
            ordered(min, default, "default", ["min value", "default value"]);
            ordered(default, max, "default", ["default value", "max value"]);
            if let Some(found) = ratios.get(name) {
                let at = path.child("maxLimitRequestRatio").key(name);
                ratio(found, min, max, &at, errors);
            }
            if let (Some(default), Some(request)) = (default, request)
                && default != request
                && !may_be_overcommitted(name)
            {
                let at = path.child("defaultRequest").key(name);
                let detail = format!(
                    "default value {default} must equal to defaultRequest value {request} in {name}"
                );
                errors.push(Error::invalid(&at, request.to_string(), detail));
            }
        }
    }
}
