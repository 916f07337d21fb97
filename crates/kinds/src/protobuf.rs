//! Kubernetes protobuf bodies, read into JSON, and JSON written as such.
//!
//! Go clients of built-in kinds send protobuf (`kubectl create configmap`, for example) and prefer it in answers. The
//! field numbers are in the type data.

use allot_schema::decode::RawText;
use allot_schema::types::{self, Struct, Type};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

mod embedded;
#[cfg(test)]
mod tests;
mod write;

pub use write::{encode, envelope, frame, message_of};

/// Every body starts with this.
const MAGIC: &[u8] = b"k8s\0";
/// Deepest nesting that is read.
const MAX_DEPTH: usize = 64;

/// Why a body cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It does not start with the marker.
    #[error(
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    )]
    Magic,
    /// The input is truncated or is no protobuf.
    #[error("proto: unexpected EOF")]
    Truncated,
    /// Its kind has no protobuf form.
    #[error("no kind {0:?} is registered for version {1:?}")]
    UnknownKind(String, String),
    /// It nests too deep.
    #[error("proto: message is nested too deep")]
    TooDeep,
}

/// One field of a message.
enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

/// The fields of a message.
fn fields(mut bytes: &[u8]) -> Result<Vec<(u64, Wire<'_>)>, Error> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let value = match tag & 7 {
            0 => Wire::Varint(varint(&mut bytes)?),
            1 => Wire::Fixed64(u64::from_le_bytes(
                take(&mut bytes, 8)?
                    .try_into()
                    .map_err(|_| Error::Truncated)?,
            )),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).map_err(|_| Error::Truncated)?;
                Wire::Bytes(take(&mut bytes, length)?)
            }
            5 => Wire::Fixed32(u32::from_le_bytes(
                take(&mut bytes, 4)?
                    .try_into()
                    .map_err(|_| Error::Truncated)?,
            )),
            _ => return Err(Error::Truncated),
        };
        all.push((tag >> 3, value));
    }
    Ok(all)
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], Error> {
    let (head, tail) = bytes.split_at_checked(count).ok_or(Error::Truncated)?;
    *bytes = tail;
    Ok(head)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Error> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Error::Truncated)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The body starts as protobuf bodies do.
pub fn is_protobuf(body: &[u8]) -> bool {
    body.starts_with(MAGIC)
}

