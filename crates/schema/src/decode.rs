//! From JSON to the form in which a built-in object is stored and served.
//!
//! Decoding does in one pass what upstream does with its Go structs: it finds unknown and duplicate fields, reports
//! values of the wrong type with the texts of Go's JSON package, drops unknown fields, and omits or sets zero values
//! like the Go encoder. Without a type (custom resources) only duplicates are found and nothing is dropped.

use std::collections::BTreeSet;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::types::{Struct, Type};

mod context;
mod embedded;
mod empties;
mod field;
mod number;
mod outcome;
mod raw;
mod scalar;
mod shape;
mod syntax;
mod time;
mod unstructured;

use context::Context;
pub use context::MAX_STRICT;
use field::FieldOf;
pub use number::settle_numbers;
pub use outcome::{DecodeError, Decoded, Empty, Mode, RawText};
pub use raw::{may_have_raw, raw_texts, write_compact};
pub use scalar::json_type;
pub use shape::{normalize, zero};
pub use unstructured::{ConvertError, from_unstructured};

/// Go's error about a text that is no time of RFC 3339; `None` if it is one.
pub fn time_error(text: &str) -> Option<String> {
    let error = time::convert(text, false).err()?;
    Some(error.to_string())
}

/// Decodes the JSON text of an object; `schema` is none for custom resources.
pub fn decode_json(text: &[u8], schema: Option<&'static Struct>) -> Result<Decoded, DecodeError> {
    let mut context = Context::new();
    context.raws = Some(Vec::new());
    read(text, schema, context)
}

/// Decodes the JSON text of a patch. The numbers in it stay as they are sent: the type of the patched object decides about
/// them, or [`settle_numbers`].
pub fn decode_patch(text: &[u8]) -> Result<Decoded, DecodeError> {
    let mut context = Context::new();
    context.keeps_numbers = true;
    read(text, None, context)
}

fn read<'t>(
    text: &'t [u8],
    schema: Option<&'static Struct>,
    mut context: Context<'t>,
) -> Result<Decoded, DecodeError> {
    context.text = Some(text);
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = Seed {
        context: &mut context,
        shape: Shape::root(schema),
    }
    .deserialize(&mut deserializer)
    .and_then(|value| deserializer.end().map(|()| value))
    .map_err(|error| match scalar::number_out_of_range(text, &error) {
        Some(number) => DecodeError::Type(format!(
            "json: cannot unmarshal number {number} into Go value of type float64"
        )),
        None => DecodeError::Syntax(syntax::error(text).unwrap_or_else(|| error.to_string())),
    })?;
    context.finish(value, schema)
}

/// Decodes an object that is already a tree, as after a patch.
pub fn decode_value(value: Value, schema: &'static Struct) -> Result<Decoded, DecodeError> {
    let mut context = Context::new();
    let value = Seed {
        context: &mut context,
        shape: Shape::root(Some(schema)),
    }
    .deserialize(value)
    .map_err(|error| DecodeError::Syntax(error.to_string()))?;
    context.finish(value, Some(schema))
}

/// What a value is expected to be.
#[derive(Clone, Copy)]
enum Shape<'a> {
    /// Any value; duplicates in it are reported.
    Untyped,
    /// Any value, not decoded.
    Raw,
    Struct(&'static Struct),
    Typed(&'a Type, Option<&'static str>),
}

impl Shape<'_> {
    fn root(schema: Option<&'static Struct>) -> Shape<'static> {
        schema.map_or(Shape::Untyped, Shape::Struct)
    }
}

struct Seed<'a, 'c, 't> {
    context: &'c mut Context<'t>,
    shape: Shape<'a>,
}

impl<'de> DeserializeSeed<'de> for Seed<'_, '_, '_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Seed<'_, '_, '_> {
    fn scalar(mut self, value: Value) -> Value {
        match self.shape {
            Shape::Untyped if self.context.keeps_numbers => self.written(value, &Type::Int64),
            Shape::Untyped => number::untyped(value),
            Shape::Raw => number::whole(value),
            Shape::Struct(structure) => {
                self.context
                    .mismatch(json_type(&value), structure.go_name(), None);
                Value::Null
            }
            Shape::Typed(ty, go_type) => match scalar::convert(self.written(value, ty), ty) {
                Ok(value) => value,
                Err(scalar::Error::Mismatch(found)) => {
                    let expected = go_type.map_or_else(|| scalar::go_type(ty), str::to_owned);
                    self.context.mismatch(found, &expected, Some(ty));
                    Value::Null
                }
                Err(scalar::Error::Number(number)) => {
                    let expected = go_type.map_or_else(|| scalar::go_type(ty), str::to_owned);
                    self.context.number_mismatch(&number, &expected, Some(ty));
                    Value::Null
                }
                Err(scalar::Error::Text(text)) => {
                    match scalar::has_parser(ty) {
                        true => self.context.stop(|| text),
                        false => self.context.save(|| text),
                    }
                    Value::Null
                }
            },
        }
    }
}

