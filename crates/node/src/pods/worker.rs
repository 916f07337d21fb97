//! One pod, from its first container to its last.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use allot_apimachinery::well_known::is_terminal_phase;
use futures::FutureExt;
use futures::future::{BoxFuture, select_all};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::DropGuard;

use super::allocations::ResizeConditions;
use super::record::Record;
use super::state::{ContainerState, Health, Phase, Terminated};
use super::status::{ephemeral, has_ended, initialized, restart_policy};
use super::volumes::{Tokens, Volume};
use super::{Node, Origin, Update, adjust, certificates, message, probes};
use crate::rules::is_sidecar;
use crate::runtime::{self, Found, Running};
use crate::shim::spec::PodLimits;

/// Back-off between attempts to start or remove a container, or to write the status of a pod.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// First pause after a status that could not be written.
const REPORT: Duration = Duration::from_secs(1);
/// For containers of a pod whose object was deleted already.
const FORCED_GRACE: Duration = Duration::from_secs(2);

mod admit;
mod adopt;
mod evict;
mod pull;
mod report;
mod resize;
mod setup;
mod start;
mod stop;

type Containers = Arc<Mutex<HashMap<String, ContainerState>>>;

pub(super) struct Worker {
    node: Arc<Node>,
    origin: Origin,
    updates: watch::Receiver<Update>,
    containers: Containers,
    /// Claims are prepared and volumes are mounted.
    ready: bool,
    /// Whether init containers run again, although containers ran before.
    initializing: bool,
    volumes: Option<BTreeMap<String, Volume>>,
    tokens: Tokens,
    certificates: certificates::OfPod,
    /// Images that are being seen to, by container.
    pulls: HashMap<String, pull::Pending>,
    /// When volumes are refreshed.
    refresh: Wake,
    setup_retry: (Duration, Option<Instant>),
    start: Timestamp,
    since: HashMap<String, (String, Timestamp)>,
    /// The patch of the status that was sent last.
    sent: Option<Value>,
    /// The version of the pod that had that status first; `None` if it is not a number.
    sent_version: Option<u64>,
    /// The pause after the next failure to send it.
    report_pause: Duration,
    /// Of a static pod: what the next agent would find.
    recorded: Option<Record>,
    /// Probes of the containers that run, by name.
    probes: HashMap<String, JoinSet<()>>,
    /// Notified when a probe or pull has a result.
    news: Arc<Notify>,
    /// Why the pod as a whole has failed: reason and message.
    failed: Option<(&'static str, String)>,
    /// Whether it has failed because the node reclaims what it uses.
    disrupted: bool,
    /// What containers get to end since the node evicts the pod; the guard tells the node that they have.
    eviction: Option<(Duration, DropGuard)>,
    /// Whether the pod was admitted.
    admitted: bool,
    /// When the use of storage is checked.
    sizes: Wake,
    /// The record about the pod's resources, as it is on disk.
    resources: Option<resize::Resources>,
    /// The resources of the last resize that failed, and when it is tried again.
    failed_resize: Option<(Instant, resize::Wanted)>,
    /// Containers that are stopped because their resize requires a restart: container IDs by name, until they run again.
    restarting: BTreeMap<String, String>,
    /// IDs of those that this agent is stopping.
    stopping: HashSet<String>,
    /// The tasks that stop them.
    stops: JoinSet<()>,
    /// The limits of the pod as a whole that are in force; unknown to the next agent.
    pod_limits: Option<PodLimits>,
    /// Those that were refused last, and when they are tried again.
    failed_pod_limits: Option<(Instant, PodLimits)>,
    /// Whether the status has, or once had, a condition about a resize.
    was_resized: bool,
}

/// When to continue without an event.
type Wake = Option<Instant>;

fn earlier(a: Wake, b: Wake) -> Wake {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// The pod's grace period.
fn grace(pod: &Pod) -> Duration {
    let spec = pod.spec.as_ref();
    let seconds = spec.and_then(|spec| spec.termination_grace_period_seconds);
    Duration::from_secs(seconds.unwrap_or(30).max(0) as u64)
}

/// A container of any kind.
fn container_of(pod: &Pod, name: &str) -> Option<Container> {
    let spec = pod.spec.as_ref()?;
    let mut usual = spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers);
    let found = usual.find(|container| container.name == name).cloned();
    found.or_else(|| {
        ephemeral(pod)
            .into_iter()
            .find(|container| container.name == name)
    })
}

impl Worker {
    pub(super) fn new(
        node: Arc<Node>,
        origin: Origin,
        updates: watch::Receiver<Update>,
        containers: Containers,
        recovered: Vec<Found>,
    ) -> Self {
        let pod = Arc::clone(&updates.borrow().pod);
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let record = match origin {
            Origin::Api => None,
            Origin::File => Record::read(&node.pod_dir(uid)),
        };
        let status = match &record {
            Some(record) => record.status(),
            None => pod.status.clone().unwrap_or_default(),
        };
        let since = status.conditions.iter().flatten().filter_map(|condition| {
            let time = condition.last_transition_time.as_ref()?.0;
            Some((condition.type_.clone(), (condition.status.clone(), time)))
        });
        let resizes = ResizeConditions::reported(&status);
        let mut worker = Self {
            origin,
            updates,
            containers,
            ready: false,
            initializing: false,
            volumes: None,
            tokens: Tokens::default(),
            certificates: certificates::OfPod::default(),
            pulls: HashMap::new(),
            refresh: None,
            setup_retry: (node.config.setup_backoff.0, None),
            start: status
                .start_time
                .as_ref()
                .map_or_else(Timestamp::now, |time| time.0),
            since: since.collect(),
            sent: None,
            sent_version: None,
            report_pause: REPORT,
            recorded: None,
            probes: HashMap::new(),
            news: Arc::default(),
            failed: None,
            disrupted: false,
            eviction: None,
            admitted: false,
            sizes: None,
            resources: None,
            failed_resize: None,
            restarting: BTreeMap::new(),
            stopping: HashSet::new(),
            stops: JoinSet::new(),
            pod_limits: None,
            failed_pod_limits: None,
            was_resized: resizes != ResizeConditions::default(),
            node,
        };
        if let Some(nri) = &worker.node.nri {
            nri.know(adjust::sandbox(&worker.node, &pod));
        }
        let held = worker.admit(&pod, &status, resizes);
        worker.adopt(&pod, status, recovered);
        worker.adopt_resources(&pod, &held);
        if let Some(record) = record {
            record.continue_backoff(&mut worker.containers.lock());
        }
        worker.watch_adopted(&pod);
        worker
    }

