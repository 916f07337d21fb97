//! Objects of kinds whose API version is known only at run time.

use std::borrow::Cow;
use std::ops::Deref;

use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope, ObjectMeta};
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

impl<T> Resource for Versioned<T> {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(dt: &ApiResource) -> Cow<'_, str> {
        dt.kind.as_str().into()
    }

    fn group(dt: &ApiResource) -> Cow<'_, str> {
        dt.group.as_str().into()
    }

    fn version(dt: &ApiResource) -> Cow<'_, str> {
        dt.version.as_str().into()
    }

    fn api_version(dt: &ApiResource) -> Cow<'_, str> {
        dt.api_version.as_str().into()
    }

    fn plural(dt: &ApiResource) -> Cow<'_, str> {
        dt.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
