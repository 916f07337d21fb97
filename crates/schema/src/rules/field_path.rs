//! Paths to fields in definitions, such as `.spec.replicas` and `.labels['app.name']`.

use crate::structural::{Additional, Structural};

/// Why a path does not lead to a field; the texts are upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FieldPathError {
    #[error("does not refer to a valid field")]
    NoSuchField,
    #[error("unexpected end of JSON path")]
    End,
    #[error("array notation is not allowed")]
    Array,
    #[error("expected single quoted string but got {0}")]
    NotQuoted(String),
    #[error("expected [ or . but got: {0}")]
    NoDelimiter(String),
    #[error("expected ] but got {0}")]
    OpenBracket(String),
    #[error("invalid string literal: invalid escape char \\{0}")]
    Escape(char),
}

/// Follows a path through a schema. Returns the path as errors name it, and the schema at its end if that is known. `keys`
/// allows `['name']`.
pub(crate) fn resolve<'s>(
    path: &str,
    schema: &'s Structural,
    keys: bool,
) -> Result<(String, Option<&'s Structural>), FieldPathError> {
    let mut at = Some(schema);
    let mut named = String::new();
    let mut rest = path;
    while !rest.is_empty() {
        let token = next(&mut rest);
        let name = match token {
            "[" if !keys => return Err(FieldPathError::Array),
            "[" => {
                let quoted = Some(next(&mut rest)).filter(|token| !token.is_empty());
                let quoted = quoted.ok_or(FieldPathError::End)?;
                let inner = quoted
                    .strip_prefix('\'')
                    .and_then(|inner| inner.strip_suffix('\''))
                    .ok_or_else(|| FieldPathError::NotQuoted(quoted.to_owned()))?;
                unescape(inner)?
            }
            "." => {
                let name = Some(next(&mut rest)).filter(|token| !token.is_empty());
                name.ok_or(FieldPathError::End)?.to_owned()
            }
            other => return Err(FieldPathError::NoDelimiter(other.to_owned())),
        };
        let schema = at.ok_or(FieldPathError::NoSuchField)?;
        if !schema.properties.is_empty() {
            let property = schema.properties.get(&name);
            at = Some(property.ok_or(FieldPathError::NoSuchField)?);
            if !named.is_empty() {
                named.push('.');
            }
            named.push_str(&name);
        } else {
            at = match &schema.additional {
                Additional::Schema(sub) => Some(&**sub),
                // Every key is allowed, and there is no schema for its value.
                Additional::Allowed(_) => None,
                Additional::Unset => return Err(FieldPathError::NoSuchField),
            };
            named.push_str(&format!("[{name}]"));
        }
        if token == "[" {
            match next(&mut rest) {
                "]" => {}
                "" => return Err(FieldPathError::End),
                other => return Err(FieldPathError::OpenBracket(other.to_owned())),
            }
        }
    }
    Ok((named, at))
}

/// Takes the next token off: a delimiter, a quoted text, or the text before the next delimiter. Empty at the end.
fn next<'t>(rest: &mut &'t str) -> &'t str {
    let text = *rest;
    let length = match text.as_bytes() {
        [] => 0,
        [b'.' | b'[' | b']', ..] => 1,
        [b'\'', bytes @ ..] => bytes
            .iter()
            .enumerate()
            .position(|(at, byte)| *byte == b'\'' && (at == 0 || bytes[at - 1] != b'\\'))
            .map_or(text.len(), |at| at + 2),
        bytes => bytes
            .iter()
            .position(|byte| matches!(byte, b'.' | b'[' | b']'))
            .unwrap_or(text.len()),
    };
    let (token, after) = text.split_at(length);
    *rest = after;
    token
}

/// The text of a string literal in single quotes.
fn unescape(text: &str) -> Result<String, FieldPathError> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next() {
            Some('a') => '\u{7}',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\u{b}',
            Some(c @ ('\'' | '\\')) => c,
            Some(other) => return Err(FieldPathError::Escape(other)),
            None => '\\',
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(path: &str, expected: Result<&str, &str>) {
        let schema = Structural::from_json(&json!({"type":"object","properties":{
            "spec":{"type":"object","properties":{"a.b":{"type":"string"},"c":{"type":"integer"}}},
            "labels":{"type":"object","additionalProperties":{"type":"string"}}}}));
        let found = match resolve(path, &schema, true) {
            Ok((named, _)) => Ok(named),
            Err(error) => Err(error.to_string()),
        };
        assert_eq!(found, expected.map(str::to_owned).map_err(str::to_owned));
    }

    #[test]
    fn paths_are_followed() {
        check(".spec.c", Ok("spec.c"));
        check(".spec['a.b']", Ok("spec.a.b"));
        check(".labels['x.y']", Ok("labels[x.y]"));
        check(".labels.x", Ok("labels[x]"));
        check("", Ok(""));
        check(".spec.none", Err("does not refer to a valid field"));
        check(".spec.c.d", Err("does not refer to a valid field"));
        check("spec", Err("expected [ or . but got: spec"));
        check(".spec[0]", Err("expected single quoted string but got 0"));
        check(".spec.", Err("unexpected end of JSON path"));
        check(".spec['c'", Err("unexpected end of JSON path"));
    }
}
