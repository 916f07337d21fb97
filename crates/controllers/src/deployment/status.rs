//! The status of a deployment.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DeploymentSpec, ReplicaSetStatus};
use serde_json::{Value, json};

use super::plan::Limits;
use super::{Object, Sets, size_of};
use crate::controller::clock::{rfc3339, since};
use crate::controller::meta;

/// What a turn of the controller did before it wrote the status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SyncResult {
    /// It only scaled replica sets, or the deployment is paused: progress is not judged.
    Scaled,
    /// It rolled out, and may have created the replica set of that name.
    Rolled(Option<String>),
}

const PROGRESSING: &str = "Progressing";
const AVAILABLE: &str = "Available";
const FAILURE: &str = "ReplicaFailure";

/// Conditions in the order of their last change, as upstream keeps them.
struct Conditions {
    list: Vec<Value>,
    now: String,
}

impl Conditions {
    fn find(&self, kind: &str) -> Option<&Value> {
        self.list.iter().find(|c| c["type"] == kind)
    }

    fn reason(&self, kind: &str) -> Option<&str> {
        self.find(kind)?["reason"].as_str()
    }

    fn remove(&mut self, kind: &str) {
        self.list.retain(|c| c["type"] != kind);
    }

    /// Sets a condition; with the same status and reason it stays unchanged, including message and
    /// times.
    fn set(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        let same = |c: &Value| c["status"] == status && c["reason"] == reason;
        if !self.find(kind).is_some_and(same) {
            self.replace(kind, status, reason, message);
        }
    }

    /// Replaces a condition, including its update time.
    fn replace(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        let known = self.find(kind).filter(|c| c["status"] == status);
        let since = known.map_or_else(
            || json!(self.now),
            |known| known["lastTransitionTime"].clone(),
        );
        self.remove(kind);
        self.list.push(json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastUpdateTime": self.now, "lastTransitionTime": since,
        }));
    }
}

/// The pods of all replica sets of a deployment.
struct Counts {
    replicas: i32,
    updated: i32,
    ready: i32,
    available: i32,
    terminating: i32,
    /// Those that the replica sets should have.
    desired: i32,
}

impl Counts {
    fn of(sets: &Sets) -> Self {
        let statuses = || sets.all.iter().filter_map(|s| s.status.as_ref());
        let sum =
            |f: fn(&ReplicaSetStatus) -> Option<i32>| -> i32 { statuses().filter_map(f).sum() };
        Self {
            replicas: sum(|s| Some(s.replicas)),
            updated: sets.new_set().map_or(0, |s| size_of(s).status),
            ready: sum(|s| s.ready_replicas),
            available: sum(|s| s.available_replicas),
            terminating: sum(|s| s.terminating_replicas),
            desired: sets.all.iter().map(|s| size_of(s).spec).sum(),
        }
    }
}

/// The new status, and when to check the progress deadline again.
pub(super) fn next(
    deployment: &Object,
    spec: &DeploymentSpec,
    sets: &Sets,
    turn: &SyncResult,
    now: Timestamp,
) -> (Value, Option<Duration>) {
    let old = deployment.at("/status");
    let limits = Limits::of(spec);
    let counts = Counts::of(sets);
    let mut conditions = Conditions {
        list: old["conditions"].as_array().cloned().unwrap_or_default(),
        now: rfc3339(now),
    };
    let new_name = sets.new_set().map(|s| meta::name(&**s));
    let deadline = spec.progress_deadline_seconds.filter(|d| *d != i32::MAX);
    if deadline.is_some() {
        pause_or_resume(&mut conditions, spec.paused.unwrap_or(false));
        announce(&mut conditions, new_name, turn);
    }
    let current = conditions.reason(PROGRESSING).map(str::to_owned);
    if counts.available >= limits.replicas - limits.unavailable {
        let message = "Deployment has minimum availability.";
        conditions.set(AVAILABLE, "True", "MinimumReplicasAvailable", message);
    } else {
        let message = "Deployment does not have minimum availability.";
        conditions.set(AVAILABLE, "False", "MinimumReplicasUnavailable", message);
    }
    let mut wait = None;
    if matches!(turn, SyncResult::Rolled(_)) {
        let was_complete = counts.replicas == counts.updated
            && current.as_deref() == Some("NewReplicaSetAvailable");
        match deadline {
            None => conditions.remove(PROGRESSING),
            Some(_) if was_complete => {}
            Some(deadline) => {
                let what = match new_name {
                    Some(set) => format!("ReplicaSet \"{set}\""),
                    None => format!("Deployment \"{}\"", meta::name(deployment)),
                };
                let progress = Progress::of(&counts, &limits, old, what, deadline);
                wait = progress.judge(&mut conditions, now);
            }
        }
        copy_failure(&mut conditions, sets);
    }
    let status = json!({
        "observedGeneration": meta::generation(deployment),
        "replicas": counts.replicas,
        "updatedReplicas": counts.updated,
        "readyReplicas": counts.ready,
        "availableReplicas": counts.available,
        "unavailableReplicas": (counts.desired - counts.available).max(0),
        "terminatingReplicas": counts.terminating,
        "conditions": conditions.list,
    });
    (status, wait)
}

