//! The documents in protobuf (the messages of `gnostic`), which kubectl asks for.
//!
//! A table per message says which JSON key goes where; extensions (`x-…`) travel as YAML, and JSON is YAML.

use serde_json::Value;

use super::Format;

/// What a JSON value becomes.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Bool,
    Int,
    Double,
    /// A free value, as YAML in a message.
    Any,
    /// A message.
    Message(&'static Message),
    /// A message inside another, at this number.
    Wrapped(u32, &'static Kind),
    /// One after the other.
    Many(&'static Kind),
    /// A list inside a message that holds only it.
    Holder(&'static Kind),
    /// An object as a list of names and values, inside a message that holds only it.
    Names(&'static Kind),
    /// A schema, or a reference to one (v3).
    SchemaOrReference,
    /// A schema or a boolean, inside a message.
    SchemaOrBool(&'static Kind),
    /// A scalar default (v3).
    Default,
    /// A parameter (v2).
    Parameter,
    /// A parameter, or a reference to one (v2).
    ParameterOrReference,
}

/// The fields of a message: JSON key, number, kind.
struct Message {
    fields: &'static [(&'static str, u32, Kind)],
    /// Where all keys that are no fields go, as names and values.
    names: Option<(u32, Kind)>,
    /// The number of extensions; 0 for none.
    extensions: u32,
}

const fn message(fields: &'static [(&'static str, u32, Kind)], extensions: u32) -> Message {
    Message {
        fields,
        names: None,
        extensions,
    }
}

const fn named(number: u32, kind: Kind) -> Message {
    Message {
        fields: &[],
        names: Some((number, kind)),
        extensions: 0,
    }
}

use Kind::{
    Any, Bool, Default, Double, Holder, Int, Many, Message as Of, Names, SchemaOrBool,
    SchemaOrReference, Text, Wrapped,
};

static V3: Message = message(
    &[
        ("openapi", 1, Text),
        ("info", 2, Of(&INFO_V3)),
        ("paths", 4, Of(&PATHS_V3)),
        ("components", 5, Of(&COMPONENTS)),
    ],
    9,
);
static INFO_V3: Message = message(&[("title", 1, Text), ("version", 6, Text)], 0);
static PATHS_V3: Message = named(1, Of(&PATH_V3));
static COMPONENTS: Message = message(&[("schemas", 1, Names(&SchemaOrReference))], 0);
static PATH_V3: Message = message(
    &[
        ("get", 4, Of(&OPERATION_V3)),
        ("put", 5, Of(&OPERATION_V3)),
        ("post", 6, Of(&OPERATION_V3)),
        ("delete", 7, Of(&OPERATION_V3)),
        ("options", 8, Of(&OPERATION_V3)),
        ("head", 9, Of(&OPERATION_V3)),
        ("patch", 10, Of(&OPERATION_V3)),
        ("parameters", 13, Many(&Wrapped(1, &Of(&PARAMETER_V3)))),
    ],
    14,
);
static OPERATION_V3: Message = message(
    &[
        ("tags", 1, Many(&Text)),
        ("operationId", 5, Text),
        ("parameters", 6, Many(&Wrapped(1, &Of(&PARAMETER_V3)))),
        ("requestBody", 7, Wrapped(1, &Of(&BODY_V3))),
        ("responses", 8, Of(&RESPONSES_V3)),
    ],
    13,
);
static PARAMETER_V3: Message = message(
    &[
        ("name", 1, Text),
        ("in", 2, Text),
        ("required", 4, Bool),
        ("schema", 10, SchemaOrReference),
    ],
    14,
);
static BODY_V3: Message = message(
    &[("content", 2, Names(&Of(&MEDIA_V3))), ("required", 3, Bool)],
    4,
);
static MEDIA_V3: Message = message(&[("schema", 1, SchemaOrReference)], 5);
static RESPONSES_V3: Message = named(2, Wrapped(1, &Of(&RESPONSE_V3)));
static RESPONSE_V3: Message = message(
    &[
        ("description", 1, Text),
        ("content", 3, Names(&Of(&MEDIA_V3))),
    ],
    5,
);
static SCHEMA_V3: Message = message(
    &[
        ("nullable", 1, Bool),
        ("title", 9, Text),
        ("multipleOf", 10, Double),
        ("maximum", 11, Double),
        ("exclusiveMaximum", 12, Bool),
        ("minimum", 13, Double),
        ("exclusiveMinimum", 14, Bool),
        ("maxLength", 15, Int),
        ("minLength", 16, Int),
        ("pattern", 17, Text),
        ("maxItems", 18, Int),
        ("minItems", 19, Int),
        ("uniqueItems", 20, Bool),
        ("maxProperties", 21, Int),
        ("minProperties", 22, Int),
        ("required", 23, Many(&Text)),
        ("enum", 24, Many(&Any)),
        ("type", 25, Text),
        ("allOf", 26, Many(&SchemaOrReference)),
        ("oneOf", 27, Many(&SchemaOrReference)),
        ("anyOf", 28, Many(&SchemaOrReference)),
        ("not", 29, Of(&SCHEMA_V3)),
        ("items", 30, Wrapped(1, &SchemaOrReference)),
        ("properties", 31, Names(&SchemaOrReference)),
        ("additionalProperties", 32, SchemaOrBool(&SchemaOrReference)),
        ("default", 33, Default),
        ("description", 34, Text),
        ("format", 35, Text),
    ],
    36,
);
static REFERENCE: Message = message(&[("$ref", 1, Text)], 0);

static V2: Message = message(
    &[
        ("swagger", 1, Text),
        ("info", 2, Of(&INFO_V2)),
        ("paths", 8, Of(&PATHS_V2)),
        ("definitions", 9, Names(&Of(&SCHEMA_V2))),
        ("parameters", 10, Names(&Kind::Parameter)),
    ],
    16,
);
static INFO_V2: Message = message(&[("title", 1, Text), ("version", 2, Text)], 0);
static PATHS_V2: Message = named(2, Of(&PATH_V2));
static PATH_V2: Message = message(
    &[
        ("get", 2, Of(&OPERATION_V2)),
        ("put", 3, Of(&OPERATION_V2)),
        ("post", 4, Of(&OPERATION_V2)),
        ("delete", 5, Of(&OPERATION_V2)),
        ("options", 6, Of(&OPERATION_V2)),
        ("head", 7, Of(&OPERATION_V2)),
        ("patch", 8, Of(&OPERATION_V2)),
        ("parameters", 9, Many(&Kind::ParameterOrReference)),
    ],
    10,
);
static OPERATION_V2: Message = message(
    &[
        ("tags", 1, Many(&Text)),
        ("operationId", 5, Text),
        ("produces", 6, Many(&Text)),
        ("consumes", 7, Many(&Text)),
        ("parameters", 8, Many(&Kind::ParameterOrReference)),
        ("responses", 9, Of(&RESPONSES_V2)),
        ("schemes", 10, Many(&Text)),
    ],
    13,
);
static RESPONSES_V2: Message = named(1, Wrapped(1, &Of(&RESPONSE_V2)));
static RESPONSE_V2: Message = message(
    &[
        ("description", 1, Text),
        ("schema", 2, Wrapped(1, &Of(&SCHEMA_V2))),
    ],
    5,
);
static BODY_V2: Message = message(
    &[
        ("name", 2, Text),
        ("in", 3, Text),
        ("required", 4, Bool),
        ("schema", 5, Of(&SCHEMA_V2)),
    ],
    6,
);
static QUERY_V2: Message = message(
    &[
        ("required", 1, Bool),
        ("in", 2, Text),
        ("name", 4, Text),
        ("type", 6, Text),
        ("uniqueItems", 20, Bool),
    ],
    23,
);
static IN_PATH_V2: Message = message(
    &[
        ("required", 1, Bool),
        ("in", 2, Text),
        ("name", 4, Text),
        ("type", 5, Text),
        ("uniqueItems", 19, Bool),
    ],
    22,
);
static PATH_PARAMETER: Kind = Of(&IN_PATH_V2);
static QUERY_PARAMETER: Kind = Of(&QUERY_V2);
static SCHEMA_V2: Message = message(
    &[
        ("$ref", 1, Text),
        ("format", 2, Text),
        ("title", 3, Text),
        ("description", 4, Text),
        ("maximum", 7, Double),
        ("minimum", 9, Double),
        ("maxLength", 11, Int),
        ("minLength", 12, Int),
        ("pattern", 13, Text),
        ("maxItems", 14, Int),
        ("minItems", 15, Int),
        ("maxProperties", 17, Int),
        ("minProperties", 18, Int),
        ("required", 19, Many(&Text)),
        ("enum", 20, Many(&Any)),
        ("additionalProperties", 21, SchemaOrBool(&Of(&SCHEMA_V2))),
        ("type", 22, Holder(&Text)),
        ("items", 23, Wrapped(1, &Of(&SCHEMA_V2))),
        ("properties", 25, Names(&Of(&SCHEMA_V2))),
    ],
    31,
);

/// A document in protobuf.
pub fn encode(document: &Value, format: Format) -> Vec<u8> {
    let mut out = Vec::new();
    write_message(
        &mut out,
        document,
        if format == Format::V3 { &V3 } else { &V2 },
    );
    out
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn tag(out: &mut Vec<u8>, number: u32, wire: u32) {
    varint(out, u64::from(number << 3 | wire));
}

fn bytes(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    tag(out, number, 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn write_message(out: &mut Vec<u8>, value: &Value, message: &Message) {
    for (key, number, kind) in message.fields {
        match value.get(key) {
            None | Some(Value::Null) => {}
            Some(value) => write(out, *number, value, *kind),
        }
    }
    for (key, value) in value.as_object().into_iter().flatten() {
        if message.extensions > 0 && key.starts_with("x-") {
            name_and_value(out, message.extensions, key, value, Any);
        } else if let Some((number, kind)) = message.names {
            name_and_value(out, number, key, value, kind);
        }
    }
}

fn name_and_value(out: &mut Vec<u8>, number: u32, name: &str, value: &Value, kind: Kind) {
    let mut pair = Vec::new();
    bytes(&mut pair, 1, name.as_bytes());
    write(&mut pair, 2, value, kind);
    bytes(out, number, &pair);
}

fn write(out: &mut Vec<u8>, number: u32, value: &Value, kind: Kind) {
    let inside = |write_it: &dyn Fn(&mut Vec<u8>)| {
        let mut inner = Vec::new();
        write_it(&mut inner);
        inner
    };
    match kind {
        Text => bytes(out, number, value.as_str().unwrap_or_default().as_bytes()),
        Bool => {
            if value == &Value::Bool(true) {
                tag(out, number, 0);
                varint(out, 1);
            }
        }
        Int => {
            tag(out, number, 0);
            varint(out, value.as_i64().unwrap_or_default() as u64);
        }
        Double => {
            tag(out, number, 1);
            out.extend_from_slice(&value.as_f64().unwrap_or_default().to_le_bytes());
        }
        Any => {
            let inner = inside(&|inner| bytes(inner, 2, format!("{value}\n").as_bytes()));
            bytes(out, number, &inner);
        }
        Of(message) => {
            let inner = inside(&|inner| write_message(inner, value, message));
            bytes(out, number, &inner);
        }
        Wrapped(at, kind) => {
            let inner = inside(&|inner| write(inner, at, value, *kind));
            bytes(out, number, &inner);
        }
        Many(kind) => value
            .as_array()
            .into_iter()
            .flatten()
            .for_each(|item| write(out, number, item, *kind)),
        Holder(kind) => {
            let inner = inside(&|inner| write(inner, 1, value, *kind));
            bytes(out, number, &inner);
        }
        Names(kind) => {
            let inner = inside(&|inner| {
                for (name, value) in value.as_object().into_iter().flatten() {
                    name_and_value(inner, 1, name, value, *kind);
                }
            });
            bytes(out, number, &inner);
        }
        SchemaOrReference => {
            let of = if value.get("$ref").is_some() {
                (2, Of(&REFERENCE))
            } else {
                (1, Of(&SCHEMA_V3))
            };
            let inner = inside(&|inner| write(inner, of.0, value, of.1));
            bytes(out, number, &inner);
        }
        SchemaOrBool(kind) => {
            let inner = inside(&|inner| match value {
                Value::Bool(value) => {
                    tag(inner, 2, 0);
                    varint(inner, u64::from(*value));
                }
                schema => write(inner, 1, schema, *kind),
            });
            bytes(out, number, &inner);
        }
        Default => {
            let of = match value {
                Value::Number(_) => (1, Double),
                Value::Bool(_) => (2, Bool),
                Value::String(_) => (3, Text),
                // The message has no place for other defaults.
                _ => return,
            };
            let inner = inside(&|inner| write(inner, of.0, value, of.1));
            bytes(out, number, &inner);
        }
        Kind::ParameterOrReference => {
            let (at, kind) = match value.get("$ref") {
                Some(_) => (2, Of(&REFERENCE)),
                None => (1, Kind::Parameter),
            };
            let inner = inside(&|inner| write(inner, at, value, kind));
            bytes(out, number, &inner);
        }
        Kind::Parameter => {
            let inner = inside(&|inner| match value["in"].as_str() {
                Some("body") => write(inner, 1, value, Of(&BODY_V2)),
                Some("path") => write(inner, 2, value, Wrapped(4, &PATH_PARAMETER)),
                _ => write(inner, 2, value, Wrapped(3, &QUERY_PARAMETER)),
            });
            bytes(out, number, &inner);
        }
    }
}
