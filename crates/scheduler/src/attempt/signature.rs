//! What the plugins that look at nothing but a node read of a pod. Pods with one signature get the same answers from
//! them. The term is upstream's.

use k8s_openapi::api::core::v1::{NodeAffinity, Toleration};

use super::Attempt;
use crate::config::Profile;
use crate::pod::{HostPort, PodInfo};
use crate::resources::Resources;
use crate::selectors::LabelMap;

/// The signature of a pod. See the module.
#[derive(Debug)]
pub(super) struct PodSignature {
    profile: Profile,
    requests: Resources,
    nonzero: (i64, i64),
    ports: Vec<HostPort>,
    tolerations: Vec<Toleration>,
    node_selector: Option<LabelMap>,
    node_affinity: Option<NodeAffinity>,
}

impl PodSignature {
    /// Whether the plugins read of the pod no more than is in the signature.
    pub(super) fn is_possible(attempt: &Attempt<'_>) -> bool {
        let pod = attempt.pod;
        // Which extended resources devices provide depends on classes and devices.
        let extended = attempt.devices.as_ref().is_some_and(|d| d.has_extended());
        !extended && pod.disks.is_empty() && pod.node_name().is_none()
    }

    /// The signature of the pod of an attempt.
    pub(super) fn of(attempt: &Attempt<'_>) -> Self {
        let pod = attempt.pod;
        Self {
            profile: attempt.profile.clone(),
            requests: pod.requests.clone(),
            nonzero: pod.nonzero,
            ports: pod.ports.clone(),
            tolerations: pod.tolerations().to_vec(),
            node_selector: pod.spec().node_selector.clone(),
            node_affinity: node_affinity(pod).cloned(),
        }
    }

    /// Whether it is the signature of the pod of an attempt.
    pub(super) fn is_of(&self, attempt: &Attempt<'_>) -> bool {
        let pod = attempt.pod;
        let Self {
            profile,
            requests,
            nonzero,
            ports,
            tolerations,
            node_selector,
            node_affinity: affinity,
        } = self;
        *nonzero == pod.nonzero
            && *requests == pod.requests
            && *ports == pod.ports
            && *tolerations == pod.tolerations()
            && *node_selector == pod.spec().node_selector
            && affinity.as_ref() == node_affinity(pod)
            && profile == attempt.profile
    }
}

fn node_affinity(pod: &PodInfo) -> Option<&NodeAffinity> {
    pod.spec().affinity.as_ref()?.node_affinity.as_ref()
}
