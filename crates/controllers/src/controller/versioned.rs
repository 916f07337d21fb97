//! Objects of kinds whose API version is known only at run time.

use std::ops::Deref;

use allot_reflector::{Keep, Readable, parse};
use kube::core::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
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

impl<T: DeserializeOwned> Readable for Versioned<T> {
    fn read(text: &str, keep: Keep) -> serde_json::Result<Self> {
        let Head { metadata } = parse(text, keep)?;
        Ok(Self {
            metadata,
            object: parse(text, keep)?,
            raw: serde_json::from_str(text)?,
        })
    }
}

#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    metadata: ObjectMeta,
}

crate::controller::resource::dynamic!([T] Versioned<T>, metadata);
