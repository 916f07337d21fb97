//! Which pods can be tried (PreEnqueue), and which events requeue pods that were rejected.

use std::sync::Arc;

use super::{Core, Time};
use crate::framework::Plugin;
use crate::hints::{self, CLAIM, ClusterEvent};
use crate::pod::{Key, PodInfo};

impl Core {
    /// What holds a pod back from being tried at all.
    pub(super) fn gate(&self, pod: &PodInfo) -> Option<Plugin> {
        let profile = self.profile(crate::pod::scheduler_name(&pod.pod))?;
        let gated = pod
            .spec()
            .scheduling_gates
            .as_ref()
            .is_some_and(|g| !g.is_empty());
        if gated && profile.filters.contains(Plugin::SchedulingGates) {
            return Some(Plugin::SchedulingGates);
        }
        if self.lacks_claims(pod) {
            return Some(Plugin::DynamicResources);
        }
        if self.has_pending_victims(pod) {
            return Some(Plugin::DefaultPreemption);
        }
        if self
            .gangs_in(profile)
            .is_some_and(|g| g.admit(pod).is_err())
        {
            return Some(Plugin::GangScheduling);
        }
        None
    }

    /// Whether claims are missing that a pod needs to be tried.
    pub(super) fn lacks_claims(&self, pod: &PodInfo) -> bool {
        self.profile(crate::pod::scheduler_name(&pod.pod))
            .is_some_and(|profile| profile.filters.contains(Plugin::DynamicResources))
            && crate::dra::pre_enqueue(pod, &self.claims, self.claim_plugin.as_deref()).is_err()
    }

    /// Activates a pod in the queue; one that is gated releases the claims that it holds.
    pub(super) fn activate(&mut self, pod: &Arc<PodInfo>, event: &'static str, time: Time) {
        let gate = self.gate(pod);
        self.queue.activate(&pod.uid, gate, event, time.now);
        if gate.is_some_and(releases_claims) {
            self.release_claims(pod);
        }
    }

    /// Activates the pods that use a claim. The nomination of a pod that lacks claims is cleared.
    pub(super) fn activate_pods_using_claim(&mut self, claim: &Key, time: Time) {
        for pod in self.queue.users_of_claim(claim) {
            self.activate(&pod, CLAIM, time);
            let kept = self.nominations.get(&pod.uid).cloned();
            if kept.is_some() && self.lacks_claims(&pod) {
                self.nomination_freed(kept, time);
            }
        }
    }

    /// Brings pods back that an event may help.
    pub(super) fn requeue(&mut self, event: &ClusterEvent<'_>, time: Time) {
        let mut interested = hints::interested(event);
        if self.node_allocatable.is_some()
            && matches!(
                event,
                ClusterEvent::PodGone(_) | ClusterEvent::PodResized { .. }
            )
        {
            // Devices may provide node resources, which may be free now.
            interested.insert(Plugin::DynamicResources);
        }
        for pod in self.queue.rejected_by(interested) {
            let Some(queued) = self.queue.get(&pod.uid) else {
                continue;
            };
            let rejectors = queued.rejected_by;
            if interested
                .iter()
                .any(|p| rejectors.contains(p) && hints::may_help(p, &pod, event))
            {
                self.activate(&pod, event.name(), time);
            }
        }
    }
}

/// Whether the gate may hold a pod back for long, so that its resources are released.
pub(super) fn releases_claims(gate: Plugin) -> bool {
    matches!(gate, Plugin::DynamicResources | Plugin::GangScheduling)
}
