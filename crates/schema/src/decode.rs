//! From JSON to the form in which a built-in object is stored and served.
//!
//! Decoding does in one pass what upstream does with its Go structs: it finds unknown and duplicate fields, reports
//! values of the wrong type with the texts of Go's JSON package, drops unknown fields, and omits or sets zero values
//! like the Go encoder. Without a type (custom resources) only duplicates are found and nothing is dropped.

use std::collections::BTreeSet;

use allot_apimachinery::quote::quote;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::types::{Struct, Type};

mod embedded;
mod field;
mod raw;
mod scalar;
mod shape;
mod time;
mod unstructured;

use field::FieldOf;
pub use raw::{RawText, raw_texts};
pub use scalar::json_type;
pub use shape::{normalize, zero};
pub use unstructured::from_unstructured;

/// How unknown and duplicate fields are answered (`?fieldValidation=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// They are an error.
    Strict,
    /// They are reported as warnings.
    #[default]
    Warn,
    /// They are not mentioned.
    Ignore,
}

/// What decoding found.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The object, without unknown fields.
    pub value: Value,
    /// Unknown and duplicate fields in the order of the document, such as `unknown field "spec.foo"`.
    pub strict: Vec<String>,
    /// The texts of all raw fields in the order of the document; none of an object that was no text.
    pub raws: Vec<RawText>,
}

impl Decoded {
    /// The object and the warnings to send with it, or the error that strict validation gives.
    pub fn apply(self, mode: Mode) -> Result<(Value, Vec<String>), DecodeError> {
        match mode {
            Mode::Strict if !self.strict.is_empty() => Err(DecodeError::Strict(self.strict)),
            Mode::Strict | Mode::Ignore => Ok((self.value, Vec::new())),
            Mode::Warn => Ok((self.value, self.strict)),
        }
    }
}

/// Why a body is no object of its type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It is not JSON.
    #[error("{0}")]
    Syntax(String),
    /// A value does not fit its field; the text is Go's.
    #[error("{0}")]
    Type(String),
    /// Strict validation met unknown or duplicate fields.
    #[error("strict decoding error: {}", .0.join(", "))]
    Strict(Vec<String>),
}

/// Decodes the JSON text of an object; `schema` is none for custom resources.
pub fn decode_json(text: &[u8], schema: Option<&'static Struct>) -> Result<Decoded, DecodeError> {
    let mut context = Context::new(schema);
    context.raws = Some(Vec::new());
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
        None => DecodeError::Syntax(scalar::syntax_text(text, &error)),
    })?;
    context.finish(value)
}

