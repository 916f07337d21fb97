//! The explanation of one pod, as text and as JSON.

use std::cmp::Reverse;

use allot_apimachinery::suggest;
use allot_scheduler::core::{Chosen, Verdict};
use allot_scheduler::pod::PodInfo;
use allot_scheduler::pod::claims::claim_key;
use serde::Serialize;

use super::cluster_objects::LoadedScheduler;
use super::{NotFound, deletion};
use crate::cmd::snapshot::{PodEvent, names, of_pod};
use crate::cmd::some;

mod advice;
mod bound;
mod cause;
mod gang;
mod groups;
mod missing;
mod nearest;
mod placement;
mod preemption;
mod print;
mod problem;
mod scheduler;
mod verdicts;

use advice::advice;
pub use cause::Cause;
use gang::Gang;
use groups::nearest_group;
pub use groups::print_verdicts;
use nearest::Nearest;
use placement::{ClaimDevices, Device, Place, held};
use preemption::PreemptionNode;
use problem::Problem;
pub use verdicts::Answer;
use verdicts::{Rejected, answers, rejected};

/// What decides where a pod goes is not shown, and the scheduler has not said anything.
#[derive(Debug, thiserror::Error)]
#[error("pod {pod} is on no node, and why cannot be said without the right to list {lacking}")]
pub struct NotShown {
    pod: String,
    /// The resources.
    pub lacking: String,
}

/// The explanation of a pod.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// `namespace/name` of the pod.
    pod: String,
    /// The node that it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    /// Containers of it have run.
    #[serde(skip)]
    started: bool,
    /// It ran to its end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    finished: bool,
    /// What keeps it since it was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted: Option<String>,
    /// The devices of its claims. On a node, a claim without devices keeps it from starting.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    claims: Vec<ClaimDevices>,
    /// Some node can take it, of a pod in a gang, when the gang is placed; a pod on a node has all that it needs to
    /// start.
    pub fits: bool,
    /// What keeps it from starting on its node, or from being bound.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<Problem>,
    /// The quota that rejects it or its claims.
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<String>,
    /// What else was said about it: warnings of the claim controller, the kubelet and others, the newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    events: Vec<PodEvent>,
    /// Resources that are not shown in the whole cluster: what fits may not fit because of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hidden: Vec<String>,
    /// The last that the scheduler, which sees them, said of a pod that it could not place.
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduler_says: Option<String>,
    /// Why no node is filtered.
    #[serde(skip_serializing_if = "Option::is_none")]
    rejected: Option<Rejected>,
    /// What can be done about that.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
    /// The node where pods are preempted for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<PreemptionNode>,
    /// Its gang.
    #[serde(skip_serializing_if = "Option::is_none")]
    gang: Option<Gang>,
    /// The node that comes nearest, of a pod that fits on none.
    #[serde(skip_serializing_if = "Option::is_none")]
    nearest: Option<Nearest>,
    /// The verdict of each node, about the pod alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<Answer>,
    /// The node it would be placed on now.
    #[serde(skip_serializing_if = "Option::is_none")]
    would_go_to: Option<Place>,
    /// The same, with its allocations.
    #[serde(skip)]
    pub chosen: Option<Chosen>,
    /// The time of the explanation.
    #[serde(skip)]
    now: jiff::Timestamp,
}

impl Report {
    /// Explains a pod. One that exists in files only is counted in its quotas.
    ///
    /// # Errors
    /// There is no such pod ([`NotFound`]), or it is for a scheduler whose profile is not known.
    pub fn new(loaded: &mut LoadedScheduler, namespace: &str, name: &str) -> anyhow::Result<Self> {
        let key = (namespace.to_owned(), name.to_owned());
        let Some(pod) = loaded.pods.get(&key).cloned() else {
            return Err(unknown(loaded, namespace, name));
        };
        let (mut report, last_word) = Self::of(&pod, loaded);
        if report.finished {
            report.fits = true;
            return Ok(report);
        }
        if let Some(node) = pod.node_name() {
            report.problems = bound::problems(loaded, &pod, node, &report.events);
            report.fits = report.problems.is_empty();
            report.started = bound::has_started(&pod);
            if loaded.unseen("ResourceClaim", namespace).is_some() {
                report.claims.retain(|claim| !claim.devices.is_empty());
            }
            return Ok(report);
        }
        let lacking = loaded.lacking(&pod);
        if !lacking.is_empty() {
            let lacking = names(&lacking);
            let pod = report.pod.clone();
            let reason = last_word.ok_or_else(|| NotShown {
                pod,
                lacking: lacking.clone(),
            })?;
            let plugin = scheduler::FAILED;
            report.rejected = Some(Rejected { plugin, reason });
            report.advice = Some(format!(
                "that is what the scheduler says; more takes the right to list {lacking}"
            ));
            return Ok(report);
        }
        missing::hidden_template(loaded, &pod)?;
        report.hidden = loaded.partly();
        if !report.hidden.is_empty() {
            report.scheduler_says = last_word;
        }
        report.quota = charge(loaded, &pod);
        report.problems = bound::conditions(loaded, &pod);
        report.ask(&pod, loaded)?;
        Ok(report)
    }

