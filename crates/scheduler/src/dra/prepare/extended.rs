//! The claim that a pod gets for the extended resources that devices provide.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use allot_resourceclaim::EXTENDED_RESOURCE_CLAIM_ANNOTATION;
use k8s_openapi::api::core::v1::ContainerExtendedResourceRequest;
use k8s_openapi::api::resource::v1::{
    DeviceClaim, DeviceRequest, ResourceClaim, ResourceClaimSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use parking_lot::Mutex;

use super::{DraContext, PLUGIN};
use crate::device_allocator::AllocationRequest;
use crate::dra::extended;
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::status::Rejection;

/// The extended resource claim of a pod that requests extended resources.
#[derive(Debug)]
pub(super) struct ExtendedResources {
    pod: Arc<PodInfo>,
    /// Resource and class.
    pub(super) resources: Vec<(String, String)>,
    /// Left over from an earlier attempt.
    pub(super) stale: Option<Arc<ResourceClaim>>,
    /// A request per set of resources that devices have to provide.
    requests: Mutex<BTreeMap<u64, Arc<ExtendedResourceRequest>>>,
}

#[derive(Debug)]
pub(super) struct ExtendedResourceRequest {
    pub(super) claim: Arc<ResourceClaim>,
    pub(super) mappings: Vec<ContainerExtendedResourceRequest>,
    pub(super) request: AllocationRequest,
    /// Together with the other claims of the pod.
    both: OnceLock<Arc<AllocationRequest>>,
}

impl ExtendedResourceRequest {
    /// The request together with the other claims of the pod, which are the same on every node.
    pub(super) fn with<'c>(
        &self,
        pod: &PodInfo,
        others: impl Iterator<Item = Cow<'c, ResourceClaim>>,
        cx: &DraContext<'_>,
    ) -> Arc<AllocationRequest> {
        let both = self.both.get_or_init(|| {
            let others: Vec<Cow<'_, ResourceClaim>> = others.collect();
            let all = others.iter().map(|c| &**c).chain([&*self.claim]);
            Arc::new(cx.request(pod, &all.collect::<Vec<_>>()))
        });
        both.clone()
    }
}

impl ExtendedResources {
    pub(super) fn new(pod: &Arc<PodInfo>, cx: &DraContext<'_>) -> Option<Self> {
        if !cx.extended_resources {
            return None;
        }
        let wanted = pod.requests.scalars.iter().filter(|(_, n)| *n > 0);
        let resources: Vec<(String, String)> = wanted
            .filter_map(|(name, _)| {
                Some((name.to_string(), cx.classes.for_resource(name)?.to_owned()))
            })
            .collect();
        if resources.is_empty() {
            return None;
        }
        let stale = cx
            .claims
            .extended_resource_claims_of(&pod.uid)
            .next()
            .cloned();
        Some(Self {
            pod: pod.clone(),
            resources,
            stale,
            requests: Mutex::default(),
        })
    }

    /// The request on a node; `None` when the node provides all resources itself.
    pub(super) fn on_node(
        &self,
        node: &NodeInfo,
        cx: &DraContext<'_>,
    ) -> Result<Option<Arc<ExtendedResourceRequest>>, Rejection> {
        let mut mask = 0u64;
        for (i, (resource, _)) in self.resources.iter().enumerate().take(64) {
            if node.allocatable.scalar(resource) == 0 {
                mask |= 1 << i;
            }
        }
        if mask == 0 {
            return Ok(None);
        }
        if self.stale.is_some() {
            return Err(Rejection::unresolvable(
                PLUGIN,
                "cannot schedule extended resource claim",
            ));
        }
        Ok(Some(self.of(mask, cx)))
    }

    fn of(&self, mask: u64, cx: &DraContext<'_>) -> Arc<ExtendedResourceRequest> {
        let mut requests = self.requests.lock();
        let made = requests
            .entry(mask)
            .or_insert_with(|| Arc::new(self.request(mask, cx)));
        made.clone()
    }

    fn request(&self, mask: u64, cx: &DraContext<'_>) -> ExtendedResourceRequest {
        let chosen = self
            .resources
            .iter()
            .enumerate()
            .filter(|(i, _)| mask >> i & 1 == 1);
        let resources: Vec<(String, String)> = chosen.map(|(_, r)| r.clone()).collect();
        let extended::Requests { requests, mappings } = extended::requests(&self.pod, &resources);
        let claim = extended_resource_claim(&self.pod, requests);
        let request = cx.request(&self.pod, &[&claim]);
        ExtendedResourceRequest {
            claim: Arc::new(claim),
            mappings,
            request,
            both: OnceLock::new(),
        }
    }
}

/// The extended resource claim as it exists in memory.
fn extended_resource_claim(pod: &PodInfo, requests: Vec<DeviceRequest>) -> ResourceClaim {
    ResourceClaim {
        metadata: ObjectMeta {
            name: Some(extended::IN_MEMORY_NAME.to_owned()),
            generate_name: Some(format!("{}-extended-resources-", pod.key.name)),
            namespace: Some(pod.key.namespace.to_string()),
            // Identifies the claim until the API server assigns its UID.
            uid: Some(format!("{}/extended-resources", pod.uid)),
            annotations: Some(
                [(
                    EXTENDED_RESOURCE_CLAIM_ANNOTATION.to_owned(),
                    "true".to_owned(),
                )]
                .into(),
            ),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Pod".to_owned(),
                name: pod.key.name.to_string(),
                uid: pod.uid.to_string(),
                controller: Some(true),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: ResourceClaimSpec {
            devices: Some(DeviceClaim {
                requests: Some(requests),
                ..DeviceClaim::default()
            }),
        },
        status: None,
    }
}
