//! What a scheduling cycle would decide about a gang; for `allot explain`, not for the scheduling loop.

use std::sync::Arc;

use super::outcome::shortfall;
use super::preemption::UnplacedGang;
use super::search::{Member, MemberResult, Round};
use super::{differing_schedulers, in_scheduling_order};
use crate::actions::BindJob;
use crate::config::Profile;
use crate::core::explain::{Chosen, NodeVerdict};
use crate::core::{Core, Time};
use crate::pod::{Key, PodInfo};
use crate::podgroups::claims::PodGroup;

/// The result of a scheduling attempt for the gang of a pod, if it were made now.
#[derive(Debug)]
pub struct GangVerdict {
    /// Namespace and name of the PodGroup.
    pub group: Key,
    /// `minCount`: at least this number of pods is placed at once, or none.
    pub min_count: usize,
    /// The existing pods of the gang, by name.
    pub members: Vec<MemberVerdict>,
    /// The outcome of the attempt.
    pub outcome: GangOutcome,
    /// The pod without a node while the others have nodes: the requested pod if it has none, else the first such pod.
    pub left_out: Option<UnscheduledMember>,
}

impl GangVerdict {
    /// How many of its pods are on nodes already.
    pub fn placed(&self) -> usize {
        self.members.iter().filter(|m| m.is_placed).count()
    }
}

/// The outcome of an attempt for a PodGroup with a gang policy, without any write.
#[derive(Debug, PartialEq, Eq)]
pub enum GangOutcome {
    /// Enough of its pods have places.
    Fits,
    /// Enough of its pods would have places if these pods left.
    Preempts(Vec<Key>),
    /// Too few of its pods have places: how many, in the scheduler's words.
    TooFewPlaces(String),
    /// Too few of its pods can be tried.
    Waits(String),
    /// An error unrelated to fitting.
    Fails(String),
}

/// A pod of a gang.
#[derive(Debug)]
pub struct MemberVerdict {
    /// The name of the pod, in the namespace of the gang.
    pub name: Arc<str>,
    /// It is on a node, or on its way there.
    pub is_placed: bool,
    /// The node that it has, or would get.
    pub node: Option<Arc<str>>,
    /// The reason why the gang cannot be tried or placed.
    pub why_not: Option<String>,
}

/// A pod for which there is no place.
#[derive(Debug)]
pub struct UnscheduledMember {
    /// Namespace and name of the pod.
    pub pod: Key,
    /// Why, in the words of its condition.
    pub why: String,
    /// The verdict of each node while the other pods of the gang are assumed on theirs.
    pub nodes: Vec<NodeVerdict>,
}

impl Core {
    /// The outcome for the gang of a pod, and the node of the pod. All changes made for that are reverted.
    pub(in crate::core) fn explain_gang(
        &mut self,
        asked: &PodInfo,
        time: Time,
    ) -> Option<(GangVerdict, Option<Chosen>)> {
        let profile = self.profile(crate::pod::scheduler_name(&asked.pod))?;
        let profile = profile.clone();
        let gang = self.gang_of(asked, &profile)?;
        let (mut members, tried) = self.gang_members(&gang);
        let placed = members.iter().filter(|m| m.is_placed).count();
        let needed = self.needed(&gang, placed, tried.len(), &profile);
        let (mut left_out, mut chosen) = (None, None);
        let outcome = if members.len() < gang.min_count.unwrap_or_default() {
            GangOutcome::Waits(crate::podgroups::NotYet::TooFew.to_string())
        } else if tried.len() < needed {
            let able = tried.len();
            GangOutcome::Waits(format!(
                "only {able} of {needed} pods that are needed can be tried"
            ))
        } else if let Some(message) = differing_schedulers(&tried) {
            GangOutcome::Fails(message)
        } else {
            let tried = Tried {
                gang: &gang,
                placed,
                needed,
                pods: &tried,
                asked,
            };
            let start = self.next_start;
            let outcome;
            (outcome, left_out, chosen) = self.dry_run(&tried, &mut members, &profile, time);
            self.next_start = start;
            outcome
        };
        let verdict = GangVerdict {
            group: gang.key.clone(),
            min_count: gang.min_count.unwrap_or_default(),
            members,
            outcome,
            left_out,
        };
        Some((verdict, chosen))
    }

    /// The pods of a gang, and the ones that can be tried, in the order of the attempt.
    fn gang_members(&self, gang: &PodGroup) -> (Vec<MemberVerdict>, Vec<Member>) {
        let (mut members, mut tried) = (Vec::new(), Vec::new());
        for pod in self.pods_of_group(&gang.key) {
            let node = pod.node_name().map(Arc::from);
            let node = node.or_else(|| self.cache.node_of(&pod.uid).cloned());
            let why_not = match (&node, self.queue.get(&pod.uid)) {
                (Some(_), _) => None,
                _ if pod.is_terminating() => Some("it is being deleted".to_owned()),
                (None, Some(queued)) => match self.pre_enqueue_rejection(pod) {
                    Some(rejection) => Some(rejection.message()),
                    None => {
                        let mut queued = queued.clone();
                        queued.info = pod.clone();
                        tried.push(queued);
                        None
                    }
                },
                (None, None) => Some("it is for another scheduler".to_owned()),
            };
            members.push(MemberVerdict {
                name: pod.key.name.clone(),
                is_placed: node.is_some(),
                node,
                why_not,
            });
        }
        (members, in_scheduling_order(tried))
    }

