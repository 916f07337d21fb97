//! Preemption by a PodGroup (`WorkloadAwarePreemption`, KEP-5710): pods anywhere in the cluster are preempted if enough pods
//! of the gang fit without them.
//!
//! As in upstream all possible victims are removed first and the gang is placed. Then victims are reprieved as long as the gang
//! still fits somewhere: those whose eviction would violate a PodDisruptionBudget first, and more important ones before others.
//! [`reprieve`] decides that.

use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::outcome::{PREEMPTING, Reason, without_victims};
use super::reprieve::{Cluster, reprieve};
use super::search::{Member, MemberResult, RemovedPod, Round, Search};
use crate::actions::{Nominate, Preemptor};
use crate::config::Profile;
use crate::core::{Core, Time};
use crate::framework::Plugin;
use crate::pod::PodInfo;
use crate::podgroups::claims::PodGroup;
use crate::preemption::{self, Victim, priority_of, split_by_pdb_violation};

/// How many pods are placed in one preemption at most, not counting repeated rounds of a search. After that no more victims are
/// reprieved, except those that are on other nodes than the gang.
const MOST_PLACEMENTS: usize = 4096;
/// How often a gang is placed in one preemption at least, however large it is.
const LEAST_SEARCHES: usize = 16;
/// What upstream's events name in place of a node.
const CLUSTER: &str = "cluster";

/// A gang that does not fit.
pub(super) struct UnplacedGang<'a> {
    pub(super) members: &'a [Member],
    /// How many of them must be placed.
    pub(super) needed: usize,
    pub(super) gang: &'a PodGroup,
    pub(super) profile: &'a Profile,
    /// Where the search began that found no place for it.
    pub(super) start: usize,
}

/// Where a gang fits, and which pods are preempted for it. Nothing of it is assumed any longer.
pub(super) struct Preemption {
    pub(super) order: Vec<Member>,
    pub(super) round: Round,
    /// The victims, most important first.
    pub(super) victims: Vec<Arc<PodInfo>>,
}

impl Preemption {
    /// The node that was found for a member.
    pub(super) fn node_of(&self, member: &Member) -> Option<Arc<str>> {
        let mut places = self.round.places.iter();
        let found = places.find(|(uid, _)| *uid == member.queued.info.uid);
        found.and_then(|(_, place)| Some(place.job()?.node.clone()))
    }
}

/// A possible victim, and its pods while they are removed.
struct Candidate {
    victim: Victim,
    removed: Vec<RemovedPod>,
}

impl Core {
    /// Whether pods are preempted for PodGroups as a whole, and not for single pods of a gang.
    pub(in crate::core) fn preempts_for_groups(&self, profile: &Profile) -> bool {
        self.config.features.has_workload_aware_preemption()
            && profile.post_filters.contains(Plugin::DefaultPreemption)
    }

    /// Preempts pods for a gang that does not fit, or makes it unschedulable. `first` is the round that reports what its pods lack;
    /// `placed` is how many of its pods have a node already.
    pub(super) fn preempt_for_unplaced_gang(
        &mut self,
        unplaced: &UnplacedGang<'_>,
        mut first: Round,
        placed: usize,
        time: Time,
    ) {
        let members = unplaced.members.to_vec();
        let (gang, profile) = (unplaced.gang, unplaced.profile);
        let mut places = first.places.iter();
        // As for a pod alone, whether preemption is needed shows when the claim is deallocated.
        if places.any(|(_, place)| place.deallocates()) {
            self.handle_gang_failure(members, first, placed, profile, gang, time);
            return;
        }
        let mut waits = self.has_victims_terminating(unplaced);
        if !waits {
            match self.select_victims(unplaced, time) {
                Ok(found) if self.changes_with(&found, &members) => {
                    self.preempt_for_pod_group(members, first, found, profile, gang, time);
                    return;
                }
                Ok(_) => waits = true,
                Err(why) => first.preemption = Some(why),
            }
        }
        for (member, (_, place)) in members.iter().zip(&mut first.places) {
            if let MemberResult::Unschedulable(failure) = place {
                failure.victims_terminating = waits;
                failure.nominate = match waits {
                    true => Nominate::Keep,
                    false => self.cleared_nomination(&member.queued.info),
                };
            }
        }
        self.handle_gang_failure(members, first, placed, profile, gang, time);
    }

    /// Whether preempting would change anything: with other nominations in each attempt, while all victims terminate already, pods
    /// would requeue each other endlessly.
    fn changes_with(&self, found: &Preemption, members: &[Member]) -> bool {
        let is_nominated = |m: &Member| self.nominations.get(&m.queued.info.uid).is_some();
        found.victims.iter().any(|victim| !victim.is_terminating())
            || !members.iter().any(is_nominated)
    }

    /// Whether pods that were preempted earlier still terminate on a node that a pod of the gang is nominated to.
    fn has_victims_terminating(&self, unplaced: &UnplacedGang<'_>) -> bool {
        let pods = unplaced.members.iter().map(|member| &member.queued.info);
        let nodes = pods.filter_map(|pod| self.cache.node(self.nominated_node(pod)?));
        let mut there = nodes.flat_map(|node| &node.pods);
        let groups = self.gangs.as_ref();
        let group_of = |pod: &PodInfo| groups.and_then(|groups| groups.group_of(pod));
        there.any(|pod| {
            pod.is_terminating()
                && pod.is_preempted
                && priority_of(pod, group_of(pod)) < unplaced.gang.priority
        })
    }

