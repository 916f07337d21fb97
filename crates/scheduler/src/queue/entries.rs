//! Entries of the queue: the orders and indexes of [`Queue`] change together with them.

use std::cmp::Reverse;

use super::{Entry, Queue, QueuedPod, SubQueue};
use crate::pod::{Key, PodInfo};

impl Queue {
    pub(super) fn insert(&mut self, pod: QueuedPod, place: SubQueue, event: &'static str) {
        self.next_order += 1;
        self.moves.record_incoming(event, place);
        self.insert_ordered(pod, place, self.next_order);
    }

    pub(super) fn insert_ordered(&mut self, pod: QueuedPod, place: SubQueue, order: u64) {
        let uid = pod.info.uid.clone();
        let rank = (Reverse(pod.info.priority()), order, uid.clone());
        match place {
            SubQueue::Active => {
                self.active.insert(rank);
            }
            SubQueue::Backoff { until } => {
                self.backoff.insert((until, uid.clone()));
                if !pod.errored {
                    self.early.insert(rank);
                }
            }
            SubQueue::Unschedulable => {
                self.unschedulable.insert((pod.since, uid.clone()));
                for plugin in pod.rejected_by.iter() {
                    self.moves.rejected(&pod.info, plugin);
                    self.by_plugin
                        .entry(plugin)
                        .or_default()
                        .insert(uid.clone());
                }
            }
            SubQueue::Gated(_) => {
                self.gated.insert(uid.clone());
            }
        }
        for claim in claim_keys(&pod.info) {
            self.by_claim.entry(claim).or_default().insert(uid.clone());
        }
        self.entries.insert(uid, Entry { pod, place, order });
    }

    pub(super) fn remove_entry(&mut self, uid: &str) -> Option<Entry> {
        let (uid, entry) = self.entries.remove_entry(uid)?;
        let rank = (Reverse(entry.pod.info.priority()), entry.order, uid.clone());
        match entry.place {
            SubQueue::Active => {
                self.active.remove(&rank);
            }
            SubQueue::Backoff { until } => {
                self.backoff.remove(&(until, uid.clone()));
                self.early.remove(&rank);
            }
            SubQueue::Unschedulable => {
                self.unschedulable.remove(&(entry.pod.since, uid.clone()));
                for plugin in entry.pod.rejected_by.iter() {
                    self.moves.left(&entry.pod.info, plugin);
                    if let Some(set) = self.by_plugin.get_mut(&plugin) {
                        set.remove(&uid);
                    }
                }
            }
            SubQueue::Gated(_) => {
                self.gated.remove(&uid);
            }
        }
        for claim in claim_keys(&entry.pod.info) {
            if let Some(set) = self.by_claim.get_mut(&claim) {
                set.remove(&uid);
                if set.is_empty() {
                    self.by_claim.remove(&claim);
                }
            }
        }
        Some(entry)
    }
}

/// The claims of a pod, as far as their names are known.
fn claim_keys(info: &PodInfo) -> Vec<Key> {
    let mut keys: Vec<Key> = Vec::new();
    for claim in info.spec().resource_claims.iter().flatten() {
        if let Ok(Some(name)) = allot_resourceclaim::claim_name(&info.pod, claim) {
            let key = Key {
                namespace: info.key.namespace.clone(),
                name: name.into(),
            };
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
    }
    keys
}
