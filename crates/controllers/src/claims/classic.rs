//! Claims of releases before 1.31, which drivers or the scheduler of 1.30 allocate.
//!
//! Runs beside the controller for current claims if a server has both: the API shows each in the other form with a
//! mark, and marked objects are left to the other controller. Behaviour that a release did not have yet is left out: up
//! to 1.27 claims are named after their pod, keep the reservation of a finished pod, and pods that were bound without a
//! scheduler wait.

use std::sync::Arc;

use allot_client::discovery;
use allot_model::classic::objects::{AllocationMode, PodScheduling, ResourceClaim};
use allot_model::classic::{DELETE_PROTECTION, exchange};
use allot_reflector::Writes;
use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use kube::core::ApiResource;
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::{Value, json};

use super::BY_OWNER;
use super::create::Purpose;
use super::plan::{self, ClaimStep};
use crate::Error;
use crate::controller::api::{self, Part};
use crate::controller::context::Context;
use crate::controller::informer::{Informer, key};
use crate::controller::meta;
use crate::controller::versioned::Versioned;
use crate::served::ClassicVersion;
use allot_resourceclaim::POD_CLAIM_NAME_ANNOTATION;

#[cfg(test)]
mod tests;

/// A ResourceClaim in the version that the API server has, which may be from before 1.31.
pub(super) type Claim = Versioned<ResourceClaim>;
/// A template; copied as it is.
pub(super) type Template = Versioned<TemplateOnly>;
type Scheduling = Versioned<PodScheduling>;

/// Marks the type of templates.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct TemplateOnly {}

/// The classic side of the claim controller.
pub(super) struct Classic {
    client: Client,
    writes: Writes,
    version: ClassicVersion,
    pub(super) claims: Informer<Claim>,
    pub(super) templates: Informer<Template>,
    schedulings: Informer<Scheduling>,
}

/// Objects that are in the classic form only because a client requested it.
fn is_foreign<K: kube::Resource>(object: &K) -> bool {
    meta::annotation(object, exchange::NEWER).is_some()
}

/// Whether an object in the form of v1 is a classic one.
pub(super) fn is_classic<K: kube::Resource>(object: &K) -> bool {
    meta::annotation(object, exchange::CLASSIC).is_some()
}

/// The names that the claims of a pod have up to 1.27.
pub(super) fn deterministic_claims(pod: &Pod) -> Vec<String> {
    plan::pod_claims(pod)
        .filter(|c| c.resource_claim_name.is_none())
        .map(|c| {
            let name = format!("{}-{}", meta::name(pod), c.name);
            key(Some(meta::namespace(pod)), &name)
        })
        .collect()
}

impl Classic {
    pub(super) fn new(context: &Context, version: ClassicVersion) -> Self {
        Self {
            client: context.client.clone(),
            writes: context.writes.clone(),
            claims: context.informer_with(&version.resource("ResourceClaim", "resourceclaims")),
            templates: context.informer_with(
                &version.resource("ResourceClaimTemplate", "resourceclaimtemplates"),
            ),
            schedulings: context.informer_with(&version.scheduling()),
            version,
        }
    }

    /// Whether claims are named after their pod, and behaviour introduced in 1.28 is off.
    pub(super) fn is_early(&self) -> bool {
        self.version.deterministic_names
    }

    pub(super) fn watches(&self) -> &Informer<Claim> {
        self.claims.index(BY_OWNER, |claim| {
            let owner = meta::controller_of(kube::Resource::meta(claim));
            owner.map(|o| o.uid.clone()).into_iter().collect()
        })
    }

    pub(super) fn api(&self, namespace: &str) -> Api<Claim> {
        let resource = self.version.resource("ResourceClaim", "resourceclaims");
        Api::namespaced_with(self.client.clone(), namespace, &resource)
    }

    pub(super) fn find(&self, namespace: &str, name: &str) -> Option<Arc<Claim>> {
        let found = self.claims.find(namespace, name);
        found.filter(|claim| !is_foreign(&**claim))
    }

    pub(super) fn template(&self, namespace: &str, name: &str) -> Option<Arc<Template>> {
        let found = self.templates.find(namespace, name);
        found.filter(|template| !is_foreign(&**template))
    }

    /// The claim of an entry of a pod, as far as its name is known.
    pub(super) fn claim_of(&self, pod: &Pod, pod_claim: &PodResourceClaim) -> Option<Arc<Claim>> {
        let namespace = meta::namespace(pod);
        if self.is_early() && pod_claim.resource_claim_name.is_none() {
            let name = format!("{}-{}", meta::name(pod), pod_claim.name);
            return self.find(namespace, &name);
        }
        self.find(namespace, plan::claim_name(pod, pod_claim)?)
    }

