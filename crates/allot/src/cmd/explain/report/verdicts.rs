//! The verdicts of nodes about a pod.

use allot_allocator::explain::Explanation;
use allot_scheduler::attempt::Rank;
use allot_scheduler::core::NodeVerdict;
use allot_scheduler::framework::Plugin;
use allot_scheduler::plugins::taints::untolerated;
use allot_scheduler::pod::PodInfo;
use serde::Serialize;

use crate::cmd::explain::cluster_objects::LoadedScheduler;

/// Which plugin rejects a pod, and what it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Rejected {
    pub(super) plugin: &'static str,
    pub(super) reason: String,
}

/// The verdict of a node about a pod.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    pub(super) node: String,
    pub(super) fits: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rejected: Option<Rejected>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) explanation: Option<Explanation>,
    /// Claims that are allocated for other nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) unavailable: Vec<String>,
    /// How near the node comes to being feasible, when the pod does not fit.
    #[serde(skip)]
    pub(super) rank: Option<Rank>,
    /// Other pods that are nominated to the node; of one that does not fit, only if it would without them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) kept_for: Vec<String>,
}

impl From<NodeVerdict> for Answer {
    fn from(verdict: NodeVerdict) -> Self {
        Self {
            node: verdict.name.to_string(),
            fits: verdict.rejection.is_none(),
            rejected: verdict.rejection.as_ref().map(rejected),
            explanation: verdict.explanation,
            unavailable: verdict.unavailable,
            rank: verdict.rank,
            kept_for: verdict.kept_for.iter().map(ToString::to_string).collect(),
        }
    }
}

pub(super) fn rejected(rejection: &allot_scheduler::status::Rejection) -> Rejected {
    Rejected {
        plugin: rejection.plugin.name(),
        reason: rejection.message(),
    }
}

/// The verdicts of nodes about a pod.
pub(super) fn answers(
    nodes: Vec<NodeVerdict>,
    pod: &PodInfo,
    loaded: &LoadedScheduler,
) -> Vec<Answer> {
    let mut answers: Vec<Answer> = nodes.into_iter().map(Answer::from).collect();
    for answer in &mut answers {
        name_taint(answer, pod, loaded);
        name_holders(answer, loaded);
    }
    answers
}

/// The allocator reports the claims that hold the devices; users look for pods.
fn name_holders(answer: &mut Answer, loaded: &LoadedScheduler) {
    let requests = answer.explanation.iter_mut().flat_map(|e| &mut e.requests);
    for by in requests.flat_map(|r| &mut r.in_use).flat_map(|d| &mut d.by) {
        *by = loaded.consumers_of(by);
    }
}

/// The scheduler's message, which counts nodes, leaves out which taint it is.
fn name_taint(answer: &mut Answer, pod: &PodInfo, loaded: &LoadedScheduler) {
    let is_taint = |r: &&mut Rejected| r.plugin == Plugin::TaintToleration.name();
    let Some(rejected) = answer.rejected.as_mut().filter(is_taint) else {
        return;
    };
    let tolerations = pod.spec().tolerations.as_deref().unwrap_or_default();
    let taints = loaded.taints.get(&answer.node).map(Vec::as_slice);
    if let Some(taint) = untolerated(tolerations, taints.unwrap_or_default()) {
        let (key, value) = (&taint.key, taint.value.as_deref().unwrap_or_default());
        rejected.reason = format!("node(s) had untolerated taint {{{key}: {value}}}");
    }
}
