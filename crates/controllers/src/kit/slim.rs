//! Decoding of objects without fields that no controller reads.

use std::any::TypeId;

use allot_reflector::Keep;
use k8s_openapi::api::core::v1::Pod;

#[cfg(test)]
mod tests;

/// The fields that are read of a kind: all but `managedFields`, which make up a large part of the text, and as JSON
/// trees most of the memory. Of pods, the most frequent kind, volumes are left out as well, and of their containers all
/// fields but those that services refer to.
pub fn keep<K: 'static>() -> Keep {
    // Only of pods themselves: the pods in templates are copied whole.
    match TypeId::of::<K>() == TypeId::of::<Pod>() {
        true => of_pod,
        false => of_object,
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
