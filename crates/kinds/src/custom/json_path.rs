//! The simple JSON paths of printer columns and selectable fields: fields, indices, wildcards and filters by equality.

use serde_json::Value;

/// All values at a path such as `.status.conditions[?(@.type=="Ready")].status`; empty for an unsupported path.
pub fn find<'a>(object: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut found = vec![object];
    let mut rest = path.trim();
    while !rest.is_empty() {
        let Some((step, after)) = step(rest) else {
            return Vec::new();
        };
        found = found
            .into_iter()
            .flat_map(|value| step.apply(value))
            .collect();
        rest = after;
    }
    found
}

enum Step<'p> {
    Field(String),
    Index(i64),
    Every,
    Equal { path: &'p str, value: Value },
}

fn step(text: &str) -> Option<(Step<'_>, &str)> {
    if let Some(rest) = text.strip_prefix('[') {
        let end = closing(rest)?;
        let (inner, after) = (rest[..end].trim(), &rest[end + 1..]);
        let step = if inner == "*" {
            Step::Every
        } else if let Some(filter) = inner
            .strip_prefix("?(")
            .and_then(|filter| filter.strip_suffix(')'))
        {
            let (path, value) = filter.split_once("==")?;
            Step::Equal {
                path: path.trim().strip_prefix('@')?,
                value: literal(value.trim())?,
            }
        } else if let Some(name) = inner
            .strip_prefix('\'')
            .and_then(|name| name.strip_suffix('\''))
        {
            Step::Field(name.replace("\\.", "."))
        } else {
            Step::Index(inner.parse().ok()?)
        };
        return Some((step, after));
    }
    let rest = text.strip_prefix('.').unwrap_or(text);
    if let Some(after) = rest.strip_prefix('*') {
        return Some((Step::Every, after));
    }
    let mut name = String::new();
    let mut escaped = false;
    for (at, c) in rest.char_indices() {
        match c {
            '\\' if !escaped => escaped = true,
            '.' | '[' if !escaped => {
                return (!name.is_empty()).then(|| (Step::Field(name), &rest[at..]));
            }
            c => {
                name.push(c);
                escaped = false;
            }
        }
    }
    (!name.is_empty()).then_some((Step::Field(name), ""))
}

/// The place of the bracket that closes this one; brackets in quotes do not count.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

fn literal(text: &str) -> Option<Value> {
    match text
        .strip_prefix('\'')
        .and_then(|inner| inner.strip_suffix('\''))
    {
        Some(inner) => Some(Value::String(inner.to_owned())),
        None => serde_json::from_str(text).ok(),
    }
}

impl Step<'_> {
    fn apply<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Step::Field(name), Value::Object(map)) => map.get(name).into_iter().collect(),
            (Step::Index(index), Value::Array(items)) => {
                let place = if *index < 0 {
                    items.len() as i64 + index
                } else {
                    *index
                };
                usize::try_from(place)
                    .ok()
                    .and_then(|place| items.get(place))
                    .into_iter()
                    .collect()
            }
            (Step::Every, Value::Array(items)) => items.iter().collect(),
            (Step::Every, Value::Object(map)) => map.values().collect(),
            (
                Step::Equal {
                    path,
                    value: wanted,
                },
                Value::Array(items),
            ) => items
                .iter()
                .filter(|item| find(item, path).first() == Some(&wanted))
                .collect(),
            _ => Vec::new(),
        }
    }
}
