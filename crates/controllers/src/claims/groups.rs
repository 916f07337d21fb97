//! PodGroups with claims of their own, in the served version.
//!
//! An entry that a pod and its group name alike belongs to the group: its claim is created once, for the group, and
//! reserved for it as long as it exists. Behaviour is that of 1.36 with DRAWorkloadResourceClaims; without the gate the
//! API server drops the fields, and this module has no work.

use std::sync::Arc;

use allot_resourceclaim::{POD_GROUP_API_GROUP, POD_GROUP_RESOURCE, is_consumer};
use k8s_openapi::api::core::v1::{ObjectReference, Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use kube::Api;
use kube::core::ApiResource;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::create::Purpose;
use super::plan::Owner;
use crate::Error;
use crate::controller::api::{self, Part};
use crate::controller::context::Context;
use crate::controller::events::Level;
use crate::controller::informer::{Informer, key, split_key};
use crate::controller::meta;

/// The part of a PodGroup's spec that is about claims.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Spec {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    resource_claims: Vec<PodResourceClaim>,
}

/// The part of a PodGroup's status that names its claims.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    resource_claim_statuses: Vec<ClaimStatus>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimStatus {
    name: String,
    resource_claim_name: Option<String>,
}

/// A group as far as it is about claims.
pub(crate) type PodGroup = kube::core::Object<Spec, Status>;

/// The groups that a server has.
pub(super) struct Groups {
    pub(super) resource: ApiResource,
    pub(super) groups: Informer<PodGroup>,
}

/// The name of the group that a pod is in.
pub(crate) fn name_of(pod: &Pod) -> Option<&str> {
    let group = pod.spec.as_ref()?.scheduling_group.as_ref()?;
    group.pod_group_name.as_deref()
}

/// Index of pods by the key of their group.
pub(crate) const BY_GROUP: &str = "group";

/// The keys of a pod in the index [`BY_GROUP`].
pub(crate) fn of_pod(pod: &Pod) -> Vec<String> {
    let name = name_of(pod).into_iter();
    name.map(|n| key(Some(meta::namespace(pod)), n)).collect()
}

/// Whether a claim is reserved for a pod, or for the group that it is in.
pub(crate) fn is_reserved_for(claim: &ResourceClaim, pod: &Pod) -> bool {
    let mut consumers = allot_resourceclaim::consumers(claim).iter();
    consumers.any(|consumer| is_consumer(consumer, meta::uid(pod), name_of(pod)))
}

/// Whether a claim was generated for the group of a pod.
pub(crate) fn is_for_group_of(claim: &ResourceClaim, pod: &Pod) -> bool {
    let Some(group) = name_of(pod) else {
        return false;
    };
    meta::controller_of(&claim.metadata).is_some_and(|owner| {
        owner.kind == "PodGroup"
            && owner.name == group
            && owner.api_version.split('/').next() == Some(POD_GROUP_API_GROUP)
    })
}

impl Groups {
    pub(super) fn new(context: &Context, resource: ApiResource) -> Self {
        let groups = context.informer_with(&resource);
        Self { resource, groups }
    }

    /// Whether a pod's PodGroup is not known (yet).
    pub(super) fn is_missing(&self, pod: &Pod) -> bool {
        let known = |name| self.groups.find(meta::namespace(pod), name).is_some();
        name_of(pod).is_some_and(|name| !known(name))
    }

    /// The group that an entry of a pod belongs to.
    pub(super) fn of(&self, pod: &Pod, entry: &PodResourceClaim) -> Option<Arc<PodGroup>> {
        let group = self.groups.find(meta::namespace(pod), name_of(pod)?)?;
        let same = |e: &&PodResourceClaim| {
            e.name == entry.name
                && e.resource_claim_name == entry.resource_claim_name
                && e.resource_claim_template_name == entry.resource_claim_template_name
        };
        let has = entries(&group).iter().any(|e| same(&e));
        has.then_some(group)
    }
}

/// The claims that a group has.
pub(super) fn entries(group: &PodGroup) -> &[PodResourceClaim] {
    &group.spec.resource_claims
}

/// The object behind a claim of a group; `None` while it is unknown.
pub(super) fn claim_name<'a>(group: &'a PodGroup, entry: &'a PodResourceClaim) -> Option<&'a str> {
    if let Some(name) = &entry.resource_claim_name {
        return Some(name);
    }
    let mut statuses = group
        .status
        .iter()
        .flat_map(|s| s.resource_claim_statuses.iter());
    let status = statuses.find(|s| s.name == entry.name)?;
    status.resource_claim_name.as_deref()
}

