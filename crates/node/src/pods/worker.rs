//! One pod, from its first container to its last.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all, select_all};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::env::Sources;
use super::state::{ContainerState, Phase, Terminated};
use super::status::{self, Input, initialized, is_sidecar, restart_policy};
use super::{Node, Update, launch, volumes};
use crate::events::Kind;
use crate::runtime::{self, Found};
use crate::shim::spec::Exit;

/// Waits between attempts to set a pod up, or to tell the API server.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// For containers of a pod whose object is gone already.
const FORCED_GRACE: Duration = Duration::from_secs(2);

type Containers = Arc<Mutex<HashMap<String, ContainerState>>>;

pub(super) struct Worker {
    node: Arc<Node>,
    updates: watch::Receiver<Update>,
    containers: Containers,
    /// Claims are prepared and volumes are there.
    ready: bool,
    volumes: Option<BTreeMap<String, PathBuf>>,
    setup_retry: (Duration, Option<Instant>),
    start: Timestamp,
    since: HashMap<String, (String, Timestamp)>,
    sent: Option<Value>,
}

/// When to look again without an event.
type Wake = Option<Instant>;

fn earlier(a: Wake, b: Wake) -> Wake {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
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
            setup_retry: (RETRY.0, None),
            start: status
                .start_time
                .as_ref()
                .map_or_else(Timestamp::now, |time| time.0),
            since: since.collect(),
            sent: None,
            node,
        };
        worker.adopt(&pod, recovered);
        worker
    }

    /// Goes on where an earlier agent stopped: containers that were found, and what the status says about the others.
    fn adopt(&mut self, pod: &Pod, recovered: Vec<Found>) {
        let mut newest: HashMap<String, Found> = HashMap::new();
        for found in recovered {
            let name = found.owner.container.clone();
            let older = match newest.remove(&name) {
                Some(other) if other.owner.attempt > found.owner.attempt => {
                    newest.insert(name, other);
                    Some(found)
                }
                other => {
                    newest.insert(name, found);
                    other
                }
            };
            if let Some(older) = older {
                self.node.runtime.remove(&older.running.id);
            }
        }
        let status = pod.status.clone().unwrap_or_default();
        let reported = status
            .container_statuses
            .into_iter()
            .chain(status.init_container_statuses)
            .flatten();
        let mut containers = self.containers.lock();
        for status in reported {
            let mut state = ContainerState {
                restarts: status.restart_count.max(0) as u32,
                ..Default::default()
            };
            let ended = |code: i32, reason: &'static str| Terminated {
                id: String::new(),
                started: None,
                exit: Exit {
                    code,
                    finished: Timestamp::now(),
                },
                reason,
                message: String::new(),
            };
            let current = status.state.unwrap_or_default();
            if let Some(found) = newest.remove(&status.name) {
                state.phase = Phase::Running(found.running);
                state.restarts = found.owner.attempt;
            } else if let Some(end) = current.terminated {
                state.phase = Phase::Terminated(ended(
                    end.exit_code,
                    if end.exit_code == 0 {
                        "Completed"
                    } else {
                        "Error"
                    },
                ));
            } else if current.running.is_some() {
                // It was running and there is no trace of it.
                state.phase = Phase::Terminated(ended(137, "ContainerStatusUnknown"));
            } else {
                continue;
            }
            containers.insert(status.name, state);
        }
        for (name, found) in newest {
            let state = ContainerState {
                restarts: found.owner.attempt,
                phase: Phase::Running(found.running),
                ..ContainerState::default()
            };
            containers.insert(name, state);
        }
        let claims = pod
            .spec
            .as_ref()
            .is_some_and(|spec| spec.resource_claims.iter().flatten().next().is_some());
        let known = !claims
            || self
                .node
                .claims
                .pods()
                .contains(&pod.uid().unwrap_or_default());
        self.ready = known && containers.values().any(|state| state.running().is_some());
    }

    pub(super) async fn run(mut self) {
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
                earlier(wake, self.report(&update.pod, false).await)
            };
            let exit = self.any_exit();
            tokio::select! {
                result = self.updates.changed() => if result.is_err() { return },
                () = exit => {}
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

    fn collect_exits(&self) {
        for state in self.containers.lock().values_mut() {
            let Phase::Running(running) = &state.phase else {
                continue;
            };
            let exit = running.exit.borrow().clone();
            if let Some(exit) = exit {
                state.phase = Phase::Terminated(Terminated::new(running, exit));
            }
        }
    }

    /// Starts what should run and does not.
    async fn step(&mut self, pod: &Pod) -> Wake {
        self.collect_exits();
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
        if !self.ready
            && let Some(wake) = self.set_up(pod).await
        {
            return Some(wake);
        }
        let spec = pod.spec.clone().unwrap_or_default();
        let mut wake = None;
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
                    true => state.is_some_and(|state| state.running().is_some()),
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
        let namespace = pod.namespace().unwrap_or_default();
        let mut sources = Sources::new(self.node.client.clone(), namespace);
        let downward = launch::downward(&self.node, pod);
        let directory = self.node.pod_dir(&pod.uid().unwrap_or_default());
        let volumes =
            volumes::prepare(&self.node.client, &downward, &directory, &mut sources).await?;
        self.volumes = Some(volumes);
        Ok(())
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
        let mut containers = self.containers.lock();
        let state = containers.entry(name.clone()).or_default();
        state.restarts = attempt;
        state.retry_at = None;
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
                state.phase = Phase::Running(running);
                None
            }
            Err(error) => {
                events.pod(
                    pod,
                    Some(name),
                    Kind::Warning,
                    "Failed",
                    format!("Error: {error}"),
                );
                state.phase = Phase::Terminated(Terminated {
                    id: String::new(),
                    started: None,
                    exit: Exit {
                        code: 128,
                        finished: Timestamp::now(),
                    },
                    reason: "StartError",
                    message: error.to_string(),
                });
                // Look again: the restart policy decides.
                Some(Instant::now())
            }
        }
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

    /// Ends all running containers; a further update of the pod can only make it quicker.
    async fn stop_all(&mut self, pod: &Pod, grace: Duration) {
        self.collect_exits();
        let running: Vec<(String, String)> = {
            let containers = self.containers.lock();
            let running = containers
                .iter()
                .filter_map(|(name, state)| Some((name, state.running()?)));
            running
                .map(|(name, running)| (name.clone(), running.id.clone()))
                .collect()
        };
        for (name, _) in &running {
            let message = format!("Stopping container {name}");
            self.node
                .events
                .pod(pod, Some(name), Kind::Normal, "Killing", message);
        }
        let node = Arc::clone(&self.node);
        let stop = |grace: Duration| {
            join_all(
                running
                    .iter()
                    .map(|(_, id)| node.runtime.stop(id.clone(), grace)),
            )
        };
        let mut polite = std::pin::pin!(stop(grace));
        let begun = Instant::now();
        loop {
            tokio::select! {
                _ = &mut polite => break,
                changed = self.updates.changed() => {
                    let update = self.updates.borrow_and_update().clone();
                    let now = update.pod.metadata.deletion_grace_period_seconds.unwrap_or(0).max(0) as u64;
                    let short = update.deleted || Duration::from_secs(now) < grace;
                    if changed.is_err() || short {
                        let left = Duration::from_secs(now).saturating_sub(begun.elapsed());
                        stop(if update.deleted { Duration::ZERO } else { left }).await;
                        break;
                    }
                }
            }
        }
        self.collect_exits();
    }

    /// Unprepares the claims; tries until it works, because the devices must not go to the next pod before.
    async fn give_back(&self, pod: &Pod) {
        let mut delay = RETRY.0;
        while let Err(error) = self
            .node
            .claims
            .unprepare(&pod.uid().unwrap_or_default())
            .await
        {
            tracing::warn!(pod = pod.name_any(), error, "claims are not given back yet");
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = self.node.shutdown.cancelled() => return,
            }
            delay = (delay * 2).min(RETRY.1);
        }
    }

    /// The graceful end: stop, give back, report, let the object go.
    async fn terminate(&mut self, pod: &Pod) -> Wake {
        let grace = pod
            .metadata
            .deletion_grace_period_seconds
            .unwrap_or(30)
            .max(0);
        self.stop_all(pod, Duration::from_secs(grace as u64)).await;
        self.give_back(pod).await;
        if self.node.shutdown.is_cancelled() {
            return None;
        }
        self.ready = false;
        let failed = self.report(pod, true).await;
        if failed.is_some() {
            return failed;
        }
        let api: Api<Pod> = Api::namespaced(
            self.node.client.clone(),
            &pod.namespace().unwrap_or_default(),
        );
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: pod.uid(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match api.delete(&pod.name_any(), &params).await {
            Ok(_) => None,
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => None,
            Err(error) => {
                tracing::warn!(pod = pod.name_any(), %error, "pod was not deleted");
                Some(Instant::now() + RETRY.0 * 2)
            }
        }
    }

    fn clean_up(&self, pod: &Pod) {
        for state in self.containers.lock().values() {
            let ids = [
                state.terminated().map(|end| &end.id),
                state.last.as_ref().map(|end| &end.id),
            ];
            for id in ids.into_iter().flatten().filter(|id| !id.is_empty()) {
                self.node.runtime.remove(id);
            }
        }
        let uid = pod.uid().unwrap_or_default();
        let logs = status::log_path(&self.node.config.root_dir, pod, "x", 0);
        let logs = logs.ancestors().nth(2).map(std::path::Path::to_owned);
        for directory in [Some(self.node.pod_dir(&uid)), logs].into_iter().flatten() {
            match std::fs::remove_dir_all(&directory) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    tracing::warn!(directory = %directory.display(), %error, "was not removed");
                }
                _ => {}
            }
        }
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
            self.stop_all(pod, Duration::from_secs(2)).await;
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
                tracing::warn!(pod = pod.name_any(), %error, "pod status was not updated");
                Some(Instant::now() + RETRY.0 * 2)
            }
        }
    }
}
