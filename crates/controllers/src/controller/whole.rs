//! Objects that are read typed and copied whole.

use std::ops::Deref;

use allot_reflector::{Keep, Readable};
use serde_json::Value;

/// A typed object together with its JSON, for controllers that copy a part of it (a pod or claim
/// template): fields that the types do not have yet are copied too.
#[derive(Debug, Clone)]
pub struct Whole<K> {
    typed: K,
    raw: Value,
}

impl<K> Whole<K> {
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

impl<K: Readable> Readable for Whole<K> {
    fn read(text: &str, keep: Keep) -> serde_json::Result<Self> {
        Ok(Self {
            typed: K::read(text, keep)?,
            raw: serde_json::from_str(text)?,
        })
    }
}

crate::controller::resource::like_inner!(Whole, typed);