impl Seed<'_, '_, '_> {
    /// A number of which the text tells more than its value: an integer may be `-0`, and the notation of a quantity is kept.
    fn written(&mut self, value: Value, ty: &Type) -> Value {
        let Value::Number(number) = &value else {
            return value;
        };
        if !number.is_f64() {
            return value;
        }
        match ty {
            Type::Quantity => {
                let written = self.context.as_written(number).map(str::to_owned);
                written.map_or(value, Value::String)
            }
            Type::Int32 | Type::Int64 | Type::IntOrString
                if number.as_f64() == Some(0.0)
                    && self.context.as_written(number) == Some("-0") =>
            {
                0.into()
            }
            _ => value,
        }
    }
}

impl<'de> Visitor<'de> for Seed<'_, '_, '_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(self.scalar(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(self.scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(self.scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(self.scalar(Number::from_f64(value).map_or(Value::Null, Value::Number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(self.scalar(Value::String(value.to_owned())))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(self.scalar(Value::String(value)))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let (context, shape) = (self.context, self.shape);
        let element = match shape {
            Shape::Untyped => Shape::Untyped,
            Shape::Raw => Shape::Raw,
            Shape::Typed(Type::List(element), go_type) => element_shape(element, go_type),
            Shape::Typed(Type::Raw | Type::Json | Type::SchemaOrArray, _) => Shape::Raw,
            Shape::Typed(Type::Bytes, _) => return visit_bytes(context, sequence),
            Shape::Typed(ty, go_type) => {
                if let Some(text) = scalar::collection_text(ty) {
                    context.stop(|| text);
                } else {
                    let expected = go_type.map_or_else(|| scalar::go_type(ty), str::to_owned);
                    context.mismatch("array", &expected, Some(ty));
                }
                while sequence.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(Value::Null);
            }
            Shape::Struct(structure) => {
                context.mismatch("array", structure.go_name(), None);
                while sequence.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(Value::Null);
            }
        };
        let mut items = Vec::new();
        let length = context.path.len();
        loop {
            use std::fmt::Write as _;
            let _ = write!(context.path, "[{}]", items.len());
            let next = sequence.next_element_seed(Seed {
                context: &mut *context,
                shape: element,
            });
            context.path.truncate(length);
            match next? {
                Some(Value::Null) => items.push(shape::null_element(element)),
                Some(value) => items.push(value),
                None => break,
            }
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
        let (context, shape) = (self.context, self.shape);
        match shape {
            Shape::Untyped => visit_entries(context, map, Shape::Untyped, true),
            Shape::Raw => visit_entries(context, map, Shape::Raw, false),
            Shape::Struct(structure) => visit_struct(context, map, structure),
            Shape::Typed(Type::Struct(id), _) => visit_struct(context, map, id.get()),
            Shape::Typed(Type::Map(element), go_type) => {
                visit_entries(context, map, element_shape(element, go_type), true)
            }
            Shape::Typed(Type::Raw | Type::Json, _) => {
                visit_entries(context, map, Shape::Raw, false)
            }
            Shape::Typed(Type::SchemaOrBool | Type::SchemaOrArray, _) => match shape::json_schema()
            {
                Some(structure) => visit_struct(context, map, structure),
                None => visit_entries(context, map, Shape::Raw, false),
            },
            Shape::Typed(ty, go_type) => {
                let mut map = map;
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                if let Some(text) = scalar::collection_text(ty) {
                    context.stop(|| text);
                } else {
                    let expected = go_type.map_or_else(|| scalar::go_type(ty), str::to_owned);
                    context.mismatch("object", &expected, Some(ty));
                }
                Ok(Value::Null)
            }
        }
    }
}

