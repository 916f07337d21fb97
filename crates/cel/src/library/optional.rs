//! Optional values, and maps that loops build.

use std::sync::Arc;

use super::{Args, Outcome};
use crate::{
    library::Function,
    value::{Fault, Map, MapKey, Value},
};

pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "optional.of" => |args| Ok(Value::Optional(Some(Arc::new(args[0].clone())))),
        "optional.ofNonZeroValue" => |args| {
            let value = (!is_zero(&args[0])).then(|| Arc::new(args[0].clone()));
            Ok(Value::Optional(value))
        },
        "optional.none" => |_| Ok(Value::Optional(None)),
        "value" => |args| match &args[0] {
            Value::Optional(Some(value)) => Ok(Value::clone(value)),
            Value::Optional(None) => Err(Fault::new("optional.none() dereference")),
            _ => Err(Fault::NoOverload),
        },
        "hasValue" => |args| match &args[0] {
            Value::Optional(value) => Ok(Value::Bool(value.is_some())),
            _ => Err(Fault::NoOverload),
        },
        "optional.unwrap" | "unwrapOpt" => unwrap,
        "cel.@mapInsert" => |args| match &args[0] {
            Value::Map(map) => insert(map.clone(), &args[1..]),
            _ => Err(Fault::NoOverload),
        },
        _ => return None,
    })
}

fn is_zero(value: &Value<'_>) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Int(value) | Value::Duration(value) => *value == 0,
        Value::Uint(value) => *value == 0,
        Value::Double(value) => *value == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(list) => list.is_empty(),
        Value::Map(map) => map.is_empty(),
        _ => false,
    }
}

fn unwrap<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    let Value::List(list) = &args[0] else {
        return Err(Fault::NoOverload);
    };
    let mut values = Vec::new();
    for element in list.iter() {
        match element {
            Value::Optional(value) => values.extend(value.map(|value| Value::clone(&value))),
            other => return Err(Fault::new(format!("value {other} is not optional"))),
        }
    }
    Ok(Value::list(values))
}

/// The map with a key and its value, or with the entries of another map, added. An existing key is an error.
pub(crate) fn insert<'a>(map: Map<'a>, added: &[Value<'a>]) -> Outcome<'a> {
    let entries: Vec<(Value<'a>, Value<'a>)> = match added {
        [key, value] => vec![(key.clone(), value.clone())],
        [Value::Map(other)] => other
            .keys()
            .into_iter()
            .filter_map(|key| other.find(&key).map(|value| (key, value)))
            .collect(),
        _ => return Err(Fault::NoOverload),
    };
    let mut shared = match map {
        Map::Shared(entries) => entries,
        other => {
            let entry = |key: Value<'a>| Some((MapKey::new(&key)?, other.find(&key)?));
            Arc::new(other.keys().into_iter().filter_map(entry).collect())
        }
    };
    let map = Arc::make_mut(&mut shared);
    for (key, value) in entries {
        let Some(own) = MapKey::new(&key) else {
            return Err(Fault::new(format!(
                "unsupported key type: {}",
                key.type_name()
            )));
        };
        if map.insert(own, value).is_some() {
            return Err(Fault::new(format!(
                "insert failed: key {key} already exists"
            )));
        }
    }
    Ok(Value::Map(Map::Shared(shared)))
}
