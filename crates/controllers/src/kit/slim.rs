//! Objects that are read without what no controller looks at.

use std::borrow::Cow;

use allot_apimachinery::lean;
use kube::Resource;
use kube::core::ObjectMeta;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

/// An object without its `managedFields`: they make up a large part of the text, and as trees of
/// JSON most of the memory.
#[derive(Debug, Clone)]
pub struct Slim<K>(pub K);

impl<'de, K: DeserializeOwned> Deserialize<'de> for Slim<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        lean::read(deserializer, |of, field| {
            of != "ObjectMeta" || field != "managedFields"
        })
        .map(Self)
    }
}

impl<K: Resource> Resource for Slim<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }

    fn group(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }

    fn version(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }

    fn plural(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}
