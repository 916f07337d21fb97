//! PodGroups: their pods are placed at once, or none of them.
//!
//! The pods of a gang that can be tried leave the queue together. [`search`] places them; nothing is written before
//! enough of them have a node. [`outcome`] is what follows for each pod.

use std::cmp::Reverse;
use std::sync::Arc;

use allot_model::features::{Feature, Features};

use super::{Core, Time, groups_have_claims};
use crate::config::Profile;
use crate::framework::{Plugin, PluginSet};
use crate::pod::{Key, PodInfo, scheduler_name};
use crate::podgroups::PodGroups;
use crate::podgroups::claims::PodGroup;
use crate::queue::QueuedPod;

mod explain;
mod observe;
mod outcome;
mod preemption;
mod reprieve;
mod search;

pub use explain::{GangOutcome, GangVerdict, MemberVerdict, UnscheduledMember};
use preemption::UnplacedGang;
use search::{Member, Round, Search};

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
        let needed = self.needed(gang, placed, members.len(), profile);
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
        let start = self.next_start;
        let mut search = self.search(&members, needed, profile, false, time);
        if !search.last.is_over(needed) {
            self.revert_round(&mut search.last);
            let preemption_helps = search.preemption_helps;
            // Report what keeps the pods from the first alternatives they request.
            let first = search.first.unwrap_or(search.last);
            let unplaced = UnplacedGang {
                members: &members,
                needed,
                gang,
                profile,
                start,
            };
            if self.preempts_for_groups(profile) {
                self.preempt_for_unplaced_gang(&unplaced, first, placed, time);
                return;
            }
            let with_preemption = match preemption_helps {
                true => self.search_with_preemption(&unplaced, time),
                false => None,
            };
            let Some(found) = with_preemption else {
                self.handle_gang_failure(members, first, placed, profile, gang, time);
                return;
            };
            search = found;
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

    /// Searches places for a gang whose pods may each preempt others. `None` if too few fit then, too, or if preempting would
    /// change nothing; all is reverted then.
    fn search_with_preemption(
        &mut self,
        unplaced: &UnplacedGang<'_>,
        time: Time,
    ) -> Option<Search> {
        let UnplacedGang {
            members,
            needed,
            profile,
            ..
        } = *unplaced;
        let mut search = self.search(members, needed, profile, true, time);
        if search.last.is_over(needed) && self.changes_anything(&search) {
            return Some(search);
        }
        self.revert_round(&mut search.last);
        None
    }

    /// How many of the pods that are `tried` must be placed at once, when `placed` have a node already. A pod beyond `minCount`
    /// preempts others for itself, or else with its PodGroup: then at least one is needed.
    fn needed(&self, gang: &PodGroup, placed: usize, tried: usize, profile: &Profile) -> usize {
        let missing = gang.min_count.unwrap_or_default().saturating_sub(placed);
        match self.preempts_for_groups(profile) {
            true => missing.max(tried.min(1)),
            false => missing,
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
