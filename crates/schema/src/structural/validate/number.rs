//! Limits of numbers. Integers are compared as integers; a limit that is not a value of the type is reported, and compared
//! as a float.

use allot_apimachinery::{field::BadValue, strconv::format_float};
use serde_json::{Number, Value};

use super::{
    At, Structural,
    outcome::{Fault, Kind, Outcome},
};

/// The largest whole number up to which floats hold every whole number.
const MAX_WHOLE: f64 = 9_007_199_254_740_991.0;

/// A float that is a whole number.
pub(super) fn is_whole(number: f64) -> bool {
    number.abs() <= MAX_WHOLE && number.fract() == 0.0
}

/// Equal once the value has become a number of the same kind, as upstream compares: a float is cut off for a whole number.
pub(super) fn same(value: &Value, allowed: &Value) -> bool {
    match (value, allowed) {
        (Value::Number(value), Value::Number(allowed)) => match allowed.as_i64() {
            Some(allowed) => {
                let cut = || value.as_f64().map(|float| float as i64);
                value.as_i64().or_else(cut) == Some(allowed)
            }
            None => value.as_f64() == allowed.as_f64(),
        },
        _ => value == allowed,
    }
}

struct Checked<'a> {
    value: &'a Value,
    whole: Option<i64>,
    float: f64,
    ty: &'a str,
    format: &'a str,
    at: &'a At<'a>,
}

pub(super) fn check(
    value: &Value,
    number: &Number,
    schema: &Structural,
    format: &str,
    at: &At<'_>,
) -> Outcome {
    let ty = match schema.ty.as_str() {
        ty @ ("integer" | "number") if !schema.int_or_string => ty,
        _ => "",
    };
    let format = match (ty, format) {
        ("integer", "int32" | "int64") | ("number", "float" | "double") => format,
        _ => "",
    };
    let checked = Checked {
        value,
        whole: number.as_i64(),
        float: number.as_f64().unwrap_or_default(),
        ty,
        format,
        at,
    };
    let mut found = Outcome::default();
    let range = |subject: &str, number: f64, whole: Option<i64>| {
        (!checked.fits(number, whole)).then(|| checked.misfit(subject))
    };
    range("Checked", checked.float, checked.whole)
        .into_iter()
        .for_each(|fault| found.add(fault));
    let checks = &schema.checks;
    if let Some(factor) = checks.multiple_of {
        let misfit = range("MultipleOf", factor, None);
        let native = misfit.is_none();
        misfit.into_iter().for_each(|fault| found.add(fault));
        checked
            .multiple(factor, native)
            .into_iter()
            .for_each(|fault| found.add(fault));
    }
    for (limit, subject, most) in [
        (checks.minimum, "Minimum boundary", false),
        (checks.maximum, "Maximum boundary", true),
    ] {
        let Some((limit, exclusive)) = limit else {
            continue;
        };
        let misfit = range(subject, limit, None);
        let native = misfit.is_none();
        misfit.into_iter().for_each(|fault| found.add(fault));
        checked
            .limit(limit, exclusive, most, native)
            .into_iter()
            .for_each(|fault| found.add(fault));
    }
    found.matches += 1;
    found
}

impl Checked<'_> {
    /// The number can be of the type.
    fn fits(&self, number: f64, whole: Option<i64>) -> bool {
        match (self.ty, self.format) {
            ("integer", format) => {
                let whole = whole.or_else(|| {
                    let range = -9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0;
                    (number.fract() == 0.0 && range.contains(&number)).then_some(number as i64)
                });
                whole.is_some_and(|whole| format != "int32" || i32::try_from(whole).is_ok())
            }
            ("number", "float") => number.abs() <= f64::from(f32::MAX),
            _ => true,
        }
    }

    fn misfit(&self, subject: &str) -> Fault {
        let format = match self.format {
            "" => "(default format)".to_owned(),
            format => format!("with format {format}"),
        };
        let (ty, Some(name)) = (self.ty, self.at.name()) else {
            return Fault::untold();
        };
        Fault::of_start(format!(
            "{subject} value must be of type {ty} {format} in {name}"
        ))
    }

    fn multiple(&self, factor: f64, native: bool) -> Option<Fault> {
        let (fits, named, value) = match self.whole {
            Some(whole) if native => {
                let factor = factor as i64;
                let fits = factor > 0 && whole % factor == 0;
                (fits, factor.to_string(), BadValue::from(self.value))
            }
            _ => {
                let quotient = if factor < 1.0 {
                    1.0 / factor * self.float
                } else {
                    self.float / factor
                };
                let fits = factor > 0.0 && is_whole(quotient);
                (
                    fits,
                    format_float(factor),
                    BadValue::raw(format_float(self.float)),
                )
            }
        };
        if fits {
            return None;
        }
        if named.starts_with('-') || named == "0" {
            let Some(name) = self.at.name() else {
                return Some(Fault::untold());
            };
            return Some(Fault {
                text: format!("factor MultipleOf declared for {name} must be positive: {named}")
                    .into(),
                name,
                value: BadValue::raw(named),
                kind: Kind::Other,
            });
        }
        let text = format!("should be a multiple of {named}");
        Some(self.at.fault(Kind::Other, value, &text))
    }

    fn limit(&self, limit: f64, exclusive: bool, most: bool, native: bool) -> Option<Fault> {
        use std::cmp::Ordering;
        let (order, named, value) = match self.whole {
            Some(whole) if native => {
                let limit = limit as i64;
                let order = Some(whole.cmp(&limit));
                (order, limit.to_string(), BadValue::from(self.value))
            }
            _ => {
                let order = self.float.partial_cmp(&limit);
                (
                    order,
                    format_float(limit),
                    BadValue::raw(format_float(self.float)),
                )
            }
        };
        let beyond = if most {
            Ordering::Greater
        } else {
            Ordering::Less
        };
        let broken = order == Some(beyond) || exclusive && order == Some(Ordering::Equal);
        if !broken {
            return None;
        }
        let words = match (most, exclusive) {
            (true, true) => "less than",
            (true, false) => "less than or equal to",
            (false, true) => "greater than",
            (false, false) => "greater than or equal to",
        };
        let text = format!("should be {words} {named}");
        Some(self.at.fault(Kind::Other, value, &text))
    }
}
