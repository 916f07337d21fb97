//! Probes: one task per container that has any, from its start to its end.
//!
//! The task writes the result into the container's [`Health`] and wakes the worker; a container that fails its liveness
//! probe is stopped by the task, and the restart policy decides what follows.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use super::handler::{Action, Failure};
use super::state::{ContainerState, Health};
use super::{Node, lifecycle, status};
use crate::events::Kind;
use crate::rules::is_sidecar;
use crate::runtime::Running;

/// State of a probe's task.
struct Task {
    node: Arc<Node>,
    pod: Arc<Pod>,
    container: Container,
    id: String,
    begun: Instant,
    containers: Arc<Mutex<HashMap<String, ContainerState>>>,
    news: Arc<Notify>,
}

/// Starts to probe a container that has just started, or was recovered with its known state. The task ends when the
/// returned value is dropped.
pub(super) fn watch(
    node: &Arc<Node>,
    pod: &Pod,
    container: &Container,
    running: &Running,
    known: Health,
    containers: &Arc<Mutex<HashMap<String, ContainerState>>>,
    news: &Arc<Notify>,
) -> (Health, JoinSet<()>) {
    let mut tasks = JoinSet::new();
    let Container {
        startup_probe,
        liveness_probe,
        readiness_probe,
        ..
    } = container;
    let none = startup_probe.is_none() && liveness_probe.is_none() && readiness_probe.is_none();
    // Without processes there is nothing to probe.
    if none || !node.runtime.has_network() {
        return (Health::GOOD, tasks);
    }
    let started = startup_probe.is_none() || known.started;
    let health = Health {
        started,
        ready: started && (readiness_probe.is_none() || known.ready),
    };
    let age = jiff::Timestamp::now().duration_since(running.started);
    let age = Duration::try_from(age).unwrap_or_default();
    let now = Instant::now();
    let task = Task {
        node: Arc::clone(node),
        pod: Arc::new(pod.clone()),
        container: container.clone(),
        id: running.id.clone(),
        begun: now.checked_sub(age).unwrap_or(now),
        containers: Arc::clone(containers),
        news: Arc::clone(news),
    };
    tasks.spawn(task.run(started));
    (health, tasks)
}

impl Task {
    async fn run(self, started: bool) {
        let without_readiness = self.container.readiness_probe.is_none();
        if let Some(probe) = self.container.startup_probe.as_ref().filter(|_| !started) {
            if !self.until(probe, "Startup", true).await {
                return self.end(probe, "startup").await;
            }
            self.set(|health| {
                health.started = true;
                health.ready |= without_readiness;
            });
        }
        let liveness = async {
            if let Some(probe) = &self.container.liveness_probe {
                self.until(probe, "Liveness", false).await;
                self.end(probe, "liveness").await;
            }
        };
        let readiness = async {
            if let Some(probe) = &self.container.readiness_probe {
                self.follow(probe, "Readiness", |ready| {
                    self.set(|health| health.ready = ready);
                    false
                })
                .await;
            }
        };
        tokio::join!(liveness, readiness);
    }

    /// Probes until the result is decided: `good` also ends on success, else only failure ends it. Returns the result.
    async fn until(&self, probe: &Probe, name: &str, good: bool) -> bool {
        self.follow(probe, name, |answer| !answer || good).await
    }

    /// Passes each result that reached its threshold of consecutive probes to `sink`, until it returns true.
    async fn follow(&self, probe: &Probe, name: &str, mut sink: impl FnMut(bool) -> bool) -> bool {
        let seconds = |value: Option<i32>, default: i32, least: i32| {
            Duration::from_secs(value.unwrap_or(default).max(least) as u64)
        };
        let first = self.begun + seconds(probe.initial_delay_seconds, 0, 0);
        let period = seconds(probe.period_seconds, 10, 1);
        let limit = seconds(probe.timeout_seconds, 1, 1);
        let threshold = |answer: bool| match answer {
            true => probe.success_threshold.unwrap_or(1).max(1),
            false => probe.failure_threshold.unwrap_or(3).max(1),
        };
        let action = Action::of_probe(probe);
        let mut ticks = tokio::time::interval_at(first.max(Instant::now()), period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut last, mut row) = (None, 0);
        loop {
            ticks.tick().await;
            let result = action.run(&self.node, &self.pod, &self.container, &self.id, limit);
            let result = match tokio::time::timeout(limit, result).await {
                Ok(result) => result,
                Err(_) => Err(Failure::No(timed_out(&action, limit))),
            };
            let answer = result.is_ok();
            if let Err(failure) = &result {
                let message = match failure {
                    Failure::No(text) => format!("{name} probe failed: {text}"),
                    Failure::Unknown(text) => {
                        format!("{name} probe errored and resulted in unknown state: {text}")
                    }
                };
                let container = Some(self.container.name.as_str());
                let events = &self.node.events;
                events.pod(&self.pod, container, Kind::Warning, "Unhealthy", message);
                if matches!(failure, Failure::Unknown(_)) {
                    continue;
                }
            }
            row = if last == Some(answer) { row + 1 } else { 1 };
            last = Some(answer);
            if row >= threshold(answer) && sink(answer) {
                return answer;
            }
        }
    }

    fn set(&self, change: impl FnOnce(&mut Health)) {
        let mut containers = self.containers.lock();
        let Some(state) = containers.get_mut(&self.container.name) else {
            return;
        };
        if state.running().is_none_or(|running| running.id != self.id) {
            return;
        }
        let before = state.health;
        change(&mut state.health);
        if state.health != before {
            self.news.notify_one();
        }
    }

    async fn end(&self, probe: &Probe, name: &str) {
        let container = &self.container.name;
        let sidecar = is_sidecar(&self.container);
        let again = match sidecar || status::restart_policy(&self.pod) != "Never" {
            true => ", will be restarted",
            false => "",
        };
        let message = format!("Container {container} failed {name} probe{again}");
        let events = &self.node.events;
        events.pod(&self.pod, Some(container), Kind::Normal, "Killing", message);
        let spec = self.pod.spec.as_ref();
        let grace = probe
            .termination_grace_period_seconds
            .or(spec.and_then(|spec| spec.termination_grace_period_seconds))
            .unwrap_or(30);
        let grace = Duration::from_secs(grace.max(0) as u64);
        lifecycle::stop(&self.node, &self.pod, &self.container, &self.id, grace).await;
    }
}

fn timed_out(action: &Action, limit: Duration) -> String {
    match action {
        Action::Exec(command) => format!(
            "command timed out: {:?} timed out after {}s",
            command.join(" "),
            limit.as_secs()
        ),
        Action::Grpc(_) => format!(
            "timeout: health rpc did not complete within {}s",
            limit.as_secs()
        ),
        _ => {
            "context deadline exceeded (Client.Timeout exceeded while awaiting headers)".to_owned()
        }
    }
}
