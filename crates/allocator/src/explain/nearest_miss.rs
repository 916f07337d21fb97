//! How far a device is from what a selector needs, in words.

use crate::device::{Attribute, Device, Value};
use crate::features::Features;
use crate::selector::{Selector, SelectorCache};

/// The parts of a selector that do not hold for a device: how many, and the first in words.
pub(super) fn describe(
    features: &Features,
    cache: &SelectorCache,
    selector: &Selector,
    driver: &str,
    device: &Device,
) -> (usize, String) {
    let parts = conjuncts(&selector.expression);
    let mut failing = parts.iter().filter(|part| {
        cache
            .compile(features, part)
            .matches(&device.cel)
            .is_ok_and(|matches| !matches)
    });
    match failing.next() {
        Some(first) => (1 + failing.count(), sentence(first, driver, device)),
        None => (1, sentence(&selector.expression, driver, device)),
    }
}

/// The parts of an expression that are joined by `&&`, without parentheses around them.
pub(super) fn conjuncts(expression: &str) -> Vec<&str> {
    let expression = strip(expression);
    let (mut parts, mut start) = (Vec::new(), 0);
    for (at, operator) in top_level(expression) {
        if operator == "||" || operator == "?" {
            return vec![expression];
        }
        if operator == "&&" {
            parts.push(&expression[start..at]);
            start = at + 2;
        }
    }
    if parts.is_empty() {
        return vec![expression];
    }
    parts.push(&expression[start..]);
    parts.into_iter().flat_map(conjuncts).collect()
}

/// Without blanks and without parentheses that enclose all of it.
fn strip(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix('(').and_then(|t| t.strip_suffix(')'));
    let Some(inner) = inner else { return text };
    let mut depth = 0;
    for (at, byte) in outside_strings(text) {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        if depth == 0 && at + 1 < text.len() {
            return text;
        }
    }
    strip(inner)
}

/// The bytes that are not in string literals.
fn outside_strings(text: &str) -> impl Iterator<Item = (usize, u8)> {
    let (mut quote, mut escaped) = (None, false);
    text.bytes()
        .enumerate()
        .filter(move |(_, byte)| match quote {
            Some(end) => {
                if escaped {
                    escaped = false;
                } else if *byte == b'\\' {
                    escaped = true;
                } else if *byte == end {
                    quote = None;
                }
                false
            }
            None => {
                if matches!(byte, b'"' | b'\'') {
                    quote = Some(*byte);
                    return false;
                }
                true
            }
        })
}

const OPERATORS: [&str; 10] = ["&&", "||", "==", "!=", "<=", ">=", "<", ">", " in ", "?"];

/// Operators outside parentheses, brackets and strings.
fn top_level(text: &str) -> Vec<(usize, &'static str)> {
    let (mut depth, mut found, mut next) = (0, Vec::new(), 0);
    for (at, byte) in outside_strings(text) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
        if depth > 0 || at < next {
            continue;
        }
        let operator = OPERATORS
            .iter()
            .find(|o| text.as_bytes()[at..].starts_with(o.as_bytes()));
        if let Some(operator) = operator
            // `.?name` is an optional field.
            && !(*operator == "?" && text[..at].ends_with('.'))
        {
            found.push((at, *operator));
            next = at + operator.len();
        }
    }
    found
}

/// `memory 40Gi, selector needs >= 80Gi`, or the expression if it has another form.
fn sentence(expression: &str, driver: &str, device: &Device) -> String {
    let comparison = comparison(expression);
    if let Some((subject, operator, wanted)) = comparison
        && let Some((name, value)) = value_of(subject, driver, device)
    {
        return format!("{name} {value}, selector needs {operator} {wanted}");
    }
    let mut text = expression.trim();
    let mut cut = "";
    if text.len() > 80 {
        (text, cut) = (&text[..text.floor_char_boundary(77)], "…");
    }
    match mentioned(expression, driver, device) {
        Some((name, value)) => format!("{name} {value}, selector needs `{text}{cut}`"),
        None => format!("selector needs `{text}{cut}`"),
    }
}

