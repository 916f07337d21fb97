//! Writes of claims.

use allot_reflector::Keep;
use allot_resourceclaim::{Change, FINALIZER, Target, consumers, is_reserved_for, same_devices};

use super::*;
use crate::actions::ClaimTask;
use crate::dra::claims::allocation_of;

mod extended;

/// The annotation of a claim while it is [fenced](ClaimWriter::fence): the version that a scheduler found.
const FENCED: &str = "allot.dev/renewed-from";

/// What is read of the claims in answers.
const KEEP: Keep = <ResourceClaim as observe::Observe>::keep;

pub(super) struct ClaimWriter {
    client: Client,
    writes: Writes,
    /// For the allocation timestamp; `None` if the feature is off.
    clock: Option<Clock>,
    metrics: Metrics,
    turns: ClaimLocks<ResourceClaim>,
}

impl ClaimWriter {
    pub(super) fn new(
        client: Client,
        writes: Writes,
        clock: Option<Clock>,
        metrics: Metrics,
    ) -> Self {
        Self {
            client,
            writes,
            clock,
            metrics,
            turns: ClaimLocks::default(),
        }
    }

    fn api(&self, namespace: &str) -> Api<ResourceClaim> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Writes the allocation of a claim, if it is not written yet, and the reservation. Begins no write after `cancel`,
    /// unless a request is unanswered: whether that is carried out has to be known.
    pub(super) async fn reserve(
        &self,
        task: &ClaimTask,
        cancel: &CancellationToken,
    ) -> Result<Arc<ResourceClaim>, BindError> {
        let (mut last, mut claim) = self.turns.take(&task.claim).await;
        proceed(cancel)?;
        if task.fence {
            claim = self.fence(task).await?;
        }
        let mut failures = Failures::default();
        let mut doing = "add finalizer to";
        let mut unanswered = false;
        let mut was_allocated = false;
        loop {
            let cancel = Some(cancel).filter(|_| !unanswered);
            // Another pod that shares the claim may have written the allocation. When that is gone, so are the devices.
            let is_free = was_allocated && allocation_of(&claim).is_none();
            if is_free && claim.uid() == &*task.uid {
                return Err(deallocated(&task.key));
            }
            was_allocated |= allocation_of(&claim).is_some();
            let error = match self.step(task, &claim, cancel, &mut doing).await? {
                Step::Done => {
                    *last = Some(claim.clone());
                    return Ok(claim);
                }
                Step::Wrote(wrote) => match *wrote {
                    Ok(next) => {
                        claim = Arc::new(next);
                        unanswered = false;
                        continue;
                    }
                    Err(error) => error,
                },
            };
            let is_lost = matches!(code(&error), 404 | 409);
            if !is_lost && failures.is_final(&error) {
                return Err(failed(&format!("{doing} claim {}", task.key), &error));
            }
            // The claim has another version than the requests before were based on: none of them is carried out late.
            unanswered = code(&error) != 409 && (unanswered || !answered(&error));
            if code(&error) == 409 {
                self.metrics.conflict();
            }
            // Conflict or lost answer: the current state decides what to do next.
            if !is_lost {
                failures.wait().await;
            }
            let before = claim.metadata.resource_version.clone();
            claim = loop {
                match observe::get(&self.api(&task.key.namespace), &task.key.name).await {
                    Ok(Some(claim)) => break Arc::new(claim),
                    Ok(None) => return Err(deleted(&task.key)),
                    Err(_) => failures.wait().await,
                }
            };
            // A request that was based on an older version is either carried out by now, or gets a conflict.
            unanswered &= claim.metadata.resource_version == before;
        }
    }

    /// Creates a new version of a claim, so that requests based on an older one get a conflict. The change made for
    /// that is reverted, unless this process dies in between.
    async fn fence(&self, task: &ClaimTask) -> Result<Arc<ResourceClaim>, BindError> {
        let (api, name) = (self.api(&task.key.namespace), &*task.key.name);
        let version = task.claim.metadata.resource_version.as_deref();
        let mut fenced = None;
        for value in [version, None] {
            let change = Change::Annotation(FENCED, value);
            let write = || change_claim(&api, Target::any_of(&task.claim), change);
            let known = until_known(write, || observe::get(&api, name)).await;
            fenced = known.map_err(|e| failed(&format!("renew claim {}", task.key), &e))?;
        }
        let fenced = fenced.filter(|c| c.uid() == &*task.uid);
        fenced.map(Arc::new).ok_or_else(|| deleted(&task.key))
    }

