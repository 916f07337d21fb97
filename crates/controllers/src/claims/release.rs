//! Claims: reservations of deleted consumers are removed, with the last one the allocation, and generated claims of
//! finished pods are deleted.

use std::sync::Arc;

use allot_resourceclaim::{Change, consumers, is_pod_group};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use kube::Api;
use serde_json::{Value, json};

use super::Claims;
use super::classic::{self, Classic};
use super::groups::PodGroup;
use super::plan::{self, ClaimStep, Consumer};
use crate::Error;
use crate::controller::api::{self, Delete};
use crate::controller::informer::split_key;
use crate::controller::meta;

impl Claims {
    /// Whether a consumer still needs the claim; asks the API server if the cache cannot decide.
    async fn is_needed(
        &self,
        namespace: &str,
        consumer: &ResourceClaimConsumerReference,
        early: bool,
    ) -> Result<bool, Error> {
        if is_pod_group(consumer)
            && let Some(groups) = &self.groups
        {
            let cached = groups.groups.find(namespace, &consumer.name);
            let same = |g: &PodGroup| g.metadata.uid.as_deref() == Some(&consumer.uid);
            if cached.is_some_and(|g| same(&g)) {
                return Ok(true);
            }
            let resource = &groups.resource;
            let api: Api<PodGroup> = Api::namespaced_with(self.client.clone(), namespace, resource);
            let live = api::get(&api, &consumer.name).await?;
            return Ok(live.is_some_and(|g| same(&g)));
        }
        if !plan::is_pod(consumer) {
            return Ok(true);
        }
        let cached = self.pods.find(namespace, &consumer.name);
        let gone = self.deleted.lock().uids.contains(&consumer.uid);
        match plan::consumer(consumer, cached.as_deref(), gone) {
            Consumer::Needs => Ok(true),
            // Up to 1.27 pods keep their claims until they are deleted.
            Consumer::Gone if early && !gone => Ok(true),
            Consumer::Gone => Ok(false),
            Consumer::AskServer => {
                let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
                let live = api::get(&pods, &consumer.name).await?;
                Ok(live.is_some_and(|pod| meta::uid(&pod) == consumer.uid))
            }
        }
    }

    pub(super) async fn sync_claim(&self, key: &str) -> Result<(), Error> {
        let (namespace, name) = split_key(key);
        if let Some(classic) = &self.classic
            && let Some(claim) = classic.find(namespace, name)
        {
            return self.sync_classic(classic, claim, namespace, name).await;
        }
        let Some(mut claim) = self.newer_claim(namespace, name) else {
            return Ok(());
        };
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), namespace);
        let mut needed = Vec::new();
        for consumer in consumers(&claim) {
            if self.is_needed(namespace, consumer, false).await? {
                needed.push(consumer.clone());
            }
        }
        for step in plan::release(&claim, &needed) {
            let written = match &step {
                ClaimStep::ReservedFor(users) => {
                    api::change(&claims, &claim, Change::ReservedFor(users)).await
                }
                ClaimStep::RemoveFinalizer(rest) => {
                    api::change(&claims, &claim, Change::Finalizers(rest)).await
                }
                ClaimStep::Status(_) => {
                    let (part, body) = step.body();
                    let body = with_precondition(body, &*claim);
                    api::patch(&claims, name, part, &body).await
                }
            };
            match written {
                Ok(new) => {
                    self.claims.assume(new.clone());
                    claim = Arc::new(new);
                }
                Err(error) if error.is_not_found() => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        if needed.is_empty() && self.is_left_over(&*claim).await? {
            api::delete(&claims, name, meta::uid(&*claim), Delete::default()).await?;
        }
        Ok(())
    }

    /// Whether a claim was generated for a pod that is done or was replaced. The scheduler may have made the claim for a
    /// pod whose predecessor of the same name is still in the cache: then the claim is read from the API server.
    async fn is_left_over<K: kube::Resource>(&self, claim: &K) -> Result<bool, Error> {
        let owner = meta::controller_of(claim.meta());
        let owner = owner.filter(|owner| owner.api_version == "v1" && owner.kind == "Pod");
        let Some(owner) = owner.filter(|_| !meta::deleting(claim)) else {
            return Ok(false);
        };
        let namespace = meta::namespace(claim);
        if self.pods.find(namespace, &owner.name).is_none() {
            return Ok(false);
        }
        let pod = ResourceClaimConsumerReference {
            api_group: None,
            resource: "pods".to_owned(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        };
        Ok(!self.is_needed(namespace, &pod, false).await?)
    }

    async fn sync_classic(
        &self,
        classic: &Classic,
        mut claim: Arc<classic::Claim>,
        namespace: &str,
        name: &str,
    ) -> Result<(), Error> {
        let early = classic.is_early();
        let claims = classic.api(namespace);
        let mut needed = Vec::new();
        for consumer in &claim.status.reserved_for {
            let reference = ResourceClaimConsumerReference {
                api_group: Some(consumer.api_group.clone()),
                resource: consumer.resource.clone(),
                name: consumer.name.clone(),
                uid: consumer.uid.clone(),
            };
            if self.is_needed(namespace, &reference, early).await? {
                needed.push(consumer.uid.clone());
            }
        }
        for step in classic::release(&claim, &needed, early) {
            let (part, body) = step.body();
            let body = with_precondition(body, &*claim);
            match api::patch(&claims, name, part, &body).await {
                Ok(new) => {
                    classic.claims.assume(new.clone());
                    claim = Arc::new(new);
                }
                Err(error) if error.is_not_found() => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        if needed.is_empty() && !early && self.is_left_over(&*claim).await? {
            api::delete(&claims, name, meta::uid(&*claim), Delete::default()).await?;
        }
        Ok(())
    }
}

fn with_precondition<K: kube::Resource>(mut body: Value, claim: &K) -> Value {
    body["metadata"]["uid"] = json!(meta::uid(claim));
    body["metadata"]["resourceVersion"] = json!(claim.meta().resource_version);
    body
}

#[cfg(test)]
mod tests;
