//! Deletion of preemption victims.

use allot_client::delete;

use super::binding::patch_pod_status;
use super::condition::with_condition;
use super::*;

impl Writer {
    /// Preempts a pod for another one; reports a failure.
    pub(super) async fn preempt(&self, preemptor: &Preemptor, node: &str, victim: &PodInfo) {
        // The pod is being deleted already.
        if victim.is_terminating() {
            return;
        }
        match self.evict(preemptor, victim).await {
            Ok(true) => {
                tracing::info!(victim = %victim.key, preemptor = %preemptor.key(), node, "preempted");
                self.recorder
                    .note(PendingEvent::preempted(preemptor, victim, node));
            }
            // The victim was deleted meanwhile, or replaced by another pod with the same name.
            Ok(false) => {}
            Err(error) => {
                let error = api_message(&error);
                tracing::warn!(victim = %victim.key, preemptor = %preemptor.key(), error, "cannot preempt");
                self.report(Input::NotPreempted(victim.uid.clone()));
            }
        }
    }

    /// Sets the pod's DisruptionTarget condition, and deletes it. Returns whether it existed.
    async fn evict(&self, preemptor: &Preemptor, victim: &PodInfo) -> Result<bool, kube::Error> {
        let scheduler = crate::pod::scheduler_name(&preemptor.pod.pod);
        let kind = preemptor.kind();
        let mut condition = json!({
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": format!("{scheduler}: preempting to accommodate a higher priority {kind}"),
            "lastTransitionTime": rfc3339(self.clock.now()),
        });
        if let Some(generation) = victim.pod.metadata.generation {
            condition["observedGeneration"] = generation.into();
        }
        let status = with_condition(victim, condition);
        let patch = json!({"metadata": {"uid": &*victim.uid}, "status": status});
        let exists = async || {
            let found = observe::get(&self.pods(&victim.key), &victim.key.name).await?;
            Ok(found.is_some_and(|p| p.metadata.uid.as_deref() == Some(&*victim.uid)))
        };
        let mark = || patch_pod_status(&self.client, &victim.key, &patch);
        if !until_done(mark, exists).await? {
            return Ok(false);
        }
        let params = delete::by_uid(victim.uid.to_string());
        let delete = async || {
            self.pods(&victim.key)
                .delete(&victim.key.name, &params)
                .await
        };
        until_done(delete, exists).await
    }
}

/// Repeats a write that names an object by its UID, until it succeeds or is rejected. Returns whether the object existed:
/// a conflict means that another object has the name, or that so many other writes were made meanwhile that the server
/// gave up, which `exists` tells apart.
async fn until_done<T, W, R>(
    write: impl Fn() -> W,
    exists: impl Fn() -> R,
) -> Result<bool, kube::Error>
where
    W: Future<Output = Result<T, kube::Error>>,
    R: Future<Output = Result<bool, kube::Error>>,
{
    let (mut failures, mut conflicts) = (Failures::default(), 0);
    loop {
        let error = match write().await {
            Ok(_) => return Ok(true),
            Err(error) => error,
        };
        match code(&error) {
            404 => return Ok(false),
            409 if matches!(exists().await, Ok(false)) => return Ok(false),
            409 if conflicts < CONFLICTS => conflicts += 1,
            _ if failures.is_final(&error) => return Err(error),
            _ => {}
        }
        failures.wait().await;
    }
}
