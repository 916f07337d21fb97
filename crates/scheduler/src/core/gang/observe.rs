//! Takes in observed PodGroups, and pods that join or leave them.

use std::sync::Arc;

use allot_reflector::Observed;

use super::outcome::Reason;
use crate::actions::{Action, Nominate, Rejected};
use crate::core::{Core, Time};
use crate::pod::{PodInfo, scheduler_name};
use crate::podgroups::claims::PodGroup;
use crate::podgroups::{NotYet, PodGroups, group_key};

impl Core {
    pub(in crate::core) fn observe_groups(&mut self, observed: Observed<PodGroup>, time: Time) {
        let Some(gangs) = &mut self.gangs else {
            return;
        };
        let changed = gangs.observe(&observed);
        if let Some(groups) = self.claims.groups_mut() {
            match observed {
                Observed::Applied(group) => {
                    let known = gangs.groups().get(&group.key);
                    groups.extend(known.map(|known| (group.key, known.clone())));
                }
                Observed::Deleted(group) => {
                    groups.remove(&group.key);
                }
                Observed::Listed { .. } => *groups = gangs.groups().clone(),
            }
        }
        for group in changed {
            let known = self.gangs.as_ref().map(PodGroups::groups);
            let gone = known.is_some_and(|groups| !groups.contains_key(&group));
            let pods: Vec<_> = self.pods_of_group(&group).cloned().collect();
            for pod in pods {
                self.activate(&pod, "scheduling.k8s.io/PodGroupUpdate", time);
                if gone {
                    self.report_waiting(&pod, time);
                }
            }
        }
    }

    /// A pod was added; if it completes its gang, the other pods can be tried.
    pub(in crate::core) fn add_pod_to_gang(&mut self, pod: &PodInfo, time: Time) {
        let ours = pod.node_name().is_some() || self.profile(scheduler_name(&pod.pod)).is_some();
        let Some(gangs) = self.gangs.as_mut().filter(|_| ours) else {
            return;
        };
        if !gangs.add_pod(pod) {
            return;
        }
        let group = group_key(pod);
        let others = group.iter().flat_map(|group| self.pods_of_group(group));
        for other in others.cloned().collect::<Vec<_>>() {
            self.activate(&other, "UnschedulablePodAdd", time);
        }
    }

    /// A pod was deleted. If too few pods of its gang remain, the others wait for more.
    pub(in crate::core) fn remove_pod_from_gang(&mut self, pod: &PodInfo, time: Time) {
        let mates: Vec<_> = self.other_pods_of_gang(pod).cloned().collect();
        let Some(gangs) = &mut self.gangs else {
            return;
        };
        gangs.delete_pod(pod);
        let too_few = |mate: &&Arc<PodInfo>| gangs.admit(mate).is_err();
        let Some(gang) = mates.first().filter(too_few) else {
            return;
        };
        let gang = gangs.gang_of(gang).cloned();
        let waiting = mates.iter().any(|mate| self.queue.contains(&mate.uid));
        for mate in &mates {
            self.activate(mate, "AssignedPodDelete", time);
            self.report_waiting(mate, time);
        }
        if let Some(gang) = gang.filter(|_| waiting) {
            let message = NotYet::TooFew.to_string();
            self.update_pod_group_status(&gang, Reason::Unschedulable, message);
        }
    }

    /// Reports what a pod waits for that can no longer be tried: its last condition is not true now, and no attempt
    /// will replace it. Its nomination is cleared.
    fn report_waiting(&mut self, pod: &Arc<PodInfo>, time: Time) {
        if !self.queue.contains(&pod.uid) {
            return;
        }
        let Some(rejection) = self.pre_enqueue_rejection(pod) else {
            return;
        };
        let nominate = self.cleared_nomination(pod);
        if nominate == Nominate::Clear {
            self.forget_nomination(&pod.uid, time);
        }
        self.actions.push(Action::Reject(Box::new(Rejected {
            pod: pod.clone(),
            reason: "Unschedulable",
            message: rejection.message(),
            explanation: None,
            nominate,
        })));
    }
}
