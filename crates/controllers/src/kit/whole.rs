//! Objects that are read typed and copied whole.

use std::ops::Deref;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A typed object together with its JSON, for controllers that copy a part of it (a pod or claim
/// template): fields that the types do not know yet are copied too.
#[derive(Debug, Clone)]
pub struct Whole<K> {
    typed: K,
    raw: Value,
}

impl<K: DeserializeOwned> Whole<K> {
    /// Reads an object from its JSON.
    ///
    /// # Errors
    /// When the JSON does not fit the type.
    pub fn new(raw: Value) -> Result<Self, serde_json::Error> {
        let typed = K::deserialize(&raw)?;
        Ok(Self { typed, raw })
    }

    /// The value at a JSON pointer; null if there is none.
    pub fn at(&self, pointer: &str) -> &Value {
        self.raw.pointer(pointer).unwrap_or(&Value::Null)
    }
}

impl<K> Deref for Whole<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.typed
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Whole<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Value::deserialize(deserializer)?;
        Self::new(raw).map_err(D::Error::custom)
    }
}

crate::kit::resource::like_inner!(Whole, typed);
