//! Parts of a stored object, read without parsing the rest into a tree.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The object reduced to the values at some paths, such as `spec.nodeName`; null if it cannot be parsed.
///
/// Reading ends with the last top-level member that a path leads into. Stored objects begin with their metadata, so that
/// reading a UID costs the same for a small object and for one of several megabytes.
pub fn extract(bytes: &[u8], paths: &[impl AsRef<str>]) -> Value {
    let paths: Vec<&str> = paths.iter().map(AsRef::as_ref).collect();
    let mut found = Map::new();
    let mut left: BTreeSet<&str> = paths.iter().map(|path| first(path)).collect();
    let top = Top {
        paths: &paths,
        left: &mut left,
        found: &mut found,
    };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let read = deserializer.deserialize_map(top);
    // A reader that stops early leaves the parser in the middle of the object, which it reports as an error.
    if read.is_ok() || left.is_empty() {
        return Value::Object(found);
    }
    Value::Null
}

fn first(path: &str) -> &str {
    path.split_once('.').map_or(path, |(first, _)| first)
}

/// The object itself, read as far as necessary.
struct Top<'a, 'p> {
    paths: &'a [&'p str],
    /// The members that have not been read yet.
    left: &'a mut BTreeSet<&'p str>,
    found: &'a mut Map<String, Value>,
}

impl<'de> Visitor<'de> for Top<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Top { paths, left, found } = self;
        let mut below = Vec::new();
        while !left.is_empty()
            && let Some(Name(key)) = map.next_key()?
        {
            member(paths, &mut below, &key, &mut map, found)?;
            left.remove(&*key);
        }
        Ok(())
    }
}

/// Reads a member of an object: what of it the paths lead to.
fn member<'de, 'a, A: MapAccess<'de>>(
    paths: &[&'a str],
    below: &mut Vec<&'a str>,
    key: &str,
    map: &mut A,
    found: &mut Map<String, Value>,
) -> Result<(), A::Error> {
    below.clear();
    let (mut leads, mut ends) = (false, false);
    for path in paths {
        match path.strip_prefix(key) {
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
        found.insert(key.to_owned(), map.next_value()?);
    } else if leads {
        found.insert(key.to_owned(), map.next_value_seed(Wanted(below))?);
    } else {
        map.next_value::<IgnoredAny>()?;
    }
    Ok(())
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
        let (mut found, mut below) = (Map::new(), Vec::new());
        while let Some(Name(key)) = map.next_key()? {
            member(self.0, &mut below, &key, &mut map, &mut found)?;
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
