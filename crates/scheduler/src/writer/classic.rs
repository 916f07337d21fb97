//! Writes of the classic API: negotiations here, claims in `claims`; one after the other for each pod.

use std::collections::VecDeque;

use allot_client::delete;
use allot_model::classic::objects::{PodScheduling, ResourceClaim as Claim, SchedulingSpec};
use kube::core::ApiResource;
use kube::core::DynamicObject;

use super::*;
use crate::classic::negotiations::is_owned_by;
use crate::classic::{self, PublishError, Served};

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
pub(super) struct ClassicWriter {
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
    pub(super) fn new(client: Client, served: Served) -> Self {
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
                    Ok(found) => break self.own(pod, found)?,
                    Err(_) => pause.wait().await,
                }
            };
        }
    }

    /// Identity of the negotiation that was found, if it is that of the pod.
    fn own(
        &self,
        pod: &PodInfo,
        found: Option<DynamicObject>,
    ) -> Result<Option<String>, PublishError> {
        let Some(found) = found else { return Ok(None) };
        let found: PodScheduling = typed(found)?;
        let uid = found.metadata.uid.clone().unwrap_or_default();
        if is_owned_by(&found, &pod.uid) {
            return Ok(Some(uid));
        }
        Err(PublishError::NotOwned {
            kind: self.served.scheduling().kind,
            uid,
            pod: pod.key.clone(),
        })
    }

    /// Deletes the negotiation of a pod, and not that of a later pod of its name; if that fails, the garbage collector deletes it.
    async fn forget(&self, pod: &PodInfo) {
        let api = self.api(&pod.key.namespace, &self.served.scheduling());
        let name = &*pod.key.name;
        let delete = async || {
            let found = api.get_opt(name).await?;
            // One of another pod stays.
            let Ok(Some(uid)) = self.own(pod, found) else {
                return Ok(());
            };
            api.delete(name, &delete::by_uid(uid)).await.map(drop)
        };
        // Drivers would go on allocating for a pod that is bound or finished.
        let mut failures = Failures::default();
        while let Err(error) = delete().await {
            // 409: another one has its name meanwhile.
            if matches!(code(&error), 404 | 409) {
                return;
            }
            if failures.is_final(&error) || matches!(error, kube::Error::SerdeError(_)) {
                tracing::debug!(pod = %pod.key, error = api_message(&error), "cannot delete the negotiation");
                return;
            }
            failures.wait().await;
        }
    }
}

impl Writer {
    /// Carries a decision about classic kinds out.
    pub(super) fn start_classic(&self, action: classic::Action) {
        let Some(classic) = self.classic.clone() else {
            return;
        };
        let (pod, tasks) = match action {
            classic::Action::Publish { pod, spec, known } => {
                (pod, vec![Task::Publish(spec, known)])
            }
            classic::Action::Deallocate {
                pod,
                claim,
                publish,
                known,
            } => {
                let publish = publish.map(|spec| Task::Publish(spec, known));
                let tasks = publish.into_iter().chain([Task::Deallocate(claim)]);
                (pod, tasks.collect())
            }
            classic::Action::Forget(pod) => (pod, vec![Task::Forget]),
            classic::Action::Unreserve { pod, claim } => {
                return self.clone().spawn(async move |w| {
                    let written = classic.unreserve(&claim, &pod).await;
                    w.released_classic(&claim, Some(pod), written);
                });
            }
        };
        if classic.queue_tasks(&pod.uid, tasks) {
            self.clone().spawn(async move |w| {
                while let Some(task) = classic.next_task(&pod.uid) {
                    w.execute(&classic, &pod, task).await;
                }
            });
        }
    }

    async fn execute(&self, classic: &ClassicWriter, pod: &Arc<PodInfo>, task: Task) {
        match task {
            Task::Publish(spec, known) => {
                let outcome = classic.publish(pod, &spec, known).await.map(Arc::new);
                self.report(Input::Classic(Box::new(classic::Input::Published {
                    pod: pod.clone(),
                    outcome,
                })));
            }
            Task::Deallocate(claim) => {
                let written = classic.deallocate(&claim).await;
                self.released_classic(&claim, None, written);
            }
            Task::Forget => classic.forget(pod).await,
        }
    }

    fn released_classic(
        &self,
        claim: &Claim,
        pod: Option<Uid>,
        written: Result<Option<Claim>, kube::Error>,
    ) {
        let key = classic::key_of(&claim.metadata);
        let written = written.unwrap_or_else(|error| {
            tracing::warn!(claim = %key, error = api_message(&error), "cannot release the claim");
            None
        });
        self.report(Input::Classic(Box::new(classic::Input::Released {
            key,
            uid: claim.uid().into(),
            pod,
            claim: written.map(Arc::new),
        })));
    }

    /// Writes the classic claims of a pod; all are tried to the end.
    pub(super) async fn write_classic(&self, job: &BindJob) -> Result<(), BindError> {
        let Some(classic) = self.classic.as_ref().filter(|_| !job.classic.is_empty()) else {
            return Ok(());
        };
        let pod = &job.pod;
        let written = futures::future::join_all(job.classic.iter().map(async |task| {
            proceed(&job.cancel)?;
            let claim = classic.reserve(task, pod, &self.metrics).await?;
            let pod = pod.uid.clone();
            let written = classic::Input::ClaimWritten { pod, claim };
            self.report(Input::Classic(Box::new(written)));
            Ok(())
        }))
        .await;
        written.into_iter().collect()
    }
}
