//! Values as Go prints them in errors.

use allot_apimachinery::quote::quote;
use serde_json::Value;

/// How much of a value an error shows, in bytes.
pub(super) const MAX_SHOWN: usize = 4096;

/// The beginning of a value as Go shows it in its syntax.
pub(super) fn excerpt(value: &Value) -> String {
    let mut text = String::new();
    write_go(value, &mut text);
    text.truncate(text.floor_char_boundary(MAX_SHOWN));
    text
}

fn write_go(value: &Value, text: &mut String) {
    if text.len() > MAX_SHOWN {
        return;
    }
    match value {
        Value::Null => text.push_str("interface {}(nil)"),
        Value::String(found) => {
            text.push_str(&quote(&found[..found.floor_char_boundary(MAX_SHOWN)]))
        }
        Value::Array(items) => {
            text.push_str("[]interface {}{");
            for (index, item) in items.iter().enumerate() {
                text.push_str(if index > 0 { ", " } else { "" });
                write_go(item, text);
            }
            text.push('}');
        }
        Value::Object(members) => {
            text.push_str("map[interface {}]interface {}{");
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            for (index, (name, value)) in members.into_iter().enumerate() {
                text.push_str(if index > 0 { ", " } else { "" });
                text.push_str(&quote(&name[..name.floor_char_boundary(MAX_SHOWN)]));
                text.push(':');
                write_go(value, text);
            }
            text.push('}');
        }
        other => text.push_str(&other.to_string()),
    }
}
