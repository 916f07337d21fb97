//! Writes of the classic API: negotiations here, claims in `claims`; one after the other for each pod.

use std::collections::VecDeque;
use std::sync::Arc;

use allot_client::retry::{Failures, Pause, answered, code};
use allot_client::{delete, patch_params};
use allot_framework::assume_cache::Object as _;
use allot_framework::claim_locks::ClaimLocks;
use allot_framework::claim_plugin::{ClaimWriter, PreBindError, Shared, WriterHandle};
use allot_framework::pod::{Key, PodInfo, Uid, is_finished, key_of};
use allot_model::classic::objects::{PodScheduling, ResourceClaim as Claim, SchedulingSpec};
use allot_reflector::api_message;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PostParams};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde_json::json;

use crate::discovery::Served;
use crate::message::{Action, ClaimTasks, Input, PublishError};
use crate::negotiations::is_owned_by;

mod claims;
#[cfg(test)]
mod tests;

/// One of the sequential writes for a pod.
enum Task {
    Publish(SchedulingSpec, Option<String>),
    Deallocate(Arc<Claim>),
    Forget,
}

/// Writes claims and negotiations in the version that the cluster serves.
pub struct ClassicWriter {
    client: Client,
    served: Served,
    turns: ClaimLocks<Claim>,
    /// The writes that wait, by pod; an entry exists as long as a loop carries them out.
    tasks: Mutex<FxHashMap<Uid, VecDeque<Task>>>,
}

fn typed<T: serde::de::DeserializeOwned>(object: DynamicObject) -> Result<T, kube::Error> {
    let mut value = object.data;
    value["metadata"] = serde_json::to_value(object.metadata).map_err(kube::Error::SerdeError)?;
    serde_json::from_value(value).map_err(kube::Error::SerdeError)
}

impl ClassicWriter {
    /// A writer for the versions that the server has.
    pub fn new(client: Client, served: Served) -> Self {
        Self {
            client,
            served,
            turns: ClaimLocks::default(),
            tasks: Mutex::default(),
        }
    }

    fn api(&self, namespace: &str, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, resource)
    }

    /// Queues writes for a pod. Returns whether the caller must start to carry them out.
    fn queue_tasks(&self, pod: &Uid, tasks: impl IntoIterator<Item = Task>) -> bool {
        let mut all = self.tasks.lock();
        let idle = !all.contains_key(pod);
        let line = all.entry(pod.clone()).or_default();
        for task in tasks {
            // Only the newest choice is published.
            if matches!(
                (&task, line.back()),
                (Task::Publish(..), Some(Task::Publish(..)))
            ) {
                line.pop_back();
            }
            line.push_back(task);
        }
        idle
    }

    fn next_task(&self, pod: &Uid) -> Option<Task> {
        let mut all = self.tasks.lock();
        let next = all.get_mut(pod)?.pop_front();
        if next.is_none() {
            all.remove(pod);
        }
        next
    }

    /// Publishes the scheduler's choice: in one write, unless another component created or deleted the object.
    async fn publish(
        &self,
        pod: &PodInfo,
        spec: &SchedulingSpec,
        known: Option<String>,
    ) -> Result<PodScheduling, PublishError> {
        let resource = self.served.scheduling();
        let api = self.api(&pod.key.namespace, &resource);
        let name = &*pod.key.name;
        let selected = Some(&spec.selected_node).filter(|n| !n.is_empty());
        let wanted = json!({"selectedNode": selected, "potentialNodes": spec.potential_nodes});
        let mut pause = Pause::default();
        let mut existing = known;
        loop {
            let result = match &existing {
                Some(uid) => {
                    let patch = json!({"metadata": {"uid": uid}, "spec": wanted});
                    api.patch(name, &patch_params(), &Patch::Merge(&patch))
                        .await
                }
                None => {
                    let owner = json!({
                        "apiVersion": "v1", "kind": "Pod", "name": name, "uid": &*pod.uid,
                        "controller": true, "blockOwnerDeletion": true,
                    });
                    let mut new = DynamicObject::new(name, &resource);
                    new.metadata.owner_references = serde_json::from_value(json!([owner])).ok();
                    new.data = json!({"spec": spec});
                    api.create(&PostParams::default(), &new).await
                }
            };
            match result {
                Ok(object) => return Ok(typed(object)?),
                // Conflict or lost answer: the current state decides.
                Err(error) if !answered(&error) || matches!(code(&error), 404 | 409 | 429) => {
                    if existing.is_none() && code(&error) == 404 {
                        return Err(error.into());
                    }
                    pause.wait().await;
                }
                Err(error) => return Err(error.into()),
            }
            existing = loop {
                match api.get_opt(name).await {
                    Ok(found) => break self.own(&pod.key, &pod.uid, found)?,
                    Err(_) => pause.wait().await,
                }
            };
        }
    }

    /// Identity of the negotiation that was found, if it is that of the pod.
    fn own(
        &self,
        pod: &Key,
        pod_uid: &Uid,
        found: Option<DynamicObject>,
    ) -> Result<Option<String>, PublishError> {
        let Some(found) = found else { return Ok(None) };
        let found: PodScheduling = typed(found)?;
        let uid = found.metadata.uid.clone().unwrap_or_default();
        if is_owned_by(&found, pod_uid) {
            return Ok(Some(uid));
        }
        Err(PublishError::NotOwned {
            kind: self.served.scheduling().kind,
            uid,
            pod: pod.clone(),
        })
    }

    /// Deletes the negotiation of a pod, and not that of a later pod of its name; if that fails, the garbage collector
    /// deletes it. With `only_finished` it stays unless the pod exists and has finished.
    async fn forget(&self, pod: &Key, pod_uid: &Uid, only_finished: bool) {
        let api = self.api(&pod.namespace, &self.served.scheduling());
        let delete = async || {
            if only_finished && !self.has_finished(pod, pod_uid).await? {
                return Ok(());
            }
            let found = api.get_opt(&pod.name).await?;
            // One of another pod stays.
            let Ok(Some(uid)) = self.own(pod, pod_uid, found) else {
                return Ok(());
            };
            let deleted = api.delete(&pod.name, &delete::by_uid(uid)).await;
            deleted.map(drop)
        };
        // Drivers would go on allocating for a pod that is bound or finished.
        let mut failures = Failures::default();
        while let Err(error) = delete().await {
            // 409: another one has its name meanwhile.
            if matches!(code(&error), 404 | 409) {
                return;
            }
            if failures.is_final(&error) || matches!(error, kube::Error::SerdeError(_)) {
                tracing::debug!(%pod, error = api_message(&error), "cannot delete the negotiation");
                return;
            }
            failures.wait().await;
        }
    }

    async fn has_finished(&self, pod: &Key, uid: &Uid) -> Result<bool, kube::Error> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let found = pods.get_opt(&pod.name).await?;
        let found = found.filter(|pod| pod.metadata.uid.as_deref() == Some(&**uid));
        Ok(found.is_some_and(|pod| is_finished(&pod)))
    }
}

