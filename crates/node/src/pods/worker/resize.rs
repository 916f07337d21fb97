//! Resizes a running pod in place: has the desired resources allocated, and gives the containers the allocated ones.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::super::allocations::{ResizeConditions, record_events};
use super::super::resources::{Allocation, Budget, Sizes, requests, resizable};
use super::super::status::has_ended;
use super::super::{lifecycle, limits};
use super::{RETRY, Wake, Worker, container_of, grace};
use crate::error::PathError;
use crate::events::Kind;
use crate::spec;

/// Name of the record, in the pod's directory.
const FILE: &str = "resources.json";

/// The record about the resources of a pod, which one agent leaves for the next.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Resources {
    pub(super) allocated: Allocation,
    /// The resources of containers that do not run with the allocated ones yet, by container name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) held: BTreeMap<String, Budget>,
}

impl Resources {
    /// Reads the record of a pod from its directory; `None` if no agent has written one that can be read.
    pub(super) fn read(directory: &Path) -> Option<Self> {
        let path = directory.join(FILE);
        match spec::read(&path) {
            Ok(record) => Some(record),
            Err(_) if !path.exists() => None,
            Err(error) => {
                tracing::warn!(%error, "the record of a pod's resources is not used");
                None
            }
        }
    }
}

/// The resources that containers are to get, by container name.
pub(super) type Wanted = BTreeMap<String, Budget>;

/// A container that does not run with the allocated resources.
struct Change {
    container: Container,
    id: String,
    now: Budget,
    wanted: Budget,
}

/// The resources that containers have until they are resized, by container name.
fn held(changes: &[Change]) -> BTreeMap<String, Budget> {
    let held = changes.iter().map(|it| (it.container.name.clone(), it.now));
    held.collect()
}

impl Worker {
    /// The pod with the allocated resources in place of the desired ones: what is to run.
    pub(super) fn allocated(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        let allocations = &self.node.allocations;
        // A pod that has ended is not resized, and needs nothing.
        if has_ended(pod) {
            return Arc::clone(pod);
        }
        // What is left for a resize is known only when all pods of the node are known.
        if !self.node.synced.initialized() {
            return allocations.allocated(pod);
        }
        let (pod, events) = allocations.update(pod);
        record_events(&self.node.events, events);
        pod
    }

    /// Adds the pod to the allocations, with the resources that an earlier agent has recorded, or else the desired ones. Returns
    /// the resources of containers that do not run with the allocated ones yet.
    pub(super) fn admit(
        &mut self,
        pod: &Arc<Pod>,
        resizes: ResizeConditions,
    ) -> BTreeMap<String, Budget> {
        let directory = self.node.pod_dir(&pod.uid().unwrap_or_default());
        let over = has_ended(pod);
        if !over && !self.node.pretends() {
            self.resources = Resources::read(&directory);
        }
        let known = self.resources.clone().unwrap_or_else(|| Resources {
            allocated: Allocation::of(pod),
            held: BTreeMap::new(),
        });
        let reserved = match over {
            true => Sizes::default(),
            false => requests(&known.allocated.applied_to(pod), &known.held),
        };
        let allocations = &self.node.allocations;
        allocations.admit(pod, known.allocated, reserved, resizes, &self.news);
        known.held
    }

    /// Takes over the resources of containers that an earlier agent has started.
    pub(super) fn adopt_resources(&self, pod: &Arc<Pod>, held: &BTreeMap<String, Budget>) {
        let pod = self.node.allocations.allocated(pod);
        for (name, state) in self.containers.lock().iter_mut() {
            if state.running().is_some()
                && let Some(container) = container_of(&pod, name)
            {
                let held = held.get(name).copied();
                state.applied = Some(held.unwrap_or_else(|| Budget::of(&pod, &container)));
            }
        }
    }

    /// The running containers that do not have the allocated resources.
    fn changes(&self, pod: &Pod) -> Vec<Change> {
        let containers = self.containers.lock();
        let changes = resizable(pod).filter_map(|container| {
            let state = containers.get(&container.name)?;
            let (id, now) = (state.running()?.id.clone(), state.applied?);
            let wanted = Budget::of(pod, container);
            (now != wanted).then(|| Change {
                container: container.clone(),
                id,
                now,
                wanted,
            })
        });
        changes.collect()
    }

    /// Gives the containers the allocated resources: in place, or by a restart. Returns when to try again after an error.
    pub(super) async fn resize(&mut self, pod: &Pod) -> Wake {
        let changes = self.changes(pod);
        let recorded = self.record_resources(pod, &changes);
        self.settle(pod, &changes);
        if changes.is_empty() {
            return None;
        }
        let wanted: Wanted = changes
            .iter()
            .map(|it| (it.container.name.clone(), it.wanted))
            .collect();
        if let Some((at, failed)) = &self.failed_resize
            && *failed == wanted
            && *at > Instant::now()
        {
            return Some(*at);
        }
        self.failed_resize = None;
        if let Err(error) = recorded {
            return self.fail(pod, error.to_string(), wanted);
        }
        let (restarts, mut updates): (Vec<_>, Vec<_>) = changes
            .into_iter()
            .partition(|it| it.now.needs_restart(&it.wanted, &it.container));
        for change in restarts {
            self.restart(pod, change);
        }
        // Decreases come first: another container may get the memory that is released.
        updates.sort_by_key(|it| it.wanted.memory_limit > it.now.memory_limit);
        let mut result = self.check_memory(&updates).await;
        for change in &updates {
            if result.is_ok() {
                result = self.update(pod, change).await;
            }
        }
        let left = self.changes(pod);
        if let Err(error) = self.record_resources(pod, &left) {
            // The next agent would repeat the updates, which is harmless.
            tracing::warn!(pod = pod.name_any(), %error, "resources were not recorded");
        }
        match result {
            Ok(()) => {
                self.settle(pod, &left);
                None
            }
            Err(error) => self.fail(pod, error, wanted),
        }
    }

