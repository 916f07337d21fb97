//! Pods that were to be disrupted and were not: their condition `DisruptionTarget` is reset after two minutes.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use serde_json::json;

use crate::Error;
use crate::controller::api::{self, Part};
use crate::controller::clock::{Clock, rfc3339, shifted, until};
use crate::controller::context::Context;
use crate::controller::context::Task;
use crate::controller::informer::{Informer, Key, key_of};
use crate::controller::meta;
use crate::controller::queue::{Next, Queue};

#[cfg(test)]
mod tests;

const TIMEOUT: SignedDuration = SignedDuration::from_secs(120);

struct Stale {
    client: Client,
    clock: Clock,
    pods: Informer<Pod>,
}

/// Sets the task up.
pub(super) fn build(context: &Context) -> Task {
    let this = Arc::new(Stale {
        client: context.client.clone(),
        clock: context.clock.clone(),
        pods: context.informer::<Pod>(),
    });
    let queue: Queue<Key> = context.queue("stale_pod_disruption");
    let adds = queue.clone();
    this.pods.on(move |change| {
        if !change.is_delete() && expires(change.object()).is_some() {
            adds.add(key_of(&**change.object()));
        }
    });
    Box::pin(queue.run(1, context.shutdown.clone(), move |key| {
        let this = this.clone();
        async move { this.sync(&key).await }
    }))
}

/// When the condition becomes stale. One set by the kubelet stays valid however long the pod takes.
fn expires(pod: &Pod) -> Option<Timestamp> {
    let condition = meta::pod_condition(pod, "DisruptionTarget")?;
    let by_kubelet = condition.reason.as_deref() == Some("TerminationByKubelet");
    let stands = condition.status == "True" && !by_kubelet;
    if !stands || meta::deleting(pod) || meta::is_finished(pod) {
        return None;
    }
    let since = condition.last_transition_time.as_ref();
    let since = since.map_or(Timestamp::UNIX_EPOCH, |at| at.0);
    Some(shifted(since, TIMEOUT))
}

/// How long to wait before the condition is reset; zero if it is due, `None` without one.
fn wait(pod: &Pod, now: Timestamp) -> Option<Duration> {
    expires(pod).map(|at| {
        if at > now {
            until(now, at)
        } else {
            Duration::ZERO
        }
    })
}

impl Stale {
    async fn sync(&self, key: &str) -> Result<Next, Error> {
        let Some(pod) = self.pods.get(key) else {
            return Ok(Next::Done);
        };
        let now = self.clock.now();
        match wait(&pod, now) {
            None => return Ok(Next::Done),
            Some(Duration::ZERO) => {}
            Some(left) => return Ok(Next::After(left)),
        }
        let api: Api<Pod> = Api::namespaced(self.client.clone(), meta::namespace(&*pod));
        let body = json!({
            "metadata": api::unchanged(&*pod),
            "status": {"conditions": [{
                "type": "DisruptionTarget", "status": "False", "lastTransitionTime": rfc3339(now),
                "observedGeneration": meta::generation(&*pod), "reason": null, "message": null,
            }]},
        });
        match api::patch_strategic(&api, meta::name(&*pod), Part::Status, &body).await {
            Ok(pod) => self.pods.assume(pod),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        Ok(Next::Done)
    }
}
