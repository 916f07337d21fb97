mod arbitrary;
mod claim;
mod class;
mod conformance;
mod meta;
mod pod;
mod pool_status;
mod slice;
mod status;

use allot_apimachinery::field::ErrorList;
use serde_json::{Value, json};

use crate::features::Features;
use crate::kind::Kind;

/// An object with some members replaced: each edit is a JSON pointer and a value, null to remove the member.
fn edited(mut object: Value, edits: &[(&str, Value)]) -> Value {
    for (pointer, value) in edits {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = object
            .pointer_mut(parent)
            .unwrap_or_else(|| panic!("{pointer} has no parent"));
        match parent {
            Value::Array(items) => items[key.parse::<usize>().unwrap()] = value.clone(),
            Value::Object(map) if value.is_null() => drop(map.remove(key)),
            other => other[key] = value.clone(),
        }
    }
    object
}

/// Compares messages, in order, with the parts shortened that all name rules have in common.
fn assert_messages(errors: ErrorList, expected: &[&str]) {
    let texts: Vec<String> = errors
        .iter()
        .map(|error| shortened(&error.to_string()))
        .collect();
    assert_eq!(texts, expected);
}

/// Replaces the long texts of name rules by their kind.
fn shortened(text: &str) -> String {
    const LONG: [(&str, &str); 5] = [
        ("a lowercase RFC 1123 label must", "LABEL"),
        ("a lowercase RFC 1123 subdomain must", "SUBDOMAIN"),
        ("name part must consist", "QUALIFIED"),
        ("a valid label must", "VALUE"),
        ("a valid C identifier must", "IDENTIFIER"),
    ];
    for (start, short) in LONG {
        if let Some(index) = text.find(start) {
            return format!("{}{short}", &text[..index]);
        }
    }
    text.to_owned()
}

fn create(kind: Kind, object: &Value) -> ErrorList {
    super::create(kind, object, &Features::default())
}

fn repeated(value: &Value, count: usize) -> Value {
    Value::from(vec![value.clone(); count])
}

/// As many items as requested, with names n0, n1, …
fn named(count: usize, mut item: Value) -> Value {
    (0..count)
        .map(|index| {
            item["name"] = json!(format!("n{index}"));
            item.clone()
        })
        .collect()
}
