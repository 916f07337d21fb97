//! Quantities and semantic versions.

use std::{cmp::Ordering, sync::Arc};

use allot_apimachinery::{Quantity, quantity::Format};

use super::{Args, Outcome, text};
use crate::{
    library::Function,
    semver::Version,
    value::{Fault, Handle, Value},
};

pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "quantity" => |args| match text(&args[0])?.parse::<Quantity>() {
            Ok(quantity) => Ok(shared(quantity)),
            Err(error) => Err(Fault::new(error.to_string())),
        },
        "isQuantity" => |args| Ok(Value::Bool(text(&args[0])?.parse::<Quantity>().is_ok())),
        "semver" => |args| match version(args)? {
            Ok(version) => Ok(Value::Version(Handle::Shared(Arc::new(version)))),
            Err(error) => Err(Fault::new(error.to_string())),
        },
        "isSemver" => |args| Ok(Value::Bool(version(args)?.is_ok())),
        "isGreaterThan" => |args| Ok(Value::Bool(compare(args)?.is_gt())),
        "isLessThan" => |args| Ok(Value::Bool(compare(args)?.is_lt())),
        "compareTo" => |args| Ok(Value::Int(compare(args)? as i64)),
        "sign" => |args| Ok(Value::Int(i64::from(quantity(&args[0])?.signum()))),
        "asInteger" => |args| {
            let value = quantity(&args[0])?.as_i64();
            value
                .map(Value::Int)
                .ok_or_else(|| Fault::new("cannot convert value to integer"))
        },
        "isInteger" => |args| Ok(Value::Bool(quantity(&args[0])?.as_i64().is_some())),
        "asApproximateFloat" => |args| Ok(Value::Double(quantity(&args[0])?.to_f64())),
        "add" => |args| arithmetic(args, Quantity::checked_add),
        "sub" => |args| arithmetic(args, Quantity::checked_sub),
        "major" => |args| part(args, |version| version.major),
        "minor" => |args| part(args, |version| version.minor),
        "patch" => |args| part(args, |version| version.patch),
        _ => return None,
    })
}

fn shared<'a>(quantity: Quantity) -> Value<'a> {
    Value::Quantity(Handle::Shared(Arc::new(quantity)))
}

fn quantity<'v>(value: &'v Value<'_>) -> Result<&'v Quantity, Fault> {
    match value {
        Value::Quantity(quantity) => Ok(quantity),
        _ => Err(Fault::NoOverload),
    }
}

fn version(args: Args<'_, '_>) -> Result<Result<Version, crate::semver::ParseError>, Fault> {
    let text = text(&args[0])?;
    match args.get(1) {
        None | Some(Value::Bool(false)) => Ok(Version::parse(text)),
        Some(Value::Bool(true)) => Ok(Version::parse_normalized(text)),
        Some(_) => Err(Fault::NoOverload),
    }
}

fn compare(args: Args<'_, '_>) -> Result<Ordering, Fault> {
    match (&args[0], &args[1]) {
        (Value::Quantity(a), Value::Quantity(b)) => Ok((**a).cmp(b)),
        (Value::Version(a), Value::Version(b)) => Ok((**a).cmp(b)),
        _ => Err(Fault::NoOverload),
    }
}

fn arithmetic<'a>(
    args: Args<'_, 'a>,
    operation: fn(&Quantity, &Quantity) -> Option<Quantity>,
) -> Outcome<'a> {
    let left = quantity(&args[0])?;
    let result = match &args[1] {
        Value::Quantity(right) => operation(left, right),
        Value::Int(right) => operation(left, &Quantity::new(*right, Format::DecimalExponent)),
        _ => return Err(Fault::NoOverload),
    };
    result
        .map(shared)
        .ok_or_else(|| Fault::new("quantities are too far apart"))
}

fn part<'a>(args: Args<'_, 'a>, part: fn(&Version) -> u64) -> Outcome<'a> {
    match &args[0] {
        Value::Version(version) => Ok(Value::Int(part(version) as i64)),
        _ => Err(Fault::NoOverload),
    }
}
