//! Functions on lists: the Kubernetes library, lists version 3, and sets.

use std::cmp::Ordering;

use super::{Args, Outcome, int};
use crate::{
    library::Function,
    value::{Fault, List, Value},
};

pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "isSorted" => is_sorted,
        "sum" => sum,
        "max" => |args| extreme(args, "max", Ordering::Less),
        "min" => |args| extreme(args, "min", Ordering::Greater),
        "slice" => slice,
        "flatten" => flatten,
        "sort" => |args| sort(args, 0),
        "@sortByAssociatedKeys" => |args| sort(args, 1),
        "lists.range" => |args| {
            let end = usize::try_from(int(&args[0])?).unwrap_or(0);
            Ok(Value::List(List::Range(end)))
        },
        "reverse" => |args| Ok(Value::list(list(&args[0])?.iter().rev().collect())),
        "distinct" => distinct,
        "first" => |args| Ok(optional(list(&args[0])?.get(0))),
        "last" => |args| {
            let list = list(&args[0])?;
            Ok(optional(
                list.len().checked_sub(1).and_then(|last| list.get(last)),
            ))
        },
        "sets.contains" => |args| Ok(Value::Bool(set_contains(list(&args[0])?, list(&args[1])?))),
        "sets.equivalent" => |args| {
            let (a, b) = (list(&args[0])?, list(&args[1])?);
            Ok(Value::Bool(set_contains(a, b) && set_contains(b, a)))
        },
        "sets.intersects" => |args| {
            let (a, b) = (list(&args[0])?, list(&args[1])?);
            Ok(Value::Bool(a.iter().any(|element| contains(b, &element))))
        },
        _ => return None,
    })
}

fn list<'v, 'a>(value: &'v Value<'a>) -> Result<&'v List<'a>, Fault> {
    match value {
        Value::List(list) => Ok(list),
        _ => Err(Fault::NoOverload),
    }
}

fn optional(value: Option<Value<'_>>) -> Value<'_> {
    Value::Optional(value.map(std::sync::Arc::new))
}

fn contains(list: &List<'_>, value: &Value<'_>) -> bool {
    list.iter().any(|element| value.is(&element))
}

fn set_contains(set: &List<'_>, subset: &List<'_>) -> bool {
    subset.iter().all(|element| contains(set, &element))
}

/// The elements, if the first one can be ordered: it determines whether an overload matches.
fn comparable<'a>(value: &Value<'a>) -> Result<Vec<Value<'a>>, Fault> {
    let elements: Vec<_> = list(value)?.iter().collect();
    let Some((first, others)) = elements.split_first() else {
        return Ok(elements);
    };
    if !first.is_comparable() {
        return Err(Fault::NoOverload);
    }
    if !others.iter().all(Value::is_comparable) {
        return Err(Fault::new("no such overload"));
    }
    Ok(elements)
}

fn is_sorted<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    let elements = comparable(&args[0])?;
    Ok(Value::Bool(!elements.windows(2).any(|pair| {
        matches!(pair[0].compare(&pair[1]), Ok(Ordering::Greater))
    })))
}

fn sum<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    let elements: Vec<_> = list(&args[0])?.iter().collect();
    let zero = match elements.first() {
        None | Some(Value::Int(_)) => Value::Int(0),
        Some(Value::Uint(_)) => Value::Uint(0),
        Some(Value::Double(_)) => Value::Double(0.0),
        Some(Value::Duration(_)) => Value::Duration(0),
        Some(_) => return Err(Fault::NoOverload),
    };
    elements
        .iter()
        .try_fold(zero, |sum, element| sum.add(element))
}

/// The element that all others compare to in the given order.
fn extreme<'a>(args: Args<'_, 'a>, name: &str, replace_if: Ordering) -> Outcome<'a> {
    let elements = comparable(&args[0])?;
    let mut best: Option<Value<'a>> = None;
    for element in elements {
        best = match best {
            Some(best) if best.compare(&element).ok() != Some(replace_if) => Some(best),
            _ => Some(element),
        };
    }
    best.ok_or_else(|| Fault::new(format!("{name} called on empty list")))
}

fn slice<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    let (list, start, end) = (list(&args[0])?, int(&args[1])?, int(&args[2])?);
    let problem = if start < 0 || end < 0 {
        "negative indexes not supported".to_owned()
    } else if start > end {
        "start index must be less than or equal to end index".to_owned()
    } else if (list.len() as i64) < end {
        format!("list is length {}", list.len())
    } else {
        let range = start as usize..end as usize;
        return Ok(Value::list(
            range.filter_map(|index| list.get(index)).collect(),
        ));
    };
    Err(Fault::new(format!(
        "cannot slice({start}, {end}), {problem}"
    )))
}

fn flatten<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    let depth = args.get(1).map_or(Ok(1), int)?;
    let list = list(&args[0])?;
    if depth < 0 {
        return Err(Fault::new("level must be non-negative"));
    }
    let mut out = Vec::new();
    flatten_into(list, depth, &mut out);
    Ok(Value::list(out))
}

fn flatten_into<'a>(list: &List<'a>, depth: i64, out: &mut Vec<Value<'a>>) {
    for element in list.iter() {
        match &element {
            Value::List(inner) if depth > 0 => flatten_into(inner, depth - 1, out),
            _ => out.push(element),
        }
    }
}

/// The elements of the first list in the order of the keys in the list of this number.
fn sort<'a>(args: Args<'_, 'a>, keys: usize) -> Outcome<'a> {
    let (elements, keys) = (list(&args[0])?, list(&args[keys])?);
    if elements.len() != keys.len() {
        let text = "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got";
        return Err(Fault::new(format!(
            "{text} {} and {} elements respectively",
            elements.len(),
            keys.len()
        )));
    }
    let Some(first) = keys.get(0) else {
        return Ok(args[0].clone());
    };
    if !first.is_comparable() {
        return Err(Fault::new("list elements must be comparable"));
    }
    let mut pairs: Vec<_> = keys.iter().zip(elements.iter()).collect();
    if pairs
        .iter()
        .any(|(key, _)| std::mem::discriminant(key) != std::mem::discriminant(&first))
    {
        return Err(Fault::new("list elements must have the same type"));
    }
    pairs.sort_by(|(a, _), (b, _)| a.compare(b).unwrap_or(Ordering::Equal));
    Ok(Value::list(
        pairs.into_iter().map(|(_, element)| element).collect(),
    ))
}

fn distinct<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    let mut unique: Vec<Value<'a>> = Vec::new();
    for element in list(&args[0])?.iter() {
        if !unique.iter().any(|known| element.is(known)) {
            unique.push(element);
        }
    }
    Ok(Value::list(unique))
}