    /// Whether an existing claim needs work.
    pub(super) fn needs_work(
        &self,
        pod: &Pod,
        pod_claim: &PodResourceClaim,
        claim: &Claim,
    ) -> bool {
        let generated = pod_claim.resource_claim_template_name.is_some();
        let bound = !meta::node_name(pod).is_empty();
        (generated && !is_for_pod(claim, pod))
            || (bound && !self.is_early() && prescheduled(pod, claim) != Help::None)
    }

    /// Finds or creates the claim for an entry of the pod; `None` if the pod's status has it already.
    pub(super) async fn claim_for(
        &self,
        pod: &Pod,
        pod_claim: &PodResourceClaim,
        template: &Template,
    ) -> Result<Option<String>, Error> {
        let namespace = meta::namespace(pod);
        if let Some(claim) = self.claim_of(pod, pod_claim) {
            if is_for_pod(&claim, pod) {
                return Ok(None);
            }
            if self.is_early() {
                return Err(not_owner(&claim, pod));
            }
        }
        if !self.is_early() {
            let owned = self.claims.by_index(BY_OWNER, meta::uid(pod));
            let made = owned.iter().find(|c| {
                meta::namespace(&***c) == namespace
                    && meta::annotation(&***c, POD_CLAIM_NAME_ANNOTATION) == Some(&pod_claim.name)
                    && !meta::deleting(&***c)
                    && !is_foreign(&***c)
            });
            if let Some(claim) = made {
                return Ok(Some(meta::name(&**claim).to_owned()));
            }
        }
        let body = self.new_claim(pod, &pod_claim.name, template.at("/spec"));
        let claims = self.api(namespace);
        if self.is_early() {
            self.claims
                .assume(api::create(&self.client, &claims, &body).await?);
            return Ok(None);
        }
        let purpose = Purpose {
            owner: plan::Owner::pod(pod),
            entry: &pod_claim.name,
            before: plan::claim_name(pod, pod_claim),
        };
        let claim = purpose.create(&self.writes, &claims, body).await?;
        let name = meta::name(&claim).to_owned();
        self.claims.assume(claim);
        Ok(Some(name))
    }

