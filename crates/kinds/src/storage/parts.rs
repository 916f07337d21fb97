//! Reads a stored object without building a JSON tree of its managed fields.

use std::fmt;

use allot_schema::apply::Managed;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::Owned;

pub(super) fn read(bytes: &[u8]) -> serde_json::Result<Owned> {
    let mut owners = Managed::default();
    let object = read_into(bytes, &mut owners)?;
    Ok(Owned { object, owners })
}

/// The object, and the JSON text of its field owners.
pub(super) fn read_object(bytes: &[u8]) -> serde_json::Result<(Value, Box<str>)> {
    let mut owners: Option<Box<RawValue>> = None;
    let object = read_into(bytes, &mut owners)?;
    Ok((object, owners.map(Box::<str>::from).unwrap_or_default()))
}

fn read_into<'de, T: Deserialize<'de>>(
    bytes: &'de [u8],
    owners: &mut T,
) -> serde_json::Result<Value> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let object = Part::Object(owners).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(object)
}

/// The two levels above the owners.
enum Part<'a, T> {
    Object(&'a mut T),
    Metadata(&'a mut T),
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Part<'_, T> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Part<'_, T> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = match &mut self {
                Part::Object(owners) if key == "metadata" => {
                    map.next_value_seed(Part::Metadata(&mut **owners))?
                }
                Part::Metadata(owners) if key == "managedFields" => {
                    **owners = map.next_value()?;
                    continue;
                }
                _ => map.next_value()?,
            };
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}
