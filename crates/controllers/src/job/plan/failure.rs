//! Which pods of a job have failed, and the job's pod failure policy.

use k8s_openapi::api::batch::v1::{Job, JobSpec, PodFailurePolicyRule};
use k8s_openapi::api::core::v1::Pod;

use serde_json::{Value, json};

use crate::controller::meta;

/// A pod counts as failed when it failed, or is being deleted before it finished and replacements
/// do not wait for its end.
pub(super) fn has_failed(spec: &JobSpec, pod: &Pod) -> bool {
    meta::phase(pod) == "Failed"
        || meta::deleting(pod) && meta::phase(pod) != "Succeeded" && !replaces_only_failed(spec)
}

/// Whether a pod is replaced only when it has ended, not already when it is deleted.
pub(super) fn replaces_only_failed(spec: &JobSpec) -> bool {
    spec.pod_replacement_policy.as_deref() == Some("Failed") || spec.pod_failure_policy.is_some()
}

/// Annotation of a pod with the number of failures of its index before it.
const COUNTED: &str = "batch.kubernetes.io/job-index-failure-count";
/// Annotation of a pod with the number of failures that the policy ignores.
const IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// How often an index failed before a pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::job) struct Failures {
    pub counted: i32,
    ignored: i32,
}

impl Failures {
    /// The counts in the pod's annotations; unreadable ones are 0.
    pub(super) fn of(pod: &Pod) -> Self {
        let read = |name: &str| {
            let number: Option<i32> = meta::annotation(pod, name).and_then(|n| n.parse().ok());
            number.filter(|n| *n >= 0).unwrap_or(0)
        };
        Self {
            counted: read(COUNTED),
            ignored: read(IGNORED),
        }
    }

    /// The counts for the successor of a failed pod.
    pub(super) fn after(job: &Job, pod: &Pod) -> Self {
        let before = Self::of(pod);
        let ignored = i32::from(judge_failure(job, pod) == Failure::Ignore);
        Self {
            counted: before.counted.saturating_add(1 - ignored),
            ignored: before.ignored.saturating_add(ignored),
        }
    }

    pub(super) fn all(self) -> i32 {
        self.counted.saturating_add(self.ignored)
    }

    /// Writes them to a new pod.
    pub(in crate::job) fn write(self, annotations: &mut Value) {
        annotations[COUNTED] = json!(self.counted.to_string());
        if self.ignored > 0 {
            annotations[IGNORED] = json!(self.ignored.to_string());
        }
    }
}

/// The failure policy's decision about a failed pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    Count,
    Ignore,
    FailIndex,
    FailJob(String),
}

/// Evaluates the rules in order; the first that matches decides.
pub(super) fn judge_failure(job: &Job, pod: &Pod) -> Failure {
    let rules = job
        .spec
        .iter()
        .flat_map(|s| s.pod_failure_policy.iter())
        .flat_map(|p| &p.rules);
    for (number, rule) in rules.enumerate() {
        let Some(why) = rule_matches(rule, pod) else {
            continue;
        };
        return match rule.action.as_str() {
            "Ignore" => Failure::Ignore,
            "FailIndex" => Failure::FailIndex,
            "FailJob" => Failure::FailJob(format!("{why} matching FailJob rule at index {number}")),
            _ => Failure::Count,
        };
    }
    Failure::Count
}

/// Why a rule is about a failed pod, for the message; `None` when it is not.
fn rule_matches(rule: &PodFailurePolicyRule, pod: &Pod) -> Option<String> {
    if let Some(codes) = &rule.on_exit_codes {
        let status = pod.status.as_ref()?;
        let all = status
            .container_statuses
            .iter()
            .chain(&status.init_container_statuses)
            .flatten();
        for container in all {
            if codes
                .container_name
                .as_ref()
                .is_some_and(|n| *n != container.name)
            {
                continue;
            }
            let Some(ended) = container.state.as_ref().and_then(|s| s.terminated.as_ref()) else {
                continue;
            };
            let listed = codes.values.contains(&ended.exit_code);
            let matches = ended.exit_code != 0
                && match codes.operator.as_str() {
                    "In" => listed,
                    "NotIn" => !listed,
                    _ => false,
                };
            if matches {
                return Some(format!(
                    "Container {} for pod {}/{} failed with exit code {}",
                    container.name,
                    meta::namespace(pod),
                    meta::name(pod),
                    ended.exit_code
                ));
            }
        }
        return None;
    }
    let conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let patterns = rule.on_pod_conditions.as_deref().unwrap_or_default();
    let mut matching = conditions.filter(|condition| {
        patterns.iter().any(|pattern| {
            pattern.type_ == condition.type_
                && pattern.status.as_deref().unwrap_or("True") == condition.status
        })
    });
    matching.next().map(|condition| {
        format!(
            "Pod {}/{} has condition {}",
            meta::namespace(pod),
            meta::name(pod),
            condition.type_
        )
    })
}
