//! What a value was before an update, found again by field name and by the keys of list elements.
//!
//! Ratcheting (KEP-4008): an error below a part that is equal to the old one is dropped.

use std::collections::HashMap;

use serde_json::Value;

use super::{Additional, Structural};

/// A value and what it was before the update.
#[derive(Clone, Copy)]
pub(crate) struct Pair<'a> {
    new: &'a Value,
    old: &'a Value,
    schema: &'a Structural,
}

impl<'a> Pair<'a> {
    /// Two values of the same place, which `schema` describes.
    pub(crate) fn new(new: &'a Value, old: &'a Value, schema: &'a Structural) -> Self {
        Self { new, old, schema }
    }

    /// The field of this name; none where one of the two lacks it, or where the schema does not know it.
    pub(crate) fn key(self, name: &str) -> Option<Self> {
        let (new, old) = (self.new.get(name)?, self.old.get(name)?);
        let schema = match (self.schema.properties.get(name), &self.schema.additional) {
            (Some(property), _) => property,
            (None, Additional::Schema(schema)) => schema,
            _ => return None,
        };
        Some(Self { new, old, schema })
    }

    /// What each element of the new list was. Elements of lists of type `map` are identified by their keys; all others are new.
    pub(crate) fn elements(self) -> Vec<Option<Self>> {
        let new = self.new.as_array().map_or(&[][..], Vec::as_slice);
        let old = self
            .old
            .as_array()
            .filter(|_| self.schema.list_type == "map");
        let (Some(old), Some(schema)) = (old, self.schema.items.as_deref()) else {
            return vec![None; new.len()];
        };
        let keys = &self.schema.list_map_keys;
        let known = keyed(old, keys);
        let pair = |new: &'a Value| {
            let old = *known.get(&key_of(new, keys))?;
            Some(Self { new, old, schema })
        };
        new.iter().map(pair).collect()
    }

    /// Whether the value is unchanged. The order of a list of type `map` is ignored; fields that are not in the schema
    /// cannot be compared.
    pub(crate) fn unchanged(self) -> bool {
        match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) => {
                new.len() == old.len()
                    && if self.schema.list_type == "map" {
                        self.elements()
                            .into_iter()
                            .all(|pair| pair.is_some_and(Self::unchanged))
                    } else {
                        new == old
                    }
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len()
                    && new
                        .keys()
                        .all(|name| self.key(name).is_some_and(Self::unchanged))
            }
            (new, old) => new == old,
        }
    }
}

/// The elements of a list of type `map` by their keys; of several with the same keys the first.
pub(crate) fn keyed<'v>(items: &'v [Value], keys: &[String]) -> HashMap<String, &'v Value> {
    let mut known = HashMap::with_capacity(items.len());
    for item in items {
        known.entry(key_of(item, keys)).or_insert(item);
    }
    known
}

/// The keys of an element as a text. JSON texts have no line breaks, and a key that is missing is no JSON.
pub(crate) fn key_of(item: &Value, keys: &[String]) -> String {
    let mut text = String::new();
    for key in keys {
        if let Some(value) = item.get(key) {
            text.push_str(&value.to_string());
        }
        text.push('\n');
    }
    text
}
