//! The record of a pod's resources, which one agent leaves for the next.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use crate::error::PathError;
use crate::events::Kind;
use crate::pods::allocations::ResizeConditions;
use crate::pods::resources::{Allocation, Budget, Sizes, requests};
use crate::pods::status::has_ended;
use crate::pods::worker::{Worker, container_of};
use crate::spec;

/// Name of the record, in the pod's directory.
const FILE: &str = "resources.json";
/// Name that a record gets that cannot be read.
const DAMAGED: &str = "resources.json.damaged";

/// The record about the resources of a pod, which one agent leaves for the next.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::pods::worker) struct Resources {
    allocated: Allocation,
    /// The resources of containers that do not run with the allocated ones yet, by container name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    held: BTreeMap<String, Budget>,
    /// Containers that are stopped because their resize requires a restart: container IDs by name, until they run again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    restarting: BTreeMap<String, String>,
}

impl Resources {
    /// Reads the record of a pod from its directory; `None` if no agent has written one.
    ///
    /// # Errors
    /// The record cannot be read. It was put aside, so that its content can be looked at and the next one can be written.
    fn read(directory: &Path) -> Result<Option<Self>, PathError> {
        let path = directory.join(FILE);
        match spec::read(&path) {
            Ok(record) => Ok(Some(record)),
            Err(error) if error.source.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => {
                if let Err(problem) = std::fs::rename(&path, directory.join(DAMAGED)) {
                    tracing::warn!(path = %path.display(), error = %problem, "a damaged record was not put aside");
                }
                Err(error)
            }
        }
    }
}

impl Worker {
    /// Adds the pod to the allocations, with the resources that an earlier agent has recorded, or else the desired ones. Returns
    /// the resources of containers that do not run with the allocated ones yet.
    pub(in crate::pods::worker) fn admit(
        &mut self,
        pod: &Arc<Pod>,
        status: &PodStatus,
        resizes: ResizeConditions,
    ) -> BTreeMap<String, Budget> {
        let over = has_ended(pod);
        let known = match over || self.node.pretends() {
            true => None,
            false => self.recorded_resources(pod, status),
        };
        let known = known.unwrap_or_else(|| Resources {
            allocated: Allocation::of(pod),
            ..Resources::default()
        });
        let reserved = match over {
            true => Sizes::default(),
            false => requests(&known.allocated.applied_to(pod), &known.held),
        };
        // A container of a pod that is being deleted is not started again.
        if pod.metadata.deletion_timestamp.is_none() {
            self.restarting = known.restarting;
        }
        let allocations = &self.node.allocations;
        allocations.admit(pod, known.allocated, reserved, resizes, &self.news);
        known.held
    }

    /// What an earlier agent has recorded. If that is damaged, it is reported by an event, and the resources in the pod's status are
    /// used: the desired resources may not have been granted.
    fn recorded_resources(&mut self, pod: &Pod, status: &PodStatus) -> Option<Resources> {
        let directory = self.node.pod_dir(&pod.uid().unwrap_or_default());
        match Resources::read(&directory) {
            Ok(record) => {
                self.resources.clone_from(&record);
                record
            }
            Err(error) => {
                tracing::warn!(pod = pod.name_any(), %error, "the record of a pod's resources is damaged");
                let message = format!(
                    "The record of allocated resources is damaged and was renamed to {DAMAGED}, those in the status of the pod are used: {}",
                    error.source
                );
                let events = &self.node.events;
                events.pod(pod, None, Kind::Warning, "ResourcesRecordDamaged", message);
                Some(Resources {
                    allocated: Allocation::reported(pod, status),
                    ..Resources::default()
                })
            }
        }
    }

    /// Takes over the resources of containers that an earlier agent has started.
    pub(in crate::pods::worker) fn adopt_resources(
        &self,
        pod: &Arc<Pod>,
        held: &BTreeMap<String, Budget>,
    ) {
        let pod = self.node.allocations.allocated(pod);
        for (name, state) in self.containers.lock().iter_mut() {
            if let Some(running) = state.running()
                && let Some(container) = container_of(&pod, name)
            {
                // One that was restarted since the record was written has the allocated ones.
                let before = self.restarting.get(name);
                let same = before.is_none_or(|id| *id == running.id);
                let held = held.get(name).copied().filter(|_| same);
                state.applied = Some(held.unwrap_or_else(|| Budget::of(&pod, &container)));
            }
        }
    }

    /// Writes the record for the next agent, if it has changed. `held` are the resources of containers that do not run with the
    /// allocated ones yet.
    pub(super) fn record_resources(
        &mut self,
        pod: &Pod,
        held: &BTreeMap<String, Budget>,
    ) -> Result<(), PathError> {
        // Simulated containers end with the agent.
        if self.node.pretends() {
            return Ok(());
        }
        let record = Resources {
            allocated: Allocation::of(pod),
            held: held.clone(),
            restarting: self.restarting.clone(),
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
        let read = || Resources::read(directory.path());
        assert_eq!(read().expect("no record"), None);
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
            restarting: [("c".to_owned(), "id".to_owned())].into(),
        };
        spec::write(&directory.path().join(FILE), &record).expect("a record");
        assert_eq!(read().expect("a record"), Some(record));
    }

    #[test]
    fn a_damaged_record_is_put_aside() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join(FILE);
        std::fs::write(&file, "{").expect("a file");
        let error = Resources::read(directory.path()).expect_err("an error");
        assert_eq!(error.path, file);
        let kept = std::fs::read_to_string(directory.path().join(DAMAGED));
        assert_eq!(kept.expect("a file"), "{");
        assert_eq!(Resources::read(directory.path()).expect("no record"), None);
    }
}
