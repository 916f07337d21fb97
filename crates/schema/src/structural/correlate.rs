//! What a value was before an update, found again by field name and by the keys of list elements.
//!
//! Ratcheting (KEP-4008): an error below a part that is equal to the old one is dropped.

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

    /// The element at this index. Elements of lists of type `map` are told by their keys; all others are new.
    pub(crate) fn index(self, index: usize) -> Option<Self> {
        if self.schema.list_type != "map" {
            return None;
        }
        let schema = self.schema.items.as_deref()?;
        let new = self.new.get(index)?;
        let keys = &self.schema.list_map_keys;
        let same = |old: &&Value| keys.iter().all(|key| old.get(key) == new.get(key));
        let old = self.old.as_array()?.iter().find(same)?;
        Some(Self { new, old, schema })
    }

    /// Whether the value is unchanged. The order of a list of type `map` is ignored; fields that are not in the schema
    /// cannot be compared.
    pub(crate) fn unchanged(self) -> bool {
        match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) => {
                new.len() == old.len()
                    && if self.schema.list_type == "map" {
                        (0..new.len()).all(|at| self.index(at).is_some_and(Self::unchanged))
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