/// The claims that a group has, by key.
pub(super) fn claims_of(group: &PodGroup) -> Vec<String> {
    let namespace = meta::namespace(group);
    let names = entries(group).iter().filter_map(|e| claim_name(group, e));
    names.map(|n| key(Some(namespace), n)).collect()
}

/// The templates that a group uses, by key.
pub(super) fn templates_of(group: &PodGroup) -> Vec<String> {
    let namespace = meta::namespace(group);
    let names = entries(group)
        .iter()
        .filter_map(|e| e.resource_claim_template_name.as_deref());
    names.map(|n| key(Some(namespace), n)).collect()
}

/// The whole of `status.resourceClaimStatuses` with the new names in it, in the order of the spec.
pub(super) fn statuses(group: &PodGroup, new: &[(String, String)]) -> Vec<Value> {
    let generated = entries(group)
        .iter()
        .filter(|e| e.resource_claim_template_name.is_some());
    generated
        .filter_map(|entry| {
            let found = new.iter().find(|(n, _)| *n == entry.name);
            let name = match found {
                Some((_, name)) => name.as_str(),
                None => claim_name(group, entry)?,
            };
            Some(json!({"name": entry.name, "resourceClaimName": name}))
        })
        .collect()
}

/// The reservation of a group.
pub(super) fn reference(group: &PodGroup) -> ResourceClaimConsumerReference {
    ResourceClaimConsumerReference {
        api_group: Some(POD_GROUP_API_GROUP.to_owned()),
        resource: POD_GROUP_RESOURCE.to_owned(),
        name: meta_name(group).to_owned(),
        uid: group.metadata.uid.clone().unwrap_or_default(),
    }
}

pub(super) fn meta_name(group: &PodGroup) -> &str {
    group.metadata.name.as_deref().unwrap_or_default()
}

impl super::Claims {
    /// Creates the claims of a group and writes their names into its status.
    pub(super) async fn sync_group(&self, key: &str) -> Result<(), Error> {
        let found = self
            .groups
            .as_ref()
            .and_then(|g| Some((g, g.groups.get(key)?)));
        let Some((groups, group)) = found.filter(|(_, g)| g.metadata.deletion_timestamp.is_none())
        else {
            return Ok(());
        };
        let (namespace, name) = split_key(key);
        let owner = Owner {
            api_version: &groups.resource.api_version,
            kind: &groups.resource.kind,
            namespace,
            name,
            uid: group.metadata.uid.as_deref().unwrap_or_default(),
        };
        let mut names: Vec<(String, String)> = Vec::new();
        for entry in entries(&group) {
            let Some(template) = &entry.resource_claim_template_name else {
                continue;
            };
            let known = claim_name(&group, entry);
            if let Some(known) = known
                && let Some(claim) = self.recorded(namespace, known).await?
                && meta::is_controlled_by(&claim.metadata, owner.uid)
            {
                continue;
            }
            let purpose = Purpose {
                owner,
                entry: &entry.name,
                before: known,
            };
            match self.generate(purpose, template).await {
                Ok(claim) => names.push((entry.name.clone(), claim)),
                Err(error) if error.is_namespace_terminating() => return Ok(()),
                Err(error) => {
                    let about = ObjectReference {
                        api_version: Some(owner.api_version.to_owned()),
                        kind: Some(owner.kind.to_owned()),
                        namespace: Some(namespace.to_owned()),
                        name: Some(name.to_owned()),
                        uid: group.metadata.uid.clone(),
                        ..ObjectReference::default()
                    };
                    self.events.event(
                        about,
                        Level::Warning,
                        "FailedResourceClaimCreation",
                        format!("PodGroupResourceClaim {}: {error}", entry.name),
                    );
                    return Err(error);
                }
            }
        }
        if names.is_empty() {
            return Ok(());
        }
        let statuses = statuses(&group, &names);
        let body = json!({
            "metadata": {"uid": owner.uid, "resourceVersion": group.metadata.resource_version},
            "status": {"resourceClaimStatuses": statuses},
        });
        let api: Api<PodGroup> =
            Api::namespaced_with(self.client.clone(), namespace, &groups.resource);
        match api::patch(&api, name, Part::Status, &body).await {
            Ok(group) => {
                groups.groups.assume(group);
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }
}
