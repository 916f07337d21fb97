//! What a job does next: count, create, delete, finish.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::Object;
use crate::controller::clock::rfc3339;
use crate::controller::meta;

mod backoff;
mod count;
mod failure;
mod fill;
pub(super) mod indexes;
mod observed;
#[cfg(test)]
mod tests;
mod verdict;

pub(super) use backoff::Backoff;
pub(super) use fill::PodToCreate;
use fill::fill;
use observed::ObservedJob;
use verdict::Verdict;

/// The writes that the plan decides on.
#[derive(Debug, Default)]
pub(super) struct Decision {
    pub status: Option<Value>,
    /// Pods (by name) whose finalizer is removed.
    pub release: Vec<String>,
    /// Pods (by name) that are deleted.
    pub delete: Vec<String>,
    pub create: Vec<PodToCreate>,
    /// Whether normal, reason, message.
    pub events: Vec<(bool, String, String)>,
    pub again: Option<Duration>,
    /// To be remembered once the status is written.
    pub backoff: Backoff,
}

impl Decision {
    fn look_again(&mut self, after: Duration) {
        self.again = Some(self.again.map_or(after, |a| a.min(after)));
    }
}

pub(super) fn is_finished(job: &Job) -> bool {
    let conditions = job
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    let mut done = conditions.filter(|c| c.status == "True");
    done.any(|c| c.type_ == "Complete" || c.type_ == "Failed")
}

/// Decides what to do for a job, given all pods it controls and how often they failed before.
pub(super) fn decide(
    job: &Object,
    pods: &[Arc<Pod>],
    past: Option<&Backoff>,
    now: Timestamp,
) -> Decision {
    let mut decision = Decision::default();
    let Some(spec) = job.spec.as_ref() else {
        return decision;
    };
    if is_finished(job) {
        // All is counted; what still has the finalizer needs it no more.
        let tracked = pods.iter().filter(|p| super::is_tracked(p));
        decision.release = tracked.map(|p| meta::name(&**p).to_owned()).collect();
        return decision;
    }
    let look = ObservedJob::new(job, spec, pods);
    let mut conditions = Conditions::of(job, now);
    let mut start = job.at("/status/startTime").clone();
    if start.is_null() && !look.suspended() {
        start = json!(rfc3339(now));
    }
    decision.backoff = Backoff::after(past, &look);

    let mut verdict = verdict::judge(&look, &conditions, &start, now, &mut decision);
    let mut active = look.active.len();
    if verdict.is_some() {
        decision.delete = look.active.iter().map(|p| name(p)).collect();
    } else {
        fill(&look, now, &mut decision);
    }
    active -= decision.delete.len();
    if verdict.is_none() && look.is_complete(active) {
        verdict = Some(Verdict::completed());
    } else if verdict.is_none() {
        conditions.suspend(look.suspended(), &mut start, &mut decision);
    }
    let goes = |pod: &Pod| decision.delete.iter().any(|n| n == meta::name(pod));
    let ready = look.active.iter().filter(|p| meta::is_ready(p) && !goes(p));
    let ready = ready.count();
    let terminating = look.terminating + decision.delete.len();

    let count = count::track(&look, verdict.as_ref(), &mut decision);
    let mut status = json!({
        "active": active + decision.create.len(),
        "ready": ready,
        "terminating": terminating,
        "succeeded": count.succeeded,
        "failed": count.failed,
        "startTime": start,
        "uncountedTerminatedPods": count.uncounted(),
    });
    if look.indexed {
        status["completedIndexes"] = look.done.to_value();
        if let Some(failed) = &look.failed_indexes {
            // Also if it is empty: it shows that failures count per index.
            status["failedIndexes"] = json!(failed.to_string());
        }
    }
    if let Some(verdict) = &verdict {
        conditions.announce(verdict);
        if count.is_complete() && terminating == 0 {
            conditions.finish(verdict, &mut status);
            verdict.record_events(spec.completions, count.succeeded, &mut decision);
        }
    }
    status["conditions"] = match conditions.list.is_empty() {
        true => Value::Null,
        false => json!(conditions.list),
    };
    decision.status = Some(status);
    decision
}

fn name(pod: &Pod) -> String {
    meta::name(pod).to_owned()
}

/// The conditions of a job, as JSON.
struct Conditions {
    list: Vec<Value>,
    now: String,
}

impl Conditions {
    fn of(job: &Object, now: Timestamp) -> Self {
        let list = job.at("/status/conditions").as_array();
        Self {
            list: list.cloned().unwrap_or_default(),
            now: rfc3339(now),
        }
    }

    /// Reason and message of a condition that is true.
    fn find(&self, kind: &str) -> Option<(String, String)> {
        let condition = self.list.iter().find(|c| c["type"] == kind)?;
        let text = |f: &str| condition[f].as_str().unwrap_or_default().to_owned();
        (condition["status"] == "True").then(|| (text("reason"), text("message")))
    }

    /// Sets a condition; returns whether it changed. A condition that was never true is not added as false.
    fn set(&mut self, kind: &str, status: &str, reason: &str, message: &str) -> bool {
        let new = json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastProbeTime": self.now, "lastTransitionTime": self.now,
        });
        let says = |c: &Value| {
            [
                c["status"].clone(),
                c["reason"].clone(),
                c["message"].clone(),
            ]
        };
        match self.list.iter_mut().find(|c| c["type"] == kind) {
            Some(old) if says(old) == says(&new) => return false,
            Some(old) => *old = new,
            None if status == "False" => return false,
            None => self.list.push(new),
        }
        true
    }

    fn suspend(&mut self, suspended: bool, start: &mut Value, decision: &mut Decision) {
        let mut tell = |reason: &str, message: &str| {
            let event = (true, reason.to_owned(), message.to_owned());
            decision.events.push(event);
        };
        if suspended {
            if self.set("Suspended", "True", "JobSuspended", "Job suspended") {
                tell("Suspended", "Job suspended");
                *start = Value::Null;
            }
        } else if self.set("Suspended", "False", "JobResumed", "Job resumed") {
            tell("Resumed", "Job resumed");
            // The deadline counts the time that the job may run.
            *start = json!(self.now);
        }
    }

    /// Sets the condition that announces the job's end while its pods terminate.
    fn announce(&mut self, verdict: &Verdict) {
        let (kind, _) = verdict.conditions();
        self.set(kind, "True", verdict.reason(), verdict.message());
    }

    fn finish(&mut self, verdict: &Verdict, status: &mut Value) {
        let (_, kind) = verdict.conditions();
        self.set(kind, "True", verdict.reason(), verdict.message());
        if verdict.is_success() {
            status["completionTime"] = json!(self.now);
        }
    }
}
