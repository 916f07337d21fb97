//! ReplicaSets: the requested number of pods of a template.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Api;
use serde_json::{Value, json};

use crate::Error;
use crate::controller::clock::{Clock, rfc3339};
use crate::controller::context::{Context, Task};
use crate::controller::informer::{Informer, Key};
use crate::controller::meta;
use crate::controller::queue::{Next, Queue};
use crate::controller::whole::Whole;
use crate::workload::sets::{PodSet, Sets};
use crate::workload::{
    BY_CONTROLLER, PodControl, condition_status, controller_uid, pod_from_template, rank,
    remove_condition, set_condition, write_status,
};

/// Pods created or deleted per pass at most, as in upstream.
const BURST: usize = 500;

pub(crate) type Set = Whole<ReplicaSet>;

struct ReplicaSets {
    control: PodControl,
    sets: Informer<Set>,
    clock: Clock,
    queue: Queue<Key>,
}

impl PodSet for Set {
    const KIND: &'static str = "ReplicaSet";

    fn selector(&self) -> Option<&LabelSelector> {
        self.spec.as_ref().map(|s| &s.selector)
    }
}

/// Sets the controller up.
pub(crate) fn build(context: &Context) -> Task {
    let Sets {
        control,
        sets,
        clock,
        queue,
    } = Sets::new(context, "replicaset-controller", "replicaset");
    sets.index(BY_CONTROLLER, controller_uid);
    let this = Arc::new(ReplicaSets {
        control,
        sets,
        clock,
        queue,
    });
    let queue = this.queue.clone();
    context.run_workers(
        queue,
        this,
        |this, key| async move { this.sync(&key).await },
    )
}

/// Counts for the status.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    replicas: i32,
    fully_labeled: i32,
    ready: i32,
    available: i32,
    terminating: i32,
    /// When the next ready pod becomes available.
    next: Option<Duration>,
}

fn count(set: &ReplicaSet, pods: &[Arc<Pod>], now: jiff::Timestamp) -> Counts {
    let spec = set.spec.clone().unwrap_or_default();
    let labels = spec
        .template
        .as_ref()
        .and_then(|t| t.metadata.as_ref()?.labels.clone())
        .unwrap_or_default();
    let min_ready = spec.min_ready_seconds.unwrap_or(0);
    let mut counts = Counts::default();
    for pod in pods {
        if meta::is_finished(pod) {
            continue;
        }
        if meta::deleting(&**pod) {
            counts.terminating += 1;
            continue;
        }
        counts.replicas += 1;
        let has = pod.metadata.labels.clone().unwrap_or_default();
        if labels.iter().all(|(k, v)| has.get(k) == Some(v)) {
            counts.fully_labeled += 1;
        }
        if meta::is_ready(pod) {
            counts.ready += 1;
        }
        match meta::is_available(pod, min_ready, now) {
            Ok(()) => counts.available += 1,
            Err(Some(wait)) => counts.next = Some(counts.next.map_or(wait, |n| n.min(wait))),
            Err(None) => {}
        }
    }
    counts
}

impl ReplicaSets {
    async fn sync(&self, key: &str) -> Result<Next, Error> {
        let Some(set) = self.sets.get(key) else {
            return Ok(Next::Done);
        };
        let Some(spec) = &set.spec else {
            return Ok(Next::Done);
        };
        let pods = self.control.claim(&*set, &spec.selector).await?;
        let mut active: Vec<Arc<Pod>> = pods
            .iter()
            .filter(|p| meta::is_active(p))
            .cloned()
            .collect();
        let failure = if meta::deleting(&*set) {
            None
        } else {
            self.manage(&set, &mut active).await.err()
        };
        let pods = self.control.pods.by_index(BY_CONTROLLER, meta::uid(&*set));
        let now = self.clock.now();
        let counts = count(&set, &pods, now);
        self.write(&set, &counts, failure.as_ref(), now).await?;
        match failure {
            Some(error) if error.is_namespace_terminating() => Ok(Next::Done),
            Some(error) => Err(error),
            None => Ok(counts.next.map_or(Next::Done, Next::After)),
        }
    }

    /// The pods of all sets with the same owner, such as the versions of a deployment; without an owner only those of
    /// the set.
    fn related(&self, set: &Set) -> Vec<Arc<Pod>> {
        let of = |uid: &str| self.control.pods.by_index(BY_CONTROLLER, uid);
        let Some(owner) = meta::controller_of(&set.metadata) else {
            return of(meta::uid(set));
        };
        let sets = self.sets.by_index(BY_CONTROLLER, &owner.uid);
        sets.iter().flat_map(|s| of(meta::uid(&**s))).collect()
    }

    async fn manage(&self, set: &Set, active: &mut [Arc<Pod>]) -> Result<(), Error> {
        let wanted =
            usize::try_from(set.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1)).unwrap_or(0);
        if active.len() < wanted {
            let missing = (wanted - active.len()).min(BURST);
            let pod = pod_from_template(
                set.at("/spec/template"),
                meta::namespace(set),
                &format!("{}-", meta::name(set)),
                meta::controller_ref(&**set),
            );
            return self.control.create_many(&**set, missing, &pod).await;
        }
        let surplus = (active.len() - wanted).min(BURST);
        rank::replicas(active, &self.related(set));
        let deletions = active
            .iter()
            .take(surplus)
            .map(|pod| self.control.delete(&**set, pod));
        for result in futures::future::join_all(deletions).await {
            result?;
        }
        Ok(())
    }

    async fn write(
        &self,
        set: &Set,
        counts: &Counts,
        failure: Option<&Error>,
        now: jiff::Timestamp,
    ) -> Result<(), Error> {
        let old = set.at("/status");
        let mut conditions: Vec<Value> = old["conditions"].as_array().cloned().unwrap_or_default();
        match failure {
            // Only the first failure is reported: each message names another pod, and would be another write.
            Some(_) if condition_status(&conditions, "ReplicaFailure") == "True" => {}
            Some(error) => set_condition(
                &mut conditions,
                "ReplicaFailure",
                "True",
                "FailedCreate",
                &error.to_string(),
                &rfc3339(now),
            ),
            None => remove_condition(&mut conditions, "ReplicaFailure"),
        }
        let conditions = if conditions.is_empty() {
            Value::Null
        } else {
            json!(conditions)
        };
        let new = json!({
            "replicas": counts.replicas,
            "fullyLabeledReplicas": counts.fully_labeled,
            "readyReplicas": counts.ready,
            "availableReplicas": counts.available,
            "terminatingReplicas": counts.terminating,
            "observedGeneration": meta::generation(set),
            "conditions": conditions,
        });
        let api: Api<Set> = Api::namespaced(self.control.client.clone(), meta::namespace(set));
        write_status(&api, &self.sets, set, old, new).await
    }
}
