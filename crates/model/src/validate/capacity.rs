//! Capacities of devices and their policies for sharing.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::quantity::Quantity;
use serde_json::Value;

use super::common::set;
use crate::limits;
use crate::shape::quantity;
use crate::view::View;

/// Checks a capacity; only devices that can be `shared` may have a policy.
pub(super) fn capacity(capacity: &Value, shared: bool, path: &Path) -> ErrorList {
    if !capacity.has("requestPolicy") {
        return ErrorList::new();
    }
    let path = path.child("requestPolicy");
    if !shared {
        return vec![Error::forbidden(
            &path,
            "allowMultipleAllocations must be true",
        )];
    }
    let total = quantity(capacity.at("value")).unwrap_or_default();
    policy(capacity.at("requestPolicy"), &total, &path)
}

pub(super) fn is_positive(quantity: &Quantity) -> bool {
    *quantity > Quantity::default()
}

fn policy(policy: &Value, total: &Quantity, path: &Path) -> ErrorList {
    let values = policy.list("validValues");
    let default = quantity(policy.at("default"));
    let default_path = path.child("default");
    match (!values.is_empty(), policy.has("validRange")) {
        (true, true) => {
            let text = r#"exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time"#;
            vec![Error::forbidden(path, text)]
        }
        (true, false) => match default {
            None => vec![Error::required(
                &default_path,
                "required when validValues is defined",
            )],
            Some(default) => valid_values(values, &default, total, &path.child("validValues")),
        },
        (false, true) => match default {
            None => vec![Error::required(
                &default_path,
                "required when validRange is defined",
            )],
            Some(default) => valid_range(
                policy.at("validRange"),
                &default,
                total,
                &path.child("validRange"),
            ),
        },
        (false, false) => ErrorList::new(),
    }
}

fn valid_values(values: &[Value], default: &Quantity, total: &Quantity, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let parsed: Vec<Quantity> = values
        .iter()
        .map(|value| quantity(value).unwrap_or_default())
        .collect();
    for (index, pair) in parsed.windows(2).enumerate() {
        if pair[0] > pair[1] {
            let text = "values must be sorted in ascending order";
            errors.push(Error::invalid(
                &path.index(index + 1),
                pair[1].to_string(),
                text,
            ));
        }
    }
    let check = |value: &Value, path: &Path| {
        let value = quantity(value).unwrap_or_default();
        if value <= *total {
            return ErrorList::new();
        }
        vec![Error::invalid(
            path,
            value.to_string(),
            format!("option is larger than capacity value: {total}"),
        )]
    };
    // Upstream compares whole numbers here, so that 1 and 1500m are different but 1500m and 2 are not.
    let key = |value: &Value| quantity(value).unwrap_or_default().value().to_string();
    errors.extend(set(values, limits::VALID_VALUES, path, check, key));
    // With too many values upstream does not look at them and finds no default.
    if values.len() > limits::VALID_VALUES || !parsed.contains(default) {
        let text = "default value is not valid according to the requestPolicy";
        errors.push(Error::invalid(path, default.to_string(), text));
    }
    errors
}

fn valid_range(range: &Value, default: &Quantity, total: &Quantity, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let Some(min) = quantity(range.at("min")) else {
        return vec![Error::required(
            &path.child("min"),
            "required when validRange is defined",
        )];
    };
    let max = quantity(range.at("max"));
    let mut complain = |member: &str, value: &Quantity, text: String| {
        errors.push(Error::invalid(&path.child(member), value.to_string(), text));
    };
    if min > *total {
        complain(
            "min",
            &min,
            format!("min is larger than capacity value: {total}"),
        );
    }
    // Problems with the default are reported at the bound that it misses.
    if *default < min {
        complain("min", default, format!("default is less than min: {min}"));
    }
    if let Some(max) = &max {
        if min > *max {
            complain("max", &min, format!("min is larger than max: {max}"));
        }
        if max > total {
            complain(
                "max",
                max,
                format!("max is larger than capacity value: {total}"),
            );
        }
        if default > max {
            complain("max", default, format!("default is more than max: {max}"));
        }
    }
    if let Some(step) = quantity(range.at("step")) {
        let one_step = min.checked_add(&step).unwrap_or_else(|| step.clone());
        if one_step > *total {
            complain(
                "step",
                &step,
                format!("one step {one_step} is larger than capacity value: {total}"),
            );
        }
        for value in std::iter::once(default).chain(&max) {
            if !is_multiple(value, &min, &step) {
                let text = format!("value is not a multiple of a given step ({step}) from ({min})");
                complain("step", value, text);
            }
        }
    }
    errors
}

/// Whether `value` is `min` plus whole steps, in whole numbers as upstream computes it.
fn is_multiple(value: &Quantity, min: &Quantity, step: &Quantity) -> bool {
    let distance = value.value().wrapping_sub(min.value());
    // Upstream divides by zero here; no value is reached by steps of nothing but the first.
    distance
        .checked_rem(step.value())
        .map_or(distance == 0, |rest| rest == 0)
}
