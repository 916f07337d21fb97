//! A pod that is assumed on the node it would be placed on, so that the next one can be explained.

use std::sync::Arc;

use allot_reflector::Observed;
use allot_scheduler::core::{Chosen, Input};
use allot_scheduler::pod::{Key, PodInfo};
use k8s_openapi::api::resource::v1::{
    AllocationResult, ResourceClaim, ResourceClaimConsumerReference,
};

use super::LoadedScheduler;

impl LoadedScheduler {
    /// Shows the scheduler the pod on its node, with the claims that it gets there.
    pub fn place(&mut self, namespace: &str, name: &str, chosen: &Chosen) {
        let key = (namespace.to_owned(), name.to_owned());
        let Some(pod) = self.pods.get(&key).cloned() else {
            return;
        };
        for (claim, allocation) in &chosen.allocations {
            self.allocate(claim, allocation, &pod);
        }
        let mut bound = (*pod.pod).clone();
        if let Some(spec) = &mut bound.spec {
            spec.node_name = Some(chosen.node.to_string());
        }
        let bound = Arc::new(PodInfo::observed(bound));
        let observed = Observed::Applied(Box::new(bound));
        self.core.handle(Input::Pod(observed), self.time);
    }

    fn allocate(&mut self, key: &Key, allocation: &Arc<AllocationResult>, pod: &PodInfo) {
        let known = self.core.claims().get(key).map(|claim| (**claim).clone());
        let mut claim = known.unwrap_or_else(|| {
            // The one that the scheduler creates for extended resources.
            let mut claim = ResourceClaim::default();
            claim.metadata.namespace = Some(key.namespace.to_string());
            claim.metadata.name = Some(key.name.to_string());
            claim.metadata.uid = Some(format!("made-for-{}", pod.uid));
            claim
        });
        let version = claim.metadata.resource_version.as_deref();
        let version: u64 = version.and_then(|v| v.parse().ok()).unwrap_or(0);
        claim.metadata.resource_version = Some((version + 1).to_string());
        let status = claim.status.get_or_insert_default();
        status.allocation = Some((**allocation).clone());
        let reserved = status.reserved_for.get_or_insert_default();
        reserved.push(ResourceClaimConsumerReference {
            api_group: None,
            resource: "pods".to_owned(),
            name: pod.key.name.to_string(),
            uid: pod.uid.to_string(),
        });
        let consumer = pod.key.to_string();
        self.reserved
            .entry(key.to_string())
            .or_default()
            .push(consumer);
        let observed = Observed::Applied(Box::new(claim));
        self.core.handle(Input::Claim(observed), self.time);
    }
}
