//! Node resources of a pod's claims, as recorded in the pod's status (DRANodeAllocatableResources).

use k8s_openapi::api::core::v1::{NodeAllocatableResourceClaimStatus, Pod};

use super::Resources;

/// The sum of the node resources that come with claims.
pub fn total(claims: &[NodeAllocatableResourceClaimStatus]) -> Resources {
    let mut sum = Resources::default();
    for claim in claims {
        sum.add(&Resources::from_list(Some(&claim.resources)));
    }
    sum
}

/// The requests of a pod on its node for the node resources in its status. Pod-level requests include them.
pub fn recorded(pod: &Pod, claims: &[NodeAllocatableResourceClaimStatus]) -> Resources {
    besides_pod_level(pod, total(claims))
}

/// The part that the requests of the pod as a whole do not cover.
pub fn besides_pod_level(pod: &Pod, mut node_allocatable: Resources) -> Resources {
    let spec = pod.spec.as_ref();
    let level = spec.and_then(|s| s.resources.as_ref()?.requests.as_ref());
    for name in level.into_iter().flatten().map(|(name, _)| name.as_str()) {
        match name {
            "cpu" => node_allocatable.milli_cpu = 0,
            "memory" => node_allocatable.memory = 0,
            "ephemeral-storage" => node_allocatable.ephemeral = 0,
            name => node_allocatable.set_scalar(name, 0),
        }
    }
    node_allocatable
}
