//! Jobs: pods that run until enough of them have succeeded.
//!
//! Finished pods keep a finalizer until they are counted, so that none is lost or counted twice: their UIDs are added
//! to `uncountedTerminatedPods`, the finalizer is removed, then the UIDs move into the counters (upstream's protocol).

mod plan;

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::Error;
use crate::controller::api::{self, Part};
use crate::controller::clock::Clock;
use crate::controller::context::{Context, Task};
use crate::controller::events::{Level, reference};
use crate::controller::informer::{Informer, Key, key, key_of};
use crate::controller::meta;
use crate::controller::queue::{Next, Queue};
use crate::controller::whole::Whole;
use crate::workload::{
    self, BY_CONTROLLER, ORPHANS, PodControl, controller_uid, orphan_namespace, pod_from_template,
    write_status,
};

use plan::{Backoff, Decision, PodToCreate};

/// Finalizer that keeps a pod until it is counted.
const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// The value of `managedBy` that is ours.
const CONTROLLER: &str = "kubernetes.io/job-controller";
/// Annotation and label with the completion index of a pod.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

pub(crate) type Object = Whole<Job>;

struct Jobs {
    control: PodControl,
    jobs: Informer<Object>,
    /// Failure counts of jobs with the job's UID; lost on restart, then derived from the remaining pods.
    backoffs: Mutex<HashMap<Key, (String, Backoff)>>,
    clock: Clock,
    queue: Queue<Key>,
}

/// Sets the controller up.
pub(crate) fn build(context: &Context) -> Task {
    let pods = context.informer::<Pod>();
    pods.index(BY_CONTROLLER, controller_uid)
        .index(ORPHANS, orphan_namespace);
    let this = Arc::new(Jobs {
        control: PodControl {
            client: context.client.clone(),
            events: context.events.component("job-controller"),
            pods: pods.clone(),
        },
        jobs: context.informer::<Object>(),
        backoffs: Mutex::default(),
        clock: context.clock.clone(),
        queue: context.queue("job"),
    });
    let queue = this.queue.clone();
    this.jobs
        .on(move |change| queue.add(key_of(&**change.object())));
    let orphans: Queue<Key> = context.queue("job_orphan_pod");
    let (weak, adds) = (Arc::downgrade(&this), orphans.clone());
    pods.on(move |change| {
        let Some(this) = weak.upgrade() else { return };
        let pod = change.object();
        if let Some(owner) = meta::controller_of(&pod.metadata)
            && owner.kind == "Job"
        {
            this.queue
                .add(key(Some(meta::namespace(&**pod)), &owner.name));
        } else if is_orphan(pod) {
            adds.add(key_of(&**pod));
        }
    });
    let queue = this.queue.clone();
    let jobs = context.run_workers(queue, this.clone(), |this, key| async move {
        this.sync(&key).await
    });
    let orphans = orphans.run(1, context.shutdown.clone(), move |key| {
        let this = this.clone();
        async move {
            let pod = this.control.pods.get(&key).filter(|pod| is_orphan(pod));
            // A job that adopts it meanwhile counts it.
            this.release(pod.iter(), api::unchanged).await?;
            Ok(Next::Done)
        }
    });
    Box::pin(async move {
        tokio::join!(jobs, orphans);
    })
}

/// The job of the pod was deleted: it will not be counted.
fn is_orphan(pod: &Pod) -> bool {
    is_tracked(pod) && meta::controller_of(&pod.metadata).is_none()
}

fn is_tracked(pod: &Pod) -> bool {
    pod.metadata
        .finalizers
        .iter()
        .flatten()
        .any(|f| f == TRACKING)
}

impl Jobs {
    async fn sync(&self, key: &str) -> Result<Next, Error> {
        let Some(job) = self.jobs.get(key) else {
            self.backoffs.lock().remove(key);
            return self.release_orphans(key).await;
        };
        let Some(spec) = &job.spec else {
            return Ok(Next::Done);
        };
        if spec
            .managed_by
            .as_deref()
            .is_some_and(|by| by != CONTROLLER)
        {
            return Ok(Next::Done);
        }
        if let Some(selector) = &spec.selector
            && !plan::is_finished(&job)
        {
            let (client, pods) = (&self.control.client, &self.control.pods);
            workload::claim(client, &**job, selector, Some(TRACKING), pods).await?;
        }
        let pods = self.control.pods.by_index(BY_CONTROLLER, meta::uid(&*job));
        if meta::deleting(&*job) {
            // The job no longer counts; its pods must not wait.
            let tracked = pods.iter().filter(|p| is_tracked(p));
            self.release(tracked, api::same).await?;
            return Ok(Next::Done);
        }
        let past = self.backoffs.lock().get(key).cloned();
        let past = past.filter(|(uid, _)| uid == meta::uid(&*job));
        let past = past.as_ref().map(|(_, backoff)| backoff);
        let decision = plan::decide(&job, &pods, past, self.clock.now());
        self.apply(&job, &pods, decision).await
    }