    /// What is known without asking the scheduler; and the last that it said of the pod.
    fn of(pod: &PodInfo, loaded: &LoadedScheduler) -> (Self, Option<String>) {
        let (namespace, name) = (&*pod.key.namespace, &*pod.key.name);
        let mut events = of_pod(&loaded.objects, namespace, name, &pod.uid);
        let last_word = scheduler::last_word(pod, &events);
        // The command explains this itself, in more detail.
        events.retain(|event| event.reason != scheduler::FAILED);
        let report = Self {
            pod: pod.key.to_string(),
            node: pod.node_name().map(str::to_owned),
            started: false,
            finished: pod.is_finished(),
            deleted: deletion::kept(&pod.pod.metadata, loaded.time.wall),
            claims: held(loaded, pod),
            fits: false,
            problems: Vec::new(),
            quota: None,
            events,
            hidden: Vec::new(),
            scheduler_says: None,
            rejected: None,
            advice: None,
            expected: None,
            gang: None,
            nearest: None,
            nodes: Vec::new(),
            would_go_to: None,
            chosen: None,
            now: loaded.time.wall,
        };
        (report, last_word)
    }

    /// Asks the scheduler about a pending pod.
    fn ask(
        &mut self,
        pod: &std::sync::Arc<PodInfo>,
        loaded: &mut LoadedScheduler,
    ) -> anyhow::Result<()> {
        let report = self;
        // Only the node of the others is needed.
        report.claims.retain(|claim| !claim.devices.is_empty());
        let Some(verdict) = loaded.core.explain(pod, loaded.time) else {
            let (reason, advice) = scheduler::absent(loaded, pod)?;
            report.rejected = Some(Rejected {
                plugin: scheduler::FIELD,
                reason,
            });
            report.advice = Some(advice);
            return Ok(());
        };
        let Verdict {
            before,
            nodes,
            chosen,
            expected,
            gang,
        } = verdict;
        report.expected = expected.map(PreemptionNode::from);
        report.rejected = before.map(|r| rejected(&r));
        let has_place = match &gang {
            Some(_) => chosen.is_some(),
            None => nodes.iter().any(|n| n.rejection.is_none()),
        };
        report.fits = has_place && report.quota.is_none();
        report.nodes = answers(nodes, pod, loaded);
        report.gang = gang.map(|gang| Gang::new(gang, loaded));
        report.advice = advice(loaded, pod, report.rejected.as_ref(), report.gang.as_ref())
            .or_else(|| missing::driver(loaded, pod, &report.nodes))
            .or_else(|| missing::extended(loaded, &report.nodes));
        report.nearest = match report.nodes.iter().any(|node| node.fits) {
            true => None,
            false => nearest_group(&report.nodes).as_ref().map(Nearest::from),
        };
        // Other pods may get its devices.
        let known = report.hidden.is_empty() && report.quota.is_none();
        report.would_go_to = chosen.as_ref().map(Place::from).filter(|_| known);
        report.chosen = chosen.filter(|_| known);
        Ok(())
    }

    /// Whether it fits or runs, and waits for nothing, such as a binding condition of devices that it has already.
    pub fn lacks_nothing(&self) -> bool {
        self.fits && self.problems.is_empty()
    }

    /// Orders the nodes by how near they come to being feasible, the nearest first; equal ones stay in the scheduler's
    /// order. Those that fit are the last.
    pub fn order_by_nearness(&mut self) {
        self.nodes.sort_by_key(|answer| Reverse(answer.rank));
    }

    /// The verdict of a node that rejects it, taken out.
    pub fn take_rejection_of(&mut self, node: &str) -> Option<Answer> {
        let mut answers = self.nodes.iter();
        let at = answers.position(|answer| answer.node == node && !answer.fits)?;
        Some(self.nodes.swap_remove(at))
    }

    /// Whether it is placed with its gang.
    pub fn is_in_gang(&self) -> bool {
        self.gang.is_some()
    }
}

/// There is no such pod; with what may have been meant.
fn unknown(loaded: &LoadedScheduler, namespace: &str, name: &str) -> anyhow::Error {
    if let Some(pods) = loaded.unseen("Pod", namespace) {
        return anyhow::anyhow!("pod {namespace}/{name} is not shown: no right to list {pods}");
    }
    let own = loaded.names_of("Pod", namespace);
    let mut hint = suggest::hint(name, own);
    if hint.is_empty() {
        let elsewhere = loaded.pods.keys().filter(|(_, other)| other == name);
        let mut elsewhere: Vec<&str> = elsewhere.map(|(namespace, _)| &**namespace).collect();
        elsewhere.sort_unstable();
        if !elsewhere.is_empty() {
            hint = format!("; there is one in namespace {}", some(&elsewhere));
        }
    }
    NotFound(format!("there is no pod {namespace}/{name}{hint}")).into()
}

/// Counts a pod that exists in files only, and its claims, in the quotas of its namespace; returns the error of a
/// quota.
fn charge(loaded: &mut LoadedScheduler, pod: &PodInfo) -> Option<String> {
    let (namespace, name) = (pod.key.namespace.to_string(), pod.key.name.to_string());
    if !loaded.new.contains(&(namespace.clone(), name)) {
        return None;
    }
    let object = serde_json::to_value(&*pod.pod).ok()?;
    let charged = loaded.quotas.charge(&namespace, ("", "pods"), &object);
    if let Err(why) = charged {
        return Some(format!("the pod cannot be made: {why}"));
    }
    for entry in pod.spec().resource_claims.iter().flatten() {
        if entry.resource_claim_template_name.is_none() {
            continue;
        }
        let key = claim_key(pod, entry).ok().flatten();
        let claim = key.and_then(|key| loaded.core.claims().get(&key).cloned());
        let Some(claim) = claim.and_then(|claim| serde_json::to_value(&*claim).ok()) else {
            continue;
        };
        let claims = ("resource.k8s.io", "resourceclaims");
        if let Err(why) = loaded.quotas.charge(&namespace, claims, &claim) {
            return Some(format!(
                "claim {:?} of it cannot be made: {why}",
                entry.name
            ));
        }
    }
    None
}
