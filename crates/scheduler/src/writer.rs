//! Carries decisions out: every write to the API server is here.
//!
//! Rules: patches with preconditions, so that no unknown field is lost and nobody's newer write is overwritten; when
//! an answer is lost, the object is read until it is known whether the write happened, because the device stays in
//! flight exactly as long; writes for one claim go one after the other, so that pods sharing it do not conflict with
//! each other.

use std::sync::Arc;
use std::time::Duration;

use allot_election::clock::{Clock, rfc3339};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use kube::{Api, Client};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use crate::actions::{Action, BindJob};
use crate::classic::Served;
use crate::core::{BindError, Input};
use crate::dra::claims::key_of;
use crate::dra::native::Demand;
use crate::known::{self, Object};
use crate::metrics::Metrics;
use crate::plugins::Plugin;
use crate::pod::{Key, PodInfo, Uid};

mod claims;
mod classic;
mod events;
mod rejections;
mod volumes;

use claims::ClaimWriter;
use classic::ClassicWriter;
pub use events::{Note, Recorder};
use rejections::Rejections;

const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Carries decisions out in the background; cheap to clone.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    clock: Clock,
    inputs: UnboundedSender<Input>,
    claims: Arc<ClaimWriter>,
    classic: Option<Arc<ClassicWriter>>,
    /// Per pod: what its status says of the node's resources is written by one at a time.
    demands: Arc<Turns<()>>,
    metrics: Metrics,
    rejections: Rejections,
    recorder: Recorder,
    permits: Arc<Semaphore>,
    shutdown: CancellationToken,
}

/// Whether the server answered at all: otherwise a write may have happened or not.
fn answered(error: &kube::Error) -> bool {
    // A server that is overloaded or shutting down may answer after the write.
    matches!(error, kube::Error::Api(status) if status.code < 500)
}

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}

fn text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Writes for one claim go one after the other.
struct Turns<T>(Mutex<FxHashMap<Uid, Turn<T>>>);

/// One claim's turn, with what the last writer of ours left.
type Turn<T> = Arc<tokio::sync::Mutex<Option<Arc<T>>>>;

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Turns<T> {
    fn of(&self, uid: &str) -> Turn<T> {
        let mut turns = self.0.lock();
        if turns.len() > 1024 {
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        }
        turns.entry(uid.into()).or_default().clone()
    }
}

impl<T: Object> Turns<T> {
    /// Waits for the turn of a writer that knows a claim as it once was. With the newest known version.
    async fn take(&self, claim: &Arc<T>) -> (tokio::sync::OwnedMutexGuard<Option<Arc<T>>>, Arc<T>) {
        let last = self.of(claim.uid()).lock_owned().await;
        let newest = known::newest(claim.clone(), last.as_ref());
        (last, newest)
    }
}

/// Writes until it is known what came of it; once is as good as twice. With the object as it is then; `None` when it is
/// gone.
async fn until_known<T, W, R>(
    write: impl Fn() -> W,
    read: impl Fn() -> R,
) -> Result<Option<T>, kube::Error>
where
    W: Future<Output = Result<T, kube::Error>>,
    R: Future<Output = Result<Option<T>, kube::Error>>,
{
    let mut pause = Pause::new();
    loop {
        match write().await {
            Ok(written) => return Ok(Some(written)),
            Err(error) if code(&error) == 404 => return Ok(None),
            // Somebody else's write, or this one, whose answer got lost.
            Err(error) if code(&error) == 409 => break,
            Err(error) if !answered(&error) || code(&error) == 429 => pause.wait().await,
            Err(error) => return Err(error),
        }
    }
    loop {
        match read().await {
            Ok(found) => return Ok(found),
            // What can not be read now can not be read later.
            Err(error @ kube::Error::SerdeError(_)) => return Err(error),
            Err(_) => pause.wait().await,
        }
    }
}

/// Pauses between repetitions.
struct Pause(Duration);

impl Pause {
    fn new() -> Self {
        Self(RETRY_MIN)
    }

    async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(RETRY_MAX);
    }
}

/// How a [`Writer`] writes.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How many bindings are written at the same time.
    pub parallel: usize,
    /// Allocations say when they were made.
    pub timestamps: bool,
}

