//! Carries decisions out: every write to the API server is here.
//!
//! Rules: patches with preconditions, so that no unknown field is lost and no newer write is overwritten (a claim's
//! first status is a PUT, since there is nothing to lose); when an answer is lost, the object is read until it is known
//! whether the write happened, because the device stays in flight exactly as long; writes for one claim are sequential,
//! so that pods sharing it do not conflict with each other.

use std::sync::Arc;
use std::time::Duration;

use allot_client::patch_params;
use allot_client::retry::{Failures, Pause, answered, code, until_known};
use allot_election::clock::{Clock, rfc3339};
use allot_framework::claim_locks::ClaimLocks;
use allot_framework::claim_plugin::ClaimWriter as ClaimPluginWriter;
use allot_reflector::{Writes, api_message};
use http::Method;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::Patch;
use kube::core::Request;
use kube::{Api, Client};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use crate::actions::{Action, BindJob, Preemptor};
use crate::assume_cache::Object;
use crate::core::{BindError, Input};
use crate::dra::claims::key_of;
use crate::dra::node_allocatable::NodeAllocatableRequests;
use crate::framework::Plugin;
use crate::metrics::Metrics;
use crate::observe;
use crate::pod::{Key, PodInfo, Uid};

mod binding;
mod claim_plugin;
mod claims;
mod condition;
mod events;
mod fence;
mod podgroup;
mod preemption;
mod rejections;
mod unbound;
mod volumes;

use binding::{log, patch_pod_status, proceed};
use claims::ClaimWriter;
pub use events::{PendingEvent, Recorder};
use fence::Versions;
use podgroup::GroupWriter;
use rejections::{Rejections, Report};

/// How often a write that got a conflict is repeated.
const CONFLICTS: u32 = 3;

/// A binding that takes longer than this no longer counts for the concurrency limit.
const SLOW: Duration = Duration::from_secs(1);

/// Carries decisions out in the background; cheap to clone.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    writes: Writes,
    clock: Clock,
    inputs: UnboundedSender<Input>,
    claims: Arc<ClaimWriter>,
    claim_plugin: Option<Arc<dyn ClaimPluginWriter>>,
    groups: Option<Arc<GroupWriter>>,
    /// Per pod: serialises the writes of node resources in its status.
    demands: Arc<ClaimLocks<()>>,
    versions: Arc<Versions>,
    metrics: Metrics,
    rejections: Rejections,
    recorder: Recorder,
    permits: Arc<Semaphore>,
    shutdown: CancellationToken,
}

/// The options of a [`Writer`].
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The number of bindings that are written at the same time.
    pub parallel: usize,
    /// Whether allocations carry timestamps.
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
        let writes = Writes::new(client.clone());
        Self {
            claims: Arc::new(ClaimWriter::new(
                client.clone(),
                writes.clone(),
                options.timestamps.then(|| clock.clone()),
                metrics.clone(),
            )),
            claim_plugin: None,
            groups: None,
            demands: Arc::default(),
            versions: Arc::default(),
            metrics,
            rejections: Rejections::new(client.clone(), clock.clone()),
            permits: Arc::new(Semaphore::new(options.parallel.max(1))),
            client,
            writes,
            clock,
            inputs,
            recorder,
            shutdown,
        }
    }

    /// Starts carrying a decision out.
    pub fn start(&self, action: Action) {
        let writer = self.clone();
        match action {
            Action::Bind(job) => {
                self.rejections.forget(&job.pod.uid);
                writer.spawn(async move |w| w.with_permit(w.bind(*job)).await);
            }
            Action::BindPod { pod, node } => writer.spawn(async move |w| {
                let outcome = w.with_permit(w.bind_pod(&pod, &node)).await;
                w.report(Input::Bound { pod: pod.uid.clone(), outcome });
            }),
            Action::Reject(rejected) => {
                self.recorder.note(PendingEvent::failed_scheduling(&rejected));
                self.rejections.put(Report::from(*rejected));
            }
            Action::ClearNomination(pod) => self.rejections.put(Report::cleared(pod)),
            Action::Preempt { preemptor, node, victims } => {
                for victim in victims {
                    let (writer, preemptor, node) = (self.clone(), preemptor.clone(), node.clone());
                    writer.spawn(async move |w| w.preempt(&preemptor, &node, &victim).await);
                }
            }
            Action::RecordPreempted { preemptor, node, victim } => {
                self.recorder.note(PendingEvent::preempted_in_memory(&preemptor, &victim, &node));
            }
            Action::ClearNodeAllocatable(pod) => self.clear_node_allocatable(pod),
            Action::Deallocate(claim) => writer.spawn(async move |w| {
                let written = w.claims.deallocate(&claim).await.unwrap_or_else(|error| {
                    tracing::warn!(claim = claim_name(&claim), %error, "cannot deallocate");
                    None
                });
                w.released(&claim, None, written);
            }),
            Action::DeleteExtendedResourceClaim(claim) => writer.spawn(async move |w| {
                if let Err(error) = w.claims.delete_extended_resource_claim(&claim).await {
                    tracing::warn!(claim = claim_name(&claim), %error, "cannot delete extended resource claim");
                }
            }),
            Action::Unreserve { pod, claim } => writer.spawn(async move |w| {
                let written = w.claims.unreserve(&claim, &pod).await.unwrap_or_else(|error| {
                    tracing::warn!(claim = claim_name(&claim), %error, "cannot take reservation back");
                    None
                });
                w.released(&claim, Some(pod), written);
            }),
            Action::Fenced { pods, then } => {
                writer.spawn(async move |w| w.write_fenced(&pods, *then).await);
            }
            Action::ClaimPlugin(write) => self.start_claim_plugin(write),
            Action::UpdatePodGroupStatus { group, uid, condition } => writer.update_pod_group_status(group, uid, condition),
            Action::RecordWaitForConditions { pod, node, pending } => {
                self.recorder.note(PendingEvent::waits_for_conditions(&pod, &node, &pending));
            }
            Action::RecordMissingClaim { pod, text } => self.recorder.note(PendingEvent::lacks_claim(&pod, text)),
        }
    }

    /// Runs `work` under the concurrency limit; after one second the permit is released, so that a slow write does not
    /// block other pods.
    async fn with_permit<T>(&self, work: impl Future<Output = T>) -> T {
        let turn = async {
            let permit = self.permits.acquire().await;
            (self.recorder.pause(), permit)
        };
        let turn = turn.await;
        let mut work = std::pin::pin!(work);
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = tokio::time::sleep(SLOW) => drop(turn),
        }
        work.await
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
        // The receiver is dropped only when the scheduler stops.
        let _ = self.inputs.send(input);
    }
}

fn claim_name(claim: &ResourceClaim) -> String {
    key_of(claim).to_string()
}
