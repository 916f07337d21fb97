//! Lists and maps: created by the expression, or views of external data.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

use serde_json::Value as Json;

use super::{Handle, Key, Value, json};
use crate::decl_type::DeclType;

/// A list outside, seen without copying it.
pub trait ListSource: Debug + Sync {
    /// Number of elements.
    fn len(&self) -> usize;

    /// Whether there are no elements.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at `index`, which is below [`Self::len`].
    fn get(&self, index: usize) -> Value<'_>;
}

/// An object outside, seen without copying it. It consists of maps with string keys that are reached from each other;
/// `part` tells them apart, with numbers of the source's own.
pub trait MapSource: Debug + Sync {
    /// Number of entries.
    fn len(&self, part: u32) -> usize;

    /// Whether there are no entries.
    fn is_empty(&self, part: u32) -> bool {
        self.len(part) == 0
    }

    /// The value of a key when the map is indexed or a field is selected.
    fn find(&self, part: u32, key: Key<'_>) -> Option<Value<'_>>;

    /// The value of a key that is no text when the map is indexed.
    fn find_other(&self, _part: u32) -> Option<Value<'_>> {
        None
    }

    /// Whether `key in map` holds.
    fn contains(&self, part: u32, key: Key<'_>) -> bool {
        self.find(part, key).is_some()
    }

    /// Why there is no value for a key that should have one; called when [`Self::find`] has found nothing.
    fn fault(&self, _part: u32, _key: Key<'_>) -> Option<String> {
        None
    }

    /// The key at `index`, which is below [`Self::len`], in a fixed order.
    fn key(&self, part: u32, index: usize) -> &str;
}

/// The lists of CEL: computed ones, and lists of the input, whose elements are converted when they are read.
#[derive(Debug, Clone)]
pub enum List<'a> {
    /// Created by the expression.
    Shared(Arc<Vec<Value<'a>>>),
    /// Seen from outside.
    Source(&'a dyn ListSource),
    /// A JSON list with the type of its elements.
    Json(&'a Vec<Json>, &'a DeclType),
    /// The integers from zero to below this one. They are created lazily: the cost of a list is charged when it exists
    /// already.
    Range(usize),
}

impl<'a> List<'a> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::Shared(values) => values.len(),
            Self::Source(source) => source.len(),
            Self::Json(values, _) => values.len(),
            Self::Range(end) => *end,
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at `index`.
    pub fn get(&self, index: usize) -> Option<Value<'a>> {
        match self {
            Self::Shared(values) => values.get(index).cloned(),
            Self::Source(source) => (index < source.len()).then(|| source.get(index)),
            Self::Json(values, ty) => values.get(index).map(|value| json::value(value, ty)),
            Self::Range(end) => (index < *end).then_some(Value::Int(index as i64)),
        }
    }

    /// The elements in order; a lazy list computes each when it is reached.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Value<'a>> + ExactSizeIterator {
        // The index is always below the length.
        (0..self.len()).map(|index| self.get(index).unwrap_or(Value::Null))
    }
}

/// A key of a map that the expression created.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum MapKey {
    /// A bool.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A string.
    String(Arc<str>),
}

impl MapKey {
    /// The key that equals this value, if it can be one.
    pub fn new(value: &Value<'_>) -> Option<Self> {
        Some(match value {
            Value::Bool(value) => Self::Bool(*value),
            Value::Int(value) => Self::Int(*value),
            Value::Uint(value) => Self::Uint(*value),
            Value::String(Handle::Shared(text)) => Self::String(text.clone()),
            Value::String(text) => Self::String(Arc::from(&**text)),
            _ => return None,
        })
    }

    fn value<'a>(&self) -> Value<'a> {
        match self {
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::Int(*value),
            Self::Uint(value) => Value::Uint(*value),
            Self::String(text) => Value::String(Handle::Shared(text.clone())),
        }
    }

    /// The same number in the other kinds of numbers.
    fn equal_keys(value: &Value<'_>) -> [Option<Self>; 2] {
        match *value {
            Value::Int(value) => [
                Some(Self::Int(value)),
                u64::try_from(value).ok().map(Self::Uint),
            ],
            Value::Uint(value) => [
                Some(Self::Uint(value)),
                i64::try_from(value).ok().map(Self::Int),
            ],
            Value::Double(value) => {
                let int =
                    (value as i64 as f64 == value && value.abs() < 9.2e18).then_some(value as i64);
                [
                    int.map(Self::Int),
                    int.and_then(|int| u64::try_from(int).ok()).map(Self::Uint),
                ]
            }
            _ => [Self::new(value), None],
        }
    }
}

/// A map or an object.
#[derive(Debug, Clone)]
pub enum Map<'a> {
    /// Created by the expression.
    Shared(Arc<BTreeMap<MapKey, Value<'a>>>),
    /// An object created by the expression, with the name of its type.
    Object(Arc<str>, Arc<BTreeMap<MapKey, Value<'a>>>),
    /// A map that the caller provides: its source, and the index by which the source identifies it.
    Source(&'a dyn MapSource, u32),
    /// A JSON object, with the declared type that its members are converted by.
    Json(&'a serde_json::Map<String, Json>, &'a DeclType),
}

impl<'a> Map<'a> {
    /// Number of entries.
    pub fn len(&self) -> usize {
        match self {
            Self::Shared(entries) | Self::Object(_, entries) => entries.len(),
            Self::Source(source, part) => source.len(*part),
            Self::Json(fields, _) => fields.len(),
        }
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a string key.
    pub fn find_key(&self, key: Key<'_>) -> Option<Value<'a>> {
        match self {
            Self::Source(source, part) => source.find(*part, key),
            Self::Json(fields, ty) => json::field(fields, ty, key.text()),
            Self::Shared(entries) | Self::Object(_, entries) => {
                entries.get(&MapKey::String(key.text().into())).cloned()
            }
        }
    }

    /// The name of the type, for an object that the expression has created.
    pub fn object_name(&self) -> Option<&str> {
        match self {
            Self::Object(name, _) => Some(name),
            _ => None,
        }
    }

    /// The value of a key; numbers are compared across number types.
    pub fn find(&self, key: &Value<'_>) -> Option<Value<'a>> {
        match (self, key) {
            (Self::Shared(entries), _) => MapKey::equal_keys(key)
                .into_iter()
                .flatten()
                .find_map(|key| entries.get(&key).cloned()),
            (_, Value::String(text)) => self.find_key(Key::new(text)),
            (Self::Source(source, part), _) => source.find_other(*part),
            _ => None,
        }
    }

    /// Why there is no value for a string key, if more is known.
    pub(crate) fn fault(&self, key: Key<'_>) -> Option<String> {
        match self {
            Self::Source(source, part) => source.fault(*part, key),
            _ => None,
        }
    }

    /// Whether `key in map` holds.
    pub fn contains(&self, key: &Value<'_>) -> bool {
        match (self, key) {
            (Self::Source(source, part), Value::String(text)) => {
                source.contains(*part, Key::new(text))
            }
            (Self::Source(..), _) => false,
            _ => self.find(key).is_some(),
        }
    }

    /// The keys in a fixed order.
    pub fn keys(&self) -> Vec<Value<'a>> {
        match self {
            Self::Shared(entries) | Self::Object(_, entries) => {
                entries.keys().map(MapKey::value).collect()
            }
            Self::Source(source, part) => (0..source.len(*part))
                .map(|index| Value::str(source.key(*part, index)))
                .collect(),
            Self::Json(fields, ty) => json::keys(fields, ty),
        }
    }
}
