//! Where pods are expected, and preemption that is under way.
//!
//! The pods that have to go leave their nodes some time after they were chosen. Until each of them is seen leaving, the
//! pod for which they go is not tried: it would choose others.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::{BindError, Core, Time};
use crate::actions::{Action, Nominate};
use crate::hints::ClusterEvent;
use crate::nominations::Nomination;
use crate::pod::{PodInfo, Uid};

/// The pods that were told to leave for another one, and are not seen leaving yet.
pub(super) type PendingVictims = FxHashSet<Uid>;

impl Core {
    /// Pods of at least the same priority for which room is kept on a node. A pod that lost a claim may never get one
    /// again: until it has one, others can have its room.
    pub(super) fn nominated_to(&self, node: &str, pod: &PodInfo) -> Vec<Arc<PodInfo>> {
        let others = self.nominations.on(node);
        let others = others.filter(|p| p.uid != pod.uid && p.priority() >= pod.priority());
        others
            .filter(|p| !self.cache.is_assumed(&p.uid) && !self.lacks_claims(p))
            .cloned()
            .collect()
    }

    /// Where a pod is expected, whether the API server has it already or not.
    pub(super) fn nominated_node<'a>(&'a self, pod: &'a PodInfo) -> Option<&'a str> {
        let nomination = self.nominations.get(&pod.uid);
        nomination
            .map(|(_, node)| &**node)
            .or_else(|| pod.nominated_node())
    }

    /// The pod is expected nowhere (any more).
    pub(super) fn cleared_nomination(&self, pod: &PodInfo) -> Nominate {
        match self.nominated_node(pod) {
            Some(_) => Nominate::Clear,
            None => Nominate::Keep,
        }
    }

    /// A pod is expected on a node. Pods of lower priority that were expected there have to look for another place, if
    /// they have not got it together with this one, as its gang.
    pub(super) fn nominate(&mut self, pod: &Arc<PodInfo>, node: &Arc<str>, time: Time) {
        let known = self.nominations.get(&pod.uid);
        let is_news = known.is_none_or(|(_, at)| at != node);
        let before = self.nominations.insert(pod.clone(), node.clone());
        self.nomination_freed(before, time);
        if !is_news {
            return;
        }
        let gang: FxHashSet<&Uid> = self.gang_mates(pod).map(|mate| &mate.uid).collect();
        let lower = |p: &&Arc<PodInfo>| {
            p.uid != pod.uid && p.priority() < pod.priority() && !gang.contains(&p.uid)
        };
        let displaced: Vec<_> = self.nominations.on(node).filter(lower).cloned().collect();
        for other in displaced {
            self.nominations.remove(&other.uid);
            self.actions.push(Action::ClearNomination(other.clone()));
            self.activate(&other, "AssignedPodDelete", time);
        }
    }

    /// The API server has it that a pod is expected on a node.
    pub(super) fn observe_nomination(&mut self, pod: &Arc<PodInfo>, node: &str, time: Time) {
        let before = self.nominations.insert(pod.clone(), node.into());
        self.nomination_freed(before, time);
    }

    /// A pod is expected nowhere any more: others may have what was kept for it.
    pub(super) fn forget_nomination(&mut self, uid: &Uid, time: Time) {
        let before = self.nominations.remove(uid);
        self.nomination_freed(before, time);
    }

    /// Others may have what was kept for a pod, if anything was.
    pub(super) fn nomination_freed(&mut self, before: Option<Nomination>, time: Time) {
        if let Some((pod, _)) = before {
            self.requeue(&ClusterEvent::PodGone(&pod), time);
        }
    }

    /// Lets pods go in favour of another one. Those that only wait for their devices or volumes on the way to their node
    /// need not be deleted: they are tried again elsewhere, as upstream does since 1.36.
    pub(super) fn preempt(
        &mut self,
        preemptor: &Arc<PodInfo>,
        node: Arc<str>,
        victims: Vec<Arc<PodInfo>>,
        time: Time,
    ) {
        // Who leaves anyway is waited for; that is no preemption, however often the pod is tried meanwhile.
        let victims: Vec<_> = victims
            .into_iter()
            .filter(|v| !v.is_terminating())
            .collect();
        if victims.is_empty() {
            return;
        }
        self.metrics.preempted(victims.len());
        let (on_their_way, there): (Vec<_>, Vec<_>) = victims
            .into_iter()
            .partition(|victim| self.waiting.contains(&victim.uid));
        for victim in on_their_way {
            let message = format!("preempted by pod {}", preemptor.uid);
            self.bound(&victim.uid, Err(BindError::new(message)), time);
            self.actions.push(Action::TellPreempted {
                preemptor: preemptor.clone(),
                node: node.clone(),
                victim,
            });
        }
        if !there.is_empty() {
            let leaving: PendingVictims = there.iter().map(|v| v.uid.clone()).collect();
            self.preempting.insert(preemptor.uid.clone(), leaving);
            self.actions.push(Action::Preempt {
                preemptor: preemptor.clone(),
                node,
                victims: there,
            });
        }
    }

    /// Whether somebody has to go for a pod, or for another one of its gang, who is not seen leaving yet.
    pub(super) fn has_pending_victims(&self, pod: &PodInfo) -> bool {
        let waits = |uid: &Uid| self.preempting.contains_key(uid);
        !self.preempting.is_empty()
            && (waits(&pod.uid) || self.gang_mates(pod).any(|mate| waits(&mate.uid)))
    }

    /// Nobody has to go for a pod any more. The others of its gang need not wait for that.
    pub(super) fn preemption_done(&mut self, pod: &PodInfo, time: Time) {
        if self.preempting.remove(&pod.uid).is_some() {
            self.activate_gang(pod, time);
        }
    }

    fn activate_gang(&mut self, pod: &PodInfo, time: Time) {
        let mates: Vec<_> = self.gang_mates(pod).cloned().collect();
        for mate in mates {
            self.activate(&mate, "AssignedPodDelete", time);
        }
    }

    /// A pod is seen leaving, or it turned out that it stays: the pods for which it was to go need not wait for that.
    pub(super) fn victim_terminating(&mut self, victim: &Uid, time: Time) {
        if self.preempting.is_empty() {
            return;
        }
        let mut free = Vec::new();
        self.preempting.retain(|pod, leaving| {
            if leaving.remove(victim) && leaving.is_empty() {
                free.push(pod.clone());
            }
            !leaving.is_empty()
        });
        free.sort_unstable();
        for uid in free {
            if let Some(pod) = self.queue.get(&uid).map(|q| q.info.clone()) {
                self.activate(&pod, "AssignedPodDelete", time);
                self.activate_gang(&pod, time);
            }
        }
    }
}
