//! Operators.

use super::{Args, Outcome};
use crate::{
    library::Function,
    value::{Fault, Value},
};

pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "_+_" => |args| args[0].clone().add(&args[1]),
        "_-_" => |args| args[0].subtract(&args[1]),
        "_*_" => |args| args[0].multiply(&args[1]),
        "_/_" => |args| args[0].divide(&args[1]),
        "_%_" => |args| args[0].modulo(&args[1]),
        "-_" => |args| args[0].negate(),
        "!_" => |args| match args[0] {
            Value::Bool(value) => Ok(Value::Bool(!value)),
            _ => Err(Fault::NoOverload),
        },
        "_<_" => |args| Ok(Value::Bool(order(args)?.is_lt())),
        "_<=_" => |args| Ok(Value::Bool(order(args)?.is_le())),
        "_>_" => |args| Ok(Value::Bool(order(args)?.is_gt())),
        "_>=_" => |args| Ok(Value::Bool(order(args)?.is_ge())),
        "@in" => contains,
        "size" => size,
        // Its errors are handled by the caller.
        "@not_strictly_false" => |args| Ok(args[0].clone()),
        "includes" => includes,
        _ => return None,
    })
}

fn order(args: Args<'_, '_>) -> Result<std::cmp::Ordering, Fault> {
    if !args[0].is_comparable() {
        return Err(Fault::NoOverload);
    }
    args[0].compare(&args[1])
}

fn contains<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    Ok(Value::Bool(match &args[1] {
        Value::List(list) => list.iter().any(|element| args[0].is(&element)),
        Value::Map(map) => map.contains(&args[0]),
        _ => return Err(Fault::NoOverload),
    }))
}

fn size<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    Ok(Value::Int(match &args[0] {
        Value::String(text) => text.chars().count(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(list) => list.len(),
        Value::Map(map) => map.len(),
        _ => return Err(Fault::NoOverload),
    } as i64))
}

/// Whether a list has an element, or a value is equal: for attributes that may be either.
fn includes<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    let Value::List(list) = &args[0] else {
        return Ok(Value::Bool(args[0].is(&args[1])));
    };
    for (i, element) in list.iter().enumerate() {
        if i >= super::INCLUDES_MAX {
            let max = super::INCLUDES_MAX;
            let text =
                format!("'includes' function cannot be applied to lists longer than {max} values");
            return Err(Fault::new(text));
        }
        if element.is(&args[1]) {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}
