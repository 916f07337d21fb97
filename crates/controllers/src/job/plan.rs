//! What a job does next: count, create, delete, finish.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{INDEX, Object, is_tracked};
use crate::kit::clock::{rfc3339, until};
use crate::kit::meta;
use crate::workload::{condition_status, set_condition};

mod failure;
mod fill;
pub(super) mod indexes;
#[cfg(test)]
mod tests;

use failure::{Failure, has_failed, judge_failure};
use fill::fill;
use indexes::Indexes;

/// UIDs listed as uncounted at most, so that the object stays small.
const MAX_UNCOUNTED: usize = 500;

/// What to do.
#[derive(Debug, Default)]
pub(super) struct Decision {
    pub status: Option<Value>,
    /// Pods (by name) whose finalizer goes.
    pub release: Vec<String>,
    /// Pods (by name) that are deleted.
    pub delete: Vec<String>,
    /// One pod per entry, with its completion index if the job is indexed.
    pub create: Vec<Option<i32>>,
    /// Whether normal, reason, message.
    pub events: Vec<(bool, &'static str, String)>,
    pub again: Option<Duration>,
}

pub(super) fn is_finished(job: &Job) -> bool {
    let conditions = job
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    let mut done = conditions.filter(|c| c.status == "True");
    done.any(|c| c.type_ == "Complete" || c.type_ == "Failed")
}

fn index_of(pod: &Pod) -> Option<i32> {
    meta::annotation(pod, INDEX)?.parse().ok()
}

fn is_indexed(spec: &JobSpec) -> bool {
    spec.completion_mode.as_deref() == Some("Indexed")
}

struct Counting {
    succeeded: i32,
    failed: i32,
    done: Indexes,
    failed_indexes: Indexes,
    uncounted_succeeded: BTreeSet<String>,
    uncounted_failed: BTreeSet<String>,
}

impl Counting {
    fn of(job: &Job) -> Self {
        let status = job.status.clone().unwrap_or_default();
        let uncounted = status.uncounted_terminated_pods.unwrap_or_default();
        Self {
            succeeded: status.succeeded.unwrap_or(0),
            failed: status.failed.unwrap_or(0),
            done: Indexes::parse(status.completed_indexes.as_deref().unwrap_or_default()),
            failed_indexes: Indexes::parse(status.failed_indexes.as_deref().unwrap_or_default()),
            uncounted_succeeded: uncounted.succeeded.into_iter().flatten().collect(),
            uncounted_failed: uncounted.failed.into_iter().flatten().collect(),
        }
    }
}

/// Decides what to do for a job, given all pods it controls.
pub(super) fn decide(job: &Object, pods: &[Arc<Pod>], now: Timestamp) -> Decision {
    let mut decision = Decision::default();
    let Some(spec) = job.spec.as_ref() else {
        return decision;
    };
    let indexed = is_indexed(spec);
    let finished = is_finished(job);
    let mut conditions = job
        .at("/status/conditions")
        .as_array()
        .cloned()
        .unwrap_or_default();
    let mut count = Counting::of(job);

    // Uncounted pods whose finalizer is gone move into the counters.
    let tracked: BTreeSet<&str> = pods
        .iter()
        .filter(|p| is_tracked(p))
        .map(|p| meta::uid(&**p))
        .collect();
    let before = (
        count.uncounted_succeeded.len(),
        count.uncounted_failed.len(),
    );
    count
        .uncounted_succeeded
        .retain(|uid| tracked.contains(uid.as_str()));
    count
        .uncounted_failed
        .retain(|uid| tracked.contains(uid.as_str()));
    count.succeeded += (before.0 - count.uncounted_succeeded.len()) as i32;
    count.failed += (before.1 - count.uncounted_failed.len()) as i32;

    let mut failure: Option<(&'static str, String)> = None;
    let mut new_failures: Vec<&Pod> = Vec::new();
    for pod in pods.iter().filter(|p| is_tracked(p)) {
        let uid = meta::uid(&**pod).to_owned();
        let full = count.uncounted_succeeded.len() + count.uncounted_failed.len() >= MAX_UNCOUNTED;
        if meta::phase(pod) == "Succeeded" {
            if !count.uncounted_succeeded.contains(&uid) {
                if full {
                    // Counted in a later pass, when there is room.
                    continue;
                }
                if indexed {
                    // An index counts once, however many pods had it.
                    match index_of(pod) {
                        Some(i)
                            if spec.completions.is_some_and(|c| i < c)
                                && !count.done.contains(i) =>
                        {
                            count.done.insert(i);
                        }
                        _ => {
                            decision.release.push(meta::name(&**pod).to_owned());
                            continue;
                        }
                    }
                }
                count.uncounted_succeeded.insert(uid);
            }
            decision.release.push(meta::name(&**pod).to_owned());
        } else if has_failed(spec, pod) || (finished && meta::deleting(&**pod)) {
            if !count.uncounted_failed.contains(&uid) {
                if full {
                    continue;
                }
                match judge_failure(job, pod) {
                    Failure::Ignore => {}
                    verdict => {
                        if let Failure::FailJob(message) = &verdict {
                            failure.get_or_insert(("PodFailurePolicy", message.clone()));
                        }
                        if let (Failure::FailIndex, Some(i)) = (&verdict, index_of(pod)) {
                            count.failed_indexes.insert(i);
                        }
                        count.uncounted_failed.insert(uid);
                        new_failures.push(pod);
                    }
                }
            }
            if meta::is_finished(pod) || meta::deleting(&**pod) {
                decision.release.push(meta::name(&**pod).to_owned());
            }
        }
    }
    if indexed {
        count.succeeded = count.done.len() - count.uncounted_succeeded.len() as i32;
        count.succeeded = count.succeeded.max(0);
    }
    let succeeded = count.succeeded + count.uncounted_succeeded.len() as i32;
    let failed = count.failed + count.uncounted_failed.len() as i32;

    let mut active: Vec<&Arc<Pod>> = pods.iter().filter(|p| meta::is_active(p)).collect();
    let terminating = pods
        .iter()
        .filter(|p| meta::deleting(&***p) && !meta::is_finished(p))
        .count();
    let suspended = spec.suspend == Some(true);
    let mut start_time = job.at("/status/startTime").clone();
    if start_time.is_null() && !suspended && !finished {
        start_time = json!(rfc3339(now));
    }
    let stamp = rfc3339(now);

    if !finished {
        // Failures per index.
        if let Some(limit) = spec.backoff_limit_per_index {
            for pod in &new_failures {
                let failures: i32 =
                    meta::annotation(*pod, "batch.kubernetes.io/job-index-failure-count")
                        .and_then(|c| c.parse().ok())
                        .unwrap_or(0);
                let of_index = pods
                    .iter()
                    .filter(|p| index_of(p) == index_of(pod) && has_failed(spec, p))
                    .count();
                if let Some(i) = index_of(pod)
                    && (failures >= limit || of_index as i32 > limit)
                {
                    count.failed_indexes.insert(i);
                }
            }
        }
        let limit = spec
            .backoff_limit
            .unwrap_or(if spec.backoff_limit_per_index.is_some() {
                i32::MAX
            } else {
                6
            });
        if failure.is_none() && failed > limit {
            failure = Some((
                "BackoffLimitExceeded",
                "Job has reached the specified backoff limit".to_owned(),
            ));
        }
        if let (Some(seconds), Some(start)) = (spec.active_deadline_seconds, start_of(&start_time))
            && !suspended
        {
            let deadline = start + SignedDuration::from_secs(seconds);
            if now >= deadline {
                failure.get_or_insert((
                    "DeadlineExceeded",
                    "Job was active longer than specified deadline".to_owned(),
                ));
            } else {
                decision.again = Some(until(now, deadline));
            }
        }
        if failure.is_none()
            && spec
                .max_failed_indexes
                .is_some_and(|m| count.failed_indexes.len() > m)
        {
            failure = Some((
                "MaxFailedIndexesExceeded",
                "Job has exceeded the specified maximal number of failed indexes".to_owned(),
            ));
        }
    }

    let done_by_policy = !finished && failure.is_none() && succeeds_early(job, &count.done);
    let complete = !finished
        && failure.is_none()
        && match spec.completions {
            None => succeeded > 0 && active.is_empty(),
            Some(n) if indexed => count.done.len() >= n,
            Some(n) => succeeded >= n,
        };
    let all_indexes_over = indexed
        && !complete
        && failure.is_none()
        && spec
            .completions
            .is_some_and(|n| count.done.len() + count.failed_indexes.len() >= n)
        && count.failed_indexes.len() > 0;
    if all_indexes_over && !finished {
        failure = Some(("FailedIndexes", "Job has failed indexes".to_owned()));
    }

    let announced_failure = condition_status(&conditions, "FailureTarget") == "True";
    let announced_success = condition_status(&conditions, "SuccessCriteriaMet") == "True";
    let ending = finished
        || failure.is_some()
        || complete
        || done_by_policy
        || announced_failure
        || announced_success;
    if !finished {
        if let Some((reason, message)) = &failure
            && !announced_failure
            && !announced_success
        {
            set_condition(
                &mut conditions,
                "FailureTarget",
                "True",
                reason,
                message,
                &stamp,
            );
        } else if (complete || done_by_policy) && !announced_success && !announced_failure {
            let (reason, message) = if done_by_policy && !complete {
                ("SuccessPolicy", "Matched rules at index 0")
            } else {
                (
                    "CompletionsReached",
                    "Reached expected number of succeeded pods",
                )
            };
            set_condition(
                &mut conditions,
                "SuccessCriteriaMet",
                "True",
                reason,
                message,
                &stamp,
            );
        }
    }

    if ending || suspended {
        decision
            .delete
            .extend(active.iter().map(|p| meta::name(&***p).to_owned()));
        if suspended && !ending {
            let message = "Job suspended";
            // Pods that we stop do not count as failed.
            decision.release.extend(decision.delete.iter().cloned());
            if condition_status(&conditions, "Suspended") != "True" {
                set_condition(
                    &mut conditions,
                    "Suspended",
                    "True",
                    "JobSuspended",
                    message,
                    &stamp,
                );
                decision
                    .events
                    .push((true, "Suspended", message.to_owned()));
            }
            start_time = Value::Null;
        }
        active.retain(|_| false);
    } else {
        if condition_status(&conditions, "Suspended") == "True" {
            set_condition(
                &mut conditions,
                "Suspended",
                "False",
                "JobResumed",
                "Job resumed",
                &stamp,
            );
            decision
                .events
                .push((true, "Resumed", "Job resumed".to_owned()));
            start_time = json!(stamp);
        }
        fill(
            spec,
            pods,
            &active,
            &count,
            succeeded,
            failed,
            now,
            &mut decision,
        );
    }

    // The end is told when nothing runs and everything is counted.
    let all_counted = count.uncounted_succeeded.is_empty() && count.uncounted_failed.is_empty();
    let nothing_runs = decision.delete.is_empty()
        && pods.iter().all(|p| meta::is_finished(p))
        && active.is_empty();
    let mut completion_time = job.at("/status/completionTime").clone();
    if !finished && ending && nothing_runs && all_counted && decision.release.is_empty() {
        let target = |kind: &str| {
            conditions
                .iter()
                .find(|c| c["type"] == kind && c["status"] == "True")
                .cloned()
        };
        if let Some(c) = target("SuccessCriteriaMet") {
            let (reason, message) = texts(&c);
            set_condition(
                &mut conditions,
                "Complete",
                "True",
                &reason,
                &message,
                &stamp,
            );
            completion_time = json!(stamp);
            decision
                .events
                .push((true, "Completed", "Job completed".to_owned()));
        } else if let Some(c) = target("FailureTarget") {
            let (reason, message) = texts(&c);
            set_condition(&mut conditions, "Failed", "True", &reason, &message, &stamp);
            let reason = known_reason(&reason);
            decision.events.push((false, reason, message));
        }
    }

    let ready = active.iter().filter(|p| meta::is_ready(p)).count();
    let uncounted = json!({
        "succeeded": list(&count.uncounted_succeeded),
        "failed": list(&count.uncounted_failed),
    });
    let mut status = json!({
        "active": active.len() + if ending || suspended { 0 } else { decision.create.len() },
        "ready": ready,
        "terminating": terminating + decision.delete.len(),
        "succeeded": count.succeeded,
        "failed": count.failed,
        "startTime": start_time,
        "uncountedTerminatedPods": uncounted,
        "conditions": if conditions.is_empty() { Value::Null } else { json!(conditions) },
    });
    if !completion_time.is_null() {
        status["completionTime"] = completion_time;
    }
    if indexed {
        status["completedIndexes"] = count.done.to_value();
        if spec.backoff_limit_per_index.is_some() || count.failed_indexes.len() > 0 {
            status["failedIndexes"] = count.failed_indexes.to_value();
        }
    }
    if !finished || !all_counted || !decision.release.is_empty() || before != (0, 0) {
        decision.status = Some(status);
    }
    decision
}

fn list(uids: &BTreeSet<String>) -> Value {
    if uids.is_empty() {
        Value::Null
    } else {
        json!(uids)
    }
}

fn texts(condition: &Value) -> (String, String) {
    let text = |f: &str| condition[f].as_str().unwrap_or_default().to_owned();
    (text("reason"), text("message"))
}

fn known_reason(reason: &str) -> &'static str {
    match reason {
        "DeadlineExceeded" => "DeadlineExceeded",
        "PodFailurePolicy" => "PodFailurePolicy",
        "FailedIndexes" => "FailedIndexes",
        "MaxFailedIndexesExceeded" => "MaxFailedIndexesExceeded",
        _ => "BackoffLimitExceeded",
    }
}

fn start_of(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

fn succeeds_early(job: &Job, done: &Indexes) -> bool {
    let rules = job
        .spec
        .iter()
        .flat_map(|s| s.success_policy.iter())
        .flat_map(|p| &p.rules);
    let mut rules = rules.filter(|r| r.succeeded_count.is_some() || r.succeeded_indexes.is_some());
    rules.any(|rule| {
        let wanted = rule.succeeded_indexes.as_deref().map(Indexes::parse);
        let have = wanted.as_ref().map_or(done.len(), |w| done.common(w));
        let need = rule
            .succeeded_count
            .or_else(|| wanted.as_ref().map(Indexes::len))
            .unwrap_or(i32::MAX);
        have >= need
    })
}
