//! The status of a deployment.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DeploymentSpec;
use serde_json::{Value, json};

use super::plan::Limits;
use super::{Object, Sets, size_of};
use crate::kit::clock::{rfc3339, since};
use crate::kit::meta;

/// Sets a condition; unlike in other kinds it also tells when it was last confirmed.
fn set(
    conditions: &mut Vec<Value>,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: &str,
) {
    let mut new = json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastUpdateTime": now, "lastTransitionTime": now,
    });
    match conditions.iter_mut().find(|c| c["type"] == kind) {
        Some(old) => {
            if old["status"] == new["status"] {
                new["lastTransitionTime"] = old["lastTransitionTime"].clone();
            }
            *old = new;
        }
        None => conditions.push(new),
    }
}

fn find<'a>(conditions: &'a [Value], kind: &str) -> Option<&'a Value> {
    conditions.iter().find(|c| c["type"] == kind)
}

/// The new status, and when to look again for the progress deadline.
pub(super) fn next(
    deployment: &Object,
    spec: &DeploymentSpec,
    sets: &Sets,
    now: Timestamp,
) -> (Value, Option<Duration>) {
    let old = deployment.at("/status");
    let limits = Limits::of(spec);
    let sum = |f: fn(&k8s_openapi::api::apps::v1::ReplicaSetStatus) -> i32| -> i32 {
        sets.all
            .iter()
            .filter_map(|s| s.status.as_ref())
            .map(f)
            .sum()
    };
    let replicas = sum(|s| s.replicas);
    let ready = sum(|s| s.ready_replicas.unwrap_or(0));
    let available = sum(|s| s.available_replicas.unwrap_or(0));
    let terminating = sum(|s| s.terminating_replicas.unwrap_or(0));
    let wanted: i32 = sets.all.iter().map(|s| size_of(s).spec).sum();
    let updated = sets.new_set().map_or(0, |s| size_of(s).status);

    let mut conditions = old["conditions"].as_array().cloned().unwrap_or_default();
    let stamp = rfc3339(now);
    let (status, reason, message) = if available >= limits.replicas - limits.unavailable {
        (
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.",
        )
    } else {
        (
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        )
    };
    if find(&conditions, "Available").is_none_or(|c| c["status"] != status) {
        set(
            &mut conditions,
            "Available",
            status,
            reason,
            message,
            &stamp,
        );
    }

    let failure = sets.all.iter().rev().find_map(|s| {
        let conditions = s.status.as_ref()?.conditions.as_ref()?;
        conditions
            .iter()
            .find(|c| c.type_ == "ReplicaFailure")
            .cloned()
    });
    match failure {
        Some(c) => {
            let (reason, message) = (c.reason.unwrap_or_default(), c.message.unwrap_or_default());
            let same = find(&conditions, "ReplicaFailure").is_some_and(|o| {
                o["reason"] == reason.as_str() && o["message"] == message.as_str()
            });
            if !same {
                set(
                    &mut conditions,
                    "ReplicaFailure",
                    &c.status,
                    &reason,
                    &message,
                    &stamp,
                );
            }
        }
        None => conditions.retain(|c| c["type"] != "ReplicaFailure"),
    }

    let mut wait = None;
    let deadline = spec.progress_deadline_seconds.filter(|d| *d != i32::MAX);
    if let Some(deadline) = deadline {
        let before = |field: &str| old[field].as_i64().unwrap_or(0) as i32;
        let progressed = updated > before("updatedReplicas")
            || replicas - updated < before("replicas") - before("updatedReplicas")
            || ready > before("readyReplicas")
            || available > before("availableReplicas");
        let complete = updated == limits.replicas
            && replicas == limits.replicas
            && available == limits.replicas;
        let state = Progress {
            complete,
            progressed,
            paused: spec.paused.unwrap_or(false),
            set: sets.new_set().map(|s| meta::name(&**s).to_owned()),
            name: meta::name(deployment),
            deadline: Duration::from_secs(u64::try_from(deadline).unwrap_or(0)),
        };
        wait = progress(&mut conditions, &state, now);
    }
    conditions.sort_by_key(|c| match c["type"].as_str() {
        Some("Available") => 0,
        Some("Progressing") => 1,
        _ => 2,
    });
    let status = json!({
        "observedGeneration": meta::generation(deployment),
        "replicas": replicas,
        "updatedReplicas": updated,
        "readyReplicas": ready,
        "availableReplicas": available,
        "unavailableReplicas": (wanted - available).max(0),
        "terminatingReplicas": terminating,
        "conditions": conditions,
    });
    (status, wait)
}

struct Progress<'a> {
    complete: bool,
    progressed: bool,
    paused: bool,
    set: Option<String>,
    name: &'a str,
    deadline: Duration,
}

fn progress(conditions: &mut Vec<Value>, state: &Progress<'_>, now: Timestamp) -> Option<Duration> {
    let stamp = rfc3339(now);
    let old = find(conditions, "Progressing").cloned();
    let reason = old
        .as_ref()
        .and_then(|c| c["reason"].as_str())
        .unwrap_or_default();
    if state.paused {
        if reason != "DeploymentPaused" && reason != "ProgressDeadlineExceeded" {
            set(
                conditions,
                "Progressing",
                "Unknown",
                "DeploymentPaused",
                "Deployment is paused",
                &stamp,
            );
        }
        return None;
    }
    if reason == "DeploymentPaused" {
        set(
            conditions,
            "Progressing",
            "Unknown",
            "DeploymentResumed",
            "Deployment is resumed",
            &stamp,
        );
    }
    let what = match &state.set {
        Some(set) => format!("ReplicaSet \"{set}\""),
        None => format!("Deployment \"{}\"", state.name),
    };
    if state.complete {
        let message = format!("{what} has successfully progressed.");
        let same = old.is_some_and(|c| {
            c["reason"] == "NewReplicaSetAvailable" && c["message"] == message.as_str()
        });
        if !same {
            set(
                conditions,
                "Progressing",
                "True",
                "NewReplicaSetAvailable",
                &message,
                &stamp,
            );
        }
        return None;
    }
    if old.is_none() {
        let (reason, message) = match &state.set {
            Some(set) => (
                "NewReplicaSetCreated",
                format!("Created new replica set \"{set}\""),
            ),
            None => ("ReplicaSetUpdated", format!("{what} is progressing.")),
        };
        set(conditions, "Progressing", "True", reason, &message, &stamp);
        return Some(state.deadline);
    }
    if state.progressed || reason == "NewReplicaSetAvailable" {
        set(
            conditions,
            "Progressing",
            "True",
            "ReplicaSetUpdated",
            &format!("{what} is progressing."),
            &stamp,
        );
        return Some(state.deadline);
    }
    if reason == "ProgressDeadlineExceeded" {
        return None;
    }
    let last = find(conditions, "Progressing")
        .and_then(|c| c["lastUpdateTime"].as_str())
        .and_then(|t| t.parse::<Timestamp>().ok())
        .unwrap_or(now);
    let passed = since(now, last);
    if passed >= state.deadline {
        let message = format!("{what} has timed out progressing.");
        set(
            conditions,
            "Progressing",
            "False",
            "ProgressDeadlineExceeded",
            &message,
            &stamp,
        );
        return None;
    }
    Some(state.deadline - passed)
}
