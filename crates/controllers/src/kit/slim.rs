//! Objects that are read without what no controller looks at.

use std::any::TypeId;

use allot_apimachinery::lean;
use allot_reflector::Wire;
use k8s_openapi::api::core::v1::Pod;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use super::informer::Cached;

#[cfg(test)]
mod tests;

/// An object without its `managedFields`: they make up a large part of the text, and as trees of
/// JSON most of the memory. Of pods, which are most of what is read, the volumes are left out as well,
/// and of their containers all but what services refer to.
#[derive(Debug, Clone)]
pub struct Slim<K>(pub K);

impl<'de, K: DeserializeOwned + 'static> Deserialize<'de> for Slim<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Only of pods themselves: the pods in templates are copied whole.
        let keep = if TypeId::of::<K>() == TypeId::of::<Pod>() {
            of_pod
        } else {
            of_object
        };
        lean::read(deserializer, keep).map(Self)
    }
}

fn of_object(of: &str, field: &str) -> bool {
    of != "ObjectMeta" || field != "managedFields"
}

fn of_pod(of: &str, field: &str) -> bool {
    match of {
        "PodSpec" => !matches!(field, "volumes" | "ephemeralContainers"),
        "Container" => matches!(field, "name" | "ports"),
        _ => of_object(of, field),
    }
}

impl<K: Cached> Wire for Slim<K> {
    type Object = K;

    fn into_object(self) -> K {
        self.0
    }
}
