//! Capacities of devices and their policies for sharing.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::quantity::Quantity;
use serde_json::Value;

use super::common::set;
use crate::features::{Feature, Features, Release};
use crate::limits;
use crate::shape::quantity;
use crate::view::View;

/// Checks a capacity; only devices that can be `shared` may have a policy.
pub(super) fn capacity(
    capacity: &Value,
    shared: bool,
    features: &Features,
    path: &Path,
) -> ErrorList {
    if !capacity.has("requestPolicy") {
        return ErrorList::new();
    }
    let path = path.child("requestPolicy");
    if !shared {
        return ErrorList::from([Error::forbidden(
            &path,
            "allowMultipleAllocations must be true",
        )]);
    }
    let total = quantity(capacity.at("value")).unwrap_or_default();
    policy(capacity.at("requestPolicy"), &total, features, &path)
}

pub(super) fn is_positive(quantity: &Quantity) -> bool {
    *quantity > Quantity::default()
}

fn policy(policy: &Value, total: &Quantity, features: &Features, path: &Path) -> ErrorList {
    let values = policy.list("validValues");
    let default = quantity(policy.at("default"));
    let default_path = path.child("default");
    match (!values.is_empty(), policy.has("validRange")) {
        (true, true) => {
            let text = r#"exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time"#;
            ErrorList::from([Error::forbidden(path, text)])
        }
        (true, false) => match default {
            None => ErrorList::from([Error::required(
                &default_path,
                "required when validValues is defined",
            )]),
            Some(default) => {
                let path = path.child("validValues");
                valid_values(values, &default, total, features, &path)
            }
        },
        (false, true) => match default {
            None => ErrorList::from([Error::required(
                &default_path,
                "required when validRange is defined",
            )]),
            Some(default) => valid_range(
                policy.at("validRange"),
                &default,
                total,
                features,
                &path.child("validRange"),
            ),
        },
        (false, false) => ErrorList::new(),
    }
}

fn valid_values(
    values: &[Value],
    default: &Quantity,
    total: &Quantity,
    features: &Features,
    path: &Path,
) -> ErrorList {
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
        ErrorList::from([Error::invalid(
            path,
            value.to_string(),
            format!("option is larger than capacity value: {total}"),
        )])
    };
    // Without the feature upstream compares whole numbers here, so that 1 and 1500m are different but 1500m and 2 are not.
    let fractional = features.enabled(Feature::DRAFractionalCapacityRange);
    let key = |value: &Value| {
        let value = quantity(value).unwrap_or_default();
        if fractional {
            exact_text(&value)
        } else {
            value.value().to_string()
        }
    };
    errors.extend(set(values, limits::VALID_VALUES, path, check, key));
    // With too many values upstream does not look at them and finds no default.
    if values.len() > limits::VALID_VALUES || !parsed.contains(default) {
        let text = "default value is not valid according to the requestPolicy";
        errors.push(Error::invalid(path, default.to_string(), text));
    }
    errors
}

/// A quantity as a decimal number, as upstream shows one that stands twice.
fn exact_text(value: &Quantity) -> String {
    let nanos = value.nanos();
    let (whole, rest) = (nanos / NANO, (nanos % NANO).unsigned_abs());
    let sign = if nanos < 0 && whole == 0 { "-" } else { "" };
    let fraction = format!("{rest:09}");
    match fraction.trim_end_matches('0') {
        "" => format!("{sign}{whole}"),
        digits => format!("{sign}{whole}.{digits}"),
    }
}

const NANO: i128 = 1_000_000_000;

