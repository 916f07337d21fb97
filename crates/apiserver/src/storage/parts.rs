//! Reads a stored object without building a JSON tree of its managed fields.

use std::fmt;

use allot_schema::apply::Managed;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::Owned;

pub(super) fn read(bytes: &[u8]) -> serde_json::Result<Owned> {
    let mut owners = Managed::default();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let object = Part::Object(&mut owners).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(Owned { object, owners })
}

/// The two levels above the owners.
enum Part<'a> {
    Object(&'a mut Managed),
    Metadata(&'a mut Managed),
}

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = match &mut self {
                Part::Object(owners) if key == "metadata" => {
                    map.next_value_seed(Part::Metadata(owners))?
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
