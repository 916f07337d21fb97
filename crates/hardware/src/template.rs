//! Texts with expressions in braces: `gpu-{gpu}`, `{bus + 16:02x}`. A brace that is meant is written twice.

use serde_json::{Map, Value};

use crate::expression::{Scope, evaluate, show};

/// Longest text with expressions.
const LONGEST: usize = 4096;

/// Pieces of a template.
enum Piece {
    Text(String),
    Value(Value),
}

fn pieces(template: &str, scope: &Scope) -> Result<Vec<Piece>, String> {
    if template.len() > LONGEST {
        return Err(format!("text is longer than {LONGEST} bytes"));
    }
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}']) {
        text.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        rest = &rest[at + 1..];
        if rest.starts_with(brace) {
            text.push_str(brace);
            rest = &rest[1..];
            continue;
        }
        if brace == "}" {
            return Err(format!("{template:?} has a brace that closes nothing"));
        }
        let end = rest
            .find('}')
            .ok_or_else(|| format!("{template:?} has a brace that nothing closes"))?;
        let (inner, after) = (&rest[..end], &rest[end + 1..]);
        rest = after;
        pieces.push(Piece::Text(std::mem::take(&mut text)));
        pieces.push(Piece::Value(match inner.rsplit_once(':') {
            Some((expression, format)) => {
                let value = evaluate(expression, scope)?;
                formatted(&value, format)?.into()
            }
            None => evaluate(inner, scope)?,
        }));
    }
    text.push_str(rest);
    pieces.push(Piece::Text(text));
    pieces.retain(|piece| !matches!(piece, Piece::Text(text) if text.is_empty()));
    Ok(pieces)
}

/// A number with leading zeros (`03`), in hexadecimal digits (`x`), or both (`02x`).
fn formatted(value: &Value, format: &str) -> Result<String, String> {
    let number = value.as_i64().filter(|number| *number >= 0);
    let number = number.ok_or_else(|| format!("{value} cannot be formatted as {format:?}"))?;
    let digits = format.strip_suffix('x');
    let hexadecimal = digits.is_some();
    let width = digits.unwrap_or(format);
    let width: usize = match width.strip_prefix('0') {
        None if width.is_empty() && hexadecimal => 0,
        Some(width) if matches!(width.parse(), Ok(1..=16)) => width.parse().unwrap_or(0),
        _ => return Err(format!("unknown format {format:?}: expected 0N, x or 0Nx")),
    };
    Ok(match hexadecimal {
        true => format!("{number:0width$x}"),
        false => format!("{number:0width$}"),
    })
}

/// The value of a template: a template that is one expression keeps the type of its value.
pub(crate) fn value(template: &str, scope: &Scope) -> Result<Value, String> {
    let mut pieces = pieces(template, scope)?;
    if let (1, Some(Piece::Value(_))) = (pieces.len(), pieces.first())
        && let Some(Piece::Value(value)) = pieces.pop()
    {
        return Ok(value);
    }
    joined(&pieces).map(Value::from)
}

/// The text of a template.
pub(crate) fn text(template: &str, scope: &Scope) -> Result<String, String> {
    joined(&pieces(template, scope)?)
}

fn joined(pieces: &[Piece]) -> Result<String, String> {
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(piece) => text.push_str(piece),
            Piece::Value(value) => text.push_str(&show(value)?),
        }
    }
    Ok(text)
}

/// The names from a template: one, or one for each element of a list in it (`slice-{0..8}`).
pub(crate) fn names(template: &str, scope: &Scope) -> Result<Vec<String>, String> {
    let mut names = vec![String::new()];
    for piece in pieces(template, scope)? {
        let variants = match piece {
            Piece::Text(text) => vec![text],
            Piece::Value(Value::Array(list)) => list.iter().map(show).collect::<Result<_, _>>()?,
            Piece::Value(value) => vec![show(&value)?],
        };
        names = variants
            .iter()
            .flat_map(|variant| names.iter().map(move |name| format!("{name}{variant}")))
            .collect();
    }
    Ok(names)
}

/// Replaces the templates in every text of a value, and in the keys of its objects.
pub(crate) fn fill(value: &Value, scope: &Scope) -> Result<Value, String> {
    Ok(match value {
        Value::String(template) => self::value(template, scope)?,
        Value::Array(list) => {
            let filled: Result<Vec<_>, _> = list.iter().map(|item| fill(item, scope)).collect();
            filled?.into()
        }
        Value::Object(members) => {
            let mut filled = Map::new();
            for (key, member) in members {
                let member = fill(member, scope)?;
                for name in names(key, scope)? {
                    if filled.insert(name.clone(), member.clone()).is_some() {
                        return Err(format!("{name:?} is there twice"));
                    }
                }
            }
            filled.into()
        }
        simple => simple.clone(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scope() -> Scope {
        let mut scope = Scope::default();
        scope.set("gpu", json!(11));
        scope.set("set", json!({"memory": "1Gi"}));
        scope
    }

    #[track_caller]
    fn check(template: &str, expected: Value) {
        assert_eq!(value(template, &scope()), Ok(expected));
    }

    #[test]
    fn expressions_are_replaced() {
        check("gpu-{gpu}", json!("gpu-11"));
        check("{gpu}", json!(11));
        check("{set}", json!({"memory": "1Gi"}));
        check("{gpu:x}-{gpu:02x}-{gpu:03}", json!("b-0b-011"));
        check("a{{b}}", json!("a{b}"));
        check("", json!(""));
        assert_eq!(
            names("slice-{1..4}", &scope()),
            Ok(vec!["slice-1".into(), "slice-2".into(), "slice-3".into()])
        );
    }

    #[test]
    fn bad_templates_have_a_reason() {
        for (template, expected) in [
            ("{", "nothing closes"),
            ("a}", "closes nothing"),
            ("{gpu:99999999999}", "unknown format"),
            ("{gpu:y}", "unknown format"),
            ("{set} x", "has no text"),
            ("{nobody}", "unknown name"),
        ] {
            let error = value(template, &scope()).expect_err(template);
            assert!(error.contains(expected), "{template}: {error}");
        }
        let twice = json!({"a": 1, "{'a'}": 2});
        assert!(fill(&twice, &scope()).is_err());
    }
}