    /// The next write that is needed, carried out.
    async fn step(
        &self,
        task: &ClaimTask,
        claim: &ResourceClaim,
        cancel: Option<&CancellationToken>,
        doing: &mut &'static str,
    ) -> Result<Step, BindError> {
        let proceed = || cancel.map_or(Ok(()), proceed);
        if claim.metadata.deletion_timestamp.is_some() || claim.uid() != &*task.uid {
            return Err(deleted(&task.key));
        }
        let api = self.api(&task.key.namespace);
        let mut status = serde_json::Map::new();
        let expected = task.allocation.as_deref();
        let expected = expected.or_else(|| allocation_of(&task.claim));
        match (allocation_of(claim), &task.allocation) {
            (Some(there), _)
                if expected
                    .is_some_and(|e| !same_devices(e.devices.as_ref(), there.devices.as_ref())) =>
            {
                return Err(BindError::new(format!(
                    "claim {} got allocated elsewhere in the meantime",
                    task.key
                )));
            }
            (Some(_), _) => {}
            (None, None) => return Err(deallocated(&task.key)),
            (None, Some(ours)) => {
                let mut finalizers = claim.metadata.finalizers.clone().unwrap_or_default();
                if !finalizers.iter().any(|f| f == FINALIZER) {
                    proceed()?;
                    *doing = "add finalizer to";
                    finalizers.push(FINALIZER.to_owned());
                    let change = Change::Finalizers(&finalizers);
                    let wrote = change_claim(&api, Target::version_of(claim), change).await;
                    return Ok(Step::Wrote(Box::new(wrote)));
                }
                status.insert("allocation".to_owned(), self.allocation(ours));
            }
        }
        let consumer = &task.consumer;
        let mut consumers = consumers(claim).to_vec();
        if !is_reserved_for(claim, &consumer.uid) {
            consumers.push(consumer.reference());
        } else if status.is_empty() {
            return Ok(Step::Done);
        }
        proceed()?;
        if status.is_empty() {
            *doing = "add reservation to";
            let change = Change::ReservedFor(&consumers);
            let wrote = change_claim(&api, Target::version_of(claim), change).await;
            return Ok(Step::Wrote(Box::new(wrote)));
        }
        *doing = "add allocation and reservation to";
        status.insert("reservedFor".to_owned(), json!(consumers));
        let new = claim
            .status
            .as_ref()
            .is_none_or(|s| *s == Default::default());
        let wrote = if new {
            self.put_status(&api, claim, status).await
        } else {
            // Fields written by other components, or unknown to this release, stay.
            let version = &claim.metadata.resource_version;
            let metadata = json!({"uid": &*task.uid, "resourceVersion": version});
            let patch = Patch::Merge(json!({"metadata": metadata, "status": status}));
            patch_status(api, &task.key.name, &patch).await
        };
        Ok(Step::Wrote(Box::new(wrote)))
    }

    fn allocation(
        &self,
        allocation: &k8s_openapi::api::resource::v1::AllocationResult,
    ) -> serde_json::Value {
        let mut value = serde_json::to_value(allocation).unwrap_or_default();
        if let Some(clock) = &self.clock
            && value["allocationTimestamp"].is_null()
        {
            value["allocationTimestamp"] = rfc3339(clock.now()).into();
        }
        value
    }

    /// Deallocates a claim that no other pod uses, unless it changed in the meantime. Returns the current claim; `None`
    /// when it was deleted.
    pub(super) async fn deallocate(
        &self,
        claim: &ResourceClaim,
    ) -> Result<Option<ResourceClaim>, kube::Error> {
        let patch = Patch::Merge(json!({
            "metadata": {"uid": claim.uid(), "resourceVersion": claim.metadata.resource_version},
            "status": {"allocation": null, "reservedFor": null, "devices": null},
        }));
        let key = key_of(claim);
        let api = self.api(&key.namespace);
        let write = || patch_status(api.clone(), &key.name, &patch);
        let known = until_known(write, || observe::get(&api, &key.name)).await?;
        Ok(known.filter(|c| c.uid() == claim.uid()))
    }

    /// Removes the reservation for a pod. Returns the current claim; `None` when it was deleted.
    pub(super) async fn unreserve(
        &self,
        claim: &ResourceClaim,
        pod: &Uid,
    ) -> Result<Option<ResourceClaim>, kube::Error> {
        let key = key_of(claim);
        let api = self.api(&key.namespace);
        let mut now = claim.clone();
        loop {
            let mut consumers = consumers(&now).to_vec();
            consumers.retain(|c| *c.uid != **pod);
            // Based on a version, so that a request which arrives late finds that the claim was reserved again.
            let change = Change::ReservedFor(&consumers);
            let write = || change_claim(&api, Target::version_of(&now), change);
            let known = until_known(write, || observe::get(&api, &key.name)).await?;
            match known.filter(|c| c.uid() == claim.uid()) {
                Some(other) if is_reserved_for(&other, pod) => now = other,
                done => return Ok(done),
            }
        }
    }

    /// Writes the first status of a claim with PUT. The server ignores the rest of the body except for the preconditions.
    /// That is half the server's work of a patch, for which it serialises and reads the whole claim.
    async fn put_status(
        &self,
        api: &Api<ResourceClaim>,
        claim: &ResourceClaim,
        status: serde_json::Map<String, serde_json::Value>,
    ) -> Result<ResourceClaim, kube::Error> {
        let mut body = serde_json::to_value(claim).map_err(kube::Error::SerdeError)?;
        body["status"] = status.into();
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let url = format!("{}/{name}/status", api.resource_url());
        self.writes.send(Method::PUT, &url, &body, KEEP).await
    }
}

/// Sends a patch for the status of a claim.
async fn patch_status(
    api: Api<ResourceClaim>,
    name: &str,
    patch: &Patch<serde_json::Value>,
) -> Result<ResourceClaim, kube::Error> {
    let request = Request::new(api.resource_url());
    let request = request.patch_subresource("status", name, &patch_params(), patch);
    let request = request.map_err(kube::Error::BuildRequest)?;
    observe::request(&api.into_client(), request).await
}

/// Changes one field of a claim without touching opaque driver parameters.
async fn change_claim(
    api: &Api<ResourceClaim>,
    target: Target<'_>,
    change: Change<'_>,
) -> Result<ResourceClaim, kube::Error> {
    allot_resourceclaim::change(api, target, change, None, KEEP).await
}

enum Step {
    Done,
    Wrote(Box<Result<ResourceClaim, kube::Error>>),
}

fn deleted(key: &Key) -> BindError {
    BindError::new(format!("claim {key} got deleted in the meantime"))
}

fn deallocated(key: &Key) -> BindError {
    BindError::new(format!(
        "claim {key} got deallocated elsewhere in the meantime"
    ))
}

fn failed(what: &str, error: &kube::Error) -> BindError {
    BindError::new(format!("{what}: {}", api_message(error)))
}
