//! Objects of kinds whose API version is known only at run time.

use std::ops::Deref;

use kube::core::ObjectMeta;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An object as far as `T` reads it, together with its JSON.
#[derive(Debug, Clone)]
pub struct Versioned<T> {
    metadata: ObjectMeta,
    object: T,
    raw: Value,
}

impl<T> Versioned<T> {
    /// The value at a JSON pointer; null if there is none.
    pub fn at(&self, pointer: &str) -> &Value {
        self.raw.pointer(pointer).unwrap_or(&Value::Null)
    }
}

impl<T> Deref for Versioned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.object
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Versioned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Value::deserialize(deserializer)?;
        let metadata = ObjectMeta::deserialize(&raw["metadata"]).map_err(D::Error::custom)?;
        let object = T::deserialize(&raw).map_err(D::Error::custom)?;
        Ok(Self {
            metadata,
            object,
            raw,
        })
    }
}

crate::kit::resource::dynamic!([T] Versioned<T>, metadata);
