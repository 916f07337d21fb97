//! Paths to fields that definitions write, such as `.spec.replicas` and `.labels['app.name']`.

use crate::structural::{Additional, Structural};

/// Follows a path through a schema: the path as errors name it, and the schema at its end where there is one. `keys` allows `['name']`.
///
/// # Errors
/// What is wrong with the path, in upstream's words.
pub(crate) fn resolve<'s>(
    path: &str,
    schema: &'s Structural,
    keys: bool,
) -> Result<(String, Option<&'s Structural>), String> {
    const MISSING: &str = "does not refer to a valid field";
    const END: &str = "unexpected end of JSON path";
    let mut at = Some(schema);
    let mut named = String::new();
    let mut rest = path;
    while !rest.is_empty() {
        let token = next(&mut rest);
        let name = match token {
            "[" if !keys => return Err("array notation is not allowed".to_owned()),
            "[" => {
                let quoted = Some(next(&mut rest)).filter(|token| !token.is_empty());
                let quoted = quoted.ok_or(END)?;
                let inner = quoted
                    .strip_prefix('\'')
                    .and_then(|inner| inner.strip_suffix('\''))
                    .ok_or_else(|| format!("expected single quoted string but got {quoted}"))?;
                unescape(inner)?
            }
            "." => {
                let name = Some(next(&mut rest)).filter(|token| !token.is_empty());
                name.ok_or(END)?.to_owned()
            }
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        let schema = at.ok_or(MISSING)?;
        if !schema.properties.is_empty() {
            at = Some(schema.properties.get(&name).ok_or(MISSING)?);
            if !named.is_empty() {
                named.push('.');
            }
            named.push_str(&name);
        } else {
            at = match &schema.additional {
                Additional::Schema(sub) => Some(&**sub),
                // Every key may be there, and nothing is known of its value.
                Additional::Allowed(_) => None,
                Additional::Unset => return Err(MISSING.to_owned()),
            };
            named.push_str(&format!("[{name}]"));
        }
        if token == "[" {
            match next(&mut rest) {
                "]" => {}
                "" => return Err(END.to_owned()),
                other => return Err(format!("expected ] but got {other}")),
            }
        }
    }
    Ok((named, at))
}

/// The next token: a delimiter, a quoted text, or what stands before a delimiter. Empty at the end.
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

fn unescape(text: &str) -> Result<String, String> {
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
            Some(other) => {
                return Err(format!(
                    "invalid string literal: invalid escape char \\{other}"
                ));
            }
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
        let found = resolve(path, &schema, true).map(|(named, _)| named);
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