    /// Runs the main loop's attempt for a gang, and reverts it.
    fn dry_run(
        &mut self,
        tried: &Tried<'_>,
        members: &mut [MemberVerdict],
        profile: &Profile,
        time: Time,
    ) -> (GangOutcome, Option<UnscheduledMember>, Option<Chosen>) {
        let (needed, start) = (tried.needed, self.next_start);
        let mut search = self.search(tried.pods, needed, profile, false, time);
        if search.last.is_over(needed) {
            let left_out = self.left_out(tried, &search.order, &search.last, profile, time);
            self.revert_round(&mut search.last);
            if let Some(message) = search.last.failure() {
                return (GangOutcome::Fails(message.to_owned()), None, None);
            }
            let chosen = record_placements(members, &search.order, &search.last, tried.asked);
            return (GangOutcome::Fits, left_out, chosen);
        }
        self.revert_round(&mut search.last);
        if self.preempts_for_groups(profile) {
            let unplaced = UnplacedGang {
                members: tried.pods,
                needed,
                gang: tried.gang,
                profile,
                start,
            };
            if let Ok(found) = self.select_victims(&unplaced, time) {
                record_placements(members, &found.order, &found.round, tried.asked);
                let victims = found.victims.iter().map(|victim| victim.key.clone());
                return (GangOutcome::Preempts(victims.collect()), None, None);
            }
        } else if search.preemption_helps {
            let mut with_preemption = self.search(tried.pods, needed, profile, true, time);
            self.revert_round(&mut with_preemption.last);
            if with_preemption.last.is_over(needed) && with_preemption.last.failure().is_none() {
                record_placements(
                    members,
                    &with_preemption.order,
                    &with_preemption.last,
                    tried.asked,
                );
                return (
                    GangOutcome::Preempts(victims_of(&with_preemption.last)),
                    None,
                    None,
                );
            }
        }
        // The report is about the first round. It is repeated, so that nodes can be filtered in the middle of it.
        let mut round = self.round(tried.pods, needed, profile, false, time);
        let left_out = self.left_out(tried, tried.pods, &round, profile, time);
        self.revert_round(&mut round);
        record_placements(members, tried.pods, &round, tried.asked);
        // The gang is not scheduled, so no pod has a node.
        for member in members.iter_mut().filter(|m| !m.is_placed) {
            member.node = None;
        }
        let (count, _) = shortfall(tried.gang, tried.placed, tried.pods, &round);
        (GangOutcome::TooFewPlaces(count), left_out, None)
    }

    /// The pod without a node to report. The others are assumed on theirs.
    fn left_out(
        &self,
        tried: &Tried<'_>,
        order: &[Member],
        round: &Round,
        profile: &Profile,
        time: Time,
    ) -> Option<UnscheduledMember> {
        let pods = order.iter().map(|m| &m.queued.info);
        let nowhere = pods
            .zip(&round.places)
            .filter_map(|(pod, (_, place))| match place {
                MemberResult::Unschedulable(failure) => Some((pod, &failure.message)),
                _ => None,
            });
        let nowhere: Vec<_> = nowhere.collect();
        let own = nowhere.iter().find(|(pod, _)| pod.uid == tried.asked.uid);
        // If the gang is placed, other pods without a node are not reported.
        let other = nowhere.first().filter(|_| !round.is_over(tried.needed));
        let (pod, why) = own.or(other)?;
        let nodes = self
            .filter_and_score(pod, profile, time)
            .map(|(nodes, _)| nodes);
        Some(UnscheduledMember {
            pod: pod.key.clone(),
            why: (*why).clone(),
            nodes: nodes.unwrap_or_default(),
        })
    }
}

/// A gang that can be tried.
struct Tried<'a> {
    gang: &'a PodGroup,
    placed: usize,
    needed: usize,
    pods: &'a [Member],
    asked: &'a PodInfo,
}

/// Records the nodes of the pods, and why others have none. Returns the placement of the requested pod.
fn record_placements(
    members: &mut [MemberVerdict],
    order: &[Member],
    round: &Round,
    asked: &PodInfo,
) -> Option<Chosen> {
    let mut chosen = None;
    for (tried, (_, place)) in order.iter().zip(&round.places) {
        let info = &tried.queued.info;
        let Some(member) = members.iter_mut().find(|m| m.name == info.key.name) else {
            continue;
        };
        match place {
            MemberResult::Found(job) | MemberResult::AfterPreemption(job, _) => {
                member.node = Some(job.node.clone());
                if info.uid == asked.uid {
                    chosen = Some(chosen_of(job));
                }
            }
            MemberResult::Unschedulable(failure) => member.why_not = Some(failure.message.clone()),
            MemberResult::Failed(message) => member.why_not = Some(message.clone()),
            MemberResult::NotTried => {}
        }
    }
    chosen
}

fn chosen_of(job: &BindJob) -> Chosen {
    let own = job.claims.iter();
    let own = own.filter_map(|t| Some((t.key.clone(), t.allocation.clone()?)));
    let extended = job.extended.iter();
    let extended = extended.map(|s| {
        let key = crate::dra::claims::key_of(&s.claim);
        (key, s.allocation.clone())
    });
    Chosen {
        node: job.node.clone(),
        allocations: own.chain(extended).collect(),
    }
}

/// The victims.
fn victims_of(round: &Round) -> Vec<Key> {
    let victims = round.places.iter().filter_map(|(_, place)| match place {
        MemberResult::AfterPreemption(_, failure) => failure.victims.as_ref(),
        _ => None,
    });
    let victims = victims.flat_map(|(_, pods)| pods.iter().map(|p| p.key.clone()));
    victims.collect()
}
