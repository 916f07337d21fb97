//! Parts of a stored object, read without parsing the rest into a tree.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The object with only the values at some paths; null if it cannot be read.
pub(super) fn extract(bytes: &[u8], paths: &[Vec<String>]) -> Value {
    let paths: Vec<&[String]> = paths.iter().map(Vec::as_slice).collect();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    Wanted(&paths)
        .deserialize(&mut deserializer)
        .unwrap_or(Value::Null)
}

/// The selected parts of a value: the remaining paths that lead through it.
struct Wanted<'a>(&'a [&'a [String]]);

impl<'de> DeserializeSeed<'de> for Wanted<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Wanted<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut found = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let below: Vec<&[String]> = self
                .0
                .iter()
                .filter_map(|path| path.split_first())
                .filter(|(first, _)| **first == key)
                .map(|(_, rest)| rest)
                .collect();
            if below.is_empty() {
                map.next_value::<IgnoredAny>()?;
            } else if below.iter().any(|path| path.is_empty()) {
                found.insert(key, map.next_value()?);
            } else {
                found.insert(key, map.next_value_seed(Wanted(&below))?);
            }
        }
        Ok(Value::Object(found))
    }

    // No path leads into other types.
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Null)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_str<E>(self, _: &str) -> Result<Value, E> {
        Ok(Value::Null)
    }
}
