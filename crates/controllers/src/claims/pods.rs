//! Pods: their claims are generated from templates, recorded in their status, and reserved for pods that are bound
//! without a scheduler.

use std::sync::Arc;

use allot_resourceclaim::{Change, FINALIZER, consumers, is_for_pod};
use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use serde_json::json;

use super::create::Purpose;
use super::groups::{self, PodGroup};
use super::plan::{self, Owner};
use super::{BY_OWNER, Claims, classic};
use crate::Error;
use crate::controller::api::{self, Part};
use crate::controller::events::{Level, reference};
use crate::controller::meta;

impl Claims {
    pub(super) async fn sync_pod(&self, key: &str) -> Result<(), Error> {
        let Some(pod) = self.pods.get(key) else {
            return Ok(());
        };
        if meta::deleting(&*pod) || plan::is_done(&pod) {
            return Ok(());
        }
        let mut names: Vec<(String, String)> = Vec::new();
        for pod_claim in plan::pod_claims(&pod) {
            let Some(template) = &pod_claim.resource_claim_template_name else {
                continue;
            };
            if plan::needs_none(&pod, pod_claim) {
                continue;
            }
            match self.claim_for(&pod, pod_claim, template).await {
                Ok(Some(name)) => names.push((pod_claim.name.clone(), name)),
                Ok(None) => {}
                Err(error) if error.is_namespace_terminating() => return Ok(()),
                Err(error) => {
                    self.events.event(
                        reference(&*pod),
                        Level::Warning,
                        "FailedResourceClaimCreation",
                        format!("PodResourceClaim {}: {error}", pod_claim.name),
                    );
                    return Err(error);
                }
            }
        }
        if !names.is_empty() {
            self.record(&pod, &names).await?;
        }
        if !meta::node_name(&pod).is_empty() {
            self.reserve(&pod, &names).await?;
        }
        Ok(())
    }