impl Writer {
    /// A writer that reports to `inputs`.
    pub fn new(
        client: Client,
        clock: Clock,
        inputs: UnboundedSender<Input>,
        recorder: Recorder,
        options: Options,
        metrics: Metrics,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            claims: Arc::new(ClaimWriter::new(
                client.clone(),
                options.timestamps.then(|| clock.clone()),
                metrics.clone(),
            )),
            classic: None,
            demands: Arc::default(),
            metrics,
            rejections: Rejections::new(client.clone(), clock.clone()),
            permits: Arc::new(Semaphore::new(options.parallel.max(1))),
            client,
            clock,
            inputs,
            recorder,
            shutdown,
        }
    }

    /// The server has classic kinds.
    #[must_use]
    pub fn with_classic(mut self, served: Option<Served>) -> Self {
        let writer = |served| Arc::new(ClassicWriter::new(self.client.clone(), served));
        self.classic = served.map(writer);
        self
    }

    /// Starts carrying a decision out.
    pub fn start(&self, action: Action) {
        let writer = self.clone();
        match action {
            Action::Bind(job) => writer.spawn(async move |w| w.bind(*job).await),
            Action::BindPod { pod, node } => writer.spawn(async move |w| {
                let outcome = w.bind_pod(&pod, &node).await;
                w.report(Input::Bound { pod: pod.uid.clone(), outcome });
            }),
            Action::Reject(rejected) => {
                self.recorder.note(Note::failed_scheduling(&rejected));
                self.rejections.put(*rejected);
            }
            Action::ClearNomination(pod) => writer.spawn(async move |w| {
                let patch = json!({"metadata": {"uid": &*pod.uid}, "status": {"nominatedNodeName": null}});
                log("clear nomination", &pod.key, w.patch_pod_status(&pod.key, &patch).await);
            }),
            Action::Preempt { preemptor, node, victims } => {
                for victim in victims {
                    let (writer, preemptor, node) = (self.clone(), preemptor.clone(), node.clone());
                    writer.spawn(async move |w| w.preempt(&preemptor, &node, &victim).await);
                }
            }
            Action::ClearDemand(pod) => self.clear_demand(pod),
            Action::Deallocate(claim) => writer.spawn(async move |w| {
                let written = w.claims.deallocate(&claim).await.unwrap_or_else(|error| {
                    tracing::warn!(claim = claim_name(&claim), %error, "cannot deallocate");
                    None
                });
                w.released(&claim, None, written);
            }),
            Action::DeleteSpecial(claim) => writer.spawn(async move |w| {
                if let Err(error) = w.claims.delete_special(&claim).await {
                    tracing::warn!(claim = claim_name(&claim), %error, "cannot delete special claim");
                }
            }),
            Action::Unreserve { pod, claim } => writer.spawn(async move |w| {
                let written = w.claims.unreserve(&claim, &pod).await.unwrap_or_else(|error| {
                    tracing::warn!(claim = claim_name(&claim), %error, "cannot take reservation back");
                    None
                });
                w.released(&claim, Some(pod), written);
            }),
            Action::Classic(action) => self.start_classic(action),
            Action::WaitsForConditions { pod, node } => self.recorder.note(Note::waits_for_conditions(&pod, &node)),
        }
    }

    fn spawn<F, Fut>(self, work: F)
    where
        F: FnOnce(Self) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let shutdown = self.shutdown.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {}
                () = work(self) => {}
            }
        });
    }

    fn released(&self, claim: &ResourceClaim, pod: Option<Uid>, written: Option<ResourceClaim>) {
        self.report(Input::Released {
            key: key_of(claim),
            uid: claim.uid().into(),
            pod,
            claim: written.map(Arc::new),
        });
    }

    fn report(&self, input: Input) {
        // Nobody listens any more only when the scheduler stops.
        let _ = self.inputs.send(input);
    }

    async fn bind(&self, job: BindJob) {
        let _busy = self.recorder.hold_back();
        let Ok(_permit) = self.permits.acquire().await else {
            return;
        };
        let pod = job.pod.uid.clone();
        let outcome = match self.write_claims(&job).await {
            Ok(()) if job.wait => {
                self.announce(&job).await;
                return self.report(Input::ClaimsReady(pod));
            }
            Ok(()) => self.bind_pod(&job.pod, &job.node).await,
            Err(error) => Err(error),
        };
        self.report(Input::Bound { pod, outcome });
    }

    /// Tells where a pod is going to be that may wait for long, so that nobody makes other room for it. Upstream does so
    /// for every pod with claims; a nomination that is over at once is worth no write.
    async fn announce(&self, job: &BindJob) {
        let pod = &job.pod;
        if pod.nominated_node() == Some(&*job.node) {
            return;
        }
        let status = json!({"nominatedNodeName": &*job.node});
        let patch = json!({"metadata": {"uid": &*pod.uid}, "status": status});
        let written = self.patch_pod_status(&pod.key, &patch).await;
        log("nominate", &pod.key, written);
    }

    /// Writes all claims of a pod; all are tried to the end, so that nothing is left in the middle.
    async fn write_claims(&self, job: &BindJob) -> Result<(), BindError> {
        let pod = &job.pod;
        let existing = futures::future::join_all(job.claims.iter().map(async |task| {
            let claim = self.claims.reserve(task).await?;
            let (pod, in_flight) = (pod.uid.clone(), task.uid.clone());
            self.report(Input::ClaimWritten {
                pod,
                in_flight,
                claim,
            });
            Ok::<(), BindError>(())
        }));
        let special = async {
            let Some(task) = &job.special else {
                return Ok(None);
            };
            let claim = self.claims.create_special(task, pod).await?;
            let name = claim.metadata.name.clone().unwrap_or_default();
            let (uid, in_flight) = (pod.uid.clone(), task.uid.clone());
            self.report(Input::ClaimWritten {
                pod: uid,
                in_flight,
                claim,
            });
            let status = json!({"resourceClaimName": name, "requestMappings": task.mappings});
            let patch = json!({"metadata": {"uid": &*pod.uid}, "status": {"extendedResourceClaimStatus": status}});
            match self.patch_pod_status(&pod.key, &patch).await {
                Ok(()) => Ok(Some(name)),
                Err(error) => Err(not_recorded(&error)),
            }
        };
        let (classic, volumes) = (self.write_classic(job), self.write_volumes(job));
        let (existing, special, classic, volumes) =
            futures::join!(existing, special, classic, volumes);
        let of_claims = |e: BindError| e.before_binding(Plugin::DynamicResources);
        let claims = existing.into_iter().chain([classic]);
        claims
            .collect::<Result<(), BindError>>()
            .map_err(of_claims)?;
        volumes.map_err(|e| e.before_binding(Plugin::VolumeBinding))?;
        let special = special.map_err(of_claims)?;
        if job.demand.0.is_empty() {
            return Ok(());
        }
        let _turn = self.demands.of(&pod.uid).lock_owned().await;
        let demand = job.demand.clone().named(special.as_deref());
        let written = self.record_demand(pod, &demand).await;
        written.map_err(|e| of_claims(not_recorded(&e)))
    }

    /// Records in a pod's status which resources of the node come with its devices.
    async fn record_demand(&self, pod: &PodInfo, demand: &Demand) -> Result<(), kube::Error> {
        let status = json!({"nodeAllocatableResourceClaimStatuses": demand.0});
        let patch = json!({"metadata": {"uid": &*pod.uid}, "status": status});
        // The whole list: a strategic patch would add to what an earlier attempt left.
        send_pod_status(&self.client, &pod.key, &Patch::Merge(&patch)).await
    }

    /// Takes that back after the binding failed, before the next attempt records something.
    fn clear_demand(&self, pod: Arc<PodInfo>) {
        // Nobody else has the turn: the attempt is over, and the next one has not been told to begin.
        let turn = self.demands.of(&pod.uid).try_lock_owned();
        self.clone().spawn(async move |w| {
            let _turn = turn;
            let write = async || w.record_demand(&pod, &Demand::default()).await;
            let cleared = until_known(write, async || Ok(None)).await;
            log(
                "clear node-allocatable resources",
                &pod.key,
                cleared.map(drop),
            );
        });
    }

    async fn bind_pod(&self, pod: &PodInfo, node: &str) -> Result<(), BindError> {
        let body = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": &*pod.key.name, "namespace": &*pod.key.namespace, "uid": &*pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let url = format!(
            "/api/v1/namespaces/{}/pods/{}/binding",
            pod.key.namespace, pod.key.name
        );
        let mut pause = Pause::new();
        loop {
            let request = http::Request::post(&url)
                .header("content-type", "application/json")
                .body(body.to_string().into_bytes())
                .map_err(|e| BindError {
                    message: e.to_string(),
                })?;
            let error = match self.client.request::<IgnoredAny>(request).await {
                Ok(_) => break,
                Err(error) => error,
            };
            // Another writer of ours, whose answer got lost, may have bound it already.
            let bound = loop {
                match self.pods(&pod.key).get_opt(&pod.key.name).await {
                    Ok(current) => {
                        break current.filter(|p| p.metadata.uid.as_deref() == Some(&*pod.uid));
                    }
                    Err(_) => pause.wait().await,
                }
            };
            let on = bound
                .as_ref()
                .and_then(|p| p.spec.as_ref()?.node_name.as_deref());
            if on == Some(node) {
                break;
            }
            if answered(&error) || on.is_some() || bound.is_none() {
                return Err(BindError {
                    message: format!("running Bind plugin \"DefaultBinder\": {}", text(&error)),
                });
            }
            pause.wait().await;
        }
        tracing::info!(pod = %pod.key, node, "bound");
        self.recorder.note(Note::scheduled(pod, node));
        Ok(())
    }

    fn pods(&self, key: &Key) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    async fn patch_pod_status(
        &self,
        key: &Key,
        patch: &serde_json::Value,
    ) -> Result<(), kube::Error> {
        patch_pod_status(&self.client, key, patch).await
    }

    /// Marks a victim and deletes it.
    async fn preempt(&self, preemptor: &PodInfo, node: &str, victim: &PodInfo) {
        if !victim.is_terminating() {
            let scheduler = crate::pod::scheduler_name(&preemptor.pod);
            let condition = json!({
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "PreemptionByScheduler",
                "message": format!("{scheduler}: preempting to accommodate a higher priority pod"),
                "lastTransitionTime": rfc3339(self.clock.now()),
            });
            let patch =
                json!({"metadata": {"uid": &*victim.uid}, "status": {"conditions": [condition]}});
            log(
                "mark victim",
                &victim.key,
                self.patch_pod_status(&victim.key, &patch).await,
            );
            let params = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: Some(victim.uid.to_string()),
                    resource_version: None,
                }),
                ..DeleteParams::default()
            };
            let deleted = self
                .pods(&victim.key)
                .delete(&victim.key.name, &params)
                .await;
            log("delete victim", &victim.key, deleted.map(|_| ()));
        }
        tracing::info!(victim = %victim.key, preemptor = %preemptor.key, node, "preempted");
        self.recorder.note(Note::preempted(preemptor, victim, node));
    }
}

fn not_recorded(error: &kube::Error) -> BindError {
    BindError {
        message: format!("update pod status: {}", text(error)),
    }
}

fn claim_name(claim: &ResourceClaim) -> String {
    key_of(claim).to_string()
}

fn log(what: &str, pod: &Key, result: Result<(), kube::Error>) {
    if let Err(error) = result
        && code(&error) != 404
    {
        tracing::warn!(%pod, error = text(&error), "cannot {what}");
    }
}

async fn patch_pod_status(
    client: &Client,
    key: &Key,
    patch: &serde_json::Value,
) -> Result<(), kube::Error> {
    send_pod_status(client, key, &Patch::Strategic(patch)).await
}

async fn send_pod_status(
    client: &Client,
    key: &Key,
    patch: &Patch<&serde_json::Value>,
) -> Result<(), kube::Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &key.namespace);
    let request = Request::new(api.resource_url())
        .patch_subresource("status", &key.name, &PatchParams::default(), patch)
        .map_err(kube::Error::BuildRequest)?;
    client.request::<IgnoredAny>(request).await.map(|_| ())
}