/// Subject, operator and wanted value of a comparison.
fn comparison(expression: &str) -> Option<(&str, &str, &str)> {
    let (subject, operator, wanted) = match top_level(expression).as_slice() {
        [] => (expression.trim(), "", ""),
        [(at, operator)] => {
            let end = at + operator.len();
            (
                expression[..*at].trim(),
                operator.trim(),
                expression[end..].trim(),
            )
        }
        _ => return None,
    };
    for (method, own) in [
        (".compareTo(", operator),
        (".isGreaterThan(", ">"),
        (".isLessThan(", "<"),
    ] {
        if let Some((subject, argument)) = subject.split_once(method) {
            let fits = if method == ".compareTo(" {
                wanted == "0"
            } else {
                operator.is_empty()
            };
            return fits.then(|| {
                (
                    subject,
                    own,
                    literal(argument.strip_suffix(')').unwrap_or(argument)),
                )
            });
        }
    }
    (!operator.is_empty()).then(|| (subject, operator, literal(wanted)))
}

/// The text inside `quantity("…")`, `semver("…")` or quotes.
fn literal(text: &str) -> &str {
    let text = text.trim();
    let inner = ["quantity(", "semver("]
        .iter()
        .find_map(|f| text.strip_prefix(f))
        .and_then(|t| t.strip_suffix(')'))
        .unwrap_or(text);
    let quoted = inner.strip_prefix('"').and_then(|t| t.strip_suffix('"'));
    quoted.filter(|t| !t.contains('"')).unwrap_or(inner)
}

/// Name and value of what a subject such as `device.attributes["d"].model` refers to.
fn value_of(subject: &str, driver: &str, device: &Device) -> Option<(String, String)> {
    if subject == "device.driver" {
        return Some(("driver".into(), driver.into()));
    }
    if subject == "device.allowMultipleAllocations" {
        return Some((
            "allowMultipleAllocations".into(),
            device.shareable.to_string(),
        ));
    }
    let (kind, rest) = subject.strip_prefix("device.")?.split_once('[')?;
    let (domain, rest) = rest.strip_prefix('"')?.split_once("\"]")?;
    let field = rest.trim_start_matches('.').trim_start_matches('?');
    let id = field.split(".orValue(").next()?;
    if id.is_empty() || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return None;
    }
    let name = format!("{domain}/{id}");
    let value = match kind {
        "attributes" => device.attribute(driver, &name).map(shown),
        "capacity" => {
            let mut list = device.capacity.iter();
            let found = list.find(|c| c.name == name || (domain == driver && c.name == id));
            found.map(|c| c.value.text.to_string())
        }
        _ => return None,
    };
    Some((id.into(), value.unwrap_or_else(|| "missing".into())))
}

/// The first attribute or capacity that an expression mentions.
fn mentioned(expression: &str, driver: &str, device: &Device) -> Option<(String, String)> {
    let start = expression.find("device.")?;
    let subject = &expression[start..];
    let close = subject.find("\"]").map(|i| i + 2)?;
    let tail = subject[close..]
        .trim_start_matches('.')
        .trim_start_matches('?');
    let id_start = subject.len() - tail.len();
    let id = tail
        .bytes()
        .take_while(|b| b.is_ascii_alphanumeric() || *b == b'_')
        .count();
    value_of(&subject[..id_start + id], driver, device)
}

/// An attribute as text.
pub(super) fn shown(attribute: &Attribute) -> String {
    let scalar = |value: &Value| match value {
        Value::Bool(v) => v.to_string(),
        Value::Int(v) => v.to_string(),
        Value::String(v) | Value::Version(v) => v.to_string(),
    };
    match attribute {
        Attribute::Scalar(value) => scalar(value),
        Attribute::List(values) => {
            let list: Vec<_> = values.iter().map(scalar).collect();
            format!("[{}]", list.join(", "))
        }
        Attribute::Unknown => "of an unknown type".into(),
    }
}

#[cfg(test)]
mod tests;