    /// Reports an error of the resize, and delays the next attempt to give the containers the same resources.
    fn fail(&mut self, pod: &Pod, error: String, wanted: Wanted) -> Wake {
        let events = self.node.allocations.fail(pod, &error);
        record_events(&self.node.events, events);
        let at = Instant::now() + RETRY.1;
        self.failed_resize = Some((at, wanted));
        Some(at)
    }

    /// Reports the progress of the resize to the allocations.
    fn settle(&self, pod: &Pod, changes: &[Change]) {
        let reserved = requests(pod, &held(changes));
        let allocations = &self.node.allocations;
        let events = allocations.settle(pod, changes.is_empty(), reserved);
        record_events(&self.node.events, events);
    }

    /// Refuses memory limits below the current usage: the kernel would kill the container.
    async fn check_memory(&self, updates: &[Change]) -> Result<(), String> {
        let runtime = &self.node.runtime;
        let less = |it: &Change| it.wanted.has_less_memory(&it.now);
        if !updates.iter().any(less) || !runtime.enforces_limits() {
            return Ok(());
        }
        let measured = runtime.usage().await;
        let measured = measured.map_err(|error| format!("unable to read memory usage: {error}"))?;
        let errors = updates.iter().filter(|it| less(it)).filter_map(|it| {
            let (name, limit) = (&it.container.name, it.wanted.memory_limit);
            let used = measured.iter().find(|found| found.id == it.id);
            match used.and_then(|found| found.figures.memory) {
                None => Some(format!("missing container {name:?} memory usage")),
                Some(used) if used >= limit.unsigned_abs() => Some(format!(
                    "attempting to set container {name:?} memory limit ({limit}) below current usage ({used})"
                )),
                Some(_) => None,
            }
        });
        let errors: Vec<String> = errors.collect();
        match errors.as_slice() {
            [] => Ok(()),
            [error] => Err(format!("cannot decrease memory limits: {error}")),
            _ => Err(format!(
                "cannot decrease memory limits: [{}]",
                errors.join(", ")
            )),
        }
    }

    async fn update(&self, pod: &Pod, change: &Change) -> Result<(), String> {
        let limits = limits::of(pod, &change.container, self.node.memory());
        let updated = self.node.runtime.update(&change.id, limits).await;
        let given = updated.map_err(|error| error.to_string())?;
        let mut containers = self.containers.lock();
        if let Some(state) = containers.get_mut(&change.container.name) {
            state.applied = Some(change.wanted);
            state.given = given;
        }
        Ok(())
    }

    /// Stops a container whose `resizePolicy` requires a restart, without waiting: the other containers go on. It is started again
    /// as soon as it has ended.
    fn restart(&mut self, pod: &Pod, change: Change) {
        let Change { container, id, .. } = change;
        let name = container.name.clone();
        if self.restarting.get(&name) == Some(&id) {
            return;
        }
        let message = format!("Container {name} resize requires restart");
        let events = &self.node.events;
        events.pod(pod, Some(&name), Kind::Normal, "Killing", message);
        self.restarting.insert(name, id.clone());
        while self.stops.try_join_next().is_some() {}
        let (node, pod) = (Arc::clone(&self.node), pod.clone());
        self.stops.spawn(async move {
            lifecycle::stop(&node, &pod, &container, &id, grace(&pod)).await;
        });
    }

    /// Writes the record for the next agent, if it has changed.
    fn record_resources(&mut self, pod: &Pod, changes: &[Change]) -> Result<(), PathError> {
        // Simulated containers end with the agent.
        if self.node.pretends() {
            return Ok(());
        }
        let record = Resources {
            allocated: Allocation::of(pod),
            held: held(changes),
        };
        if self.resources.as_ref() == Some(&record) {
            return Ok(());
        }
        let directory = self.node.pod_dir(&pod.uid().unwrap_or_default());
        spec::write(&directory.join(FILE), &record)?;
        self.resources = Some(record);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_next_agent_knows_what_was_allocated() {
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(Resources::read(directory.path()), None);
        let pod = json!({"spec": {"containers": [
            {"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}}]}});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let held = Budget {
            cpu_request: 7,
            ..Budget::default()
        };
        let record = Resources {
            allocated: Allocation::of(&pod),
            held: [("c".to_owned(), held)].into(),
        };
        spec::write(&directory.path().join(FILE), &record).expect("a record");
        assert_eq!(Resources::read(directory.path()), Some(record));
        std::fs::write(directory.path().join(FILE), "{").expect("a file");
        assert_eq!(Resources::read(directory.path()), None);
    }
}
