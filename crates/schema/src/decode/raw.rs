//! Raw fields: JSON of others, of which the text counts.

use serde::de::{Error, MapAccess};
use serde_json::Value;
use serde_json::value::RawValue;

use super::context::Context;
use super::decode_json;
use super::outcome::RawText;
use crate::types::{Struct, Type};

/// The raw fields of an object that is known to be of this type, such as a stored one, in the order of the text.
pub fn raw_texts(object: &[u8], schema: &'static Struct) -> Vec<RawText> {
    // Most objects have none, and need not be read for that.
    match may_have_raw(object, schema) {
        true => decode_json(object, Some(schema)).map_or_else(|_| Vec::new(), |it| it.raws),
        false => Vec::new(),
    }
}

/// Whether the JSON of an object of this type mentions the name of one of the type's raw fields.
pub fn may_have_raw(object: &[u8], schema: &'static Struct) -> bool {
    let names = names(schema);
    // Most types have none, and this is asked of every object that is sent.
    if names.is_empty() {
        return false;
    }
    let text = std::str::from_utf8(object).unwrap_or_default();
    let mut names = names.iter();
    names.any(|name| text.contains(&format!("\"{name}\"")))
}

/// The names of the raw fields in a type and below it.
fn names(schema: &'static Struct) -> &'static [&'static str] {
    schema.raw_names.get_or_init(|| {
        let (mut seen, mut names) = (Vec::new(), Vec::new());
        collect(schema, &mut seen, &mut names);
        names
    })
}

fn collect(schema: &'static Struct, seen: &mut Vec<&'static str>, names: &mut Vec<&'static str>) {
    if seen.contains(&schema.name) {
        return;
    }
    seen.push(schema.name);
    for field in &schema.fields {
        let mut ty = &field.ty;
        while let Type::List(inner) | Type::Map(inner) = ty {
            ty = inner;
        }
        match ty {
            Type::Raw if !names.contains(&field.name) => names.push(field.name),
            Type::Struct(id) => collect(id.get(), seen, names),
            _ => {}
        }
    }
}

/// Reads the value of a raw field and, where the object is a text, keeps that of the value.
pub(super) fn next_value<'de, A: MapAccess<'de>>(
    context: &mut Context<'_>,
    map: &mut A,
) -> Result<Value, A::Error> {
    if context.raws.is_none() {
        return map.next_value();
    }
    let raw: Box<RawValue> = map.next_value()?;
    let text = raw.get().to_owned();
    // As it is read from storage: numbers of others are not brought into a form.
    let value: Value = serde_json::from_str(&text).map_err(A::Error::custom)?;
    if let Some(raws) = &mut context.raws
        && !value.is_null()
    {
        let value = value.clone();
        raws.push(RawText { value, text });
    }
    Ok(value)
}

/// Appends JSON without the space between its tokens, as Go writes the JSON of others into its own.
pub fn write_compact(out: &mut Vec<u8>, json: &[u8]) {
    let (mut quoted, mut escaped) = (false, false);
    out.extend(json.iter().filter(|&&byte| {
        let keep = quoted || !byte.is_ascii_whitespace();
        match (quoted, escaped, byte) {
            (true, true, _) => escaped = false,
            (true, false, b'\\') => escaped = true,
            (_, false, b'"') => quoted = !quoted,
            _ => {}
        }
        keep
    }));
}

#[cfg(test)]
mod tests;