    /// A claim whose name a pod has. The scheduler may be using it already: that the cache does not have it (yet) must
    /// not lead to another one.
    pub(super) async fn recorded(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<ResourceClaim>>, Error> {
        let newer = |claim: &Arc<ResourceClaim>| !classic::is_classic(&**claim);
        if let Some(claim) = self.claims.find(namespace, name) {
            return Ok(Some(claim).filter(newer));
        }
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), namespace);
        let Some(claim) = api::get(&claims, name).await? else {
            return Ok(None);
        };
        self.claims.assume(claim.clone());
        Ok(Some(Arc::new(claim)).filter(newer))
    }

    /// The PodGroup that an entry of a pod belongs to.
    fn group_of(&self, pod: &Pod, entry: &PodResourceClaim) -> Option<Arc<PodGroup>> {
        self.groups.as_ref()?.of(pod, entry)
    }

    /// Finds or creates the claim for an entry of the pod; `None` if the pod's status has it already.
    async fn claim_for(
        &self,
        pod: &Pod,
        pod_claim: &PodResourceClaim,
        template: &str,
    ) -> Result<Option<String>, Error> {
        let namespace = meta::namespace(pod);
        let known = plan::claim_name(pod, pod_claim);
        if let Some(group) = self.group_of(pod, pod_claim) {
            // The pod follows its group, unless it is on a node with its claims.
            if !meta::node_name(pod).is_empty()
                && let Some(known) = known
                && self.recorded(namespace, known).await?.is_some()
            {
                return Ok(None);
            }
            let name = groups::claim_name(&group, pod_claim);
            let news = name.filter(|n| known != Some(n));
            return Ok(news.map(str::to_owned));
        }
        if known.is_none() && self.groups.as_ref().is_some_and(|g| g.is_missing(pod)) {
            // Whether the claim belongs to the group is known when the group is, which queues the pod again.
            return Ok(None);
        }
        if let Some(classic) = &self.classic
            && let Some(found) = classic.template(namespace, template)
        {
            return classic.claim_for(pod, pod_claim, &found).await;
        }
        if let Some(classic) = &self.classic
            && classic
                .claim_of(pod, pod_claim)
                .is_some_and(|c| classic::is_for_pod(&c, pod))
        {
            // Its template was deleted; the claim exists.
            return Ok(None);
        }
        if let Some(name) = known
            && let Some(claim) = self.recorded(namespace, name).await?
        {
            if is_for_pod(pod, &claim) {
                return Ok(None);
            }
            tracing::error!(
                pod = meta::name(pod),
                claim = name,
                "claim does not belong to the pod; another one is made"
            );
        }
        let purpose = Purpose {
            owner: Owner::pod(pod),
            entry: &pod_claim.name,
            before: known,
        };
        self.generate(purpose, template).await.map(Some)
    }

    /// Finds or creates the claim for an entry of its owner.
    pub(super) async fn generate(
        &self,
        purpose: Purpose<'_>,
        template: &str,
    ) -> Result<String, Error> {
        let Purpose { owner, entry, .. } = purpose;
        let namespace = owner.namespace;
        let owned = self.claims.by_index(BY_OWNER, owner.uid);
        if let Some(claim) = plan::generated_claim(&owned, namespace, entry) {
            return Ok(meta::name(&**claim).to_owned());
        }
        let found = self.templates.find(namespace, template);
        let Some(found) = found.filter(|t| !classic::is_classic(&**t)) else {
            return Err(Error::Invalid(format!(
                "resource claim template {template:?}: resourceclaimtemplate.resource.k8s.io {template:?} not found"
            )));
        };
        let mut body = plan::new_claim(&owner, entry, found.at("/spec"));
        if self.queue.is_behind() {
            // The scheduler would add it before the allocation. This saves one of six writes when many pods wait.
            body["metadata"]["finalizers"] = json!([FINALIZER]);
        }
        let admin = plan::asks_for_admin_access(&body);
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), namespace);
        let created = purpose.create(&self.writes, &claims, body).await;
        self.metrics.created(created.is_ok(), admin);
        let claim = created.map_err(|error| match error {
            Error::Api(_) if !error.is_namespace_terminating() => {
                Error::Invalid(format!("create ResourceClaim : {error}"))
            }
            other => other,
        })?;
        let name = meta::name(&claim).to_owned();
        self.claims.assume(claim);
        Ok(name)
    }

    /// Writes the names of generated claims into the pod's status.
    async fn record(&self, pod: &Pod, names: &[(String, String)]) -> Result<(), Error> {
        let statuses = plan::claim_statuses(pod, names);
        // Names from an attempt whose answer was lost may be in use: only observed ones are replaced.
        let body = json!({
            "metadata": api::unchanged(pod),
            "status": {"resourceClaimStatuses": statuses},
        });
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), meta::namespace(pod));
        match api::patch_strategic(&pods, meta::name(pod), Part::Status, &body).await {
            Ok(pod) => {
                self.pods.assume(pod);
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reserves allocated claims for a pod that was bound without a scheduler.
    async fn reserve(&self, pod: &Pod, new: &[(String, String)]) -> Result<(), Error> {
        let namespace = meta::namespace(pod);
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), namespace);
        for pod_claim in plan::pod_claims(pod) {
            let new = new
                .iter()
                .find(|(n, _)| *n == pod_claim.name)
                .map(|(_, c)| c.as_str());
            if let Some(classic) = &self.classic {
                let claim = new.and_then(|name| classic.find(namespace, name));
                if let Some(claim) = claim.or_else(|| classic.claim_of(pod, pod_claim)) {
                    if classic.preschedule(pod, pod_claim, &claim).await? {
                        continue;
                    }
                    // The rest follows when the claim is allocated.
                    return Ok(());
                }
            }
            let Some(claim) = new
                .or_else(|| plan::claim_name(pod, pod_claim))
                .and_then(|name| self.newer_claim(namespace, name))
            else {
                continue;
            };
            if pod_claim.resource_claim_template_name.is_some()
                && !is_for_pod(pod, &claim)
                && !groups::is_for_group_of(&claim, pod)
            {
                return Err(Error::Invalid(format!(
                    "ResourceClaim {namespace}/{} was not created for Pod {namespace}/{} (Pod is not owner)",
                    meta::name(&*claim),
                    meta::name(pod)
                )));
            }
            if !plan::wants_reservation(&claim, pod) {
                continue;
            }
            let mut users = consumers(&claim).to_vec();
            users.push(match self.group_of(pod, pod_claim) {
                Some(group) => groups::reference(&group),
                None => plan::pod_reference(pod),
            });
            let updated = api::change(&claims, &claim, Change::ReservedFor(&users)).await?;
            self.claims.assume(updated);
        }
        Ok(())
    }
}
