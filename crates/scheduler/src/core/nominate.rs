//! Nominated nodes, and preemption that is under way.
//!
//! Victims terminate some time after they were chosen. Until a watch shows all of them terminating, the preemptor is
//! not tried again: it would choose other victims.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::{Core, Time};
use crate::actions::{Action, Nominate, Preemptor};
use crate::framework::Plugin;
use crate::hints::ClusterEvent;
use crate::nominations::Nomination;
use crate::pod::{PodInfo, Uid};

/// The victims of a preemptor that no watch has shown terminating yet.
pub(super) type PendingVictims = FxHashSet<Uid>;

impl Core {
    /// Pods of at least the same priority that are nominated to a node. A pod that lost a claim may never get another:
    /// its nomination does not count until it has one.
    pub(super) fn nominated_to(&self, node: &str, pod: &PodInfo) -> Vec<Arc<PodInfo>> {
        let others = self.nominations.for_node(node);
        let others = others.filter(|p| p.uid != pod.uid && p.priority() >= pod.priority());
        others
            .filter(|p| !self.cache.is_assumed(&p.uid) && !self.lacks_claims(p))
            .cloned()
            .collect()
    }

    /// The node that a pod is nominated to, whether or not the API server has recorded that yet.
    pub(super) fn nominated_node<'a>(&'a self, pod: &'a PodInfo) -> Option<&'a str> {
        let nomination = self.nominations.get(&pod.uid);
        nomination
            .map(|(_, node)| &**node)
            .or_else(|| pod.nominated_node())
    }

    /// What to do with the nomination of a pod that must not have one.
    pub(super) fn cleared_nomination(&self, pod: &PodInfo) -> Nominate {
        match self.nominated_node(pod) {
            Some(_) => Nominate::Clear,
            None => Nominate::Keep,
        }
    }

    /// Nominates a pod to a node. Pods of lower priority lose their nominations there, unless they belong to the same
    /// gang.
    pub(super) fn nominate(&mut self, pod: &Arc<PodInfo>, node: &Arc<str>, time: Time) {
        let known = self.nominations.get(&pod.uid);
        let changes_anything = known.is_none_or(|(_, at)| at != node);
        let before = self.nominations.insert(pod.clone(), node.clone());
        self.nomination_freed(before, time);
        if !changes_anything {
            return;
        }
        let gang: FxHashSet<&Uid> = self.other_pods_of_gang(pod).map(|mate| &mate.uid).collect();
        let lower = |p: &&Arc<PodInfo>| {
            p.uid != pod.uid && p.priority() < pod.priority() && !gang.contains(&p.uid)
        };
        let displaced: Vec<_> = self
            .nominations
            .for_node(node)
            .filter(lower)
            .cloned()
            .collect();
        for other in displaced {
            self.nominations.remove(&other.uid);
            self.actions.push(Action::ClearNomination(other.clone()));
            self.activate(&other, "AssignedPodDelete", time);
        }
    }

    /// The API server shows that a pod is nominated to a node.
    pub(super) fn observe_nomination(&mut self, pod: &Arc<PodInfo>, node: &str, time: Time) {
        let before = self.nominations.insert(pod.clone(), node.into());
        self.nomination_freed(before, time);
    }

    /// Removes the nomination of a pod, and requeues pods that may use the capacity.
    pub(super) fn forget_nomination(&mut self, uid: &Uid, time: Time) {
        let before = self.nominations.remove(uid);
        self.nomination_freed(before, time);
    }

    /// Requeues pods that may use the capacity that was kept for a nominated pod.
    pub(super) fn nomination_freed(&mut self, before: Option<Nomination>, time: Time) {
        if let Some((pod, _)) = before {
            self.requeue(&ClusterEvent::PodGone(&pod), time);
        }
    }

    /// Preempts pods. Victims in PreBind need not be deleted: their binding cycle is canceled and they are scheduled
    /// again, as upstream does since 1.36.
    pub(super) fn preempt(
        &mut self,
        preemptor: &Preemptor,
        node: Arc<str>,
        victims: Vec<Arc<PodInfo>>,
        time: Time,
    ) {
        // Waiting for pods that terminate already is no preemption, however often the pod is tried meanwhile.
        let victims: Vec<_> = victims
            .into_iter()
            .filter(|v| !v.is_terminating())
            .collect();
        if victims.is_empty() {
            return;
        }
        self.metrics.preempted(victims.len());
        let why = format!("preempted by {}", Plugin::DefaultPreemption.name());
        // Another scheduler may have bound a victim while its binding cycle is under way here.
        let (in_pre_bind, there): (Vec<_>, Vec<_>) = victims.into_iter().partition(|victim| {
            victim.node_name().is_none() && self.cancel_pod(&victim.uid, &why, time)
        });
        for victim in in_pre_bind {
            self.actions.push(Action::RecordPreempted {
                preemptor: preemptor.clone(),
                node: node.clone(),
                victim,
            });
        }
        if !there.is_empty() {
            let leaving: PendingVictims = there.iter().map(|v| v.uid.clone()).collect();
            self.preempting.insert(preemptor.pod.uid.clone(), leaving);
            self.actions.push(Action::Preempt {
                preemptor: preemptor.clone(),
                node,
                victims: there,
            });
        }
    }

    /// Whether a victim preempted for this pod (or for its PodGroup) is not terminating yet.
    pub(super) fn has_pending_victims(&self, pod: &PodInfo) -> bool {
        let waits = |uid: &Uid| self.preempting.contains_key(uid);
        !self.preempting.is_empty()
            && (waits(&pod.uid) || self.other_pods_of_gang(pod).any(|mate| waits(&mate.uid)))
    }

    /// Ends the preemption for a pod: the other pods of its gang need not wait for its victims.
    pub(super) fn preemption_done(&mut self, pod: &PodInfo, time: Time) {
        if self.preempting.remove(&pod.uid).is_some() {
            self.activate_gang(pod, time);
        }
    }

    fn activate_gang(&mut self, pod: &PodInfo, time: Time) {
        let mates: Vec<_> = self.other_pods_of_gang(pod).cloned().collect();
        for mate in mates {
            self.activate(&mate, "AssignedPodDelete", time);
        }
    }

    /// A victim terminates, or cannot be deleted: its preemptors need not wait for it any longer.
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
