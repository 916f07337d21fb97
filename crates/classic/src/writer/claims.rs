//! Writes of classic claims: reservation with allocation, unreserve, deallocation.

use std::sync::Arc;

use allot_client::patch_params;
use allot_client::retry::{Pause, answered, code, until_known};
use allot_framework::assume_cache::Object as _;
use allot_framework::claim_plugin::{PreBindError, WriterHandle};
use allot_framework::pod::{Key, PodInfo, Uid, key_of};
use allot_model::classic::DELETE_PROTECTION;
use allot_model::classic::objects::ResourceClaim as Claim;
use allot_reflector::api_message;
use kube::api::Patch;
use serde_json::json;

use super::{ClassicWriter, typed};
use crate::message::ClaimTask;

impl ClassicWriter {
    /// Deallocates a claim, unless it changed in the meantime: through its driver, or directly if the scheduler
    /// allocated it. Returns the current claim; `None` when it was deleted.
    pub(super) async fn deallocate(&self, claim: &Claim) -> Result<Option<Claim>, kube::Error> {
        let status = if claim.is_structured() {
            json!({"reservedFor": null, "allocation": null, "driverName": null})
        } else {
            json!({"reservedFor": null, "deallocationRequested": true})
        };
        let key = key_of(&claim.metadata);
        let write = || self.patch_status(&key, claim, status.clone());
        let known = until_known(write, || self.read(&key)).await?;
        Ok(known.filter(|c| c.uid() == claim.uid()))
    }

    pub(super) async fn patch_status(
        &self,
        key: &Key,
        claim: &Claim,
        status: serde_json::Value,
    ) -> Result<Claim, kube::Error> {
        let metadata =
            json!({"uid": claim.uid(), "resourceVersion": claim.metadata.resource_version});
        let patch = json!({"metadata": metadata, "status": status});
        let object = self
            .api(&key.namespace, &self.served.claims())
            .patch_subresource("status", &key.name, &patch_params(), &Patch::Merge(&patch))
            .await?;
        typed(object)
    }

    /// Takes the reservation for a pod back.
    pub(super) async fn unreserve(
        &self,
        claim: &Claim,
        pod: &Uid,
    ) -> Result<Option<Claim>, kube::Error> {
        let key = key_of(&claim.metadata);
        let turn = self.turns.of(claim.uid());
        let mut last = turn.lock().await;
        let mut pause = Pause::default();
        loop {
            let Some(current) = self.read_at_last(&key).await? else {
                return Ok(None);
            };
            if current.uid() != claim.uid() || !current.is_reserved_for(pod) {
                return Ok(None);
            }
            let rest: Vec<_> = current
                .status
                .reserved_for
                .iter()
                .filter(|c| *c.uid != **pod)
                .collect();
            let rest = if rest.is_empty() {
                json!(null)
            } else {
                json!(rest)
            };
            match self
                .patch_status(&key, &current, json!({"reservedFor": rest}))
                .await
            {
                Ok(claim) => {
                    *last = Some(Arc::new(claim.clone()));
                    return Ok(Some(claim));
                }
                Err(error) if !answered(&error) || matches!(code(&error), 404 | 409 | 429) => {
                    pause.wait().await
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads a claim until there is an answer.
    pub(super) async fn read_at_last(&self, key: &Key) -> Result<Option<Claim>, kube::Error> {
        let mut pause = Pause::default();
        loop {
            match self.read(key).await {
                Ok(found) => return Ok(found),
                // Invalid data remains invalid: retrying does not help.
                Err(error @ kube::Error::SerdeError(_)) => return Err(error),
                Err(_) => pause.wait().await,
            }
        }
    }

    pub(super) async fn read(&self, key: &Key) -> Result<Option<Claim>, kube::Error> {
        let api = self.api(&key.namespace, &self.served.claims());
        api.get_opt(&key.name).await?.map(typed).transpose()
    }

    /// Writes the reservation of a claim for a pod, preceded by the allocation if the scheduler allocated the claim.
    pub(super) async fn reserve(
        &self,
        task: &ClaimTask,
        pod: &PodInfo,
        handle: &dyn WriterHandle,
    ) -> Result<Arc<Claim>, PreBindError> {
        let (mut last, mut claim) = self.turns.take(&task.claim).await;
        let mut pause = Pause::default();
        loop {
            let error = match self.step(task, pod, &claim).await? {
                None => {
                    *last = Some(claim.clone());
                    return Ok(claim);
                }
                Some(Ok(next)) => {
                    claim = Arc::new(next);
                    continue;
                }
                Some(Err(error)) => error,
            };
            if answered(&error) && !matches!(code(&error), 404 | 409 | 429) {
                return Err(PreBindError::Failed(format!(
                    "reserve claim {}: {}",
                    task.key,
                    api_message(&error)
                )));
            }
            if code(&error) == 409 {
                handle.count_conflict();
            }
            if !answered(&error) || code(&error) == 429 {
                pause.wait().await;
            }
            claim = match self.read_at_last(&task.key).await {
                Ok(Some(claim)) => Arc::new(claim),
                Ok(None) => return Err(elsewhere(&task.key, "deleted")),
                Err(error) => {
                    let message = format!("read claim {}: {}", task.key, api_message(&error));
                    return Err(PreBindError::Failed(message));
                }
            };
        }
    }

    /// Carries out the next write that is needed; `None` when none remains.
    pub(super) async fn step(
        &self,
        task: &ClaimTask,
        pod: &PodInfo,
        claim: &Claim,
    ) -> Result<Option<Result<Claim, kube::Error>>, PreBindError> {
        if let Some(what) = task.is_lost(claim) {
            return Err(elsewhere(&task.key, what));
        }
        let mut status = serde_json::Map::new();
        if let (None, Some((driver, ours))) = (&claim.status.allocation, &task.allocation) {
            let finalizers = claim.metadata.finalizers.clone().unwrap_or_default();
            if !finalizers.iter().any(|f| f == DELETE_PROTECTION) {
                let finalizers: Vec<String> = finalizers
                    .into_iter()
                    .chain([DELETE_PROTECTION.to_owned()])
                    .collect();
                let patch = json!({"metadata": {
                    "uid": &*task.uid,
                    "resourceVersion": claim.metadata.resource_version,
                    "finalizers": finalizers,
                }});
                let wrote = self
                    .api(&task.key.namespace, &self.served.claims())
                    .patch(&task.key.name, &patch_params(), &Patch::Merge(&patch))
                    .await;
                return Ok(Some(wrote.and_then(typed)));
            }
            status.insert("driverName".to_owned(), json!(driver));
            status.insert("allocation".to_owned(), json!(**ours));
        }
        if claim.is_reserved_for(&pod.uid) {
            return Ok(None);
        }
        if claim.status.deallocation_requested {
            return Err(elsewhere(&task.key, "deallocated"));
        }
        let mut reserved = json!(claim.status.reserved_for);
        if let Some(list) = reserved.as_array_mut() {
            list.push(json!({"resource": "pods", "name": &*pod.key.name, "uid": &*pod.uid}));
        }
        status.insert("reservedFor".to_owned(), reserved);
        Ok(Some(
            self.patch_status(&task.key, claim, status.into()).await,
        ))
    }
}

fn elsewhere(key: &Key, what: &str) -> PreBindError {
    PreBindError::Failed(format!("claim {key} got {what} elsewhere in the meantime"))
}
