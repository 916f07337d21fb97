//! Decoding of objects without fields that no controller reads.

use std::any::{Any, TypeId};

use allot_reflector::Keep;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceSlice;

#[cfg(test)]
mod tests;

/// The fields that are read of a kind: all but `managedFields`, which make up a large part of the text, and as JSON
/// trees most of the memory. Of pods, the most frequent kind, what only scheduler and kubelet use is left out as well, of
/// their containers all fields but those that services refer to, and of the state of containers what they were made of.
/// Of the devices in slices, which are many, attributes and capacity are left out: only allocating compares them.
pub fn keep<K: 'static>() -> Keep {
    let kind = TypeId::of::<K>();
    // Only of pods themselves: the pods in templates are copied whole.
    if kind == TypeId::of::<Pod>() {
        of_pod
    } else if kind == TypeId::of::<ResourceSlice>() {
        of_slice
    } else {
        of_object
    }
}

/// Takes out of a pod what is no use after reading: a container without ports is two kilobytes of fields that are not set,
/// and lists that have grown have room for more.
pub fn tidy<K: 'static>(object: &mut K) {
    let object: &mut dyn Any = object;
    let Some(pod) = object.downcast_mut::<Pod>() else {
        return;
    };
    if let Some(spec) = &mut pod.spec {
        spec.containers
            .retain(|container| container.ports.is_some());
        spec.containers.shrink_to_fit();
        if let Some(containers) = &mut spec.init_containers {
            containers.retain(|container| {
                container.ports.is_some() && container.restart_policy.is_some()
            });
        }
        spec.init_containers.take_if(|list| list.is_empty());
        shrink(&mut spec.init_containers);
        shrink(&mut spec.tolerations);
        shrink(&mut spec.resource_claims);
    }
    if let Some(status) = &mut pod.status {
        shrink(&mut status.conditions);
        shrink(&mut status.resource_claim_statuses);
    }
}

fn shrink<T>(list: &mut Option<Vec<T>>) {
    if let Some(list) = list {
        list.shrink_to_fit();
    }
}

fn of_object(of: &str, field: &str) -> bool {
    of != "ObjectMeta" || field != "managedFields"
}

fn of_pod(of: &str, field: &str) -> bool {
    match of {
        "PodSpec" => !matches!(
            field,
            "dnsConfig"
                | "dnsPolicy"
                | "ephemeralContainers"
                | "hostAliases"
                | "imagePullSecrets"
                | "nodeSelector"
                | "preemptionPolicy"
                | "schedulerName"
                | "securityContext"
                | "serviceAccount"
                | "serviceAccountName"
                | "topologySpreadConstraints"
                | "volumes"
        ),
        "ContainerStatus" => !matches!(
            field,
            "allocatedResources"
                | "allocatedResourcesStatus"
                | "containerID"
                | "image"
                | "imageID"
                | "resources"
                | "user"
                | "volumeMounts"
        ),
        "Container" => matches!(field, "name" | "ports" | "restartPolicy"),
        _ => of_object(of, field),
    }
}

fn of_slice(of: &str, field: &str) -> bool {
    match of {
        "ResourceSliceSpec" => matches!(field, "devices" | "driver" | "nodeName" | "pool"),
        "Device" => matches!(field, "name" | "nodeName" | "taints"),
        _ => of_object(of, field),
    }
}
