//! What follows from the search for a gang: binding cycles, preemption or failure of its pods, and the status of the
//! PodGroup.

use super::search::{Member, MemberResult, Round};
use crate::actions::{Action, Nominate};
use crate::config::Profile;
use crate::core::failure::SchedulingFailure;
use crate::core::{Core, Time};
use crate::framework::Plugin;
use crate::message;
use crate::metrics::Outcome;
use crate::pod::scheduler_name;
use crate::podgroups::Condition;
use crate::podgroups::claims::PodGroup;
use crate::queue::QueuedPod;

pub(super) const PREEMPTING: &str = "pod group is waiting for preemption to complete";

/// Reasons of the condition `PodGroupScheduled`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    Scheduled,
    Unschedulable,
    SchedulerError,
}

impl Reason {
    fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "Scheduled",
            Self::Unschedulable => "Unschedulable",
            Self::SchedulerError => "SchedulerError",
        }
    }

    /// The status of the condition.
    fn status(self) -> &'static str {
        match self {
            Self::Scheduled => "True",
            Self::Unschedulable | Self::SchedulerError => "False",
        }
    }
}

impl Core {
    /// Starts the binding cycles of the pods that have a node; refuses the others.
    pub(super) fn bind_pod_group(
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
        self.update_pod_group_status(gang, Reason::Scheduled, String::new());
    }

    /// Preempts the victims and nominates the pods of the gang to the nodes that were found.
    pub(super) fn preempt_for_gang(
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
        self.update_pod_group_status(gang, Reason::Unschedulable, PREEMPTING.to_owned());
    }

    /// Refuses a gang of which fewer than `minCount` pods fit, with the reason of the first that does not.
    pub(super) fn handle_gang_failure(
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
                false => {
                    let preemption = round.preemption.iter().map(|why| format!(" {why}"));
                    let preemption: String = preemption.collect();
                    (
                        format!("waiting for minCount pods from a gang to be scheduled ({count})"),
                        format!("pod group is unschedulable ({count}: {why}){preemption}"),
                    )
                }
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
        self.update_pod_group_status(gang, Reason::Unschedulable, told);
    }

    /// Makes a pod that fits unschedulable, because too few pods of its gang fit.
    pub(super) fn wait_for_gang(
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
    pub(super) fn fail_gang(
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
        self.update_pod_group_status(gang, Reason::SchedulerError, message.to_owned());
    }

    pub(super) fn update_pod_group_status(
        &mut self,
        gang: &PodGroup,
        reason: Reason,
        message: String,
    ) {
        let condition = Condition {
            status: reason.status().to_owned(),
            reason: reason.as_str().to_owned(),
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

/// How far a gang got of which `before` pods were placed already, and what the first pod without a place lacks.
pub(super) fn shortfall(
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
pub(super) fn without_victims(failure: SchedulingFailure) -> SchedulingFailure {
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