fn valid_range(
    range: &Value,
    default: &Quantity,
    total: &Quantity,
    features: &Features,
    path: &Path,
) -> ErrorList {
    let mut errors = ErrorList::new();
    let Some(min) = quantity(range.at("min")) else {
        return ErrorList::from([Error::required(
            &path.child("min"),
            "required when validRange is defined",
        )]);
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
    // Before 1.37, the error about an invalid default names the field of the bound that it violates.
    let newer = features.release() >= Release::new(37);
    let at = |bound| if newer { "default" } else { bound };
    if *default < min {
        complain(
            at("min"),
            default,
            format!("default is less than min: {min}"),
        );
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
            complain(
                at("max"),
                default,
                format!("default is more than max: {max}"),
            );
        }
    }
    let step = quantity(range.at("step"));
    if newer {
        let range = Range { min, max, step };
        errors.extend(steps(&range, default, total, features, path));
        return errors;
    }
    if let Some(step) = step {
        let one_step = min.checked_add(&step).unwrap_or_else(|| step.clone());
        if one_step > *total {
            complain(
                "step",
                &step,
                format!("one step {one_step} is larger than capacity value: {total}"),
            );
        }
        for value in std::iter::once(default).chain(&max) {
            if !is_multiple(value, &min, &step, Quantity::value) {
                complain("step", value, not_a_multiple(&min, &step));
            }
        }
    }
    errors
}

struct Range {
    min: Quantity,
    max: Option<Quantity>,
    step: Option<Quantity>,
}

/// The rules of 1.37 for the step of a range: fractions are exact with the feature, and what the arithmetic cannot hold is
/// refused before it is used.
fn steps(
    range: &Range,
    default: &Quantity,
    total: &Quantity,
    features: &Features,
    path: &Path,
) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut complain = |member: &str, value: &Quantity, text: &str| {
        errors.push(Error::invalid(&path.child(member), value.to_string(), text));
    };
    let members = [
        ("default", Some(default)),
        ("min", Some(&range.min)),
        ("max", range.max.as_ref()),
        ("step", range.step.as_ref()),
    ];
    let given = || {
        members
            .iter()
            .filter_map(|(name, value)| Some((*name, (*value)?)))
    };
    let fractional = features.enabled(Feature::DRAFractionalCapacityRange)
        && given().any(|(_, value)| value.nanos() % NANO != 0);
    let mut unsafe_value = false;
    if fractional {
        for (name, value) in given().filter(|(_, value)| !is_milli(value)) {
            complain(name, value, "value cannot be represented as a milli value");
            unsafe_value = true;
        }
        if unsafe_value {
            return errors;
        }
    }
    let (min, Some(step)) = (&range.min, &range.step) else {
        return errors;
    };
    if step.signum() <= 0 {
        complain("step", step, "must be greater than zero");
        return errors;
    }
    let one_step = min.checked_add(step).unwrap_or_else(|| step.clone());
    if one_step > *total {
        let text = format!("one step {one_step} is larger than capacity value: {total}");
        complain("step", step, &text);
    }
    if !fractional {
        for (name, value) in given() {
            let text = match value {
                value if value.signum() < 0 => "must be greater than or equal to 0",
                value if value.nanos() > i128::from(i64::MAX) * NANO => {
                    "must not be larger than 9223372036854775807"
                }
                _ => continue,
            };
            complain(name, value, text);
            unsafe_value = true;
        }
    }
    let count = if fractional {
        Quantity::milli_value
    } else {
        Quantity::value
    };
    for value in std::iter::once(default).chain(&range.max) {
        if !unsafe_value && !is_multiple(value, min, step, count) {
            complain("step", value, &not_a_multiple(min, step));
        }
    }
    errors
}

/// Whether a number of thousandths that fits in 64 bits is exactly the quantity.
fn is_milli(value: &Quantity) -> bool {
    const MICRO: i128 = NANO / 1000;
    value.nanos() % MICRO == 0 && i64::try_from(value.nanos() / MICRO).is_ok()
}

fn not_a_multiple(min: &Quantity, step: &Quantity) -> String {
    format!("value is not a multiple of a given step ({step}) from ({min})")
}

/// Whether `value` is `min` plus whole steps, in the unit in which `count` counts.
fn is_multiple(
    value: &Quantity,
    min: &Quantity,
    step: &Quantity,
    count: fn(&Quantity) -> i64,
) -> bool {
    let distance = count(value).wrapping_sub(count(min));
    // Upstream divides by zero here before 1.37; no value is reached by steps of nothing but the first.
    distance
        .checked_rem(count(step))
        .map_or(distance == 0, |rest| rest == 0)
}
