//! PodGroups that share claims, whichever version of the API serves them.
//!
//! A claim that a pod and its group name alike belongs to the group: it is created once, reserved for the group instead
//! of each of its pods, and released when the group is deleted. The other functions of groups are in [`super`].

use std::sync::Arc;

use allot_resourceclaim::{POD_GROUP_API_GROUP, POD_GROUP_RESOURCE, is_consumer};
use k8s_openapi::api::core::v1::PodResourceClaim;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use kube::api::DynamicObject;
use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::Value;

use super::Condition;
use crate::pod::{Key, PodInfo, Uid};

/// The fields of a PodGroup that matter for scheduling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodGroup {
    /// Namespace and name.
    pub key: Key,
    /// UID of the PodGroup.
    pub uid: Uid,
    /// How many of its pods must be placed at once; `None` if each pod is placed on its own.
    pub min_count: Option<usize>,
    /// The priority that admission computed; zero without one.
    pub priority: i32,
    /// Its pods can only be preempted together (`disruptionMode`).
    pub is_disrupted_as_a_whole: bool,
    /// The version of its specification.
    pub generation: Option<i64>,
    /// The condition in its status.
    pub condition: Option<Condition>,
    claims: Vec<GroupClaim>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroupClaim {
    name: String,
    resource_claim_name: Option<String>,
    resource_claim_template_name: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    resource_claims: Vec<GroupClaim>,
    scheduling_policy: Policy,
    priority: Option<i32>,
    disruption_mode: Value,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Policy {
    gang: Option<Gang>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Gang {
    min_count: usize,
}

impl PodGroup {
    /// Reads a group of any version: the parts used here are the same in all of them.
    pub fn read(object: &DynamicObject) -> Option<Self> {
        let (name, meta) = (object.metadata.name.as_deref()?, &object.metadata);
        let spec = object.data.get("spec")?.clone();
        let spec: Spec = serde_json::from_value(spec)
            .inspect_err(|error| tracing::warn!(name, %error, "cannot read PodGroup"))
            .ok()?;
        Some(Self {
            key: Key::new(meta.namespace.as_deref().unwrap_or_default(), name),
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            min_count: spec.scheduling_policy.gang.map(|g| g.min_count),
            priority: spec.priority.unwrap_or_default(),
            // Up to 1.36 a name, since 1.37 an object.
            is_disrupted_as_a_whole: spec.disruption_mode == "PodGroup"
                || spec.disruption_mode["all"].is_object(),
            generation: meta.generation,
            condition: Condition::of(&object.data["status"]),
            claims: spec.resource_claims,
        })
    }

    /// Whether two versions of a group are the same to its pods.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.uid, &self.claims, self.min_count) == (&other.uid, &other.claims, other.min_count)
    }

    /// Whether an entry of a pod refers to a claim of the group.
    fn has(&self, entry: &PodResourceClaim) -> bool {
        self.claims.iter().any(|c| {
            c.name == entry.name
                && c.resource_claim_name == entry.resource_claim_name
                && c.resource_claim_template_name == entry.resource_claim_template_name
        })
    }

    /// Whether the claim was generated for the group.
    pub fn owns(&self, claim: &ResourceClaim) -> bool {
        let owners = claim.metadata.owner_references.iter().flatten();
        owners.into_iter().any(|o| {
            o.controller == Some(true)
                && o.kind == "PodGroup"
                && o.api_version.split('/').next() == Some(POD_GROUP_API_GROUP)
                && *o.uid == *self.uid
        })
    }
}

/// Whether a reservation is one for a pod, or for the group that it is in.
pub fn serves(user: &ResourceClaimConsumerReference, pod: &PodInfo) -> bool {
    is_consumer(user, &pod.uid, pod.group())
}

/// The PodGroups by namespace and name.
pub type Groups = FxHashMap<Key, Arc<PodGroup>>;

/// The consumer that a claim is reserved for: a pod, or the PodGroup that it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consumer {
    /// UID of the pod or PodGroup.
    pub uid: Uid,
    name: String,
    is_group: bool,
}

impl Consumer {
    /// The pod itself.
    pub fn pod(pod: &PodInfo) -> Self {
        Self {
            uid: pod.uid.clone(),
            name: pod.key.name.to_string(),
            is_group: false,
        }
    }

    /// The consumer of the claim behind an entry of a pod.
    pub fn of(pod: &PodInfo, group: Option<&PodGroup>, entry: &PodResourceClaim) -> Self {
        match group.filter(|g| g.has(entry)) {
            Some(group) => Self {
                uid: group.uid.clone(),
                name: group.key.name.to_string(),
                is_group: true,
            },
            None => Self::pod(pod),
        }
    }

    /// Whether the consumer is a PodGroup; otherwise it is a pod.
    pub fn is_group(&self) -> bool {
        self.is_group
    }

    /// The entry in a claim's status.
    pub fn reference(&self) -> ResourceClaimConsumerReference {
        ResourceClaimConsumerReference {
            api_group: self.is_group.then(|| POD_GROUP_API_GROUP.to_owned()),
            resource: if self.is_group {
                POD_GROUP_RESOURCE
            } else {
                "pods"
            }
            .to_owned(),
            name: self.name.clone(),
            uid: self.uid.to_string(),
        }
    }
}
