//! Preemption: which pods of lower priority to delete so that a pod fits, and on which node.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use rayon::prelude::*;

use crate::attempt::{Attempt, FitError, Nominated, Trial};
use crate::config::Profile;
use crate::pod::PodInfo;
use crate::selectors::Labels;
use crate::status::Code;

mod victim;

pub(crate) use victim::{Victim, priority_of};

/// A reason of a node's rejection, as in [`Rejection::reasons`](crate::status::Rejection::reasons).
type Reason = Cow<'static, str>;

/// The message for a pod that must not preempt.
pub const NEVER: &str = "preemption: not eligible due to preemptionPolicy=Never.";
const NO_VICTIMS: &str = "No preemption victims found for incoming pod";
/// How many candidate nodes are tried at a time, in several threads.
const PARALLEL_NODES: usize = 64;

/// A PodDisruptionBudget with its selector compiled.
#[derive(Debug, Clone)]
pub struct Budget {
    namespace: String,
    selector: Labels,
    allowed: i32,
    /// Names of pods whose eviction the budget has counted already (`status.disruptedPods`).
    disrupted: Vec<String>,
}

impl Budget {
    /// Reads a PodDisruptionBudget and compiles its selector.
    pub fn new(budget: &PodDisruptionBudget) -> Self {
        let status = budget.status.as_ref();
        Self {
            namespace: budget.metadata.namespace.clone().unwrap_or_default(),
            selector: Labels::new(budget.spec.as_ref().and_then(|s| s.selector.as_ref())),
            allowed: status.map_or(0, |s| s.disruptions_allowed.unwrap_or(0)),
            disrupted: status
                .and_then(|s| s.disrupted_pods.as_ref())
                .into_iter()
                .flatten()
                .map(|(name, _)| name.clone())
                .collect(),
        }
    }

    fn matches(&self, pod: &PodInfo) -> bool {
        *self.namespace == *pod.key.namespace
            && !self.selector.is_everything()
            && pod.labels().is_some_and(|l| !l.is_empty())
            && self.selector.matches(pod.labels())
            && !self.disrupted.iter().any(|name| **name == *pod.key.name)
    }
}

/// The pods to delete on a node.
#[derive(Debug, Clone)]
pub struct Victims {
    /// Position of the node in the snapshot.
    pub node: usize,
    /// Pods to delete, most important first.
    pub pods: Vec<Arc<PodInfo>>,
    violations: usize,
}

/// The outcome of preemption.
#[derive(Debug)]
pub enum Outcome {
    /// Delete these pods, and the pod should fit.
    Preempt(Victims),
    /// No preemption; the text is for the pod's condition.
    Nothing(String),
    /// Pods that were preempted earlier are still terminating on the nominated node; the text is for the pod's condition.
    VictimsTerminating(String),
}

fn start_time(pod: &PodInfo) -> Timestamp {
    let status = pod.pod.status.as_ref();
    status
        .and_then(|s| s.start_time.as_ref())
        .map_or(Timestamp::MAX, |t| t.0)
}

/// Most important first: the higher priority, then the earlier start (`util.MoreImportantPod`).
fn compare_importance(a: &PodInfo, b: &PodInfo) -> std::cmp::Ordering {
    b.priority()
        .cmp(&a.priority())
        .then_with(|| start_time(a).cmp(&start_time(b)))
}

/// Whether the pod's `preemptionPolicy` allows it to preempt others.
pub fn may_preempt(pod: &PodInfo) -> bool {
    pod.spec().preemption_policy.as_deref() != Some("Never")
}

/// Position of the node that the pod is nominated to, unless preemption can no longer help there.
pub fn nominated_position(attempt: &Attempt<'_>, unplaced: &FitError) -> Option<usize> {
    let at = attempt.snapshot.position(attempt.nominated_node?)?;
    let rejection = unplaced.nodes.get(at).and_then(Option::as_ref);
    let hopeless = rejection.is_some_and(|r| r.code == Code::Unresolvable);
    (!hopeless).then_some(at)
}

