//! PodGroups: their pods are placed at once, or none of them.
//!
//! The pods of a gang that can be tried leave the queue together. [`search`] places them; nothing is written before
//! enough of them have a node.

use std::cmp::Reverse;
use std::sync::Arc;

use allot_model::features::{Feature, Features};

use super::failure::SchedulingFailure;
use super::{Core, Time, groups_have_claims};
use crate::actions::{Action, Nominate};
use crate::config::Profile;
use crate::framework::{Plugin, PluginSet};
use crate::message;
use crate::metrics::Outcome;
use crate::pod::{Key, PodInfo, scheduler_name};
use crate::podgroups::claims::PodGroup;
use crate::podgroups::{Condition, PodGroups};
use crate::queue::QueuedPod;

mod explain;
mod observe;
mod search;

pub use explain::{GangOutcome, GangVerdict, MemberVerdict, UnscheduledMember};
use search::{Member, MemberResult, Round, Search};

const PREEMPTING: &str = "pod group is waiting for preemption to complete";

/// Whether gangs are placed as such. `GenericWorkload` covers them since 1.37.
pub fn has_gangs(features: &Features) -> bool {
    let separate = Feature::GangScheduling.spec(features.release()).is_some();
    features.enabled(Feature::GenericWorkload)
        && (!separate || features.enabled(Feature::GangScheduling))
}

/// Whether PodGroups are used at all.
pub(crate) fn groups_matter(features: &Features) -> bool {
    groups_have_claims(features) || has_gangs(features)
}

impl Core {
    /// The gang that a pod must be placed with.
    pub(super) fn gang_of(&self, pod: &PodInfo, profile: &Profile) -> Option<Arc<PodGroup>> {
        self.gangs_in(profile)?.gang_of(pod).cloned()
    }

    /// The pods that are placed together with this one, without it.
    pub(super) fn other_pods_of_gang(&self, pod: &PodInfo) -> impl Iterator<Item = &Arc<PodInfo>> {
        let profile = self.profile(scheduler_name(&pod.pod));
        let gangs = profile.and_then(|profile| self.gangs_in(profile));
        let gang = gangs.and_then(|g| g.gang_of(pod));
        let members = gang.map(|gang| self.pods_of_group(&gang.key));
        let own = pod.uid.clone();
        members
            .into_iter()
            .flatten()
            .filter(move |mate| mate.uid != own)
    }

    /// The pods of a group, in a certain order.
    fn pods_of_group(&self, group: &Key) -> impl Iterator<Item = &Arc<PodInfo>> {
        let members = self.gangs.as_ref().map(|g| g.members(group));
        let members = members.into_iter().flatten();
        members.filter_map(|key| self.pods.get(&key))
    }

    /// The PodGroups, if the profile schedules pods of a group together.
    pub(super) fn gangs_in(&self, profile: &Profile) -> Option<&PodGroups> {
        let on =
            has_gangs(&self.config.features) && profile.filters.contains(Plugin::GangScheduling);
        self.gangs.as_ref().filter(|_| on)
    }

    /// Tries a gang of which one pod is next.
    pub(super) fn schedule_gang(
        &mut self,
        next: QueuedPod,
        gang: &PodGroup,
        profile: &Profile,
        time: Time,
    ) {
        let (members, placed) = self.gather(next, gang);
        let needed = gang.min_count.unwrap_or_default().saturating_sub(placed);
        if members.len() < needed {
            // The others are requeued with whichever pod of the gang can be tried next.
            let by: PluginSet = [Plugin::GangScheduling].into_iter().collect();
            for member in members {
                let pod = member.queued.info.clone();
                self.queue
                    .add_unschedulable_pending(member.queued, by, time.now);
                self.release_claims(&pod);
            }
            return;
        }
        if let Some(message) = differing_schedulers(&members) {
            self.fail_gang(members, &Round::default(), &message, gang, time);
            return;
        }
        let mut search = self.search(&members, needed, profile, false, time);
        if !search.last.is_over(needed) {
            self.revert_round(&mut search.last);
            // Report what keeps the pods from the first alternatives they request.
            let first = search.first.unwrap_or(search.last);
            let with_preemption = search.preemption_helps;
            let with_preemption =
                with_preemption.then(|| self.search(&members, needed, profile, true, time));
            search = match with_preemption {
                Some(with_preemption)
                    if with_preemption.last.is_over(needed)
                        && self.changes_anything(&with_preemption) =>
                {
                    with_preemption
                }
                with_preemption => {
                    with_preemption
                        .into_iter()
                        .for_each(|mut r| self.revert_round(&mut r.last));
                    self.handle_gang_failure(members, first, placed, profile, gang, time);
                    return;
                }
            };
        }
        let Search {
            order, mut last, ..
        } = search;
        if let Some(message) = last.failure().map(str::to_owned) {
            self.revert_round(&mut last);
            self.fail_gang(order, &last, &message, gang, time);
        } else if last.needs_preemption() {
            self.revert_round(&mut last);
            self.preempt_for_gang(order, last, profile, gang, time);
        } else {
            self.bind_pod_group(order, last, profile, gang, time);
        }
    }

