//! Why a pod is pending, in one sentence that is the same for all pods with the same reason.

use allot_allocator::explain::RequestExplanation;
use serde::Serialize;

use super::groups::{failing, nearest_group, unusable};
use super::problem::Problem;
use super::{NotShown, Report};
use crate::cmd::count;

/// Why a pod waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// It fits now: it only waits in the queue.
    pub fits: bool,
    /// The reason, without names of pods and of generated claims.
    pub reason: String,
    /// The nearest node; of several pods, if it is the same for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<String>,
}

impl Cause {
    /// The reason cannot be determined.
    pub fn not_shown(error: &NotShown) -> Self {
        let lacking = &error.lacking;
        Self {
            fits: false,
            reason: format!("why cannot be said without the right to list {lacking}"),
            nearest: None,
        }
    }
}

impl Report {
    /// What keeps the answer from being certain.
    pub(super) fn partly_known(&self) -> String {
        format!("not all is known of {}", self.hidden.join(", "))
    }

    /// Why the pod waits; `None` for one that runs or has finished.
    pub fn cause(&self) -> Option<Cause> {
        let because = |reason: String| Cause {
            fits: false,
            reason,
            nearest: None,
        };
        if self.finished || self.node.is_some() && self.problems.is_empty() {
            return None;
        }
        if let Some(quota) = &self.quota {
            return Some(because(quota.clone()));
        }
        if !self.problems.is_empty() {
            let problems = self.problems.iter().map(Problem::without_claim);
            let mut problems: Vec<String> = problems.collect();
            problems.dedup();
            let text = problems.join("; ");
            let prepare = self.events.iter().find(|_| self.node.is_some());
            let said = prepare.map(|event| event.message.trim());
            // The kubelet puts the same into the container's status.
            let repeats = |said: &&str| text.contains(said.strip_prefix("Error: ").unwrap_or(said));
            return Some(because(match said.filter(|said| !repeats(said)) {
                Some(said) => format!("{text}: {said}"),
                None => text,
            }));
        }
        if let Some(rejected) = &self.rejected {
            let event = self.events.first().map(|e| e.message.trim().to_owned());
            let more = self.advice.clone().or(event);
            return Some(because(match more {
                Some(more) if more.contains(&rejected.reason) => more,
                Some(more) => format!("{}; {more}", unnamed(&rejected.reason, &self.pod)),
                None => unnamed(&rejected.reason, &self.pod),
            }));
        }
        if self.fits {
            let reason = match (self.hidden.is_empty(), &self.scheduler_says) {
                (true, _) => "it fits, and waits for its turn".to_owned(),
                (false, None) => format!("it may fit: {}", self.partly_known()),
                (false, Some(says)) => {
                    format!(
                        "it may fit: {}; the scheduler says: {says}",
                        self.partly_known()
                    )
                }
            };
            return Some(Cause {
                fits: true,
                reason,
                nearest: self.would_go_to.as_ref().map(|place| place.node.clone()),
            });
        }
        if let Some(why) = self.gang.as_ref().and_then(super::Gang::why) {
            return Some(because(why));
        }
        let Some(nearest) = nearest_group(&self.nodes) else {
            return Some(because("there are no nodes".to_owned()));
        };
        let mut reason = nearest.rejected.reason.clone();
        for claim in nearest.unavailable {
            reason += &format!("; {claim}");
        }
        for (index, request) in nearest.failed_requests().enumerate() {
            let separator = if index == 0 { ": " } else { "; " };
            reason += separator;
            reason += &sentence(request);
            if let Some(hint) = key_hint(request) {
                reason += hint;
            }
        }
        for pool in nearest.explanation.iter().flat_map(|e| &e.unusable_pools) {
            reason += &format!("; {}", unusable(pool));
        }
        if let Some(advice) = &self.advice {
            reason += &format!("; {advice}");
        }
        Some(Cause {
            fits: false,
            reason,
            nearest: nearest.nodes.first().map(|&node| node.to_owned()),
        })
    }
}

/// `request gpu needs 2 devices: 8 seen, 1 not in use`
pub(super) fn sentence(request: &RequestExplanation) -> String {
    let needs = usize::try_from(request.needs.max(1)).unwrap_or(usize::MAX);
    let end = failing(request).map_or(request.filter_counts.len(), |at| at + 1);
    let mut before = i64::MAX;
    let mut parts = Vec::new();
    for stage in &request.filter_counts[..end] {
        if stage.left < before {
            parts.push(stage.words(str::to_owned));
        }
        before = stage.left;
    }
    let (name, devices) = (&request.request, count(needs, "device"));
    format!("request {name} needs {devices}: {}", parts.join(", "))
}

/// `; did you mean model?`, of a selector that asks for a key which no device has.
fn key_hint(request: &RequestExplanation) -> Option<&str> {
    let reason = &request.nearest.as_ref()?.reason;
    reason.find("; did you mean ").map(|at| &reason[at..])
}

/// Without the name of the pod, with which upstream's texts begin.
fn unnamed(reason: &str, pod: &str) -> String {
    let rest = reason.strip_prefix(&format!("pod {pod:?}: "));
    rest.unwrap_or(reason).to_owned()
}
