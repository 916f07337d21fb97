//! Claims for extended resources of pods (KEP 5004): created with the allocation, deleted if the pod is not bound.

use std::sync::Arc;

use allot_client::delete;
use allot_reflector::api_message;
use allot_resourceclaim::{Change, FINALIZER, Target};
use http::Method;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::core::{Request, Status};
use tokio_util::sync::CancellationToken;

use super::{ClaimWriter, KEEP, change_claim, failed};
use crate::actions::{ClaimTask, ExtendedResourceClaimTask};
use crate::assume_cache::Object as _;
use crate::core::BindError;
use crate::dra::claims::key_of;
use crate::observe;
use crate::pod::PodInfo;
use crate::podgroups::claims::Consumer;
use crate::writer::{CONFLICTS, Pause, until_known};

impl ClaimWriter {
    /// Creates the claim for extended resources of a pod and allocates it.
    pub(in crate::writer) async fn create_extended_resource_claim(
        &self,
        task: &ExtendedResourceClaimTask,
        pod: &PodInfo,
        cancel: &CancellationToken,
    ) -> Result<Arc<ResourceClaim>, BindError> {
        let mut new = (*task.claim).clone();
        new.metadata.name = None;
        new.metadata.uid = None;
        new.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
        let api = self.api(&pod.key.namespace);
        let created = self.create_claim(&api, &new).await;
        self.metrics.claim_created(created.is_ok());
        let created = match created {
            Ok(created) => created,
            Err(error) => return Err(failed("create claim for extended resources", &error)),
        };
        let claim = Arc::new(created);
        let task = ClaimTask {
            key: key_of(&claim),
            uid: claim.uid().into(),
            claim: claim.clone(),
            consumer: Consumer::pod(pod),
            fence: false,
            allocation: Some(task.allocation.clone()),
        };
        match self.reserve(&task, cancel).await {
            Ok(claim) => Ok(claim),
            Err(error) => {
                if let Err(error) = self.delete_extended_resource_claim(&claim).await {
                    tracing::warn!(claim = %task.key, error = api_message(&error), "cannot delete extended resource claim");
                }
                Err(error)
            }
        }
    }

    /// Removes an extended resource claim that was created for a pod which did not get bound.
    pub(in crate::writer) async fn delete_extended_resource_claim(
        &self,
        claim: &ResourceClaim,
    ) -> Result<(), kube::Error> {
        let (key, claim_uid) = (key_of(claim), claim.uid());
        let (api, name) = (self.api(&key.namespace), &*key.name);
        let mut now = claim.clone();
        let (mut pause, mut rounds) = (Pause::default(), 0);
        loop {
            let mut finalizers = now.metadata.finalizers.clone().unwrap_or_default();
            let before = finalizers.len();
            finalizers.retain(|f| f != FINALIZER);
            if finalizers.len() == before {
                break;
            }
            if rounds > CONFLICTS {
                let status = Status::failure("others change the claim all the time", "Conflict");
                return Err(kube::Error::Api(status.with_code(409).boxed()));
            }
            if rounds > 0 {
                pause.wait().await;
            }
            rounds += 1;
            // Based on a version, so that what another component adds meanwhile stays.
            let change = Change::Finalizers(&finalizers);
            let write = || change_claim(&api, Target::version_of(&now), change);
            let known = until_known(write, || observe::get(&api, name)).await?;
            match known.filter(|c| c.uid() == claim_uid) {
                Some(current) => now = current,
                None => return Ok(()),
            }
        }
        let params = delete::by_uid(claim_uid.to_owned());
        // Deleted, or replaced by another claim: either way there is nothing to do.
        let delete = async || {
            let request = Request::new(api.resource_url()).delete(name, &params);
            let request = request.map_err(kube::Error::BuildRequest)?;
            self.client.request_text(request).await.map(drop)
        };
        until_known(delete, async || Ok(None)).await.map(drop)
    }

    pub(super) async fn create_claim(
        &self,
        api: &Api<ResourceClaim>,
        claim: &ResourceClaim,
    ) -> Result<ResourceClaim, kube::Error> {
        let body = serde_json::to_value(claim).map_err(kube::Error::SerdeError)?;
        let url = api.resource_url();
        self.writes.send(Method::POST, url, &body, KEEP).await
    }
}
