//! The order of values in path elements.

use std::cmp::Ordering;

use serde_json::Value;

/// Orders two values: numbers, strings, booleans, lists, maps, null. A float and an integer of equal value are equal.
pub fn compare_values(a: &Value, b: &Value) -> Ordering {
    fn rank(value: &Value) -> u8 {
        match value {
            Value::Number(_) => 0,
            Value::String(_) => 1,
            Value::Bool(_) => 2,
            Value::Array(_) => 3,
            Value::Object(_) => 4,
            Value::Null => 5,
        }
    }
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => a
                .as_f64()
                .unwrap_or_default()
                .total_cmp(&b.as_f64().unwrap_or_default()),
        },
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let common = a
                .iter()
                .zip(b)
                .map(|(a, b)| compare_values(a, b))
                .find(|order| *order != Ordering::Equal);
            common.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                let order = match (a.get(key), b.get(key)) {
                    (Some(a), Some(b)) => compare_values(a, b),
                    (Some(_), None) => Ordering::Less,
                    _ => Ordering::Greater,
                };
                if order != Ordering::Equal {
                    return order;
                }
            }
            Ordering::Equal
        }
        _ => rank(a).cmp(&rank(b)),
    }
}