    fn watch(&mut self, pod: &Pod, container: &Container, running: &Running, known: Health) {
        let (health, tasks) = probes::watch(
            &self.node,
            pod,
            container,
            running,
            known,
            &self.containers,
            &self.news,
        );
        let mut containers = self.containers.lock();
        if let Some(state) = containers.get_mut(&container.name) {
            state.health = health;
        }
        self.probes.insert(container.name.clone(), tasks);
    }

    pub(super) async fn run(mut self) {
        let news = Arc::clone(&self.news);
        let node = Arc::clone(&self.node);
        let shutdown = node.shutdown.clone();
        let mut health = self.node.claims.health_changes();
        loop {
            // Nothing is started any longer, not even a container that has just ended.
            if shutdown.is_cancelled() {
                return;
            }
            let update = self.updates.borrow_and_update().clone();
            let known = node.synced.initialized();
            let drivers = node.claims.drivers_changed();
            if let Some(evicted) = update.evicted.as_ref().filter(|_| !update.deleted) {
                self.evict(&update.pod, evicted);
            }
            let wake = if update.deleted {
                let grace = match self.origin {
                    Origin::Api => FORCED_GRACE,
                    Origin::File => grace(&update.pod),
                };
                self.stop_all(&update.pod, grace).await;
                self.unprepare_claims(&update.pod).await;
                // The claims may still be prepared; the next agent continues.
                if shutdown.is_cancelled() {
                    return;
                }
                self.clean_up(&update.pod).await;
                return;
            } else if update.pod.metadata.deletion_timestamp.is_some() {
                let pod = node.allocations.leave(&update.pod);
                self.terminate(&pod).await
            } else {
                let pod = self.allocated(&update.pod);
                let wake = self.step(&pod).await;
                let wake = earlier(wake, self.refresh_volumes(&pod).await);
                earlier(wake, self.report(&pod, false).await)
            };
            let exit = self.any_exit();
            tokio::select! {
                result = self.updates.changed() => if result.is_err() { return },
                () = exit => {}
                () = news.notified() => {}
                () = self.certificates.changed() => {}
                // Once all pods are known, resizes can be granted.
                _ = node.synced.wait(), if !known => {}
                // Only pods with devices show it; for others the report has no news.
                _ = health.changed() => {}
                // A claim that waits for its driver is prepared at once when that registers.
                () = drivers, if self.setup_retry.1.is_some() => self.setup_retry.1 = None,
                () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
                // Containers keep running; the next agent adopts them.
                () = shutdown.cancelled() => return,
            }
        }
    }

