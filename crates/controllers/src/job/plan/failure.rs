//! Which pods of a job have failed, and what the job's policy says about that.

use k8s_openapi::api::batch::v1::{Job, JobSpec, PodFailurePolicyRule};
use k8s_openapi::api::core::v1::Pod;

use crate::kit::meta;

/// A pod counts as failed when it failed, or is being deleted although it had not finished and
/// replacements do not wait for the end.
pub(super) fn has_failed(spec: &JobSpec, pod: &Pod) -> bool {
    if meta::phase(pod) == "Failed" {
        return true;
    }
    let waits = spec.pod_replacement_policy.as_deref() == Some("Failed")
        || spec.pod_failure_policy.is_some();
    meta::deleting(pod) && meta::phase(pod) != "Succeeded" && !waits
}

/// What the failure policy says about a failed pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    Count,
    Ignore,
    FailIndex,
    FailJob(String),
}

/// Asks the rules in order; the first that matches decides.
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
            "FailJob" => Failure::FailJob(format!(
                "{why} for pod {}/{} matching FailJob rule at index {number}",
                meta::namespace(pod),
                meta::name(pod)
            )),
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
                    "Container {} failed with exit code {}",
                    container.name, ended.exit_code
                ));
            }
        }
        return None;
    }
    rule.on_pod_conditions.iter().flatten().find_map(|pattern| {
        let condition = meta::pod_condition(pod, &pattern.type_)?;
        let status = pattern.status.as_deref().unwrap_or("True");
        (condition.status == status).then(|| {
            format!(
                "Pod {}/{} has condition {}",
                meta::namespace(pod),
                meta::name(pod),
                pattern.type_
            )
        })
    })
}
