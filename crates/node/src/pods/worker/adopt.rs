//! Adoption from an earlier agent: containers that run or ended meanwhile, and the reported status.

use std::collections::HashMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerStateTerminated, ContainerStatus, Pod, PodStatus,
};
use kube::ResourceExt;

use super::super::state::{ContainerState, Health, Phase, Terminated};
use super::{Worker, container_of};
use crate::rules::is_sidecar;
use crate::runtime::{Found, Running};
use crate::shim::spec::Exit;

impl Worker {
    /// Continues where an earlier agent stopped: with recovered containers, and what it reported of the others.
    pub(super) fn adopt(&mut self, pod: &Pod, status: PodStatus, recovered: Vec<Found>) {
        let mut replaced = Vec::new();
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
                replaced.push(older.running.id);
            }
        }
        self.node.discard_containers(replaced);
        let reported = status
            .container_statuses
            .into_iter()
            .chain(status.init_container_statuses)
            .chain(status.ephemeral_container_statuses)
            .flatten();
        let mut containers = self.containers.lock();
        for status in reported {
            let name = status.name.clone();
            let found = newest.remove(&name);
            let ran = status.state.as_ref().is_some_and(|it| it.running.is_some());
            let id = bare_id(status.container_id.as_deref());
            let restarts = ran && self.restarting.get(&name).is_some_and(|it| *it == id);
            if let Some(mut state) = from_status(status, found) {
                // It ended, and left no trace, while it was being restarted for a resize.
                if restarts && let Phase::Terminated(end) = &state.phase {
                    state.last = Some(end.clone());
                    state.phase = Phase::waiting("ContainerCreating", "");
                }
                containers.insert(name, state);
            }
        }
        for (name, found) in newest {
            let mut state = ContainerState {
                restarts: found.owner.attempt,
                ..ContainerState::default()
            };
            state.run(found.running);
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
        let running = containers.values().any(|state| state.running().is_some());
        self.initializing = was_initializing(pod, &containers);
        self.ready = known && running;
        if running {
            self.node.sandboxes.adopt(pod);
        }
    }

    /// Restarts the probes of adopted containers.
    pub(super) fn watch_adopted(&mut self, pod: &Pod) {
        let running: Vec<(String, Running, Health)> = {
            let containers = self.containers.lock();
            let running = containers.iter().filter_map(|(name, state)| {
                Some((name.clone(), state.running()?.clone(), state.health))
            });
            running.collect()
        };
        for (name, running, known) in running {
            if let Some(container) = container_of(pod, &name) {
                self.watch(pod, &container, &running, known);
            }
        }
    }
}

/// Whether init containers run again: no container of the pod runs, and one of those before them is not done.
fn was_initializing(pod: &Pod, containers: &HashMap<String, ContainerState>) -> bool {
    let Some(spec) = pod.spec.as_ref() else {
        return false;
    };
    let state = |container: &Container| containers.get(&container.name);
    let mut usual = spec.containers.iter().filter_map(state);
    let mut init = spec.init_containers.iter().flatten();
    usual.all(|state| state.running().is_none())
        && init.any(|container| {
            let end = state(container).map(ContainerState::terminated);
            !is_sidecar(container)
                && end.is_some_and(|end| end.is_none_or(|end| end.exit.code != 0))
        })
}

/// The ID in a `containerID` of the API, which is `RUNTIME://ID`.
fn bare_id(container_id: Option<&str>) -> &str {
    let id = container_id.unwrap_or_default();
    id.rsplit('/').next().unwrap_or_default()
}

/// What an earlier agent has reported about a container, and the container itself if it was found.
fn from_status(status: ContainerStatus, found: Option<Found>) -> Option<ContainerState> {
    let ended = |end: ContainerStateTerminated| {
        let reason = match (end.reason, end.exit_code) {
            (Some(reason), _) => reason.into(),
            (None, 0) => "Completed".into(),
            (None, _) => "Error".into(),
        };
        Terminated {
            id: bare_id(end.container_id.as_deref()).to_owned(),
            started: end
                .started_at
                .map(|time| time.0)
                .filter(|time| *time != Timestamp::UNIX_EPOCH),
            exit: Exit {
                code: end.exit_code,
                finished: end.finished_at.map_or_else(Timestamp::now, |time| time.0),
                oom_killed: false,
            },
            reason,
            message: end.message.unwrap_or_default(),
        }
    };
    let mut state = ContainerState {
        restarts: status.restart_count.max(0) as u32,
        last: status
            .last_state
            .and_then(|last| last.terminated)
            .map(ended),
        health: Health {
            started: status.started.unwrap_or(false),
            ready: status.ready,
        },
        image_id: status.image_id,
        user: status.user,
        ..ContainerState::default()
    };
    let current = status.state.unwrap_or_default();
    // A container that was reported as terminated is not reported as running until its state is known again.
    let told = current.terminated.clone().map(ended);
    let told = [told.as_ref(), state.last.as_ref()].map(|end| end.map(|end| end.id.clone()));
    let found = found.filter(|found| !told.contains(&Some(found.running.id.clone())));
    if let Some(found) = found {
        state.restarts = found.owner.attempt;
        state.run(found.running);
    } else if let Some(end) = current.terminated {
        state.phase = Phase::Terminated(ended(end));
    } else if let Some(running) = current.running {
        // It was running and there is no trace of it.
        state.phase = Phase::Terminated(ended(ContainerStateTerminated {
            exit_code: 137,
            reason: Some("ContainerStatusUnknown".to_owned()),
            message: Some(
                "The container could not be located when the pod was terminated".to_owned(),
            ),
            started_at: running.started_at,
            ..ContainerStateTerminated::default()
        }));
    } else if let Some(waiting) = current.waiting.filter(|_| state.last.is_some()) {
        // Between two runs; the elapsed back-off is not known.
        let reason = waiting.reason.unwrap_or_default();
        state.phase = Phase::waiting(&reason, waiting.message.unwrap_or_default());
    } else {
        return None;
    }
    Some(state)
}
