//! One pod, from its first container to its last.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, select_all};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::env::{Downward, Sources};
use super::state::{ContainerState, Health, Phase, Terminated};
use super::status::{self, Input, ephemeral, initialized, is_sidecar, restart_policy};
use super::volumes::{self, Contents, Tokens, Volume};
use super::{Node, Update, launch, lifecycle, message, probes};
use crate::claims::text;
use crate::events::Kind;
use crate::runtime::{self, Found, Running};
use crate::shim::spec::Exit;

/// Waits between attempts to set a pod up, or to tell the API server.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// For containers of a pod whose object is gone already.
const FORCED_GRACE: Duration = Duration::from_secs(2);

mod adopt;
mod stop;

type Containers = Arc<Mutex<HashMap<String, ContainerState>>>;

pub(super) struct Worker {
    node: Arc<Node>,
    updates: watch::Receiver<Update>,
    containers: Containers,
    /// Claims are prepared and volumes are there.
    ready: bool,
    volumes: Option<BTreeMap<String, Volume>>,
    tokens: Tokens,
    /// When volumes are looked at again.
    refresh: Wake,
    setup_retry: (Duration, Option<Instant>),
    start: Timestamp,
    since: HashMap<String, (String, Timestamp)>,
    sent: Option<Value>,
    /// Probes of the containers that run, by name.
    probes: HashMap<String, JoinSet<()>>,
    /// They have found something.
    news: Arc<Notify>,
    /// Why the pod as a whole has failed: reason and message.
    failed: Option<(&'static str, &'static str)>,
}

/// When to look again without an event.
type Wake = Option<Instant>;

fn earlier(a: Wake, b: Wake) -> Wake {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn contents<'a>(
    node: &'a Node,
    downward: &'a Downward<'a>,
    tokens: &'a mut Tokens,
) -> Contents<'a> {
    let (client, namespace) = (&node.client, downward.pod.namespace());
    Contents {
        client,
        downward,
        sources: Sources::new(client.clone(), namespace.unwrap_or_default()),
        tokens: (!node.pretends()).then_some(tokens),
    }
}

