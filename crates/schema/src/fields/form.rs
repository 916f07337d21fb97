//! The published form of a set, `FieldsV1`: read from and written as JSON without a tree in between.

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor,
};
use serde_json::Value;

use super::{Member, PathElement, Set};

impl Set {
    /// The `FieldsV1` form.
    pub fn to_fields_v1(&self) -> Value {
        let mut text = Vec::new();
        self.write_fields_v1(&mut text);
        // What was just written is JSON.
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Reads the `FieldsV1` form; none where it is not one.
    pub fn from_fields_v1(value: &Value) -> Option<Self> {
        Self::deserialize(value).ok()
    }

    /// Writes the `FieldsV1` form as JSON.
    pub fn write_fields_v1(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        write_members(self, out, true);
        out.push(b'}');
    }
}

fn write_members(set: &Set, out: &mut Vec<u8>, mut first: bool) {
    for (element, member) in &set.nodes {
        if !std::mem::replace(&mut first, false) {
            out.push(b',');
        }
        write_key(element, out);
        out.extend_from_slice(b":{");
        let both = member.here && !member.below.is_empty();
        if both {
            out.extend_from_slice(b"\".\":{}");
        }
        write_members(&member.below, out, !both);
        out.push(b'}');
    }
}

fn write_key(element: &PathElement, out: &mut Vec<u8>) {
    match element {
        PathElement::Field(name) if !name.bytes().any(must_escape) => {
            out.extend_from_slice(b"\"f:");
            out.extend_from_slice(name.as_bytes());
            out.push(b'"');
        }
        // Writing JSON to memory does not fail.
        other => drop(serde_json::to_writer(out, &other.encode())),
    }
}

fn must_escape(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// So many objects of the form are in each other at most: as many as the levels of an object, which has its own bound. Clients
/// cannot read an object that is nested much deeper, nor a list with it.
const DEEPEST: usize = 101;

impl<'de> Deserialize<'de> for Set {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let member = Level(DEEPEST).deserialize(deserializer);
        member.map(|member| member.below)
    }
}

/// One object of the form, with at most so many levels.
struct Level(usize);

impl<'de> DeserializeSeed<'de> for Level {
    type Value = Member;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Member, D::Error> {
        let below = self.0.checked_sub(1);
        let below = below.ok_or_else(|| D::Error::custom("fields are nested too deep"))?;
        deserializer.deserialize_map(Below(below))
    }
}

/// What is in one object of the form.
struct Below(usize);

impl<'de> Visitor<'de> for Below {
    type Value = Member;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a set of fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Member, A::Error> {
        let mut nodes: Vec<(PathElement, Member)> = Vec::new();
        let (mut here, mut any) = (false, false);
        while let Some(key) = map.next_key_seed(Key)? {
            any = true;
            match key {
                Some(element) => nodes.push((element, map.next_value_seed(Level(self.0))?)),
                None => {
                    here = true;
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if !nodes.is_sorted_by(|a, b| a.0 < b.0) {
            nodes.sort_by(|a, b| a.0.cmp(&b.0));
            // Two spellings of one key: the last one counts.
            nodes.reverse();
            nodes.dedup_by(|later, earlier| later.0 == earlier.0);
            nodes.reverse();
        }
        Ok(Member {
            here: here || !any,
            below: Set { nodes },
        })
    }
}

/// A key of the form; none for the element itself.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Option<PathElement>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Option<PathElement>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a path element")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        if text == "." {
            return Ok(None);
        }
        PathElement::decode(text)
            .map(Some)
            .ok_or_else(|| E::custom(format_args!("{text:?} is no path element")))
    }
}
