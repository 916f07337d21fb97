//! Bindings that wait: indexed by the claims they wait for, and by deadline.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rustc_hash::FxHashMap;

use crate::pod::{Key, Uid};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pods: FxHashMap<Uid, Entry>,
    by_claim: FxHashMap<Key, Vec<Uid>>,
    by_deadline: BTreeSet<(Timestamp, Uid)>,
}

#[derive(Debug)]
struct Entry {
    /// The claims that may concern the pod.
    claims: Vec<Key>,
    deadline: Option<Timestamp>,
}

impl Waiting {
    /// Adds a pod that waits, until the deadline if there is one.
    pub(super) fn insert(&mut self, pod: &Uid, claims: Vec<Key>, deadline: Option<Timestamp>) {
        self.remove(pod);
        for claim in &claims {
            let pods = self.by_claim.entry(claim.clone()).or_default();
            pods.push(pod.clone());
        }
        let entry = Entry {
            claims,
            deadline: None,
        };
        self.pods.insert(pod.clone(), entry);
        self.set_deadline(pod, deadline);
    }

    /// Changes what a pod waits for.
    pub(super) fn set_deadline(&mut self, pod: &Uid, deadline: Option<Timestamp>) {
        let Some(entry) = self.pods.get_mut(pod) else {
            return;
        };
        if let Some(before) = std::mem::replace(&mut entry.deadline, deadline) {
            self.by_deadline.remove(&(before, pod.clone()));
        }
        self.by_deadline
            .extend(deadline.map(|at| (at, pod.clone())));
    }

    /// Removes a pod.
    pub(super) fn remove(&mut self, pod: &Uid) {
        self.set_deadline(pod, None);
        let Some(entry) = self.pods.remove(pod) else {
            return;
        };
        for claim in entry.claims {
            if let Some(pods) = self.by_claim.get_mut(&claim) {
                pods.retain(|p| p != pod);
                if pods.is_empty() {
                    self.by_claim.remove(&claim);
                }
            }
        }
    }

    /// The waiting pods that have a deadline.
    pub(super) fn timed(&self) -> impl Iterator<Item = &Uid> {
        self.by_deadline.iter().map(|(_, pod)| pod)
    }

    /// The earliest deadline of the waiting bindings.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.by_deadline.first().map(|(at, _)| *at)
    }

    /// The pods whose deadline has passed.
    pub(super) fn late(&self, now: Timestamp) -> Vec<Uid> {
        let late = self.by_deadline.iter().take_while(|(at, _)| *at <= now);
        late.map(|(_, pod)| pod.clone()).collect()
    }

    /// The pods that wait for a change of a claim.
    pub(super) fn for_claim(&self, claim: &Key) -> Vec<Uid> {
        self.by_claim.get(claim).cloned().unwrap_or_default()
    }
}
