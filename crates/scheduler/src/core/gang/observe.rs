//! Groups and the pods in them: there, complete, gone.

use std::sync::Arc;

use allot_reflector::Observed;

use crate::actions::{Action, Nominate, Rejected};
use crate::core::{Core, Time};
use crate::dra::groups::PodGroup;
use crate::gangs::group_key;
use crate::pod::{PodInfo, scheduler_name};

impl Core {
    pub(in crate::core) fn observe_groups(&mut self, observed: Observed<PodGroup>, time: Time) {
        let Some(gangs) = &mut self.gangs else {
            return;
        };
        let changed = gangs.observe(&observed);
        let members = changed.iter().flat_map(|group| gangs.members(group));
        let pods = members.filter_map(|key| self.pods.get(&key).cloned());
        let pods: Vec<Arc<PodInfo>> = pods.collect();
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
        for pod in pods {
            self.activate(&pod, "scheduling.k8s.io/PodGroupUpdate", time);
            self.tell_of_lost_group(&pod);
        }
    }

    /// A pod is there; if it is the last one that its gang has waited for, the others can be tried.
    pub(in crate::core) fn join_gang(&mut self, pod: &PodInfo, time: Time) {
        let ours = pod.node_name().is_some() || self.profile(scheduler_name(&pod.pod)).is_some();
        let Some(gangs) = self.gangs.as_mut().filter(|_| ours) else {
            return;
        };
        if !gangs.join(pod) {
            return;
        }
        let others = group_key(pod).map(|group| gangs.members(&group));
        let others = others.into_iter().flatten();
        let others = others.filter_map(|key| self.pods.get(&key).cloned());
        for other in others.collect::<Vec<_>>() {
            self.activate(&other, "UnschedulablePodAdd", time);
        }
    }

    /// Tells a pod whose group is gone that it waits for it. What it was told before is not true any more, and there is no
    /// attempt that would tell it something else.
    fn tell_of_lost_group(&mut self, pod: &Arc<PodInfo>) {
        let key = group_key(pod);
        let is_there = key.is_none_or(|key| self.gangs.as_ref().is_some_and(|g| g.has(&key)));
        if is_there || !self.queue.contains(&pod.uid) {
            return;
        }
        if let Some(rejection) = self.held_back(pod) {
            self.actions.push(Action::Reject(Box::new(Rejected {
                pod: pod.clone(),
                reason: "Unschedulable",
                message: rejection.message(),
                nominate: Nominate::Keep,
            })));
        }
    }
}
