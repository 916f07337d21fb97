//! JSON objects, written as Kubernetes protobuf, which Go clients prefer.
//!
//! Like upstream's encoder, it writes every field that is no pointer, list or map, even if it is empty.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::read::SCHEMA;
use super::{MAGIC, head, schema_of};
use crate::types::messages::{Message, Slot};
use crate::types::{self, Field, Struct, Type};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// Wire types of varints and of length-delimited fields.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;

/// Writes the value of a raw field: JSON that readers get as the bytes that are written.
pub type RawWriter = fn(&mut Vec<u8>, &Value);

/// Writes raw fields without spaces.
pub fn compact(out: &mut Vec<u8>, value: &Value) {
    // Writing JSON to memory does not fail.
    let _ = serde_json::to_writer(out, value);
}

/// An object with its kind and apiVersion as a body; `None` if its kind has no protobuf form.
pub fn encode(object: &Value, raw: RawWriter) -> Option<Vec<u8>> {
    let raw = message_of(object, raw)?;
    let (mut out, tail) = envelope(object, raw.len());
    out.reserve_exact(raw.len() + tail.len());
    out.extend_from_slice(&raw);
    out.extend_from_slice(&tail);
    Some(out)
}

/// The bytes before and after the message of an object in a body; `length` is that of the message.
pub fn envelope(object: &Value, length: usize) -> (Vec<u8>, Vec<u8>) {
    let (api_version, kind) = head(object);
    let mut meta = Vec::new();
    bytes(&mut meta, 1, api_version.as_bytes());
    bytes(&mut meta, 2, kind.as_bytes());
    let mut head = Vec::with_capacity(meta.len() + 24);
    head.extend_from_slice(MAGIC);
    bytes(&mut head, 1, &meta);
    tag(&mut head, 2, BYTES);
    varint(&mut head, length as u64);
    // Neither compressed nor of another type.
    let mut tail = Vec::new();
    bytes(&mut tail, 3, b"");
    bytes(&mut tail, 4, b"");
    (head, tail)
}

/// The message of an object with its kind and apiVersion; `None` if its kind has no protobuf form.
pub fn message_of(object: &Value, raw: RawWriter) -> Option<Vec<u8>> {
    let (api_version, kind) = head(object);
    Writer { raw }.whole(object, api_version, kind)
}

/// An event of a watch, with its length before it.
pub fn frame(kind: &str, object: &Value, raw: RawWriter) -> Option<Vec<u8>> {
    let mut event = Vec::new();
    bytes(&mut event, 1, kind.as_bytes());
    let mut extension = Vec::new();
    bytes(&mut extension, 1, &encode(object, raw)?);
    bytes(&mut event, 2, &extension);
    let mut out = u32::try_from(event.len()).ok()?.to_be_bytes().to_vec();
    out.append(&mut event);
    Some(out)
}

#[derive(Clone, Copy)]
struct Writer {
    raw: RawWriter,
}

impl Writer {
    fn whole(self, object: &Value, api_version: &str, kind: &str) -> Option<Vec<u8>> {
        let map = object.as_object()?;
        let mut out = Vec::new();
        match (api_version, kind) {
            // Created by the server from objects of any kind.
            ("meta.k8s.io/v1" | "meta.k8s.io/v1beta1", "PartialObjectMetadata") => {
                self.partial(&mut out, object);
            }
            ("meta.k8s.io/v1" | "meta.k8s.io/v1beta1", "PartialObjectMetadataList") => {
                // The older version has them the other way round.
                let (first, second) = match api_version {
                    "meta.k8s.io/v1" => (1, 2),
                    _ => (2, 1),
                };
                let meta = types::by_name(&format!("{META}.ListMeta"))?.get();
                let items = |out: &mut Vec<u8>| {
                    for item in object["items"].as_array().into_iter().flatten() {
                        nested(out, second, |out| self.partial(out, item));
                    }
                };
                if second < first {
                    items(&mut out);
                }
                nested(&mut out, first, |out| {
                    self.of(out, &object["metadata"], meta)
                });
                if first < second {
                    items(&mut out);
                }
            }
            _ => {
                // Some discovery documents have no version.
                let known = if api_version.is_empty() {
                    "v1"
                } else {
                    api_version
                };
                self.message(&mut out, map, schema_of(known, kind)?.message());
            }
        }
        Some(out)
    }

    fn partial(self, out: &mut Vec<u8>, object: &Value) {
        nested(out, 1, |out| {
            self.of(out, &object["metadata"], types::object_meta())
        });
    }

    /// A message of a type from what should be an object.
    fn of(self, out: &mut Vec<u8>, value: &Value, schema: &'static Struct) {
        match value {
            Value::Object(map) => self.message(out, map, schema.message()),
            _ => self.message(out, &Map::new(), schema.message()),
        }
    }

    fn message(self, out: &mut Vec<u8>, map: &Map<String, Value>, message: &Message) {
        for (number, slot) in message.slots() {
            let field = match slot {
                Slot::Field(field) => field,
                Slot::Part(part) => {
                    nested(out, number, |out| self.message(out, map, part));
                    continue;
                }
            };
            let value = map.get(field.name).filter(|value| !value.is_null());
            if field.name == "verbs" && message.of == "APIResource" {
                // A list that is a separate message.
                nested(out, number, |out| {
                    for verb in value.and_then(Value::as_array).into_iter().flatten() {
                        self.one(out, 1, &Type::String, verb);
                    }
                });
                continue;
            }
            self.field(out, number, field, value);
        }
    }