    /// Completes when a container that was running has ended; never if none runs.
    fn any_exit(&self) -> BoxFuture<'static, ()> {
        let exits: Vec<_> = self
            .containers
            .lock()
            .values()
            .filter_map(|state| state.running().map(|running| running.exit.clone()))
            .map(|mut exit| {
                async move {
                    runtime::ended(&mut exit).await;
                }
                .boxed()
            })
            .collect();
        if exits.is_empty() {
            std::future::pending().boxed()
        } else {
            select_all(exits).map(drop).boxed()
        }
    }

    fn collect_exits(&mut self, pod: &Pod) {
        let mut ended = Vec::new();
        for (name, state) in self.containers.lock().iter_mut() {
            let Phase::Running(running) = &state.phase else {
                continue;
            };
            let exit = running.exit.borrow().clone();
            if let Some(exit) = exit {
                self.probes.remove(name);
                let resized = self.restarting.get(name) == Some(&running.id);
                let mut end = Terminated::new(running, exit);
                if let Some(container) = container_of(pod, name) {
                    let code = end.exit.code;
                    end.message = message::read(&self.node, pod, &container, state.restarts, code);
                }
                state.health = Health::default();
                state.phase = if resized {
                    // The resize restarts the container, regardless of its restart policy.
                    ended.push(end.id.clone());
                    state.last = Some(end);
                    state.retry_at = None;
                    Phase::waiting("ContainerCreating", "")
                } else {
                    Phase::Terminated(end)
                };
            }
        }
        if !ended.is_empty() {
            self.node.discard_containers(ended);
        }
    }

    /// Starts what should run and does not.
    async fn step(&mut self, pod: &Pod) -> Wake {
        self.collect_exits(pod);
        if has_ended(pod) || is_terminal_phase(self.phase(pod)) {
            return None;
        }
        let deadline = self.keep_deadline(pod).await;
        let deadline = earlier(deadline, self.keep_storage_limits(pod).await);
        if self.failed.is_some() {
            return None;
        }
        if !self.ready && !self.is_admitted(pod) {
            return None;
        }
        let deadline = earlier(deadline, self.keep_certificates(pod));
        if !self.ready
            && let Some(wake) = self.set_up(pod).await
        {
            return earlier(deadline, Some(wake));
        }
        let spec = pod.spec.clone().unwrap_or_default();
        let mut wake = earlier(deadline, self.resize(pod).await);
        for container in ephemeral(pod) {
            wake = earlier(wake, self.ensure(pod, &container, "Never").await);
        }
        let begun = !self.initializing && initialized(pod, &self.containers.lock());
        for container in spec.init_containers.iter().flatten() {
            let sidecar = is_sidecar(container);
            if begun && !sidecar {
                continue;
            }
            let policy = if sidecar {
                "Always"
            } else {
                restart_policy(pod)
            };
            // For an init container "Always" is about the pod; one that succeeded is done.
            let policy = if !sidecar && policy == "Always" {
                "OnFailure"
            } else {
                policy
            };
            wake = earlier(wake, self.ensure(pod, container, policy).await);
            let done = {
                let containers = self.containers.lock();
                let state = containers.get(&container.name);
                match sidecar {
                    true => state.is_some_and(ContainerState::up),
                    false => state
                        .and_then(ContainerState::terminated)
                        .is_some_and(|end| end.exit.code == 0),
                }
            };
            if !done && !begun {
                return wake;
            }
        }
        self.initializing = false;
        for container in &spec.containers {
            wake = earlier(wake, self.ensure(pod, container, restart_policy(pod)).await);
        }
        wake
    }
}
