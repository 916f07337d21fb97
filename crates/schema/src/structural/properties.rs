//! The declared fields of a schema.

use std::collections::{BTreeMap, btree_map};

use super::Structural;

/// The schemas of fields by name.
///
/// Each is in memory of its own: a node of the tree has room for eleven entries, and most schemas that are nested deeply
/// have one field.
#[derive(Debug, Clone, Default)]
pub struct Properties(BTreeMap<String, Box<Structural>>);

impl Properties {
    /// The schema of a field.
    pub fn get(&self, name: &str) -> Option<&Structural> {
        self.0.get(name).map(Box::as_ref)
    }

    /// Whether the field is declared.
    pub fn contains_key(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Whether no field is declared.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All fields in the order of their names.
    pub fn iter(&self) -> Iter<'_> {
        Iter(self.0.iter())
    }

    /// The schemas of all fields.
    pub fn values(&self) -> impl Iterator<Item = &Structural> {
        self.0.values().map(Box::as_ref)
    }
}

impl FromIterator<(String, Structural)> for Properties {
    fn from_iter<I: IntoIterator<Item = (String, Structural)>>(fields: I) -> Self {
        let boxed = |(name, schema)| (name, Box::new(schema));
        Properties(fields.into_iter().map(boxed).collect())
    }
}

impl<'a> IntoIterator for &'a Properties {
    type Item = (&'a String, &'a Structural);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// The fields of [`Properties`] in the order of their names.
#[derive(Debug)]
pub struct Iter<'a>(btree_map::Iter<'a, String, Box<Structural>>);

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a String, &'a Structural);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(name, schema)| (name, schema.as_ref()))
    }
}