/// Takes over the failure of a replica set; that of the new one takes precedence.
fn copy_failure(conditions: &mut Conditions, sets: &Sets) {
    let failing = sets.new_set().into_iter().chain(&sets.all).find_map(|s| {
        let conditions = s.status.as_ref()?.conditions.as_ref()?;
        conditions.iter().find(|c| c.type_ == FAILURE)
    });
    match failing {
        Some(c) => {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            conditions.set(FAILURE, &c.status, &text(&c.reason), &text(&c.message));
        }
        None => conditions.remove(FAILURE),
    }
}

/// Records that the deployment was paused or resumed, unless its deadline was exceeded already.
fn pause_or_resume(conditions: &mut Conditions, paused: bool) {
    let was_paused = match conditions.reason(PROGRESSING) {
        Some("ProgressDeadlineExceeded") => return,
        reason => reason == Some("DeploymentPaused"),
    };
    let (reason, message) = match (paused, was_paused) {
        (true, false) => ("DeploymentPaused", "Deployment is paused"),
        (false, true) => ("DeploymentResumed", "Deployment is resumed"),
        _ => return,
    };
    conditions.set(PROGRESSING, "Unknown", reason, message);
}

/// Records the new replica set when it is created, or seen for the first time.
fn announce(conditions: &mut Conditions, new: Option<&str>, turn: &SyncResult) {
    if let SyncResult::Rolled(Some(made)) = turn {
        let message = format!("Created new replica set \"{made}\"");
        conditions.set(PROGRESSING, "True", "NewReplicaSetCreated", &message);
    } else if let (Some(new), None) = (new, conditions.find(PROGRESSING)) {
        let message = format!("Found new replica set \"{new}\"");
        conditions.set(PROGRESSING, "True", "FoundNewReplicaSet", &message);
    }
}

struct Progress {
    complete: bool,
    progressed: bool,
    what: String,
    deadline: Duration,
}

impl Progress {
    /// Compares the counts with those of the stored status.
    fn of(counts: &Counts, limits: &Limits, old: &Value, what: String, deadline: i32) -> Self {
        let before = |field: &str| old[field].as_i64().unwrap_or(0) as i32;
        let old_pods = before("replicas") - before("updatedReplicas");
        Self {
            complete: [counts.updated, counts.replicas, counts.available] == [limits.replicas; 3],
            progressed: counts.updated > before("updatedReplicas")
                || counts.replicas - counts.updated < old_pods
                || counts.ready > before("readyReplicas")
                || counts.available > before("availableReplicas"),
            what,
            deadline: Duration::from_secs(u64::try_from(deadline).unwrap_or(0)),
        }
    }

    /// Sets the condition; returns when the deadline is exceeded.
    fn judge(&self, conditions: &mut Conditions, now: Timestamp) -> Option<Duration> {
        let what = &self.what;
        if self.complete {
            let message = format!("{what} has successfully progressed.");
            conditions.set(PROGRESSING, "True", "NewReplicaSetAvailable", &message);
            return None;
        }
        if self.progressed {
            let message = format!("{what} is progressing.");
            conditions.replace(PROGRESSING, "True", "ReplicaSetUpdated", &message);
            return Some(self.deadline);
        }
        let known = conditions.find(PROGRESSING)?;
        if matches!(
            known["reason"].as_str(),
            Some("NewReplicaSetAvailable" | "ProgressDeadlineExceeded")
        ) {
            return None;
        }
        let last = known["lastUpdateTime"].as_str();
        let last = last.and_then(|t| t.parse::<Timestamp>().ok());
        let passed = since(now, last.unwrap_or(now));
        if passed < self.deadline {
            return Some(self.deadline - passed);
        }
        let message = format!("{what} has timed out progressing.");
        conditions.set(PROGRESSING, "False", "ProgressDeadlineExceeded", &message);
        None
    }
}

#[cfg(test)]
mod tests;