impl ClaimWriter for ClassicWriter {
    fn start(
        self: Arc<Self>,
        write: Shared,
        handle: Arc<dyn WriterHandle>,
    ) -> Option<BoxFuture<'static, ()>> {
        let (pod, tasks) = match write.get::<Action>()?.clone() {
            Action::Publish { pod, spec, known } => (pod, vec![Task::Publish(spec, known)]),
            Action::Deallocate {
                pod,
                claim,
                publish,
                known,
            } => {
                let publish = publish.map(|spec| Task::Publish(spec, known));
                let tasks = publish.into_iter().chain([Task::Deallocate(claim)]);
                (pod, tasks.collect())
            }
            Action::Forget(pod) => (pod, vec![Task::Forget]),
            Action::Collect { pod, uid } => {
                return Some(Box::pin(async move {
                    self.forget(&pod, &uid, true).await;
                }));
            }
            Action::Unreserve { pod, claim } => {
                return Some(Box::pin(async move {
                    let written = self.unreserve(&claim, &pod).await;
                    report_release(&*handle, &claim, Some(pod), written);
                }));
            }
        };
        if !self.queue_tasks(&pod.uid, tasks) {
            return None;
        }
        Some(Box::pin(async move {
            while let Some(task) = self.next_task(&pod.uid) {
                self.execute(&pod, task, &*handle).await;
            }
        }))
    }

    /// Writes the classic claims of a pod; all are tried to the end.
    fn pre_bind<'a>(
        &'a self,
        pod: &'a PodInfo,
        writes: &'a Shared,
        is_canceled: &'a (dyn Fn() -> bool + Sync),
        handle: &'a dyn WriterHandle,
    ) -> BoxFuture<'a, Result<(), PreBindError>> {
        let tasks = writes.get::<ClaimTasks>().map_or(&[][..], |tasks| &tasks.0);
        Box::pin(async move {
            let written = futures::future::join_all(tasks.iter().map(async |task| {
                if is_canceled() {
                    return Err(PreBindError::Canceled);
                }
                let claim = self.reserve(task, pod, handle).await?;
                let pod = pod.uid.clone();
                handle.report(Box::new(Input::ClaimWritten { pod, claim }));
                Ok(())
            }))
            .await;
            written.into_iter().collect()
        })
    }
}

impl ClassicWriter {
    async fn execute(&self, pod: &Arc<PodInfo>, task: Task, handle: &dyn WriterHandle) {
        match task {
            Task::Publish(spec, known) => {
                let outcome = self.publish(pod, &spec, known).await.map(Arc::new);
                handle.report(Box::new(Input::Published {
                    pod: pod.clone(),
                    outcome,
                }));
            }
            Task::Deallocate(claim) => {
                let written = self.deallocate(&claim).await;
                report_release(handle, &claim, None, written);
            }
            Task::Forget => self.forget(&pod.key, &pod.uid, false).await,
        }
    }
}

fn report_release(
    handle: &dyn WriterHandle,
    claim: &Claim,
    pod: Option<Uid>,
    written: Result<Option<Claim>, kube::Error>,
) {
    let key = key_of(&claim.metadata);
    let written = written.unwrap_or_else(|error| {
        tracing::warn!(claim = %key, error = api_message(&error), "cannot release the claim");
        None
    });
    handle.report(Box::new(Input::Released {
        key,
        uid: claim.uid().into(),
        pod,
        claim: written.map(Arc::new),
    }));
}
