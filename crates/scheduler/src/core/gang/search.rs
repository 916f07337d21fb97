//! The search for places for the pods of a gang.
//!
//! A round places one pod after the other as if it were alone; each placement is assumed at once, so that the next pod
//! sees it. A round that does not succeed is reverted completely.
//!
//! Upstream runs one such round, and fails gangs that would fit in another order or with later alternatives. Here
//! further rounds follow, at most [`ROUNDS`]: first, pods that got a better alternative than their last one skip
//! alternatives; then pods without a node are tried first.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::actions::BindJob;
use crate::config::Profile;
use crate::core::failure::SchedulingFailure;
use crate::core::schedule::CycleOutcome;
use crate::core::{Core, Time};
use crate::dra::next_skip;
use crate::nominations::Nomination;
use crate::pod::{PodInfo, Uid};
use crate::queue::QueuedPod;

/// Limit of rounds in one attempt. In each round twice as many pods as before skip alternatives.
const ROUNDS: usize = 12;

/// A pod of the gang that is being tried.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) queued: QueuedPod,
    /// How many of the best alternatives it leaves to others.
    pub(super) skip_alternatives: usize,
}

/// The result of a round of the search for a pod of the gang.
pub(super) enum MemberResult {
    Found(Box<BindJob>),
    /// The pod fits when its victims are gone.
    AfterPreemption(Box<BindJob>, Box<SchedulingFailure>),
    Unschedulable(Box<SchedulingFailure>),
    Failed(String),
    /// Too few pods of the gang can still fit, so this one was not tried.
    NotTried,
}

impl MemberResult {
    pub(super) fn job(&self) -> Option<&BindJob> {
        match self {
            Self::Found(job) | Self::AfterPreemption(job, _) => Some(job),
            Self::Unschedulable(_) | Self::Failed(_) | Self::NotTried => None,
        }
    }

    /// Whether a claim of the pod is deallocated, so that it may fit without preemption.
    pub(super) fn deallocates(&self) -> bool {
        matches!(self, Self::Unschedulable(failure) if failure.deallocates)
    }

    fn is_unschedulable(&self) -> bool {
        matches!(self, Self::Unschedulable(_))
    }
}

/// Nodes for pods, in the order in which they were tried, and the state to restore when the round is reverted.
#[derive(Default)]
pub(super) struct Round {
    pub(super) places: Vec<(Uid, MemberResult)>,
    nominated: Vec<Nomination>,
    gone: Vec<RemovedPod>,
    /// Why preemption for the whole gang does not help, if that was tried.
    pub(super) preemption: Option<String>,
}

/// A pod that is removed from its node, as if it had been preempted.
pub(super) struct RemovedPod {
    pod: Arc<PodInfo>,
    node: Arc<str>,
    assumed: bool,
}

impl Round {
    pub(super) fn placed(&self) -> usize {
        let jobs = self.places.iter().filter_map(|(_, p)| p.job());
        jobs.count()
    }

    pub(super) fn failure(&self) -> Option<&str> {
        self.places.iter().find_map(|(_, place)| match place {
            MemberResult::Failed(message) => Some(&**message),
            _ => None,
        })
    }

    pub(super) fn is_over(&self, needed: usize) -> bool {
        self.failure().is_some() || self.placed() >= needed
    }

    /// Whether some pod fits only after preemption.
    pub(super) fn needs_preemption(&self) -> bool {
        let made = |p: &MemberResult| matches!(p, MemberResult::AfterPreemption(..));
        self.places.iter().any(|(_, p)| made(p))
    }

    /// Whether some victim is not terminating already.
    pub(super) fn has_new_victims(&self) -> bool {
        self.gone.iter().any(|gone| !gone.pod.is_terminating())
    }

    /// The first pod without a place.
    fn left_out(&self) -> Option<&Uid> {
        let mut places = self.places.iter();
        places
            .find(|(_, p)| p.is_unschedulable())
            .map(|(uid, _)| uid)
    }

    fn has_victims(&self) -> bool {
        let victims =
            |p: &MemberResult| matches!(p, MemberResult::Unschedulable(r) if r.victims.is_some());
        self.places.iter().any(|(_, p)| victims(p))
    }
}

/// The outcome of a search.
pub(super) struct Search {
    /// The pods in the order of the last round.
    pub(super) order: Vec<Member>,
    /// The last round; its placements stay assumed.
    pub(super) last: Round,
    /// The first round, if it was another one, which was reverted.
    pub(super) first: Option<Round>,
    /// Whether a pod had a place in one of them if others left.
    pub(super) preemption_helps: bool,
}

impl Core {
    /// Searches nodes for at least `needed` of the pods; `with_preemption` also allows placements that need victims.
    pub(super) fn search(
        &mut self,
        members: &[Member],
        needed: usize,
        profile: &Profile,
        with_preemption: bool,
        time: Time,
    ) -> Search {
        let (mut order, mut first) = (members.to_vec(), None);
        let (mut step, mut moved) = (1, FxHashSet::default());
        let mut last = self.round(&order, needed, profile, with_preemption, time);
        let mut preemption_helps = last.has_victims();
        for _ in 1..ROUNDS {
            if last.is_over(needed)
                || !(skip_better_alternatives(&mut order, &last, &mut step)
                    || try_unplaced_first(&mut order, &last, &mut moved))
            {
                break;
            }
            self.revert_round(&mut last);
            let another = self.round(&order, needed, profile, with_preemption, time);
            preemption_helps |= another.has_victims();
            let before = std::mem::replace(&mut last, another);
            first.get_or_insert(before);
        }
        Search {
            order,
            last,
            first,
            preemption_helps,
        }
    }