    async fn apply(
        &self,
        job: &Object,
        pods: &[Arc<Pod>],
        decision: Decision,
    ) -> Result<Next, Error> {
        let api: Api<Object> = Api::namespaced(self.control.client.clone(), meta::namespace(job));
        // First the status with finished pods, then the finalizers: a crash in between loses nothing.
        if let Some(status) = decision.status {
            write_status(&api, &self.jobs, job, job.at("/status"), status).await?;
            let backoff = (meta::uid(job).to_owned(), decision.backoff);
            self.backoffs.lock().insert(key_of(&**job), backoff);
        } else {
            self.backoffs.lock().remove(&key_of(&**job));
        }
        for (level, reason, message) in decision.events {
            let level = if level { Level::Normal } else { Level::Warning };
            self.control
                .events
                .event(reference(&**job), level, &reason, message);
        }
        let named = |names: &[String]| -> Vec<&Arc<Pod>> {
            pods.iter()
                .filter(|p| names.iter().any(|n| n == meta::name(&***p)))
                .collect()
        };
        self.release(named(&decision.release).into_iter(), api::same)
            .await?;
        let deletions = named(&decision.delete);
        let deletions = deletions.iter().map(|pod| self.control.delete(&**job, pod));
        for result in futures::future::join_all(deletions).await {
            result?;
        }
        if !decision.create.is_empty() {
            match self.create(job, &decision.create).await {
                Err(error) if error.is_namespace_terminating() => return Ok(Next::Done),
                result => result?,
            }
        }
        Ok(decision.again.map_or(Next::Done, Next::After))
    }

    async fn create(&self, job: &Object, pods: &[PodToCreate]) -> Result<(), Error> {
        let mut batch = 1;
        let mut left = pods;
        while !left.is_empty() {
            let (now, rest) = left.split_at(batch.min(left.len()));
            let bodies: Vec<Value> = now.iter().map(|wanted| new_pod(job, *wanted)).collect();
            let creations = bodies.iter().map(|pod| self.control.create(&**job, pod));
            for result in futures::future::join_all(creations).await {
                result?;
            }
            left = rest;
            batch *= 2;
        }
        Ok(())
    }

    /// Removes the tracking finalizer even if fields outside of `expected` changed: kubelets write the status concurrently.
    async fn release<'a>(
        &self,
        pods: impl Iterator<Item = &'a Arc<Pod>>,
        expected: fn(&Pod) -> Value,
    ) -> Result<(), Error> {
        let patches = pods.map(|pod| async move {
            let mut body = json!({"metadata": expected(pod)});
            body["metadata"]["$deleteFromPrimitiveList/finalizers"] = json!([TRACKING]);
            let api: Api<Pod> =
                Api::namespaced(self.control.client.clone(), meta::namespace(&**pod));
            match api::patch_strategic(&api, meta::name(&**pod), Part::Main, &body).await {
                // This patch deletes a pod that has neither grace period nor finalizers left.
                Ok(new)
                    if meta::deleting(&new)
                        && new.metadata.finalizers.iter().flatten().next().is_none()
                        && new.metadata.deletion_grace_period_seconds.unwrap_or(0) == 0 =>
                {
                    self.control.pods.assume_gone(&new)
                }
                Ok(new) => self.control.pods.assume(new),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
            Ok(())
        });
        for result in futures::future::join_all(patches).await {
            result?;
        }
        Ok(())
    }

    /// Pods of a deleted job must not keep their finalizer.
    async fn release_orphans(&self, key: &str) -> Result<Next, Error> {
        let (namespace, name) = crate::controller::informer::split_key(key);
        let orphans: Vec<Arc<Pod>> = self
            .control
            .pods
            .list()
            .into_iter()
            .filter(|p| {
                meta::namespace(&**p) == namespace
                    && is_tracked(p)
                    && meta::controller_of(&p.metadata)
                        .is_some_and(|o| o.kind == "Job" && o.name == name)
            })
            .collect();
        self.release(orphans.iter(), api::same).await?;
        Ok(Next::Done)
    }
}

fn new_pod(job: &Object, wanted: PodToCreate) -> Value {
    let name = meta::name(job);
    let prefix = match wanted.index {
        Some(index) => format!("{name}-{index}-"),
        None => format!("{name}-"),
    };
    let mut pod = pod_from_template(
        job.at("/spec/template"),
        meta::namespace(job),
        &prefix,
        meta::controller_ref(&**job),
    );
    let mut finalizers = pod["metadata"]["finalizers"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    finalizers.push(json!(TRACKING));
    pod["metadata"]["finalizers"] = json!(finalizers);
    if let Some(failures) = wanted.failures {
        failures.write(&mut pod["metadata"]["annotations"]);
    }
    if let Some(index) = wanted.index {
        let index = index.to_string();
        pod["metadata"]["annotations"][INDEX] = json!(index);
        pod["metadata"]["labels"][INDEX] = json!(index);
        if pod["spec"]["hostname"].is_null() {
            pod["spec"]["hostname"] = json!(format!("{name}-{index}"));
        }
        for list in ["initContainers", "containers"] {
            for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
                let mut env = container["env"].as_array().cloned().unwrap_or_default();
                if env.iter().all(|e| e["name"] != "JOB_COMPLETION_INDEX") {
                    let field = format!("metadata.labels['{INDEX}']");
                    env.push(json!({
                        "name": "JOB_COMPLETION_INDEX",
                        "valueFrom": {"fieldRef": {"fieldPath": field}},
                    }));
                    container["env"] = json!(env);
                }
            }
        }
    }
    pod
}