    /// The victims without which the gang fits. The state is the same afterwards.
    ///
    /// # Errors
    /// Why preemption does not help.
    pub(super) fn select_victims(
        &mut self,
        unplaced: &UnplacedGang<'_>,
        time: Time,
    ) -> Result<Preemption, String> {
        let mut pods = unplaced.members.iter().map(|member| &member.queued.info);
        if !pods.all(|pod| preemption::may_preempt(pod)) {
            return Err(preemption::NEVER.to_owned());
        }
        let candidates = self.candidates(unplaced.gang);
        if candidates.is_empty() {
            let why = "preemption: No preemption victims found for incoming preemptor";
            return Err(why.to_owned());
        }
        let (next_start, count) = (self.next_start, candidates.len());
        let searches = LEAST_SEARCHES.max(MOST_PLACEMENTS / unplaced.members.len().max(1));
        let mut trials = Trials {
            core: self,
            unplaced,
            candidates,
            time,
        };
        let found = reprieve(&mut trials, count, searches);
        let mut candidates = trials.candidates;
        for candidate in &mut candidates {
            self.restore_pods(candidate.removed.drain(..));
        }
        self.next_start = next_start;
        let Some((found, victims)) = found else {
            return Err(
                "preemption: the pod group does not fit without its victims either".to_owned(),
            );
        };
        let mut victims: Vec<&Victim> = victims.iter().map(|at| &candidates[*at].victim).collect();
        victims.sort_by(|a, b| a.compare_importance(b));
        let pods = victims.into_iter().flat_map(|victim| &victim.pods);
        Ok(Preemption {
            victims: pods.map(|(pod, _)| pod.clone()).collect(),
            ..found
        })
    }

    /// The possible victims, in the order in which they are reprieved.
    fn candidates(&self, gang: &PodGroup) -> Vec<Candidate> {
        let groups = self.gangs.as_ref();
        let group_of = |pod: &PodInfo| groups.and_then(|groups| groups.group_of(pod));
        let mut victims = Victim::below(gang, &self.cache.snapshot().nodes, group_of);
        victims.sort_by(Victim::compare_importance);
        let budgets: Vec<_> = self.budgets.values().collect();
        let (violating, others) = split_by_pdb_violation(victims, &budgets);
        let ordered = violating.into_iter().chain(others);
        ordered
            .map(|victim| Candidate {
                victim,
                removed: Vec::new(),
            })
            .collect()
    }

    /// Nominates the pods of a gang to the nodes that were found, and preempts the victims.
    fn preempt_for_pod_group(
        &mut self,
        members: Vec<Member>,
        first: Round,
        found: Preemption,
        profile: &Profile,
        gang: &PodGroup,
        time: Time,
    ) {
        let pod = members.first().map(|member| member.queued.info.clone());
        // Nominate before any of the pods is back in the queue, as in `preempt_for_gang`.
        for member in &members {
            if let Some(node) = found.node_of(member) {
                self.nominate(&member.queued.info, &node, time);
            }
        }
        for (member, (_, place)) in members.into_iter().zip(first.places) {
            let node = found.node_of(&member);
            let has_place = node.is_some();
            let nominate = node.map_or(Nominate::Keep, Nominate::Set);
            match place {
                MemberResult::Unschedulable(failure) => {
                    let mut failure = without_victims(*failure);
                    failure.nominate = nominate;
                    if has_place {
                        // It fits on its node with the claims that it has.
                        failure.cleanup = None;
                    }
                    self.handle_scheduling_failure(member.queued, profile, failure, time);
                }
                _ => self.wait_for_gang(member.queued, PREEMPTING, nominate, profile, time),
            }
        }
        self.update_pod_group_status(gang, Reason::Unschedulable, PREEMPTING.to_owned());
        if let Some(pod) = pod {
            let group = Some(Arc::new(gang.clone()));
            self.preempt(
                &Preemptor { pod, group },
                CLUSTER.into(),
                found.victims,
                time,
            );
        }
    }
}

/// A gang beside its possible victims.
struct Trials<'c, 'p> {
    core: &'c mut Core,
    unplaced: &'p UnplacedGang<'p>,
    candidates: Vec<Candidate>,
    time: Time,
}

impl Cluster for Trials<'_, '_> {
    type Placement = Preemption;

    fn remove(&mut self, victim: usize) {
        let candidate = &mut self.candidates[victim];
        candidate.removed = self.core.remove_pods(&candidate.victim.pods);
    }

    fn restore(&mut self, victim: usize) {
        let removed = std::mem::take(&mut self.candidates[victim].removed);
        self.core.restore_pods(removed);
    }

    fn place(&mut self) -> Option<Preemption> {
        let UnplacedGang {
            members,
            needed,
            profile,
            start,
            ..
        } = *self.unplaced;
        // The same state has the same result: with all of the victims the gang does not fit.
        self.core.next_start = start;
        let search = self.core.search(members, needed, profile, false, self.time);
        let Search {
            order, mut last, ..
        } = search;
        self.core.revert_round(&mut last);
        let fits = last.is_over(needed) && last.failure().is_none();
        fits.then_some(Preemption {
            order,
            round: last,
            victims: Vec::new(),
        })
    }

    fn split(&self, victims: Range<usize>, found: &Preemption) -> (Vec<usize>, Vec<usize>) {
        let places = &found.round.places;
        let jobs = places.iter().filter_map(|(_, place)| place.job());
        let nodes: FxHashSet<&str> = jobs.map(|job| &*job.node).collect();
        victims.partition(|victim| {
            let mut pods = self.candidates[*victim].victim.pods.iter();
            pods.all(|(_, node)| !nodes.contains(&**node))
        })
    }
}