    /// Places the pods one after the other, until it is clear that too few fit.
    pub(super) fn round(
        &mut self,
        members: &[Member],
        needed: usize,
        profile: &Profile,
        with_preemption: bool,
        time: Time,
    ) -> Round {
        let mut round = Round::default();
        for (i, member) in members.iter().enumerate() {
            let cannot_succeed = round.placed() + (members.len() - i) < needed;
            let place = match cannot_succeed || round.failure().is_some() {
                true => MemberResult::NotTried,
                false => self.find_place(member, &mut round, profile, with_preemption, time),
            };
            round.places.push((member.queued.info.uid.clone(), place));
        }
        round
    }

    fn find_place(
        &mut self,
        member: &Member,
        round: &mut Round,
        profile: &Profile,
        with_preemption: bool,
        time: Time,
    ) -> MemberResult {
        let uid = &member.queued.info.uid;
        round.nominated.extend(self.nominations.get(uid).cloned());
        let queued = &member.queued;
        let failure = match self.scheduling_cycle(queued, profile, member.skip_alternatives, time) {
            CycleOutcome::Place(placed) => {
                let job = self.assume(queued.clone(), *placed, time);
                return MemberResult::Found(Box::new(job));
            }
            CycleOutcome::Reject(failure) => failure,
            CycleOutcome::Negotiate(_) => {
                let message = "a driver has to allocate claims of a pod that is in a gang";
                return MemberResult::Failed(message.to_owned());
            }
            CycleOutcome::Fail(message, _) => return MemberResult::Failed(message),
        };
        let Some((node, victims)) = failure.victims.clone().filter(|_| with_preemption) else {
            return MemberResult::Unschedulable(failure);
        };
        let victims: Vec<_> = victims.into_iter().map(|pod| (pod, node.clone())).collect();
        let gone = self.remove_pods(&victims);
        match self.scheduling_cycle(queued, profile, member.skip_alternatives, time) {
            CycleOutcome::Place(placed) => {
                round.gone.extend(gone);
                let job = self.assume(queued.clone(), *placed, time);
                MemberResult::AfterPreemption(Box::new(job), failure)
            }
            _ => {
                self.restore_pods(gone);
                MemberResult::Unschedulable(failure)
            }
        }
    }

    /// Removes pods from their nodes.
    pub(super) fn remove_pods(&mut self, pods: &[(Arc<PodInfo>, Arc<str>)]) -> Vec<RemovedPod> {
        let removed = pods.iter().map(|(pod, node)| RemovedPod {
            assumed: self.cache.is_assumed(&pod.uid),
            node: node.clone(),
            pod: pod.clone(),
        });
        let removed: Vec<_> = removed.collect();
        for (pod, _) in pods {
            self.cache.remove_pod(&pod.uid);
        }
        removed
    }

    /// Puts removed pods back on their nodes.
    pub(super) fn restore_pods(&mut self, removed: impl IntoIterator<Item = RemovedPod>) {
        for RemovedPod { pod, node, assumed } in removed {
            match assumed {
                true => self.cache.assume(pod, &node),
                false => self.cache.set_pod(pod),
            }
        }
    }

    /// Reverts everything that a round assumed.
    pub(super) fn revert_round(&mut self, round: &mut Round) {
        for (uid, _) in round.places.iter().filter(|(_, p)| p.job().is_some()) {
            let Some(binding) = self.bindings.remove(uid) else {
                continue;
            };
            if !binding.volumes.is_empty() {
                self.cache.storage_mut().forget(uid);
            }
            self.cache.forget(uid);
            for claim in &binding.in_flight {
                self.claims.finish_write(claim, uid, false);
            }
        }
        self.restore_pods(round.gone.drain(..));
        for (pod, node) in round.nominated.drain(..) {
            self.nominations.insert(pod, node);
        }
    }
}

/// Lets the last pods that could use a later alternative skip alternatives, twice as many each time.
fn skip_better_alternatives(order: &mut [Member], round: &Round, step: &mut usize) -> bool {
    let mut done = 0;
    let places = order.iter_mut().zip(&round.places);
    for (member, (_, place)) in places.rev() {
        if done == *step {
            break;
        }
        let claims = place.job().into_iter().flat_map(|job| &job.claims);
        let less = claims.filter_map(|task| next_skip(&task.claim, task.allocation.as_ref()?));
        if let Some(skip_alternatives) = less.min() {
            member.skip_alternatives = member.skip_alternatives.max(skip_alternatives);
            done += 1;
        }
    }
    *step *= 2;
    done > 0
}

/// Brings the first pod without a place to the front, once.
fn try_unplaced_first(order: &mut [Member], round: &Round, moved: &mut FxHashSet<Uid>) -> bool {
    let Some(left_out) = round.left_out() else {
        return false;
    };
    let at = order.iter().position(|m| m.queued.info.uid == *left_out);
    match at {
        Some(at) if at > 0 && moved.insert(left_out.clone()) => {
            order[..=at].rotate_right(1);
            true
        }
        _ => false,
    }
}
