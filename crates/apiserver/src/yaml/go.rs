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

/// A number as Go prints it with the verb `g`, from its shortest decimal form.
pub(super) fn float_text(shortest: &str) -> String {
    // Rust writes 1.5e3 as d.dddde±x.
    let Some((mantissa, exponent)) = shortest.split_once('e') else {
        return shortest.to_owned();
    };
    let Ok(exponent) = exponent.parse::<i32>() else {
        return shortest.to_owned();
    };
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let digits = mantissa.replace('.', "");
    let Ok(before) = usize::try_from(exponent + 1) else {
        return format!(
            "{sign}0.{}{digits}",
            "0".repeat(exponent.unsigned_abs() as usize - 1)
        );
    };
    match digits.len() {
        0 => format!("{sign}0"),
        count if count <= before => format!("{sign}{digits}{}", "0".repeat(before - count)),
        _ if before == 0 => format!("{sign}0.{digits}"),
        _ => format!("{sign}{}.{}", &digits[..before], &digits[before..]),
    }
}