/// Why a pod may not preempt now (`PodEligibleToPreemptOthers`); `None` if it may.
fn ineligible_to_preempt(attempt: &Attempt<'_>, unplaced: &FitError) -> Option<Outcome> {
    let (pod, nodes) = (attempt.pod, &attempt.snapshot.nodes);
    if !may_preempt(pod) {
        return Some(Outcome::Nothing(NEVER.to_owned()));
    }
    let at = nominated_position(attempt, unplaced)?;
    let leaving =
        |p: &Arc<PodInfo>| p.is_terminating() && p.is_preempted && p.priority() < pod.priority();
    let text = "preemption: not eligible due to a terminating pod on the nominated node.";
    let mut there = nodes[at].pods.iter();
    there
        .any(leaving)
        .then(|| Outcome::VictimsTerminating(text.to_owned()))
}

/// What limits preemption, beside priorities.
pub struct Rules<'a> {
    /// PodDisruptionBudgets; they are violated only if every choice of victims violates one.
    pub budgets: &'a [&'a Budget],
    /// Pods that are nominated to a node.
    pub nominated: Nominated<'a>,
    /// Whether a pod must not be preempted, regardless of its priority.
    pub spares: &'a dyn Fn(&PodInfo) -> bool,
}

/// Finds the node where preemption is least disruptive.
pub fn preempt(
    attempt: &Attempt<'_>,
    unplaced: &FitError,
    start: usize,
    rules: &Rules<'_>,
) -> Outcome {
    let nodes = &attempt.snapshot.nodes;
    if let Some(outcome) = ineligible_to_preempt(attempt, unplaced) {
        return outcome;
    }
    let total = nodes.len();
    let candidates: Vec<usize> = (0..total)
        .map(|i| (start + i) % total.max(1))
        .filter(|i| {
            unplaced
                .nodes
                .get(*i)
                .and_then(Option::as_ref)
                .is_some_and(|r| r.code == Code::Unschedulable)
        })
        .collect();
    let wanted = num_candidates(attempt.profile, candidates.len());
    let mut found: Vec<Victims> = Vec::new();
    let mut reasons: BTreeMap<Reason, usize> = BTreeMap::new();
    // The allocator tries one node at a time, and no more nodes than are needed.
    let together = match attempt.devices() {
        Some(_) => 1,
        None => PARALLEL_NODES,
    };
    let judged = candidates.chunks(together).flat_map(|some| {
        let some = some.iter().map(|at| Candidate::new(attempt, *at, rules));
        dry_run_preemption(attempt, some.collect(), rules.budgets)
    });
    for outcome in judged {
        match outcome {
            Ok(victims) => {
                let clean = victims.violations == 0;
                found.push(victims);
                if found.len() >= wanted && clean {
                    break;
                }
            }
            Err(why) => why.into_iter().for_each(|reason| {
                *reasons.entry(reason).or_default() += 1;
            }),
        }
    }
    if let Some(victims) = found.into_iter().min_by(compare_victims) {
        return Outcome::Preempt(victims);
    }
    let helpless = total - candidates.len();
    if helpless > 0 {
        let text = "Preemption is not helpful for scheduling";
        *reasons.entry(text.into()).or_default() += helpless;
    }
    let mut reasons: Vec<String> = reasons.iter().map(|(r, n)| format!("{n} {r}")).collect();
    reasons.sort();
    Outcome::Nothing(format!(
        "preemption: 0/{total} nodes are available: {}.",
        reasons.join(", ")
    ))
}

/// How many candidate nodes to find; the rule is that of upstream's `calculateNumCandidates`.
fn num_candidates(profile: &Profile, nodes: usize) -> usize {
    let percentage = profile.min_candidate_nodes_percentage as usize;
    let share = nodes * percentage / 100;
    let least = profile.min_candidate_nodes_absolute as usize;
    share.max(least).min(nodes)
}

/// A node on which preemption is tried.
struct Candidate {
    /// The position of the node in the snapshot.
    at: usize,
    /// Pods of lower priority: the possible victims.
    lower: Vec<Arc<PodInfo>>,
    /// Pods that are nominated to the node.
    nominated: Vec<Arc<PodInfo>>,
}

impl Candidate {
    fn new(attempt: &Attempt<'_>, at: usize, rules: &Rules<'_>) -> Self {
        let node = &attempt.snapshot.nodes[at];
        let priority = attempt.pod.priority();
        let may_go = |p: &&Arc<PodInfo>| p.priority() < priority && !(rules.spares)(p);
        Self {
            at,
            lower: node.pods.iter().filter(may_go).cloned().collect(),
            nominated: (rules.nominated)(&node.name),
        }
    }