    /// Whether preempting would change anything. If every victim is already terminating, the gang keeps its nominations
    /// and waits.
    fn changes_anything(&self, search: &Search) -> bool {
        let expected = |m: &Member| self.nominations.get(&m.queued.info.uid).is_some();
        search.last.has_new_victims() || !search.order.iter().any(expected)
    }

    /// The pods of a gang that can be tried, most important first, and how many are placed already.
    fn gather(&mut self, next: QueuedPod, gang: &PodGroup) -> (Vec<Member>, usize) {
        let known: Vec<_> = self.pods_of_group(&gang.key).cloned().collect();
        let (mut members, mut placed) = (vec![next], 0);
        for pod in known {
            if pod.node_name().is_some() || self.cache.is_assumed(&pod.uid) {
                placed += 1;
            } else if let Some(mut queued) = self.queue.take(&pod.uid)
                && !pod.is_terminating()
            {
                queued.info = pod;
                members.push(queued);
            }
        }
        (in_scheduling_order(members), placed)
    }

    /// Starts the binding cycles of the pods that have a node; refuses the others.
    fn bind_pod_group(
        &mut self,
        members: Vec<Member>,
        round: Round,
        profile: &Profile,
        gang: &PodGroup,
        time: Time,
    ) {
        for (member, (_, place)) in members.into_iter().zip(round.places) {
            match place {
                MemberResult::Found(job) | MemberResult::AfterPreemption(job, _) => {
                    self.actions.push(Action::Bind(job))
                }
                MemberResult::Unschedulable(failure) => {
                    self.handle_scheduling_failure(member.queued, profile, *failure, time)
                }
                MemberResult::Failed(message) => {
                    self.fail(member.queued, message, Nominate::Keep, time)
                }
                MemberResult::NotTried => {
                    self.wait_for_gang(member.queued, "", Nominate::Keep, profile, time)
                }
            }
        }
        self.update_pod_group_status(gang, "True", "Scheduled", String::new());
    }

    /// Preempts the victims and nominates the pods of the gang to the nodes that were found.
    fn preempt_for_gang(
        &mut self,
        members: Vec<Member>,
        round: Round,
        profile: &Profile,
        gang: &PodGroup,
        time: Time,
    ) {
        // Nominate before any of the pods is back in the queue: the pods that lose a nomination here must not requeue them.
        for (member, (_, place)) in members.iter().zip(&round.places) {
            if let Some(job) = place.job() {
                self.nominate(&member.queued.info, &job.node.clone(), time);
            }
        }
        for (member, (_, place)) in members.into_iter().zip(round.places) {
            match place {
                MemberResult::Found(job) => {
                    let nominate = Nominate::Set(job.node);
                    self.wait_for_gang(member.queued, PREEMPTING, nominate, profile, time);
                }
                MemberResult::AfterPreemption(job, mut failure) => {
                    failure.nominate = Nominate::Set(job.node);
                    self.handle_scheduling_failure(member.queued, profile, *failure, time);
                }
                MemberResult::Unschedulable(failure) => {
                    let failure = without_victims(*failure);
                    self.handle_scheduling_failure(member.queued, profile, failure, time);
                }
                MemberResult::Failed(_) | MemberResult::NotTried => {
                    self.wait_for_gang(member.queued, PREEMPTING, Nominate::Keep, profile, time);
                }
            }
        }
        self.update_pod_group_status(gang, "False", "Unschedulable", PREEMPTING.to_owned());
    }

    /// Refuses a gang of which fewer than `minCount` pods fit, with the reason of the first that does not.
    fn handle_gang_failure(
        &mut self,
        members: Vec<Member>,
        round: Round,
        before: usize,
        profile: &Profile,
        gang: &PodGroup,
        time: Time,
    ) {
        let (count, why) = shortfall(gang, before, &members, &round);
        let left_out = || {
            let places = round.places.iter();
            places.filter_map(|(_, p)| match p {
                MemberResult::Unschedulable(failure) => Some(failure.victims_terminating),
                _ => None,
            })
        };
        // While victims of one pod terminate, all pods of the gang keep their nominations.
        let keep = left_out().any(|victims_terminating| victims_terminating);
        let (message, told) =
            match keep && left_out().all(|victims_terminating| victims_terminating) {
                true => (PREEMPTING.to_owned(), PREEMPTING.to_owned()),
                false => (
                    format!("waiting for minCount pods from a gang to be scheduled ({count})"),
                    format!("pod group is unschedulable ({count}: {why})"),
                ),
            };
        for (member, (_, place)) in members.into_iter().zip(round.places) {
            let pod = member.queued.info.clone();
            match place {
                MemberResult::Unschedulable(failure) => {
                    self.handle_scheduling_failure(
                        member.queued,
                        profile,
                        without_victims(*failure),
                        time,
                    );
                }
                _ => {
                    let nominate = match keep {
                        true => Nominate::Keep,
                        false => self.cleared_nomination(&pod),
                    };
                    self.wait_for_gang(member.queued, &message, nominate, profile, time);
                    // Two gangs that each hold claims the other one needs would deadlock.
                    self.release_claims(&pod);
                }
            }
        }
        self.update_pod_group_status(gang, "False", "Unschedulable", told);
    }