/// The object in a body, with its kind and apiVersion.
///
/// # Errors
/// See [`Error`].
pub fn decode(body: &[u8]) -> Result<Value, Error> {
    let unknown = body.strip_prefix(MAGIC).ok_or(Error::Magic)?;
    let (mut api_version, mut kind, mut raw): (String, String, &[u8]) = Default::default();
    for (number, value) in fields(unknown)? {
        match (number, value) {
            (1, Wire::Bytes(meta)) => {
                for field in fields(meta)? {
                    match field {
                        (1, Wire::Bytes(bytes)) => api_version = text(bytes),
                        (2, Wire::Bytes(bytes)) => kind = text(bytes),
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let schema = types::lookup(group, version, &kind)
        .ok_or_else(|| Error::UnknownKind(kind.clone(), api_version.clone()))?;
    let mut object = message(raw, schema, 0)?;
    object.insert("kind".to_owned(), kind.into());
    object.insert("apiVersion".to_owned(), api_version.into());
    Ok(Value::Object(object))
}

fn message(
    bytes: &[u8],
    schema: &'static Struct,
    depth: usize,
) -> Result<Map<String, Value>, Error> {
    if depth > MAX_DEPTH {
        return Err(Error::TooDeep);
    }
    let embedded = embedded::of(schema);
    let mut map = Map::new();
    for (number, wire) in fields(bytes)? {
        if let (Some(embedded), Wire::Bytes(bytes)) = (&embedded, &wire)
            && embedded.number == number
        {
            map.append(&mut part(
                bytes,
                embedded.schema,
                Some(embedded),
                depth + 1,
            )?);
            continue;
        }
        let own = |name: &str| embedded.as_ref().is_none_or(|it| it.own.contains(&name));
        read(&mut map, number, wire, schema, own, depth)?;
    }
    Ok(map)
}

/// A message that is part of the enclosing message in JSON.
fn part(
    bytes: &[u8],
    schema: &'static Struct,
    outer: Option<&embedded::Embedded>,
    depth: usize,
) -> Result<Map<String, Value>, Error> {
    // A separate type may have such a part itself.
    let Some(outer) = outer.filter(|outer| outer.shared) else {
        return message(bytes, schema, depth);
    };
    if depth > MAX_DEPTH {
        return Err(Error::TooDeep);
    }
    let mut map = Map::new();
    for (number, wire) in fields(bytes)? {
        read(
            &mut map,
            number,
            wire,
            schema,
            |name| !outer.own.contains(&name),
            depth,
        )?;
    }
    Ok(map)
}

/// Reads one field of a message into the object; `own` selects the fields of the type that belong to the message.
fn read(
    map: &mut Map<String, Value>,
    number: u64,
    wire: Wire<'_>,
    schema: &'static Struct,
    own: impl Fn(&str) -> bool,
    depth: usize,
) -> Result<(), Error> {
    // Kind and version of an object are not part of its message; their numbers are used by other fields.
    let numbered =
        |field: &&allot_schema::types::Field| u64::from(field.proto) == number && own(field.name);
    let named = |field: &&allot_schema::types::Field| matches!(field.name, "kind" | "apiVersion");
    let mut candidates = schema.fields.iter().filter(numbered);
    let Some(field) = candidates
        .clone()
        .find(|field| !named(field))
        .or_else(|| candidates.next())
    else {
        return Ok(());
    };
    match &field.ty {
        Type::List(element) => {
            let list = map
                .entry(field.name)
                .or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(items) = list {
                items.push(value(wire, element, depth + 1)?);
            }
        }
        Type::Map(element) => {
            let entries = map
                .entry(field.name)
                .or_insert_with(|| Value::Object(Map::new()));
            if let (Value::Object(entries), Wire::Bytes(bytes)) = (entries, wire) {
                let (key, item) = entry(bytes, element, depth + 1)?;
                entries.insert(key, item);
            }
        }
        ty => {
            map.insert(field.name.to_owned(), value(wire, ty, depth + 1)?);
        }
    }
    Ok(())
}

fn entry(bytes: &[u8], element: &Type, depth: usize) -> Result<(String, Value), Error> {
    let (mut key, mut item) = (String::new(), None);
    for (number, wire) in fields(bytes)? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => key = text(bytes),
            (2, wire) => item = Some(value(wire, element, depth)?),
            _ => {}
        }
    }
    // A zero value is omitted from the entry.
    let item = item.unwrap_or_else(|| match element {
        Type::String | Type::Bytes => "".into(),
        Type::Bool => false.into(),
        Type::Int32 | Type::Int64 => 0.into(),
        _ => Value::Null,
    });
    Ok((key, item))
}

/// First bytes field of a wrapper message.
fn inner(bytes: &[u8], wanted: u64) -> Result<&[u8], Error> {
    Ok(fields(bytes)?
        .into_iter()
        .find_map(|(number, wire)| match wire {
            Wire::Bytes(bytes) if number == wanted => Some(bytes),
            _ => None,
        })
        .unwrap_or_default())
}

fn numbers(bytes: &[u8]) -> Result<(i64, i64), Error> {
    let mut found = (0, 0);
    for (number, wire) in fields(bytes)? {
        match (number, wire) {
            (1, Wire::Varint(value)) => found.0 = value as i64,
            (2, Wire::Varint(value)) => found.1 = value as i64,
            _ => {}
        }
    }
    Ok(found)
}

fn value(wire: Wire<'_>, ty: &Type, depth: usize) -> Result<Value, Error> {
    Ok(match (wire, ty) {
        (Wire::Varint(number), Type::Bool) => (number != 0).into(),
        // Negative numbers are sign-extended to 64 bits.
        (Wire::Varint(number), _) => (number as i64).into(),
        (Wire::Fixed64(bits), _) => f64::from_bits(bits).into(),
        (Wire::Fixed32(bits), _) => f64::from(f32::from_bits(bits)).into(),
        (Wire::Bytes(bytes), ty) => match ty {
            Type::Struct(id) => {
                let schema = id.get();
                match &schema.alias {
                    Some(Type::List(element)) => {
                        let mut items = Vec::new();
                        for (number, wire) in fields(bytes)? {
                            if number == 1 {
                                items.push(value(wire, element, depth + 1)?);
                            }
                        }
                        items.into()
                    }
                    Some(alias) => value(Wire::Bytes(bytes), alias, depth + 1)?,
                    None => Value::Object(message(bytes, schema, depth)?),
                }
            }
            Type::Bytes => STANDARD.encode(bytes).into(),
            Type::Time => time(bytes, false)?,
            Type::MicroTime => time(bytes, true)?,
            Type::Duration => {
                let nanoseconds = numbers(bytes)?.0;
                format!("{}s", nanoseconds as f64 / 1e9).into()
            }
            Type::Quantity => text(inner(bytes, 1)?).into(),
            Type::IntOrString => {
                let is_text = numbers(bytes)?.0 == 1;
                if is_text {
                    text(inner(bytes, 3)?).into()
                } else {
                    numbers(bytes)?.1.into()
                }
            }
            Type::Raw => {
                let text = inner(bytes, 1)?;
                let value: Value = serde_json::from_slice(text).unwrap_or(Value::Null);
                if !value.is_null() {
                    let text = String::from_utf8_lossy(text).into_owned();
                    let found = RawText {
                        value: value.clone(),
                        text,
                    };
                    crate::raw::sent(vec![found]);
                }
                value
            }
            Type::Json => serde_json::from_slice(inner(bytes, 1)?).unwrap_or(Value::Null),
            Type::SchemaOrBool | Type::SchemaOrArray => definition_schema(bytes, ty, depth)?,
            Type::List(_) | Type::Map(_) => Value::Null,
            _ => text(bytes).into(),
        },
    })
}

/// The type of the schemas of definitions.
const SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// The schema of a CRD where other types are allowed as well.
fn definition_schema(bytes: &[u8], ty: &Type, depth: usize) -> Result<Value, Error> {
    let Some(schema) = types::by_name(SCHEMA) else {
        return Ok(Value::Null);
    };
    let (mut allowed, mut single, mut several) = (false, None, Vec::new());
    for (number, wire) in fields(bytes)? {
        match (number, wire) {
            (1, Wire::Varint(value)) => allowed = value != 0,
            (number, Wire::Bytes(bytes)) => {
                let schema = Value::Object(message(bytes, schema.get(), depth + 1)?);
                if *ty == Type::SchemaOrArray && number == 2 {
                    several.push(schema);
                } else {
                    single = Some(schema);
                }
            }
            _ => {}
        }
    }
    Ok(match single {
        Some(schema) => schema,
        None if *ty == Type::SchemaOrBool => allowed.into(),
        None => several.into(),
    })
}

fn time(bytes: &[u8], micro: bool) -> Result<Value, Error> {
    let (seconds, nanoseconds) = numbers(bytes)?;
    if seconds == 0 && nanoseconds == 0 {
        return Ok(Value::Null);
    }
    let Ok(time) = jiff::Timestamp::new(seconds, i32::try_from(nanoseconds).unwrap_or(0)) else {
        return Ok(Value::Null);
    };
    let format = if micro {
        "%Y-%m-%dT%H:%M:%S%.6fZ"
    } else {
        "%Y-%m-%dT%H:%M:%SZ"
    };
    Ok(time.strftime(format).to_string().into())
}