    fn field(self, out: &mut Vec<u8>, number: u64, field: &Field, value: Option<&Value>) {
        match (&field.ty, value) {
            (Type::List(element), value) => {
                for item in value.and_then(Value::as_array).into_iter().flatten() {
                    self.one(out, number, element, item);
                }
            }
            (Type::Map(element), value) => {
                for (key, item) in value.and_then(Value::as_object).into_iter().flatten() {
                    nested(out, number, |out| {
                        bytes(out, 1, key.as_bytes());
                        self.one(out, 2, element, item);
                    });
                }
            }
            (Type::Bytes, None) => {}
            (_, None) if field.pointer => {}
            (ty, value) => self.one(out, number, ty, value.unwrap_or(&Value::Null)),
        }
    }

    /// One value with its tag; `null` means the zero value.
    fn one(self, out: &mut Vec<u8>, number: u64, ty: &Type, value: &Value) {
        let text = || value.as_str().unwrap_or_default();
        match ty {
            Type::Bool => integer(out, number, value.as_bool().unwrap_or_default().into()),
            Type::Int32 | Type::Int64 => integer(out, number, value.as_i64().unwrap_or_default()),
            Type::Double => {
                tag(out, number, FIXED64);
                out.extend_from_slice(&value.as_f64().unwrap_or_default().to_le_bytes());
            }
            Type::String => bytes(out, number, text().as_bytes()),
            Type::Bytes => {
                // Invalid base64 was rejected when it was read.
                bytes(out, number, &STANDARD.decode(text()).unwrap_or_default());
            }
            Type::Struct(id) => {
                let schema = id.get();
                match &schema.alias {
                    Some(Type::List(element)) => nested(out, number, |out| {
                        for item in value.as_array().into_iter().flatten() {
                            self.one(out, 1, element, item);
                        }
                    }),
                    Some(alias) => self.one(out, number, alias, value),
                    None => nested(out, number, |out| self.of(out, value, schema)),
                }
            }
            Type::Time | Type::MicroTime => nested(out, number, |out| {
                if let Ok(time) = text().parse::<jiff::Timestamp>() {
                    let micro = *ty == Type::MicroTime;
                    integer(out, 1, time.as_second());
                    let rest = time.subsec_nanosecond() / 1000 * 1000;
                    integer(out, 2, if micro { rest.into() } else { 0 });
                }
            }),
            Type::Duration => nested(out, number, |out| integer(out, 1, nanoseconds(text()))),
            Type::Quantity => nested(out, number, |out| match value {
                Value::Number(number) => bytes(out, 1, number.to_string().as_bytes()),
                Value::Null => bytes(out, 1, b"0"),
                _ => bytes(out, 1, text().as_bytes()),
            }),
            Type::IntOrString => nested(out, number, |out| {
                integer(out, 1, value.is_string().into());
                integer(out, 2, value.as_i64().unwrap_or_default());
                bytes(out, 3, text().as_bytes());
            }),
            Type::Raw => nested(out, number, |out| {
                if !value.is_null() {
                    let mut text = Vec::new();
                    (self.raw)(&mut text, value);
                    bytes(out, 1, &text);
                }
            }),
            Type::Json => nested(out, number, |out| {
                if !value.is_null() {
                    bytes(out, 1, value.to_string().as_bytes());
                }
            }),
            Type::SchemaOrBool => nested(out, number, |out| {
                integer(out, 1, (value.is_object() || *value == true).into());
                if value.is_object() {
                    self.schema_of_definition(out, 2, value);
                }
            }),
            Type::SchemaOrArray => nested(out, number, |out| match value {
                Value::Array(all) => all
                    .iter()
                    .for_each(|it| self.schema_of_definition(out, 2, it)),
                one => self.schema_of_definition(out, 1, one),
            }),
            // In a map it is a message with the list, as the extra attributes of users are. No type has lists of lists.
            Type::List(element) => nested(out, number, |out| {
                for item in value.as_array().into_iter().flatten() {
                    self.one(out, 1, element, item);
                }
            }),
            Type::Map(_) => {}
        }
    }

    fn schema_of_definition(self, out: &mut Vec<u8>, number: u64, value: &Value) {
        if let Some(id) = types::by_name(SCHEMA) {
            nested(out, number, |out| self.of(out, value, id.get()));
        }
    }
}

/// The length of a Go duration such as `1h30m`.
fn nanoseconds(text: &str) -> i64 {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (amount, unit) = rest.split_at(digits.unwrap_or(rest.len()));
        let end = unit
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(unit.len());
        let (unit, next) = unit.split_at(end);
        let scale = match unit {
            "h" => 3.6e12,
            "m" => 6e10,
            "s" => 1e9,
            "ms" => 1e6,
            "us" | "µs" => 1e3,
            _ => 1.0,
        };
        total += amount.parse::<f64>().unwrap_or_default() * scale;
        rest = next;
    }
    // Durations are far below the limit.
    let total = total.round() as i64;
    if negative { -total } else { total }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn tag(out: &mut Vec<u8>, number: u64, kind: u32) {
    varint(out, number << 3 | u64::from(kind));
}

/// Negative numbers are sign-extended to 64 bits.
fn integer(out: &mut Vec<u8>, number: u64, value: i64) {
    tag(out, number, VARINT);
    varint(out, value as u64);
}

fn bytes(out: &mut Vec<u8>, number: u64, content: &[u8]) {
    tag(out, number, BYTES);
    varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

fn nested(out: &mut Vec<u8>, number: u64, write: impl FnOnce(&mut Vec<u8>)) {
    let mut content = Vec::new();
    write(&mut content);
    bytes(out, number, &content);
}