/// The grace period that the pod asks for.
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
        updates: watch::Receiver<Update>,
        containers: Containers,
        recovered: Vec<Found>,
    ) -> Self {
        let pod = Arc::clone(&updates.borrow().pod);
        let status = pod.status.clone().unwrap_or_default();
        let since = status.conditions.iter().flatten().filter_map(|condition| {
            let time = condition.last_transition_time.as_ref()?.0;
            Some((condition.type_.clone(), (condition.status.clone(), time)))
        });
        let mut worker = Self {
            updates,
            containers,
            ready: false,
            volumes: None,
            tokens: Tokens::default(),
            refresh: None,
            setup_retry: (RETRY.0, None),
            start: status
                .start_time
                .as_ref()
                .map_or_else(Timestamp::now, |time| time.0),
            since: since.collect(),
            sent: None,
            probes: HashMap::new(),
            news: Arc::default(),
            failed: None,
            node,
        };
        worker.adopt(&pod, recovered);
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
        let shutdown = self.node.shutdown.clone();
        let mut health = self.node.claims.health_changes();
        loop {
            // Nothing is started any more, not even what has just ended.
            if shutdown.is_cancelled() {
                return;
            }
            let update = self.updates.borrow_and_update().clone();
            let wake = if update.deleted {
                self.stop_all(&update.pod, FORCED_GRACE).await;
                self.give_back(&update.pod).await;
                self.clean_up(&update.pod);
                return;
            } else if update.pod.metadata.deletion_timestamp.is_some() {
                self.terminate(&update.pod).await
            } else {
                let wake = self.step(&update.pod).await;
                let wake = earlier(wake, self.refresh_volumes(&update.pod).await);
                earlier(wake, self.report(&update.pod, false).await)
            };
            let exit = self.any_exit();
            tokio::select! {
                result = self.updates.changed() => if result.is_err() { return },
                () = exit => {}
                () = news.notified() => {}
                // Only pods with devices show it; for others the report has no news.
                _ = health.changed() => {}
                () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
                // Containers go on; the next agent finds them.
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
        for (name, state) in self.containers.lock().iter_mut() {
            let Phase::Running(running) = &state.phase else {
                continue;
            };
            let exit = running.exit.borrow().clone();
            if let Some(exit) = exit {
                self.probes.remove(name);
                let mut end = Terminated::new(running, exit);
                if let Some(container) = container_of(pod, name) {
                    let code = end.exit.code;
                    end.message = message::read(&self.node, pod, &container, state.restarts, code);
                }
                state.health = Health::default();
                state.phase = Phase::Terminated(end);
            }
        }
    }

    /// Starts what should run and does not.
    async fn step(&mut self, pod: &Pod) -> Wake {
        self.collect_exits(pod);
        let over = |phase: &str| phase == "Succeeded" || phase == "Failed";
        if pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref())
            .is_some_and(over)
        {
            return None;
        }
        if over(self.phase(pod)) {
            return None;
        }
        let deadline = self.keep_deadline(pod).await;
        if self.failed.is_some() {
            return None;
        }
        if !self.ready
            && let Some(wake) = self.set_up(pod).await
        {
            return earlier(deadline, Some(wake));
        }
        let spec = pod.spec.clone().unwrap_or_default();
        let mut wake = deadline;
        for container in ephemeral(pod) {
            wake = earlier(wake, self.ensure(pod, &container, "Never").await);
        }
        let begun = initialized(pod, &self.containers.lock());
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
        for container in &spec.containers {
            wake = earlier(wake, self.ensure(pod, container, restart_policy(pod)).await);
        }
        wake
    }

    /// Volumes and claims. Returns when to try again if that failed.
    async fn set_up(&mut self, pod: &Pod) -> Wake {
        if let Some(at) = self.setup_retry.1.filter(|at| *at > Instant::now()) {
            return Some(at);
        }
        let events = self.node.events.clone();
        let result = match self.make_volumes(pod).await {
            Ok(()) => self.node.claims.prepare(pod).await.inspect_err(|error| {
                let message = format!("Failed to prepare dynamic resources: {error}");
                events.pod(
                    pod,
                    None,
                    Kind::Warning,
                    "FailedPrepareDynamicResources",
                    message,
                );
            }),
            Err(error) => {
                events.pod(pod, None, Kind::Warning, "FailedMount", error.clone());
                Err(error)
            }
        };
        match result {
            Ok(()) => {
                self.ready = true;
                self.setup_retry = (RETRY.0, None);
                None
            }
            Err(error) => {
                tracing::warn!(pod = pod.name_any(), error, "pod is not ready to start");
                let at = Instant::now() + self.setup_retry.0;
                self.setup_retry = ((self.setup_retry.0 * 2).min(RETRY.1), Some(at));
                Some(at)
            }
        }
    }

    async fn make_volumes(&mut self, pod: &Pod) -> Result<(), String> {
        let directory = self.node.pod_dir(&pod.uid().unwrap_or_default());
        let downward = launch::downward(&self.node, pod);
        let mut contents = contents(&self.node, &downward, &mut self.tokens);
        self.volumes = Some(volumes::prepare(&mut contents, &directory).await?);
        self.refresh = Some(Instant::now() + self.node.config.sync_frequency);
        Ok(())
    }

    /// Follows what the API server has for the volumes. Returns when to look again.
    async fn refresh_volumes(&mut self, pod: &Pod) -> Wake {
        if !self.ready || self.node.pretends() || !volumes::may_change(pod) {
            return None;
        }
        let now = Instant::now();
        // Nothing is planned yet where an earlier agent made the volumes: nobody knows how old they are.
        if self.refresh.is_none_or(|at| at <= now) {
            self.refresh = Some(now + self.node.config.sync_frequency);
            let directory = self.node.pod_dir(&pod.uid().unwrap_or_default());
            let downward = launch::downward(&self.node, pod);
            let mut contents = contents(&self.node, &downward, &mut self.tokens);
            if let Err(error) = volumes::refresh(&mut contents, &directory).await {
                let events = &self.node.events;
                events.pod(pod, None, Kind::Warning, "FailedMount", error);
            }
        }
        self.refresh
    }

    /// Starts a container if its policy wants it to run and its back-off permits.
    async fn ensure(&mut self, pod: &Pod, container: &Container, policy: &str) -> Wake {
        let now = Instant::now();
        let restart = {
            let mut containers = self.containers.lock();
            let state = containers.entry(container.name.clone()).or_default();
            match &state.phase {
                Phase::Running(_) => return None,
                Phase::Terminated(end) => {
                    let wanted = match policy {
                        "Always" => true,
                        "OnFailure" => end.exit.code != 0,
                        _ => false,
                    };
                    if !wanted {
                        return None;
                    }
                    let end = end.clone();
                    let ran = end.started.map_or(0, |started| {
                        (end.exit.finished.as_second() - started.as_second()).max(0)
                    });
                    let wait = state.plan_restart(now, Duration::from_secs(ran as u64));
                    if !end.id.is_empty() {
                        self.node.runtime.remove(&end.id);
                    }
                    state.last = Some(end);
                    let whose = format!(
                        "{}_{}({})",
                        pod.name_any(),
                        pod.namespace().unwrap_or_default(),
                        pod.uid().unwrap_or_default()
                    );
                    let message = format!(
                        "back-off {}s restarting failed container={} pod={whose}",
                        wait.as_secs(),
                        container.name
                    );
                    state.phase = Phase::waiting("CrashLoopBackOff", message);
                    (!wait.is_zero()).then_some(whose)
                }
                Phase::Waiting { .. } => None,
            }
        };
        if let Some(whose) = restart {
            let message = format!(
                "Back-off restarting failed container {} in pod {whose}",
                container.name
            );
            self.node.events.pod(
                pod,
                Some(&container.name),
                Kind::Warning,
                "BackOff",
                message,
            );
        }
        let (may_start, at, attempt) = {
            let containers = self.containers.lock();
            let state = &containers[&container.name];
            (
                state.may_start(now),
                state.retry_at,
                state.restarts + u32::from(state.last.is_some()),
            )
        };
        if !may_start {
            return at;
        }
        self.start_container(pod, container, attempt).await
    }

    async fn start_container(&mut self, pod: &Pod, container: &Container, attempt: u32) -> Wake {
        if self.volumes.is_none()
            && let Err(error) = self.make_volumes(pod).await
        {
            return self.obstacle(pod, container, "CreateContainerConfigError", error);
        }
        let volumes = self.volumes.clone().unwrap_or_default();
        let spec = match launch::container_spec(&self.node, pod, container, &volumes, attempt).await
        {
            Ok(spec) => spec,
            Err(obstacle) => {
                return self.obstacle(pod, container, obstacle.reason, obstacle.message);
            }
        };
        let annotations = pod.annotations();
        let events = &self.node.events;
        let name = &container.name;
        let result = self
            .node
            .runtime
            .start(runtime::new_id(), spec, annotations)
            .await;
        match result {
            Ok(running) => {
                events.pod(
                    pod,
                    Some(name),
                    Kind::Normal,
                    "Created",
                    format!("Created container: {name}"),
                );
                events.pod(
                    pod,
                    Some(name),
                    Kind::Normal,
                    "Started",
                    format!("Started container {name}"),
                );
                self.enter(name, attempt, Phase::Running(running.clone()));
                if self.after_start(pod, container, &running).await {
                    self.watch(pod, container, &running, Health::default());
                    return None;
                }
                Some(Instant::now())
            }
            Err(error) => {
                events.pod(
                    pod,
                    Some(name),
                    Kind::Warning,
                    "Failed",
                    format!("Error: {error}"),
                );
                let end = Terminated {
                    id: String::new(),
                    started: None,
                    exit: Exit {
                        code: 128,
                        finished: Timestamp::now(),
                    },
                    reason: "StartError".into(),
                    message: error.to_string(),
                };
                self.enter(name, attempt, Phase::Terminated(end));
                // Look again: the restart policy decides.
                Some(Instant::now())
            }
        }
    }

    fn enter(&self, name: &str, attempt: u32, phase: Phase) {
        let mut containers = self.containers.lock();
        let state = containers.entry(name.to_owned()).or_default();
        state.restarts = attempt;
        state.retry_at = None;
        state.health = Health::default();
        state.phase = phase;
    }

    /// The hook after the start; whether the container may go on. It is not waited for when the pod is to end.
    async fn after_start(&mut self, pod: &Pod, container: &Container, running: &Running) -> bool {
        let node = Arc::clone(&self.node);
        let mut exit = running.exit.clone();
        let ending =
            |update: &Update| update.deleted || update.pod.metadata.deletion_timestamp.is_some();
        let result = tokio::select! {
            biased;
            result = lifecycle::started(&node, pod, container, &running.id) => result,
            _ = runtime::ended(&mut exit) => Ok(()),
            () = self.updates.wait_for(ending).map(drop) => {
                self.updates.mark_changed();
                Ok(())
            }
            () = node.shutdown.cancelled() => Ok(()),
        };
        if result.is_err() {
            let message = "FailedPostStartHook";
            let events = &node.events;
            events.pod(pod, Some(&container.name), Kind::Normal, "Killing", message);
            lifecycle::stop(&node, pod, container, &running.id, grace(pod)).await;
        }
        result.is_ok()
    }

    fn obstacle(&self, pod: &Pod, container: &Container, reason: &str, message: String) -> Wake {
        let events = &self.node.events;
        events.pod(
            pod,
            Some(&container.name),
            Kind::Warning,
            "Failed",
            format!("Error: {message}"),
        );
        let mut containers = self.containers.lock();
        let state = containers.entry(container.name.clone()).or_default();
        state.phase = Phase::waiting(reason, message);
        let at = Instant::now() + RETRY.1;
        state.retry_at = Some(at);
        Some(at)
    }

    fn input<'a>(
        &'a self,
        pod: &'a Pod,
        containers: &'a HashMap<String, ContainerState>,
        ending: bool,
        address: &'a str,
    ) -> Input<'a> {
        Input {
            pod,
            containers,
            runtime: self.node.runtime.name(),
            address,
            sandbox: self.ready,
            ending,
            failed: self.failed,
            now: Timestamp::now(),
            start: self.start,
            since: &self.since,
        }
    }

    fn phase(&self, pod: &Pod) -> &'static str {
        let containers = self.containers.lock();
        status::phase(&self.input(pod, &containers, false, ""))
    }

    /// Tells the API server if there is news. Before a pod is reported as ended, its sidecars are stopped and its
    /// claims given back. Returns when to try again.
    async fn report(&mut self, pod: &Pod, ending: bool) -> Wake {
        let over = |phase: &str| phase == "Succeeded" || phase == "Failed";
        let known = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref())
            .is_some_and(over);
        if known && !ending {
            return None;
        }
        if !ending && over(self.phase(pod)) {
            self.stop_all(pod, grace(pod)).await;
            self.give_back(pod).await;
            self.ready = false;
        }
        let address = self.node.config.address.to_string();
        let mut status = {
            let containers = self.containers.lock();
            status::status(&self.input(pod, &containers, ending, &address))
        };
        for container in status["containerStatuses"]
            .as_array_mut()
            .into_iter()
            .flatten()
        {
            let name = container["name"].as_str().unwrap_or_default();
            let health = self.node.claims.health(pod, name);
            if !health.is_empty() {
                container["allocatedResourcesStatus"] = health.into();
            }
        }
        if known {
            // A pod that ended stays as it ended.
            status["phase"] = json!(pod.status.as_ref().and_then(|status| status.phase.clone()));
        }
        if self.sent.as_ref() == Some(&status) {
            return None;
        }
        let api: Api<Pod> = Api::namespaced(
            self.node.client.clone(),
            &pod.namespace().unwrap_or_default(),
        );
        let patch = json!({"metadata": {"uid": pod.uid()}, "status": status});
        match api
            .patch_status(
                &pod.name_any(),
                &PatchParams::default(),
                &Patch::Strategic(patch),
            )
            .await
        {
            Ok(_) => {
                for condition in status["conditions"].as_array().into_iter().flatten() {
                    let text =
                        |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
                    let time = text("lastTransitionTime")
                        .parse()
                        .unwrap_or_else(|_| Timestamp::now());
                    self.since.insert(text("type"), (text("status"), time));
                }
                self.sent = Some(status);
                None
            }
            // Another pod of that name by now, or none: the watch will say so.
            Err(kube::Error::Api(error)) if error.code == 404 || error.code == 409 => None,
            Err(error) => {
                let error = text(&error);
                tracing::warn!(pod = pod.name_any(), error, "pod status was not updated");
                Some(Instant::now() + RETRY.0 * 2)
            }
        }
    }
}