/// Decodes an object that is already a tree, as after a patch.
pub fn decode_value(value: Value, schema: &'static Struct) -> Result<Decoded, DecodeError> {
    let mut context = Context::new(Some(schema));
    let value = Seed {
        context: &mut context,
        shape: Shape::root(Some(schema)),
    }
    .deserialize(value)
    .map_err(|error| DecodeError::Syntax(error.to_string()))?;
    context.finish(value)
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

/// The maximum number of unknown and duplicate fields that are reported for an object, as in upstream's decoder.
pub const MAX_STRICT: usize = 100;
/// The length of all paths that are composed for such reports. A key of a map may be as long as the body, and every
/// unknown field below it is reported with its whole path.
const MAX_STRICT_TEXT: usize = 4 << 20;

struct Context {
    /// The path as strict errors print it.
    path: String,
    /// The path as Go's type errors print it: JSON names of struct fields only.
    fields: Vec<&'static str>,
    structs: Vec<&'static Struct>,
    strict: Vec<String>,
    /// The length of the paths that were composed for them.
    strict_text: usize,
    /// Go keeps the first error, goes on, and reports it at the end.
    error: Option<String>,
    /// The error is of a type with its own parser: Go stops there, and what it kept before is lost.
    stopped: bool,
    /// What a repeated field goes on from: Go decodes a second object into the first one.
    earlier: Option<Map<String, Value>>,
    /// Texts of raw fields, where an object is read from its text.
    raws: Option<Vec<RawText>>,
}

impl Context {
    fn new(schema: Option<&'static Struct>) -> Self {
        let _ = schema;
        Self {
            path: String::new(),
            fields: Vec::new(),
            structs: Vec::new(),
            strict: Vec::new(),
            strict_text: 0,
            error: None,
            stopped: false,
            earlier: None,
            raws: None,
        }
    }

    fn finish(self, value: Value) -> Result<Decoded, DecodeError> {
        match self.error {
            Some(text) => Err(DecodeError::Type(text)),
            None => Ok(Decoded {
                value,
                strict: self.strict,
                raws: self.raws.unwrap_or_default(),
            }),
        }
    }

    fn save(&mut self, text: impl FnOnce() -> String) {
        if self.error.is_none() {
            self.error = Some(text());
        }
    }

    /// As [`Context::save`], for a type with its own parser.
    fn stop(&mut self, text: impl FnOnce() -> String) {
        if !self.stopped {
            self.error = Some(text());
            self.stopped = true;
        }
    }

    fn mismatch(&mut self, found: &str, expected: &str, ty: Option<&Type>) {
        let text = match self.structs.last() {
            Some(structure) if !self.fields.is_empty() => format!(
                "json: cannot unmarshal {found} into Go struct field {}.{} of type {expected}",
                structure.simple_name(),
                self.fields.join(".")
            ),
            _ => format!("json: cannot unmarshal {found} into Go value of type {expected}"),
        };
        match ty.is_some_and(scalar::has_parser) {
            true => self.stop(|| text),
            false => self.save(|| text),
        }
    }

    fn strict(&mut self, what: &str, key: &str) {
        if self.strict.len() >= MAX_STRICT || self.strict_text > MAX_STRICT_TEXT {
            return;
        }
        self.strict_text += self.path.len() + key.len();
        let path = if self.path.is_empty() {
            quote(key)
        } else {
            quote(&format!("{}.{key}", self.path))
        };
        let text = format!("{what} field {path}");
        if !self.strict.contains(&text) {
            self.strict.push(text);
        }
    }

    /// Runs `inner` with `.key` added to the path.
    fn within<T>(&mut self, key: &str, inner: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        let result = inner(self);
        self.path.truncate(length);
        result
    }
}

struct Seed<'a, 'c> {
    context: &'c mut Context,
    shape: Shape<'a>,
}

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Seed<'_, '_> {
    fn scalar(self, value: Value) -> Value {
        match self.shape {
            Shape::Untyped | Shape::Raw => scalar::untyped(value),
            Shape::Struct(structure) => {
                self.context
                    .mismatch(json_type(&value), structure.go_name(), None);
                Value::Null
            }
            Shape::Typed(ty, go_type) => match scalar::convert(value, ty) {
                Ok(value) => value,
                Err(scalar::Error::Mismatch(found)) => {
                    let expected = go_type.map_or_else(|| scalar::go_type(ty), str::to_owned);
                    self.context.mismatch(&found, &expected, Some(ty));
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

impl<'de> Visitor<'de> for Seed<'_, '_> {
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
            Shape::Typed(Type::Map(element), _) => {
                visit_entries(context, map, element_shape(element, None), true)
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

/// The shape of the elements of a list or map; `go_type` is what Go calls the list, where that tells more.
fn element_shape<'a>(element: &'a Type, go_type: Option<&'static str>) -> Shape<'a> {
    match element {
        Type::Struct(id) => Shape::Struct(id.get()),
        ty => Shape::Typed(ty, go_type.and_then(|name| name.strip_prefix("[]"))),
    }
}

fn visit_entries<'de, A: MapAccess<'de>>(
    context: &mut Context,
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
    context: &mut Context,
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
        // Null and values of another type have not taken it.
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
    shape::settle(structure, &mut result);
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
