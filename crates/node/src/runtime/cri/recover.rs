//! Recovery of the sandboxes and containers that an earlier agent process created.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

use allot_protos::cri_v1 as v1;
use jiff::Timestamp;
use tokio::sync::watch;

use super::calls::CallError;
use super::sandbox::{Sandbox, addresses};
use super::translate::{annotation, label};
use super::{Inner, Known, Removal, follow, reported, time};
use crate::runtime::{Found, Running};
use crate::shim::spec::Owner;

impl Inner {
    /// Lists the sandboxes and containers of this node. Waits while the runtime is unavailable, because the state of pods
    /// cannot be determined without this list.
    pub(super) async fn recover(&self) -> Vec<Found> {
        loop {
            self.reached().await;
            match self.find().await {
                Ok(found) => {
                    self.recovered.store(true, Ordering::Release);
                    return found;
                }
                Err(failure) => {
                    tracing::warn!(%failure, "containers of the runtime are not known yet");
                    tokio::time::sleep(follow::PERIOD).await;
                }
            }
        }
    }

    async fn find(&self) -> Result<Vec<Found>, CallError> {
        let filter = v1::PodSandboxFilter {
            label_selector: follow::own(self),
            ..v1::PodSandboxFilter::default()
        };
        let request = v1::ListPodSandboxRequest {
            filter: Some(filter),
        };
        let mut listed = self.calls.list_pod_sandbox(request).await?.items;
        // If a pod has several sandboxes, the newest one is used.
        listed.sort_by_key(|sandbox| {
            (
                sandbox.metadata.as_ref().map_or(0, |it| it.attempt),
                sandbox.created_at,
            )
        });
        let mut sandboxes: HashMap<String, Sandbox> = HashMap::new();
        for sandbox in listed {
            let metadata = sandbox.metadata.clone().unwrap_or_default();
            let ready = sandbox.state() == v1::PodSandboxState::SandboxReady;
            let status = match ready {
                true => self.sandbox_status(&sandbox.id).await?,
                false => None,
            };
            let addresses = status.as_ref().map(addresses).unwrap_or_default();
            // Sandboxes of earlier versions do not say it.
            let networks = match sandbox.annotations.get(annotation::NETWORKS) {
                Some(text) => text == "true",
                None => !addresses.is_empty() || self.networks(),
            };
            let found = Sandbox {
                id: sandbox.id,
                attempt: metadata.attempt,
                networks,
                addresses,
                closed: false,
                unseen: false,
            };
            if let Some(older) = sandboxes.insert(metadata.uid, found) {
                self.remove(Removal::Sandbox(older.id));
            }
        }
        let filter = v1::ContainerFilter {
            label_selector: follow::own(self),
            ..v1::ContainerFilter::default()
        };
        let request = v1::ListContainersRequest {
            filter: Some(filter),
        };
        let listed = self.calls.list_containers(request).await?.containers;
        let mut found = Vec::new();
        let mut used = HashSet::new();
        for container in listed {
            if container.state() == v1::ContainerState::ContainerCreated {
                // The container was never started, and will not be started any more.
                self.remove(Removal::Container(container.id));
                continue;
            }
            used.insert(container.pod_sandbox_id.clone());
            if let Some(status) = self.status(&container.id).await? {
                found.push(self.adopt(container, &status));
            }
        }
        // The agent ended before the pod was told that it has another sandbox.
        for sandbox in sandboxes.values_mut() {
            sandbox.unseen = sandbox.attempt > 0 && !used.contains(&sandbox.id);
        }
        *self.sandboxes.lock() = sandboxes;
        Ok(found)
    }

    fn adopt(&self, container: v1::Container, status: &v1::ContainerStatus) -> Found {
        let metadata = container.metadata.unwrap_or_default();
        // More runs than the API can express, no container has had.
        let attempt = metadata.attempt.min(i32::MAX.cast_unsigned() - 1);
        let label = |name: &str| container.labels.get(name).cloned().unwrap_or_default();
        let sender = watch::Sender::new(follow::exit(status));
        let exit = sender.subscribe();
        let has = |name: &str| {
            container
                .annotations
                .get(name)
                .is_some_and(|it| it == "true")
        };
        let known = Known {
            exit: sender,
            stdin: has(annotation::STDIN),
            tty: has(annotation::TTY),
            killed: None,
        };
        self.containers.lock().insert(container.id.clone(), known);
        Found {
            owner: Owner {
                pod_uid: label(label::POD_UID),
                pod_namespace: label(label::POD_NAMESPACE),
                pod_name: label(label::POD_NAME),
                container: metadata.name,
                attempt,
            },
            running: Running {
                id: container.id,
                started: time(status.started_at).unwrap_or_else(Timestamp::now),
                image_id: reported::image_id(status),
                user: reported::user(status),
                given: reported::given(status),
                exit,
            },
        }
    }
}
