//! What preemption by a PodGroup removes as a unit.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::Timestamp;
use rustc_hash::FxHashMap;

use super::{Evictable, start_time};
use crate::node::NodeInfo;
use crate::pod::{Key, PodInfo};
use crate::podgroups::claims::PodGroup;

/// A pod, or all pods of a PodGroup that can only be disrupted as a whole, with the nodes that they count on.
#[derive(Debug, Clone)]
pub(crate) struct Victim {
    /// The pods, each with its node.
    pub(crate) pods: Vec<(Arc<PodInfo>, Arc<str>)>,
    priority: i32,
    /// It is a group, or a pod in one.
    is_group: bool,
}

impl Victim {
    /// The possible victims of a PodGroup on the nodes: those of lower priority. `group_of` is the PodGroup of a pod, if it is in
    /// one that exists. Pods of the preemptor itself are none of them.
    pub(crate) fn below<'a>(
        preemptor: &PodGroup,
        nodes: &[Arc<NodeInfo>],
        group_of: impl Fn(&PodInfo) -> Option<&'a Arc<PodGroup>>,
    ) -> Vec<Self> {
        let mut groups: FxHashMap<&Key, Self> = FxHashMap::default();
        let mut victims = Vec::new();
        for node in nodes {
            for pod in &node.pods {
                let group = group_of(pod);
                let placed = (pod.clone(), node.name.clone());
                match group {
                    Some(group) if group.key == preemptor.key => {}
                    Some(group) if group.is_disrupted_as_a_whole => {
                        let victim = groups.entry(&group.key).or_insert_with(|| Self {
                            pods: Vec::new(),
                            priority: priority_of(pod, Some(group)),
                            is_group: true,
                        });
                        victim.pods.push(placed);
                    }
                    _ => victims.push(Self {
                        priority: priority_of(pod, group),
                        is_group: pod.group().is_some(),
                        pods: vec![placed],
                    }),
                }
            }
        }
        victims.extend(groups.into_values());
        victims.retain(|victim| victim.priority < preemptor.priority);
        victims
    }

    /// The earliest start of one of the pods.
    fn earliest_start_time(&self) -> Timestamp {
        let times = self.pods.iter().map(|(pod, _)| start_time(pod));
        times.min().unwrap_or(Timestamp::MAX)
    }

    /// Most important first (`moreImportantVictim`): the higher priority; a group, or a pod in one, before
    /// other pods; of groups the larger one; the earlier start.
    pub(crate) fn compare_importance(&self, other: &Self) -> Ordering {
        let of_groups = |size: &Self| if size.is_group { size.pods.len() } else { 0 };
        let first = |victim: &Self| victim.pods.first().map(|(pod, _)| pod.key.clone());
        (other.priority.cmp(&self.priority))
            .then_with(|| other.is_group.cmp(&self.is_group))
            .then_with(|| of_groups(other).cmp(&of_groups(self)))
            .then_with(|| self.earliest_start_time().cmp(&other.earliest_start_time()))
            .then_with(|| first(self).cmp(&first(other)))
    }
}

/// The priority by which a pod is protected from PodGroups: that of its group if it can only be disrupted with that.
pub(crate) fn priority_of(pod: &PodInfo, group: Option<&Arc<PodGroup>>) -> i32 {
    match group {
        Some(group) if group.is_disrupted_as_a_whole => group.priority,
        _ => pod.priority(),
    }
}

impl Evictable for Victim {
    fn pods(&self) -> impl Iterator<Item = &PodInfo> {
        self.pods.iter().map(|(pod, _)| &**pod)
    }
}
