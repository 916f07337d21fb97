//! Whether a job has to end, and how.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::failure::{Failure, has_failed, judge_failure};
use super::indexes::Indexes;
use super::observed::ObservedJob;
use super::{Conditions, Decision};
use crate::controller::clock::{shifted, until};

/// The end of a job: its conditions, with reason and message.
#[derive(Debug)]
pub(super) struct Verdict {
    success: bool,
    reason: String,
    message: String,
}

impl Verdict {
    fn success((reason, message): (String, String)) -> Self {
        Self {
            success: true,
            reason,
            message,
        }
    }

    fn failure((reason, message): (String, String)) -> Self {
        Self {
            success: false,
            reason,
            message,
        }
    }

    /// The requested number of pods has succeeded.
    pub(super) fn completed() -> Self {
        let message = "Reached expected number of succeeded pods";
        Self::success(("CompletionsReached".to_owned(), message.to_owned()))
    }

    pub(super) fn is_success(&self) -> bool {
        self.success
    }

    pub(super) fn reason(&self) -> &str {
        &self.reason
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// The condition that announces the end, and the final one.
    pub(super) fn conditions(&self) -> (&'static str, &'static str) {
        match self.success {
            true => ("SuccessCriteriaMet", "Complete"),
            false => ("FailureTarget", "Failed"),
        }
    }

    /// The events of the end.
    pub(super) fn record_events(
        &self,
        completions: Option<i32>,
        succeeded: i32,
        decision: &mut Decision,
    ) {
        let mut tell = |normal: bool, reason: &str, message: &str| {
            let event = (normal, reason.to_owned(), message.to_owned());
            decision.events.push(event);
        };
        if !self.success {
            return tell(false, &self.reason, &self.message);
        }
        if completions.is_some_and(|wanted| succeeded > wanted) {
            let message = "Too many succeeded pods running after completion count reached";
            tell(false, "TooManySucceededPods", message);
        }
        tell(true, "Completed", "Job completed");
    }
}

/// An earlier announcement is kept; then failures are checked, in upstream's order, then the success policy. A future
/// deadline is recorded in the decision.
pub(super) fn judge(
    look: &ObservedJob<'_>,
    conditions: &Conditions,
    start: &Value,
    now: Timestamp,
    decision: &mut Decision,
) -> Option<Verdict> {
    if let Some(texts) = conditions.find("SuccessCriteriaMet") {
        return Some(Verdict::success(texts));
    }
    if let Some(texts) = conditions.find("FailureTarget") {
        return Some(Verdict::failure(texts));
    }
    let failure = fatal_pod(look)
        .or_else(|| too_many_failures(look))
        .or_else(|| too_late(look, start, now, decision))
        .or_else(|| too_many_indexes(look));
    match failure {
        Some((reason, message)) => Some(Verdict::failure((reason.to_owned(), message))),
        None => enough_indexes(look),
    }
}

type Reason = (&'static str, String);

/// A pod that failed as a rule `FailJob` describes.
fn fatal_pod(look: &ObservedJob<'_>) -> Option<Reason> {
    let mut failed = look.pods.iter().filter(|p| has_failed(look.spec, p));
    failed.find_map(|pod| match judge_failure(look.job, pod) {
        Failure::FailJob(message) => Some(("PodFailurePolicy", message)),
        _ => None,
    })
}

fn too_many_failures(look: &ObservedJob<'_>) -> Option<Reason> {
    let per_index = look.spec.backoff_limit_per_index.is_some();
    let default = if per_index { i32::MAX } else { 6 };
    let limit = look.spec.backoff_limit.unwrap_or(default);
    (look.failed > limit || too_many_restarts(look, limit)).then(|| {
        let message = "Job has reached the specified backoff limit";
        ("BackoffLimitExceeded", message.to_owned())
    })
}

/// Whether the restarts of containers exceed the back-off limit. Pods with `restartPolicy: OnFailure` never fail, so their
/// restarts count instead.
fn too_many_restarts(look: &ObservedJob<'_>, limit: i32) -> bool {
    let template = look.spec.template.spec.as_ref();
    if template.and_then(|s| s.restart_policy.as_deref()) != Some("OnFailure") {
        return false;
    }
    let running = look.pods.iter().filter_map(|pod| pod.status.as_ref());
    let running = running.filter(|s| matches!(s.phase.as_deref(), Some("Running" | "Pending")));
    let containers = running.flat_map(|s| {
        s.init_container_statuses
            .iter()
            .chain(&s.container_statuses)
    });
    let restarts: i64 = containers
        .flatten()
        .map(|c| i64::from(c.restart_count))
        .sum();
    restarts >= i64::from(limit.max(1))
}

fn too_late(
    look: &ObservedJob<'_>,
    start: &Value,
    now: Timestamp,
    decision: &mut Decision,
) -> Option<Reason> {
    let seconds = look.spec.active_deadline_seconds?;
    let start: Timestamp = start.as_str()?.parse().ok()?;
    let deadline = shifted(start, SignedDuration::from_secs(seconds));
    if look.suspended() {
        return None;
    }
    if now < deadline {
        decision.look_again(until(now, deadline));
        return None;
    }
    let message = "Job was active longer than specified deadline";
    Some(("DeadlineExceeded", message.to_owned()))
}

fn too_many_indexes(look: &ObservedJob<'_>) -> Option<Reason> {
    let failed = look.failed_indexes.as_ref()?.len();
    if look.spec.max_failed_indexes.is_some_and(|max| failed > max) {
        let message = "Job has exceeded the specified maximal number of failed indexes";
        return Some(("MaxFailedIndexesExceeded", message.to_owned()));
    }
    let over = failed > 0 && failed + look.done.len() >= look.spec.completions.unwrap_or(0);
    over.then(|| ("FailedIndexes", "Job has failed indexes".to_owned()))
}

/// The first rule of the success policy that holds.
fn enough_indexes(look: &ObservedJob<'_>) -> Option<Verdict> {
    let completions = look.spec.completions?;
    let rules = &look.spec.success_policy.as_ref()?.rules;
    if look.done.len() == 0 {
        return None;
    }
    let holds = |rule: &k8s_openapi::api::batch::v1::SuccessPolicyRule| {
        let Some(wanted) = rule.succeeded_indexes.as_deref() else {
            return rule.succeeded_count.is_some_and(|n| look.done.len() >= n);
        };
        let wanted = Indexes::parse_below(wanted, completions);
        let have = look.done.common(&wanted);
        let needed = rule.succeeded_count.unwrap_or(i32::MAX).min(wanted.len());
        wanted.len() > 0 && have >= needed
    };
    let index = rules.iter().position(holds)?;
    let message = format!("Matched rules at index {index}");
    Some(Verdict::success(("SuccessPolicy".to_owned(), message)))
}