/// Bytes that are sent as a list of numbers, which Go takes as well as their text in base64.
fn visit_bytes<'de, A: SeqAccess<'de>>(
    context: &mut Context<'_>,
    mut sequence: A,
) -> Result<Value, A::Error> {
    let mut bytes = Vec::new();
    while let Some(item) = sequence.next_element::<Value>()? {
        let byte = scalar::byte(&item).unwrap_or_else(|found| {
            match found {
                scalar::Error::Number(number) => context.number_mismatch(&number, "uint8", None),
                scalar::Error::Mismatch(found) => context.mismatch(found, "uint8", None),
                scalar::Error::Text(_) => {}
            }
            0
        });
        bytes.push(byte);
    }
    Ok(Value::String(scalar::base64(&bytes)))
}

/// The shape of the elements of a list or map; `go_type` is what Go calls the list or map, where that tells more.
fn element_shape<'a>(element: &'a Type, go_type: Option<&'static str>) -> Shape<'a> {
    match element {
        Type::Struct(id) => Shape::Struct(id.get()),
        ty => Shape::Typed(ty, go_type.and_then(element_name)),
    }
}

/// What Go calls the elements of a list or of a map by text.
fn element_name(name: &'static str) -> Option<&'static str> {
    let of_map = || name.strip_prefix("map[string]");
    name.strip_prefix("[]").or_else(of_map)
}

fn visit_entries<'de, A: MapAccess<'de>>(
    context: &mut Context<'_>,
    mut map: A,
    element: Shape<'_>,
    report: bool,
) -> Result<Value, A::Error> {
    let mut result = context.earlier.take().unwrap_or_default();
    let mut own = OwnKeys::beside(&result);
    while let Some(key) = map.next_key::<String>()? {
        if own.is_repeated(&key, result.contains_key(&key)) && report {
            context.strict("duplicate", &key);
        }
        let value = context.within(&key, |context| {
            map.next_value_seed(Seed {
                context,
                shape: element,
            })
        })?;
        let value = if value.is_null() {
            shape::null_element(element)
        } else {
            value
        };
        result.insert(key, value);
    }
    Ok(Value::Object(result))
}

fn visit_struct<'de, A: MapAccess<'de>>(
    context: &mut Context<'_>,
    mut map: A,
    structure: &'static Struct,
) -> Result<Value, A::Error> {
    let mut result = context.earlier.take().unwrap_or_default();
    let mut own = OwnKeys::beside(&result);
    context.structs.push(structure);
    while let Some(key) = map.next_key_seed(FieldOf(structure))? {
        let field = match key {
            Ok(field) => field,
            Err(unknown) => {
                context.strict("unknown", &unknown);
                map.next_value::<IgnoredAny>()?;
                continue;
            }
        };
        let earlier = result.remove(field.name);
        if own.is_repeated(field.name, earlier.is_some()) {
            context.strict("duplicate", field.name);
        }
        if let Some(Value::Object(earlier)) = earlier
            && matches!(field.ty, Type::Struct(_) | Type::Map(_))
        {
            context.earlier = Some(earlier);
        }
        let known = context.fields.len();
        context.fields.extend(embedded::structs(structure, field));
        context.fields.push(field.name);
        let value = if field.ty == Type::Raw {
            raw::next_value(context, &mut map)
        } else {
            context.within(field.name, |context| {
                map.next_value_seed(Seed {
                    context,
                    shape: Shape::Typed(&field.ty, field.go_type),
                })
            })
        };
        context.fields.truncate(known);
        // A null or a value of another type has not consumed the earlier value.
        context.earlier = None;
        let mut value = value?;
        if field.name == MANAGED_FIELDS && value.as_array().is_some_and(Vec::is_empty) {
            // The encoder would omit an empty list, but a list with one empty entry means that all ownership is
            // dropped.
            value = serde_json::json!([{}]);
        }
        result.insert(field.name.to_owned(), value);
    }
    context.structs.pop();
    context.has_empties |= shape::settle_sent(structure, &mut result);
    Ok(Value::Object(result))
}

/// The keys of an object's own text, where it continues an earlier object and may repeat the keys of that. Without an earlier
/// one, what the object holds tells the same.
struct OwnKeys(Option<BTreeSet<String>>);

impl OwnKeys {
    fn beside(earlier: &Map<String, Value>) -> Self {
        Self((!earlier.is_empty()).then(BTreeSet::new))
    }

    /// Whether the own text has the key a second time; `is_held` says whether the object holds it.
    fn is_repeated(&mut self, key: &str, is_held: bool) -> bool {
        match &mut self.0 {
            Some(own) => !own.insert(key.to_owned()),
            None => is_held,
        }
    }
}

/// The one field in which an empty list means something else than none.
const MANAGED_FIELDS: &str = "managedFields";

#[cfg(test)]
mod tests;
