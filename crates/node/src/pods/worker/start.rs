//! Starts containers, and handles what prevents that.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;
use tokio::time::Instant;

use super::super::resources::Budget;
use super::super::state::{Health, Phase, Terminated};
use super::super::{Update, adjust, launch, lifecycle, limits, network, runs};
use super::{RETRY, Wake, Worker, grace};
use crate::events::{Kind, shorten};
use crate::images::Files;
use crate::runtime::{self, Running, Start, StartError};
use crate::shim::SUB_PATH;
use crate::shim::spec::{ContainerSpec, Exit};

impl Worker {
    /// Starts a container if the restart policy and its back-off permit.
    pub(super) async fn ensure(&mut self, pod: &Pod, container: &Container, policy: &str) -> Wake {
        let now = Instant::now();
        let mut ended = None;
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
                    ended = (!end.id.is_empty()).then(|| end.id.clone());
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
        if let Some(id) = ended {
            self.node.discard_containers(vec![id]);
        }
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
            let message = error.to_string();
            return self.obstacle(pod, container, "CreateContainerConfigError", message);
        }
        let files = match self.files(pod, container).await {
            Ok(files) => files,
            Err(wake) => return wake,
        };
        if let Err(wake) = self.ensure_sandbox(pod, container).await {
            return wake;
        }
        let mut start = match self.make_start(pod, container, attempt, &files).await {
            Ok(start) => start,
            Err(wake) => return wake,
        };
        let id = start.id.clone();
        let sync_block = adjust::block_plugin_sync(self.node.nri.as_ref()).await;
        if let Err(message) = self.adjust(&id, &mut start.spec).await {
            return self.obstacle(pod, container, "CreateContainerError", message);
        }
        match self.node.runtime.start(start).await {
            Ok(running) => {
                if let Some(nri) = &self.node.nri {
                    nri.started(&running).await;
                }
                drop(sync_block);
                self.started(pod, container, attempt, running).await
            }
            Err(error) => {
                self.node.discard_containers(vec![id]);
                self.not_started(pod, container, attempt, error)
            }
        }
    }

    /// Opens the pod's sandbox again: the one that was there may have ended with the machine or the runtime. Without one, or if the pod
    /// begins again in a new one, returns when to continue.
    async fn ensure_sandbox(&mut self, pod: &Pod, container: &Container) -> Result<(), Wake> {
        match self.open_sandbox(pod).await {
            // With the sandbox that was there all containers have ended.
            Ok(opened) if self.begin_again(pod, opened) => Err(Some(Instant::now())),
            Ok(_) => Ok(()),
            Err(_) if self.is_ending() => Err(None),
            Err(obstacle) => {
                let message = obstacle.message;
                Err(self.obstacle(pod, container, "ContainerCreating", message))
            }
        }
    }

    /// What the runtime is to start, with a root directory for it from the files of its image; if that cannot be made, when to try again.
    async fn make_start(
        &self,
        pod: &Pod,
        container: &Container,
        attempt: u32,
        files: &Files,
    ) -> Result<Start, Wake> {
        let volumes = self.volumes.clone().unwrap_or_default();
        let given = launch::ContainerInputs {
            volumes: &volumes,
            files,
        };
        let built = launch::container_spec(&self.node, pod, container, given, attempt).await;
        let built = built
            .map_err(|obstacle| self.obstacle(pod, container, obstacle.reason, obstacle.message))?;
        let mut start = Start {
            id: runtime::new_id(),
            spec: built.spec,
            annotations: pod.annotations().clone(),
            request: built.request,
        };
        if let Some(images) = &self.node.images {
            let directory = self.node.config.root_dir.join("containers").join(&start.id);
            match images.hold(&start.id, files, &directory).await {
                Ok(root) => start.spec.root = root,
                Err(error) => {
                    self.node.discard_containers(vec![start.id]);
                    let message = error.to_string();
                    return Err(self.obstacle(pod, container, "CreateContainerError", message));
                }
            }
        }
        Ok(start)
    }

    /// A container was started.
    async fn started(
        &mut self,
        pod: &Pod,
        container: &Container,
        attempt: u32,
        running: Running,
    ) -> Wake {
        let name = &container.name;
        for (reason, message) in [
            ("Created", format!("Created container: {name}")),
            ("Started", format!("Started container {name}")),
        ] {
            let events = &self.node.events;
            events.pod(pod, Some(name), Kind::Normal, reason, message);
        }
        self.enter(name, attempt, Phase::Running(running.clone()));
        if let Some(state) = self.containers.lock().get_mut(name) {
            state.applied = Some(Budget::of(pod, container));
        }
        if self.pod_limits.is_none() {
            let pids = self.node.config.pod_pids_limit;
            self.pod_limits = Some(limits::of_pod(pod, pids));
        }
        runs::forget(&self.node, pod, name, attempt);
        if self.after_start(pod, container, &running).await {
            self.watch(pod, container, &running, Health::default());
            return None;
        }
        Some(Instant::now())
    }

    /// A container could not be started: it waits for the next attempt, or has ended if its program is why.
    fn not_started(
        &self,
        pod: &Pod,
        container: &Container,
        attempt: u32,
        error: StartError,
    ) -> Wake {
        let (events, name) = (&self.node.events, &container.name);
        let message = match error {
            // Found by the helper, which opens the volumes; a kubelet finds it before.
            StartError::Failed(message) if message.starts_with(SUB_PATH) => {
                return self.obstacle(pod, container, "CreateContainerConfigError", message);
            }
            StartError::Obstacle {
                reason,
                message,
                remedy,
            } => {
                if let Some(remedy) = remedy {
                    events.pod(pod, Some(name), Kind::Warning, "DevicesNotInjected", remedy);
                }
                return self.obstacle(pod, container, reason, message);
            }
            StartError::Failed(message) => message,
        };
        let text = format!("Error: {message}");
        events.pod(pod, Some(name), Kind::Warning, "Failed", text);
        let end = Terminated {
            id: String::new(),
            started: None,
            exit: Exit {
                code: 128,
                finished: Timestamp::now(),
                oom_killed: false,
            },
            reason: "StartError".into(),
            message,
        };
        self.enter(name, attempt, Phase::Terminated(end));
        runs::forget(&self.node, pod, name, attempt);
        // Check again: the restart policy decides.
        Some(Instant::now())
    }

    /// Lets NRI plugins adjust a container, and moves the interfaces of its devices into its network. One that is not to be
    /// started is removed.
    async fn adjust(&self, id: &str, spec: &mut ContainerSpec) -> Result<(), String> {
        id.clone_into(&mut spec.id);
        let mut adjusted = adjust::container(&self.node, spec).await;
        if adjusted.is_ok() {
            let directory = self.node.pod_dir(&spec.owner.pod_uid);
            let moved = network::move_interfaces(&directory, spec).await;
            adjusted = moved.map_err(|error| {
                shorten(format!(
                    "failed to move network interfaces into the pod: {error}"
                ))
            });
        }
        adjusted.inspect_err(|_| drop(self.node.discard_containers(vec![id.to_owned()])))
    }

    fn enter(&self, name: &str, attempt: u32, phase: Phase) {
        let mut containers = self.containers.lock();
        let state = containers.entry(name.to_owned()).or_default();
        state.restarts = attempt;
        state.retry_at = None;
        state.health = Health::default();
        match phase {
            Phase::Running(running) => state.run(running),
            other => state.phase = other,
        }
    }

    /// Runs the postStart hook; returns whether the container may continue. The hook is not awaited when the pod is
    /// being terminated.
    async fn after_start(&mut self, pod: &Pod, container: &Container, running: &Running) -> bool {
        let node = Arc::clone(&self.node);
        let mut exit = running.exit.clone();
        let result = tokio::select! {
            biased;
            result = lifecycle::started(&node, pod, container, &running.id) => result,
            _ = runtime::ended(&mut exit) => Ok(()),
            () = self.updates.wait_for(Update::is_ending).map(drop) => {
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

    pub(super) fn obstacle(
        &self,
        pod: &Pod,
        container: &Container,
        reason: &str,
        message: String,
    ) -> Wake {
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
}
