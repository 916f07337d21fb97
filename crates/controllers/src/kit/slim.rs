//! Decoding of objects without fields that no controller reads.

use std::any::{Any, TypeId};

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

/// Takes out of a pod what is no use after reading: a container without ports is two kilobytes of fields that are not set.
pub fn tidy<K: 'static>(object: &mut K) {
    let object: &mut dyn Any = object;
    let Some(spec) = object
        .downcast_mut::<Pod>()
        .and_then(|pod| pod.spec.as_mut())
    else {
        return;
    };
    spec.containers
        .retain(|container| container.ports.is_some());
    spec.containers.shrink_to_fit();
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
