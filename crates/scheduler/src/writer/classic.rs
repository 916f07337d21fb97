//! Writes of classic claims and negotiations.

use std::collections::VecDeque;

use allot_model::classic::DELETE_PROTECTION;
use allot_model::classic::objects::{PodScheduling, ResourceClaim as Claim, SchedulingSpec};
use kube::core::ApiResource;
use kube::core::DynamicObject;

use super::*;
use crate::classic::negotiations::is_owned_by;
use crate::classic::{self, ClaimTask, Served};

/// One of the sequential writes for a pod.
enum Order {
    Publish(SchedulingSpec, Option<String>),
    Deallocate(Arc<Claim>),
    Forget,
}

pub(super) struct ClassicWriter {
    client: Client,
    served: Served,
    turns: ClaimLocks<Claim>,
    /// Writes per pod; the entry exists as long as a task works on them.
    orders: Mutex<FxHashMap<Uid, VecDeque<Order>>>,
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
            orders: Mutex::default(),
        }
    }

    fn api(&self, namespace: &str, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, resource)
    }

    /// Queues writes for a pod. Returns whether the caller must start working on them.
    fn order(&self, pod: &Uid, orders: impl IntoIterator<Item = Order>) -> bool {
        let mut all = self.orders.lock();
        let idle = !all.contains_key(pod);
        let line = all.entry(pod.clone()).or_default();
        for order in orders {
            // Only the newest wish counts.
            if matches!(
                (&order, line.back()),
                (Order::Publish(..), Some(Order::Publish(..)))
            ) {
                line.pop_back();
            }
            line.push_back(order);
        }
        idle
    }

    fn next_order(&self, pod: &Uid) -> Option<Order> {
        let mut all = self.orders.lock();
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
    ) -> Result<PodScheduling, String> {
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
                Ok(object) => return typed(object).map_err(|e| api_message(&e)),
                // Conflict or lost answer: the current state decides.
                Err(error) if !answered(&error) || matches!(code(&error), 404 | 409 | 429) => {
                    if existing.is_none() && code(&error) == 404 {
                        return Err(api_message(&error));
                    }
                    pause.wait().await;
                }
                Err(error) => return Err(api_message(&error)),
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
    fn own(&self, pod: &PodInfo, found: Option<DynamicObject>) -> Result<Option<String>, String> {
        let Some(found) = found else { return Ok(None) };
        let found: PodScheduling = typed(found).map_err(|e| api_message(&e))?;
        let uid = found.metadata.uid.clone().unwrap_or_default();
        if is_owned_by(&found, &pod.uid) {
            return Ok(Some(uid));
        }
        Err(format!(
            "{} object with UID {uid} is not owned by Pod {}",
            self.served.scheduling().kind,
            pod.key
        ))
    }

    /// Deletes the negotiation of a pod; if that fails, the garbage collector deletes it.
    async fn forget(&self, pod: &PodInfo) {
        let api = self.api(&pod.key.namespace, &self.served.scheduling());
        match api.delete(&pod.key.name, &DeleteParams::default()).await {
            Err(error) if code(&error) != 404 => {
                tracing::debug!(pod = %pod.key, error = api_message(&error), "cannot delete the negotiation");
            }
            _ => {}
        }
    }

    /// Deallocates a claim, unless it changed in the meantime: through its driver, or directly if the scheduler
    /// allocated it. Returns the current claim; `None` when it was deleted.
    async fn deallocate(&self, claim: &Claim) -> Result<Option<Claim>, kube::Error> {
        let status = if claim.is_structured() {
            json!({"reservedFor": null, "allocation": null, "driverName": null})
        } else {
            json!({"reservedFor": null, "deallocationRequested": true})
        };
        let key = classic::key_of(&claim.metadata);
        let write = || self.patch_status(&key, claim, status.clone());
        let known = until_known(write, || self.read(&key)).await?;
        Ok(known.filter(|c| c.uid() == claim.uid()))
    }

    async fn patch_status(
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
        let key = classic::key_of(&claim.metadata);
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
    async fn read_at_last(&self, key: &Key) -> Result<Option<Claim>, kube::Error> {
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

    async fn read(&self, key: &Key) -> Result<Option<Claim>, kube::Error> {
        let api = self.api(&key.namespace, &self.served.claims());
        api.get_opt(&key.name).await?.map(typed).transpose()
    }

    /// Writes the reservation of a claim for a pod, preceded by the allocation if the scheduler allocated the claim.
    pub(super) async fn reserve(
        &self,
        task: &ClaimTask,
        pod: &PodInfo,
        metrics: &Metrics,
    ) -> Result<Arc<Claim>, BindError> {
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
                return Err(BindError::new(format!(
                    "reserve claim {}: {}",
                    task.key,
                    api_message(&error)
                )));
            }
            if code(&error) == 409 {
                metrics.conflict();
            }
            if !answered(&error) || code(&error) == 429 {
                pause.wait().await;
            }
            claim = match self.read_at_last(&task.key).await {
                Ok(Some(claim)) => Arc::new(claim),
                Ok(None) => return Err(elsewhere(&task.key, "deleted")),
                Err(error) => {
                    let message = format!("read claim {}: {}", task.key, api_message(&error));
                    return Err(BindError::new(message));
                }
            };
        }
    }

    /// Carries out the next write that is needed; `None` when none remains.
    async fn step(
        &self,
        task: &ClaimTask,
        pod: &PodInfo,
        claim: &Claim,
    ) -> Result<Option<Result<Claim, kube::Error>>, BindError> {
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

fn elsewhere(key: &Key, what: &str) -> BindError {
    BindError::new(format!("claim {key} got {what} elsewhere in the meantime"))
}

impl Writer {
    /// Carries a decision about classic kinds out.
    pub(super) fn start_classic(&self, action: classic::Action) {
        let Some(classic) = self.classic.clone() else {
            return;
        };
        let (pod, orders) = match action {
            classic::Action::Publish { pod, spec, known } => {
                (pod, vec![Order::Publish(spec, known)])
            }
            classic::Action::Deallocate {
                pod,
                claim,
                publish,
                known,
            } => {
                let publish = publish.map(|spec| Order::Publish(spec, known));
                let orders = publish.into_iter().chain([Order::Deallocate(claim)]);
                (pod, orders.collect())
            }
            classic::Action::Forget(pod) => (pod, vec![Order::Forget]),
            classic::Action::Unreserve { pod, claim } => {
                return self.clone().spawn(async move |w| {
                    let written = classic.unreserve(&claim, &pod).await;
                    w.released_classic(&claim, Some(pod), written);
                });
            }
        };
        if classic.order(&pod.uid, orders) {
            self.clone().spawn(async move |w| {
                while let Some(order) = classic.next_order(&pod.uid) {
                    w.execute(&classic, &pod, order).await;
                }
            });
        }
    }

    async fn execute(&self, classic: &ClassicWriter, pod: &Arc<PodInfo>, order: Order) {
        match order {
            Order::Publish(spec, known) => {
                let outcome = classic.publish(pod, &spec, known).await.map(Arc::new);
                self.report(Input::Classic(Box::new(classic::Input::Published {
                    pod: pod.clone(),
                    outcome,
                })));
            }
            Order::Deallocate(claim) => {
                let written = classic.deallocate(&claim).await;
                self.released_classic(&claim, None, written);
            }
            Order::Forget => classic.forget(pod).await,
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
            tracing::warn!(claim = %key, error = api_message(&error), "cannot take back");
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
