//! The record of a static pod, which outlives the agent.
//!
//! The status of other pods is on the API server. A static pod may have no mirror there, and the API server may be away, but
//! its restarts, back-off and start time must not begin again with each agent.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use super::state::{BACKOFF, ContainerState};
use crate::error::PathError;
use crate::spec;

/// Name of the file, in the pod's directory.
const FILE: &str = "static-pod.json";

/// The status and back-offs of a static pod.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Record {
    /// The status, as in the pod's mirror.
    status: Value,
    /// The back-offs of containers, by name.
    pauses: BTreeMap<String, Pause>,
}

/// The back-off of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Pause {
    /// Seconds that the restart after the next one waits.
    next: u64,
    /// When the container may start.
    until: Option<Timestamp>,
}

fn file(directory: &Path) -> PathBuf {
    directory.join(FILE)
}

impl Record {
    pub(super) fn of(status: &Value, containers: &HashMap<String, ContainerState>) -> Self {
        let (now, clock) = (Instant::now(), Timestamp::now());
        let pauses = containers.iter().map(|(name, state)| {
            let left = state.retry_at.map(|at| at.saturating_duration_since(now));
            let pause = Pause {
                next: state.backoff.as_secs(),
                until: left.and_then(|left| clock.checked_add(left).ok()),
            };
            (name.clone(), pause)
        });
        Self {
            status: status.clone(),
            pauses: pauses.collect(),
        }
    }

    /// Whether it still holds with this status. A wait ends at the same time for as long as the status is the same.
    pub(super) fn holds(&self, status: &Value) -> bool {
        self.status == *status
    }

    /// Writes the record of a pod to its directory.
    pub(super) fn write(&self, directory: &Path) -> Result<(), PathError> {
        spec::write(&file(directory), self)
    }

    /// Reads the record of a pod from its directory; `None` if no agent has written one that can be read.
    pub(super) fn read(directory: &Path) -> Option<Self> {
        let path = file(directory);
        match spec::read(&path) {
            Ok(record) => Some(record),
            Err(_) if !path.exists() => None,
            Err(error) => {
                tracing::warn!(%error, "the record of a static pod is not used");
                None
            }
        }
    }

    /// The status that was reported last.
    pub(super) fn status(&self) -> PodStatus {
        serde_json::from_value(self.status.clone()).unwrap_or_default()
    }

    /// Gives containers the back-off that they had.
    pub(super) fn continue_backoff(&self, containers: &mut HashMap<String, ContainerState>) {
        let (now, clock) = (Instant::now(), Timestamp::now());
        for (name, pause) in &self.pauses {
            let Some(state) = containers.get_mut(name) else {
                continue;
            };
            // The clock may have been changed.
            state.backoff = Duration::from_secs(pause.next).min(BACKOFF.1);
            let left = pause.until.map(|until| until.duration_since(clock));
            let left = left.and_then(|left| Duration::try_from(left).ok());
            if state.waiting_reason().is_some() {
                state.retry_at = left.map(|left| now + left.min(BACKOFF.1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::state::Phase;
    use super::*;

    fn waiting(backoff: u64, left: u64) -> HashMap<String, ContainerState> {
        let state = ContainerState {
            phase: Phase::waiting("CrashLoopBackOff", ""),
            backoff: Duration::from_secs(backoff),
            retry_at: Some(Instant::now() + Duration::from_secs(left)),
            ..ContainerState::default()
        };
        HashMap::from([("c".to_owned(), state)])
    }

    #[test]
    fn regression_the_next_agent_goes_on_with_the_backoff() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        assert!(Record::read(directory.path()).is_none());
        let status = json!({"startTime": "2026-01-01T00:00:00Z", "conditions": [
            {"type": "Ready", "status": "False", "reason": null, "lastProbeTime": null}]});
        let record = Record::of(&status, &waiting(40, 20));
        record.write(directory.path()).expect("a record");
        let read = Record::read(directory.path()).expect("a record");
        let since = read.status().start_time.expect("a time").0;
        assert_eq!(since, "2026-01-01T00:00:00Z".parse().expect("a time"));
        let mut found = waiting(0, 0);
        read.continue_backoff(&mut found);
        let state = &found["c"];
        assert_eq!(state.backoff, Duration::from_secs(40));
        let left = state.retry_at.expect("a wait") - Instant::now();
        assert!(
            left <= Duration::from_secs(20) && !left.is_zero(),
            "{left:?}"
        );

        // A clock that was set back does not make it wait for longer than any other.
        let mut far = record;
        far.pauses.insert(
            "c".to_owned(),
            Pause {
                next: u64::MAX,
                until: Some(Timestamp::MAX),
            },
        );
        far.continue_backoff(&mut found);
        let state = &found["c"];
        assert_eq!(state.backoff, BACKOFF.1);
        let left = state.retry_at.expect("a wait") - Instant::now();
        assert!(left <= BACKOFF.1, "{left:?}");
    }

    #[test]
    fn records_at_fault_are_left_out() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(file(directory.path()), "{").expect("a file");
        assert!(Record::read(directory.path()).is_none());
    }
}
