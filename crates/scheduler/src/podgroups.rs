//! PodGroups: groups of pods of which at least some number is placed at once, or none (KEP-4671, `GangScheduling`).
//!
//! This module holds the state; [`crate::core`] places them.

use std::sync::Arc;

use allot_reflector::Observed;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Deserialize;
use serde_json::Value;

use crate::pod::{Key, PodInfo};

pub mod claims;

use claims::{Groups, PodGroup};

/// The type of the condition that reports whether a group's pods were placed.
pub const SCHEDULED: &str = "PodGroupScheduled";

/// The condition in the status of a PodGroup.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// `True` when they were placed.
    pub status: String,
    /// In one word.
    pub reason: String,
    /// The reason as a sentence.
    #[serde(default)]
    pub message: String,
    /// The version of the specification that it is about.
    pub observed_generation: Option<i64>,
    /// `lastTransitionTime`; `None` for now.
    pub last_transition_time: Option<String>,
}

impl Condition {
    /// The condition in the status of a group.
    pub fn of(status: &Value) -> Option<Self> {
        let conditions = status["conditions"].as_array()?;
        let found = conditions.iter().find(|c| c["type"] == SCHEDULED)?;
        Self::deserialize(found).ok()
    }

    fn is_true(&self) -> bool {
        self.status == "True"
    }

    fn is_same(&self, other: &Self) -> bool {
        let parts = |c: &Self| (c.status.clone(), c.reason.clone(), c.message.clone());
        parts(self) == parts(other) && self.observed_generation == other.observed_generation
    }
}

/// Why a pod of a group is not tried yet; the first two texts are upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotYet {
    /// The PodGroup is not known yet, so neither is its policy.
    #[error("waiting for pod's pod group {0:?} to appear in scheduling queue")]
    NoGroup(String),
    /// Fewer than `minCount` pods of the gang exist.
    #[error("waiting for minCount pods from a gang to appear in scheduling queue")]
    TooFew,
}

/// Groups and the pods in them.
#[derive(Debug, Default)]
pub struct PodGroups {
    groups: Groups,
    members: FxHashMap<Key, FxHashSet<Key>>,
}

/// The group of a pod, by name.
pub fn group_key(pod: &PodInfo) -> Option<Key> {
    pod.group().map(|name| Key::new(&pod.key.namespace, name))
}

impl PodGroups {
    /// The groups that there are.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Records PodGroups. Returns those with a change that matters to their pods.
    pub fn observe(&mut self, observed: &Observed<PodGroup>) -> Vec<Key> {
        match observed {
            Observed::Applied(group) => {
                let new = Arc::new((**group).clone());
                let old = self.groups.insert(group.key.clone(), new);
                let same = old.is_some_and(|old| old.is_same(group));
                Vec::from_iter((!same).then(|| group.key.clone()))
            }
            Observed::Deleted(group) => {
                self.groups.remove(&group.key);
                vec![group.key.clone()]
            }
            Observed::Listed { items, .. } => {
                let new = items.iter().map(|g| (g.key.clone(), Arc::new(g.clone())));
                let new = new.collect();
                let old = std::mem::replace(&mut self.groups, new);
                old.into_keys().chain(self.groups.keys().cloned()).collect()
            }
        }
    }

    /// Adds a pod to its group. Returns whether that completes its gang.
    pub fn add_pod(&mut self, pod: &PodInfo) -> bool {
        let Some(group) = group_key(pod) else {
            return false;
        };
        let members = self.members.entry(group.clone()).or_default();
        let is_new = members.insert(pod.key.clone());
        let needed = self.groups.get(&group).and_then(|g| g.min_count);
        is_new && needed == Some(members.len())
    }

    /// Removes a deleted pod from its group.
    pub fn delete_pod(&mut self, pod: &PodInfo) {
        let Some(group) = group_key(pod) else {
            return;
        };
        if let Some(members) = self.members.get_mut(&group) {
            members.remove(&pod.key);
            if members.is_empty() {
                self.members.remove(&group);
            }
        }
    }

    /// The PodGroup of a pod, if it exists.
    pub fn group_of(&self, pod: &PodInfo) -> Option<&Arc<PodGroup>> {
        self.groups.get(&group_key(pod)?)
    }

    /// The PodGroup of a pod if it has a gang policy; `None` for a pod that is scheduled alone.
    pub fn gang_of(&self, pod: &PodInfo) -> Option<&Arc<PodGroup>> {
        let group = self.group_of(pod)?;
        group.min_count.map(|_| group)
    }

    /// The pods of a group, in a certain order.
    pub fn members(&self, group: &Key) -> Vec<Key> {
        let members = self.members.get(group);
        let mut members: Vec<Key> = members.into_iter().flatten().cloned().collect();
        members.sort_unstable();
        members
    }

    /// Whether a pod can be tried, as far as its group is concerned.
    ///
    /// # Errors
    /// The PodGroup does not exist, or its gang is not complete.
    pub fn admit(&self, pod: &PodInfo) -> Result<(), NotYet> {
        let Some(key) = group_key(pod) else {
            return Ok(());
        };
        let Some(group) = self.groups.get(&key) else {
            return Err(NotYet::NoGroup(key.name.to_string()));
        };
        let there = self.members.get(&key).map_or(0, FxHashSet::len);
        match group.min_count {
            Some(needed) if there < needed => Err(NotYet::TooFew),
            _ => Ok(()),
        }
    }

    /// The condition to write for a group, if it changed. It is remembered. As in upstream, a condition that the pods
    /// were placed is not reverted.
    pub fn set_condition(&mut self, group: &Key, mut condition: Condition) -> Option<Condition> {
        let group = self.groups.get_mut(group)?;
        if let Some(old) = &group.condition {
            if old.is_same(&condition) || old.is_true() && !condition.is_true() {
                return None;
            }
            if old.status == condition.status {
                condition.last_transition_time = old.last_transition_time.clone();
            }
        }
        Arc::make_mut(group).condition = Some(condition.clone());
        Some(condition)
    }
}