    /// The claim to create for an entry of the pod, from the `spec` of the template.
    fn new_claim(&self, pod: &Pod, pod_claim: &str, template: &Value) -> Value {
        let mut body = plan::new_claim(&plan::Owner::pod(pod), pod_claim, template);
        body["apiVersion"] = json!(self.version.api_version());
        body["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = json!(true);
        if self.is_early() {
            let metadata = &mut body["metadata"];
            metadata["name"] = json!(format!("{}-{pod_claim}", meta::name(pod)));
            if let Some(map) = metadata.as_object_mut() {
                map.remove("generateName");
            }
            if let Some(annotations) = metadata["annotations"].as_object_mut() {
                annotations.remove(POD_CLAIM_NAME_ANNOTATION);
            }
        }
        body
    }

    /// Does for a pod that was bound without a scheduler what the scheduler would have done about a claim. Returns
    /// whether the claim is allocated.
    pub(super) async fn preschedule(
        &self,
        pod: &Pod,
        pod_claim: &PodResourceClaim,
        claim: &Claim,
    ) -> Result<bool, Error> {
        if pod_claim.resource_claim_template_name.is_some() && !is_for_pod(claim, pod) {
            return Err(not_owner(claim, pod));
        }
        if self.is_early() {
            return Ok(true);
        }
        match prescheduled(pod, claim) {
            Help::None => {}
            Help::Negotiate => {
                self.select(pod).await?;
                return Ok(false);
            }
            Help::Reserve => {
                let mut reserved = claim.at("/status/reservedFor").clone();
                if !reserved.is_array() {
                    reserved = json!([]);
                }
                let own = json!(plan::pod_reference(pod));
                reserved
                    .as_array_mut()
                    .into_iter()
                    .for_each(|r| r.push(own.clone()));
                let body = json!({
                    "metadata": api::unchanged(claim),
                    "status": {"reservedFor": reserved},
                });
                let claims = self.api(meta::namespace(pod));
                let updated = api::patch(&claims, meta::name(claim), Part::Status, &body).await?;
                self.claims.assume(updated);
            }
        }
        Ok(true)
    }

    /// Publishes the node that a pod is bound to for the drivers.
    async fn select(&self, pod: &Pod) -> Result<(), Error> {
        let resource = self.version.scheduling();
        let (namespace, name) = (meta::namespace(pod), meta::name(pod));
        let schedulings: Api<Scheduling> =
            Api::namespaced_with(self.client.clone(), namespace, &resource);
        let node = meta::node_name(pod);
        let written = match self.schedulings.find(namespace, name) {
            Some(found)
                if !meta::is_controlled_by(kube::Resource::meta(&*found), meta::uid(pod)) =>
            {
                return Err(Error::Invalid(format!(
                    "{} {namespace}/{name} with UID {} is not owned by Pod with UID {}",
                    resource.kind,
                    meta::uid(&*found),
                    meta::uid(pod)
                )));
            }
            Some(found) if found.spec.selected_node == node => return Ok(()),
            Some(found) => {
                let body = json!({"metadata": api::same(&*found), "spec": {"selectedNode": node}});
                api::patch(&schedulings, name, Part::Main, &body).await?
            }
            None => {
                let body = json!({
                    "apiVersion": resource.api_version,
                    "kind": resource.kind,
                    "metadata": {
                        "name": name,
                        "namespace": namespace,
                        "ownerReferences": [meta::controller_ref(pod)],
                    },
                    "spec": {"selectedNode": node},
                });
                api::create(&self.client, &schedulings, &body).await?
            }
        };
        self.schedulings.assume(written);
        Ok(())
    }
}

/// Whether the claim was generated for that pod.
pub(super) fn is_for_pod(claim: &Claim, pod: &Pod) -> bool {
    meta::is_controlled_by(kube::Resource::meta(claim), meta::uid(pod))
}

fn not_owner(claim: &Claim, pod: &Pod) -> Error {
    let namespace = meta::namespace(pod);
    Error::Invalid(format!(
        "ResourceClaim {namespace}/{} was not created for Pod {namespace}/{} (Pod is not owner)",
        meta::name(claim),
        meta::name(pod)
    ))
}

/// What a pod that is bound needs for a claim.
#[derive(Debug, PartialEq, Eq)]
enum Help {
    None,
    /// Its driver must get the selected node.
    Negotiate,
    /// The claim must be reserved for the pod.
    Reserve,
}

fn prescheduled(pod: &Pod, claim: &Claim) -> Help {
    if claim.is_reserved_for(meta::uid(pod)) || meta::deleting(claim) {
        return Help::None;
    }
    match &claim.status.allocation {
        None if claim.spec.allocation_mode == AllocationMode::WaitForFirstConsumer => {
            Help::Negotiate
        }
        Some(allocation)
            if !claim.status.deallocation_requested
                && (allocation.shareable || claim.status.reserved_for.is_empty()) =>
        {
            Help::Reserve
        }
        _ => Help::None,
    }
}

/// The writes that release a claim, given the consumers that remain (by UID). Up to 1.27 a claim is deallocated only
/// when it is deleted.
pub(super) fn release(claim: &ResourceClaim, needed: &[String], early: bool) -> Vec<ClaimStep> {
    let finalizers = claim.metadata.finalizers.as_deref().unwrap_or_default();
    let structured = finalizers.iter().any(|f| f == DELETE_PROTECTION);
    let deleting = claim.metadata.deletion_timestamp.is_some();
    let delayed = claim.spec.allocation_mode == AllocationMode::WaitForFirstConsumer;
    let shrank = needed.len() < claim.status.reserved_for.len();
    let mut status = json!({});
    let mut allocated = claim.status.allocation.is_some();
    if shrank {
        let rest = claim
            .status
            .reserved_for
            .iter()
            .filter(|c| needed.contains(&c.uid));
        let rest: Vec<_> = rest.collect();
        status["reservedFor"] = if rest.is_empty() {
            Value::Null
        } else {
            json!(rest)
        };
    }
    if needed.is_empty() && allocated && (shrank || deleting) {
        if structured && (delayed || deleting) {
            status["allocation"] = Value::Null;
            status["driverName"] = Value::Null;
            allocated = false;
        } else if shrank && !structured && delayed && !early {
            status["deallocationRequested"] = json!(true);
        }
    }
    let mut steps = Vec::new();
    let changed = status.as_object().is_some_and(|s| !s.is_empty());
    if structured && !allocated && needed.is_empty() && (changed || deleting) {
        let rest = finalizers.iter().filter(|f| *f != DELETE_PROTECTION);
        steps.push(ClaimStep::RemoveFinalizer(rest.cloned().collect()));
    }
    if changed {
        steps.insert(0, ClaimStep::Status(status));
    }
    steps
}

impl ClassicVersion {
    /// A kind in the version that is served.
    fn resource(&self, kind: &str, plural: &str) -> ApiResource {
        discovery::resource(allot_model::GROUP, self.version, kind, plural)
    }

    fn api_version(&self) -> String {
        format!("{}/{}", allot_model::GROUP, self.version)
    }

    /// How the server calls the negotiations about nodes.
    fn scheduling(&self) -> ApiResource {
        match self.version {
            "v1alpha1" => self.resource("PodScheduling", "podschedulings"),
            _ => self.resource("PodSchedulingContext", "podschedulingcontexts"),
        }
    }
}
