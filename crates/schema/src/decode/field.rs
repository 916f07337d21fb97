//! Keys of objects, read as the fields of a type.

use serde::de::{DeserializeSeed, Visitor};

use crate::types::{Field, Struct};

/// A key as the field that it names, or as text where there is no such field.
pub(super) struct FieldOf(pub(super) &'static Struct);

impl<'de> DeserializeSeed<'de> for FieldOf {
    type Value = Result<&'static Field, String>;

    fn deserialize<D: serde::Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for FieldOf {
    type Value = Result<&'static Field, String>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a field name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.field(name).ok_or_else(|| name.to_owned()))
    }
}
