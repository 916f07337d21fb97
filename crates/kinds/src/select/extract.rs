//! Parts of a stored object, read without parsing the rest into a tree.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The object reduced to the values at some paths, such as `spec.nodeName`; null if it cannot be parsed.
pub fn extract(bytes: &[u8], paths: &[impl AsRef<str>]) -> Value {
    let paths: Vec<&str> = paths.iter().map(AsRef::as_ref).collect();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    Wanted(&paths)
        .deserialize(&mut deserializer)
        .unwrap_or(Value::Null)
}

/// The selected parts of a value: the remaining paths that lead through it.
struct Wanted<'a>(&'a [&'a str]);

impl<'de> DeserializeSeed<'de> for Wanted<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// The name of a member, copied only where escapes make it necessary.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Visitor<'de> for Wanted<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut found = Map::new();
        let mut below: Vec<&str> = Vec::new();
        while let Some(Name(key)) = map.next_key()? {
            below.clear();
            let (mut leads, mut ends) = (false, false);
            for path in self.0 {
                match path.strip_prefix(&*key) {
                    Some("") => ends = true,
                    Some(rest) => {
                        if let Some(rest) = rest.strip_prefix('.') {
                            leads = true;
                            below.push(rest);
                        }
                    }
                    None => {}
                }
            }
            if ends {
                found.insert(key.into_owned(), map.next_value()?);
            } else if leads {
                found.insert(key.into_owned(), map.next_value_seed(Wanted(&below))?);
            } else {
                map.next_value::<IgnoredAny>()?;
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