    /// Selects the victims as upstream's `SelectVictimsOnNode`: removes all possible victims, then adds one after the other
    /// again as long as the pod fits.
    ///
    /// # Errors
    /// The reasons for which preemption does not help on the node.
    fn select_victims(
        self,
        attempt: &Attempt<'_>,
        budgets: &[&Budget],
    ) -> Result<Victims, Vec<Reason>> {
        let node = &attempt.snapshot.nodes[self.at];
        let mut lower = self.lower;
        if lower.is_empty() {
            return Err(vec![NO_VICTIMS.into()]);
        }
        let mut trial = Trial::new(attempt, node, &self.nominated);
        lower.iter().for_each(|pod| trial.remove(pod));
        // Which devices there are does not depend on which pods are on the node.
        let fits = trial.filter().and_then(|()| attempt.allocate(node));
        fits.map_err(|r| r.reasons)?;
        lower.sort_by(|a, b| compare_importance(a, b));
        let (violating, harmless) = split_by_pdb_violation(lower, budgets);
        let mut victims = Vec::new();
        let mut violations = 0;
        // Reprieve one pod after the other as long as the preemptor fits, those whose budget would be violated first.
        for (pod, violates) in violating
            .into_iter()
            .map(|p| (p, true))
            .chain(harmless.into_iter().map(|p| (p, false)))
        {
            trial.add(&pod);
            if trial.filter().is_err() {
                trial.remove(&pod);
                violations += usize::from(violates);
                victims.push(pod);
            }
        }
        victims.sort_by(|a, b| compare_importance(a, b));
        Ok(Victims {
            node: self.at,
            pods: victims,
            violations,
        })
    }
}

/// The victims on each candidate node, in the order of the candidates.
fn dry_run_preemption(
    attempt: &Attempt<'_>,
    candidates: Vec<Candidate>,
    budgets: &[&Budget],
) -> Vec<Result<Victims, Vec<Reason>>> {
    let judge = |candidate: Candidate| candidate.select_victims(attempt, budgets);
    match candidates.len() {
        1 => candidates.into_iter().map(judge).collect(),
        _ => candidates.into_par_iter().map(judge).collect(),
    }
}

/// What is evicted together.
pub(crate) trait Evictable {
    /// The pods.
    fn pods(&self) -> impl Iterator<Item = &PodInfo>;
}

impl Evictable for Arc<PodInfo> {
    fn pods(&self) -> impl Iterator<Item = &PodInfo> {
        std::iter::once(&**self)
    }
}

/// Splits victims, most important first, into those whose eviction would violate a PodDisruptionBudget and the others
/// (`filterPodsWithPDBViolation`, `filterVictimsWithPDBViolation`).
pub(crate) fn split_by_pdb_violation<T: Evictable>(
    victims: Vec<T>,
    budgets: &[&Budget],
) -> (Vec<T>, Vec<T>) {
    let mut left: Vec<i32> = budgets.iter().map(|b| b.allowed).collect();
    victims.into_iter().partition(|victim| {
        let mut violates = false;
        for pod in victim.pods() {
            for (_, left) in budgets
                .iter()
                .zip(&mut left)
                .filter(|(b, _)| b.matches(pod))
            {
                *left -= 1;
                violates |= *left < 0;
            }
        }
        violates
    })
}

/// The order of upstream's `pickOneNodeForPreemption`: fewest violated budgets, lowest priority of the most important
/// victim, lowest sum of priorities, fewest victims, latest start of the earliest victim of the highest priority.
fn compare_victims(a: &Victims, b: &Victims) -> std::cmp::Ordering {
    let highest = |v: &Victims| v.pods.first().map_or(i32::MIN, |p| p.priority());
    // Shifted so that more victims of negative priority do not rank better than fewer.
    let sum = |v: &Victims| {
        v.pods
            .iter()
            .map(|p| i64::from(p.priority()) - i64::from(i32::MIN))
            .sum::<i64>()
    };
    let earliest = |v: &Victims| {
        let top = highest(v);
        v.pods
            .iter()
            .filter(|p| p.priority() == top)
            .map(|p| start_time(p))
            .min()
    };
    a.violations
        .cmp(&b.violations)
        .then_with(|| highest(a).cmp(&highest(b)))
        .then_with(|| sum(a).cmp(&sum(b)))
        .then_with(|| a.pods.len().cmp(&b.pods.len()))
        .then_with(|| earliest(b).cmp(&earliest(a)))
}

#[cfg(test)]
mod tests;
