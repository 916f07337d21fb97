//! Monitors the runtime: polls its condition, and detects containers that have exited or that the agent does not know.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use allot_protos::cri_v1 as v1;
use futures::StreamExt as _;
use jiff::Timestamp;
use tokio::time::Instant;

use super::calls::CallError;
use super::devices::Devices;
use super::translate::label;
use super::{Condition, Inner, time};
use crate::events::shorten;
use crate::shim::spec::Exit;

/// Interval at which containers are listed if no event arrives; the same as the kubelet's.
pub(super) const PERIOD: Duration = Duration::from_secs(1);
/// Interval at which the runtime's status is queried.
const CONDITION: Duration = Duration::from_secs(5);
/// Exit code of a program that got SIGKILL.
const KILLED: i32 = 137;
/// Pause after an event: a runtime that sends them without end is asked for its containers as often as that, and no more.
const PAUSE: Duration = Duration::from_millis(50);
/// Delay before resubscribing after the event stream has ended.
const EVENTS: Duration = Duration::from_secs(5);
/// Maximum number of containers whose exits are queried at once.
const TOGETHER: usize = 8;

/// Polls the runtime periodically, and immediately after an event.
pub(super) async fn follow(inner: Arc<Inner>) {
    let mut asked: Option<Instant> = None;
    loop {
        let due = asked.is_none_or(|at| at.elapsed() >= CONDITION);
        let looked = async {
            if due {
                inner.ask().await?;
            }
            inner.look_at_containers().await?;
            if due {
                inner.look_for_orphaned_sandboxes().await?;
            }
            Ok::<(), CallError>(())
        };
        match looked.await {
            Ok(()) => {
                if due {
                    asked = Some(Instant::now());
                }
            }
            Err(failure) => {
                asked = None;
                inner.away(&failure);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(PERIOD) => {}
            () = inner.look.notified() => {}
        }
    }
}

/// Subscribes to container events if the runtime supports them, so that exits are detected sooner. Otherwise containers are
/// polled every [`PERIOD`].
pub(super) async fn events(inner: Arc<Inner>) {
    loop {
        inner.reached().await;
        if let Ok(mut events) = inner.calls.events().await {
            while let Some(Ok(_)) = events.next().await {
                inner.look.notify_one();
                tokio::time::sleep(PAUSE).await;
            }
        }
        tokio::time::sleep(EVENTS).await;
    }
}

/// Label selector for the sandboxes and containers of this node.
pub(super) fn own(inner: &Inner) -> std::collections::HashMap<String, String> {
    let directory = inner.settings.directory.to_string_lossy().into_owned();
    [(label::OWNER.to_owned(), directory)].into()
}

impl Inner {
    /// Queries the runtime's version and status.
    pub(super) async fn ask(&self) -> Result<(), CallError> {
        let version = self.calls.version(v1::VersionRequest {
            version: "0.1.0".into(),
        });
        let version = version.await?;
        let status = self.calls.status(v1::StatusRequest { verbose: true });
        let status = status.await?;
        *self.devices.lock() = Devices::of(&version, &status);
        let known = (version.runtime_name, version.runtime_version);
        let known = (shorten(known.0), shorten(known.1));
        self.identity.send_if_modified(|it| {
            let news = it.as_ref() != Some(&known);
            *it = Some(known);
            news
        });
        self.tell(condition(&status));
        Ok(())
    }

    fn tell(&self, now: Condition) {
        self.condition.send_if_modified(|before| {
            let news = *before != now;
            if let (true, Err(text)) = (before.ready != now.ready, &now.ready) {
                tracing::warn!(reason = text, "container runtime");
            }
            *before = now;
            news
        });
    }

    fn away(&self, failure: &CallError) {
        let endpoint = &self.settings.endpoint;
        let network = self.condition.borrow().network.clone();
        self.tell(Condition {
            ready: Err(format!("container runtime is down: {endpoint}: {failure}")),
            // The last known network condition is still valid.
            network,
            waits: false,
        });
    }

    /// Records the exit of containers that are no longer running.
    async fn look_at_containers(&self) -> Result<(), CallError> {
        let filter = v1::ContainerFilter {
            label_selector: own(self),
            ..v1::ContainerFilter::default()
        };
        // Collected before the list request, so that a container started during the request does not appear to be missing.
        let running: Vec<String> = {
            let containers = self.containers.lock();
            let running = containers
                .iter()
                .filter(|(_, it)| it.exit.borrow().is_none());
            running.map(|(id, _)| id.clone()).collect()
        };
        let request = v1::ListContainersRequest {
            filter: Some(filter),
        };
        let listed = self.calls.list_containers(request).await?.containers;
        let up = listed.iter().filter(|container| {
            let state = container.state();
            state == v1::ContainerState::ContainerRunning
                || state == v1::ContainerState::ContainerCreated
        });
        let up: HashSet<&str> = up.map(|container| container.id.as_str()).collect();
        let ended = running.iter().filter(|id| !up.contains(id.as_str()));
        let ended = futures::stream::iter(ended);
        ended
            .for_each_concurrent(TOGETHER, |id| self.settle(id, false))
            .await;
        self.remove_orphaned_containers(&listed);
        Ok(())
    }

    /// Records the exit of a container, if it has exited. `asked`: the agent has stopped it.
    pub(super) async fn settle(&self, id: &str, asked: bool) {
        let exit = match self.status(id).await {
            Ok(Some(status)) => match exit(&status) {
                Some(exit) if !asked && self.may_be_explained(id, &exit) => return,
                Some(exit) => exit,
                None => return,
            },
            // The runtime no longer knows the container, so its exit code is unknown.
            Ok(None) => Exit {
                code: KILLED,
                finished: Timestamp::now(),
                oom_killed: false,
            },
            Err(_) => return,
        };
        if let Some(known) = self.containers.lock().get(id) {
            known.exit.send_if_modified(|before| {
                let news = before.is_none();
                if news {
                    *before = Some(exit);
                }
                news
            });
        }
    }

    /// Whether the runtime may still say that a container was killed for its memory. It learns of the exit and of that from
    /// different sources, and reports the exit first if it learns of it first.
    fn may_be_explained(&self, id: &str, exit: &Exit) -> bool {
        if exit.code != KILLED || exit.oom_killed {
            return false;
        }
        let mut containers = self.containers.lock();
        let Some(known) = containers.get_mut(id) else {
            return false;
        };
        known.killed.get_or_insert_with(Instant::now).elapsed() < PERIOD
    }
}

/// Exit of a container; `None` if it has not exited.
pub(super) fn exit(status: &v1::ContainerStatus) -> Option<Exit> {
    match status.state() {
        v1::ContainerState::ContainerExited | v1::ContainerState::ContainerUnknown => {}
        v1::ContainerState::ContainerCreated | v1::ContainerState::ContainerRunning => return None,
    }
    Some(Exit {
        code: status.exit_code,
        finished: time(status.finished_at).unwrap_or_else(Timestamp::now),
        oom_killed: status.reason == "OOMKilled",
    })
}

/// Derives the node's condition from the runtime's conditions.
fn condition(status: &v1::StatusResponse) -> Condition {
    let all = status.status.iter().flat_map(|status| &status.conditions);
    let all: Vec<&v1::RuntimeCondition> = all.collect();
    let of = |kind: &str, what: &str| match all.iter().find(|it| it.r#type == kind) {
        Some(it) if it.status => Ok(()),
        Some(it) => Err(shorten(format!(
            "{what} not ready: {kind}=false reason:{} message:{}",
            it.reason, it.message
        ))),
        None => Err(format!("{what} not ready: {kind} is not reported")),
    };
    Condition {
        ready: of("RuntimeReady", "container runtime"),
        network: of("NetworkReady", "container runtime network"),
        waits: false,
    }
}
