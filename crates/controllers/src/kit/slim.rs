//! Objects that are read without what no controller looks at.

use allot_apimachinery::lean;
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

crate::kit::resource::like_inner!(Slim, 0);