    /// Makes a pod that fits unschedulable, because too few pods of its gang fit.
    fn wait_for_gang(
        &mut self,
        queued: QueuedPod,
        message: &str,
        nominate: Nominate,
        profile: &Profile,
        time: Time,
    ) {
        let failure = SchedulingFailure::new(Plugin::GangScheduling, message.to_owned(), nominate);
        self.handle_scheduling_failure(queued, profile, failure, time);
    }

    /// Returns a gang to the queue with backoff, after an error unrelated to fitting.
    fn fail_gang(
        &mut self,
        members: Vec<Member>,
        round: &Round,
        message: &str,
        gang: &PodGroup,
        time: Time,
    ) {
        let others = format!("failed to schedule other pod from a pod group: {message}");
        for (i, member) in members.into_iter().enumerate() {
            let own = match round.places.get(i) {
                Some((_, MemberResult::Failed(own))) => own.clone(),
                Some(_) => others.clone(),
                None => message.to_owned(),
            };
            let profile = scheduler_name(&member.queued.info.pod).to_owned();
            let none = std::time::Duration::ZERO;
            self.metrics.attempt(&profile, Outcome::Error, none);
            let nominate = self.cleared_nomination(&member.queued.info);
            self.fail(member.queued, own, nominate, time);
        }
        self.update_pod_group_status(gang, "False", "SchedulerError", message.to_owned());
    }

    fn update_pod_group_status(
        &mut self,
        gang: &PodGroup,
        status: &str,
        reason: &str,
        message: String,
    ) {
        let condition = Condition {
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
            observed_generation: gang.generation,
            last_transition_time: None,
        };
        let gangs = self.gangs.as_mut();
        if let Some(condition) = gangs.and_then(|g| g.set_condition(&gang.key, condition)) {
            self.actions.push(Action::UpdatePodGroupStatus {
                group: gang.key.clone(),
                uid: gang.uid.clone(),
                condition,
            });
        }
    }
}

/// The pods of a gang in the order in which they are tried, most important first.
fn in_scheduling_order(mut queued: Vec<QueuedPod>) -> Vec<Member> {
    queued.sort_by_key(|q| (Reverse(q.info.priority()), q.entered, q.info.key.clone()));
    let queued = queued.into_iter();
    queued
        .map(|queued| Member {
            queued,
            skip_alternatives: 0,
        })
        .collect()
}

/// Upstream's message for pods of a group that cannot be placed together.
fn differing_schedulers(members: &[Member]) -> Option<String> {
    let mut names = members.iter().map(|m| scheduler_name(&m.queued.info.pod));
    let first = names.next()?;
    let other = names.find(|name| *name != first)?;
    Some(format!(
        "all pods in a single pod group should have the same .spec.schedulerName set, got: {first:?} and {other:?}"
    ))
}

/// How far a gang got of which `before` pods were placed already, and what the first pod without a place lacks.
fn shortfall(
    gang: &PodGroup,
    before: usize,
    members: &[Member],
    round: &Round,
) -> (String, String) {
    let needed = gang.min_count.unwrap_or_default();
    let fit = before + round.placed();
    let mut left_out = members.iter().zip(&round.places);
    let left_out = left_out.find_map(|(m, (_, place))| match place {
        MemberResult::Unschedulable(failure) => {
            let explanation = failure.explanation.as_deref();
            let why = message::explained(&failure.message, explanation);
            Some((&*m.queued.info.key.name, why))
        }
        _ => None,
    });
    let (name, why) = left_out.unwrap_or_default();
    let count = format!("minCount {needed}, {fit} fit, {name} does not");
    (count, why)
}

/// The failure without preemption: the gang would not be scheduled even if the victims went.
fn without_victims(failure: SchedulingFailure) -> SchedulingFailure {
    let nominate = match failure.nominate {
        Nominate::Set(_) => Nominate::Keep,
        other => other,
    };
    SchedulingFailure {
        victims: None,
        nominate,
        ..failure
    }
}
