//! Pods whose binding waits for something: which of them a claim concerns, and which can be late.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::pod::{Key, Uid};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// With the claims that may concern them.
    pods: FxHashMap<Uid, Vec<Key>>,
    by_claim: FxHashMap<Key, Vec<Uid>>,
    timed: FxHashSet<Uid>,
}

impl Waiting {
    /// A pod waits; `timed`, if not for ever.
    pub(super) fn insert(&mut self, pod: &Uid, claims: Vec<Key>, timed: bool) {
        self.remove(pod);
        for claim in &claims {
            let pods = self.by_claim.entry(claim.clone()).or_default();
            pods.push(pod.clone());
        }
        if timed {
            self.timed.insert(pod.clone());
        }
        self.pods.insert(pod.clone(), claims);
    }

    /// A pod waits no more.
    pub(super) fn remove(&mut self, pod: &Uid) {
        let Some(claims) = self.pods.remove(pod) else {
            return;
        };
        self.timed.remove(pod);
        for claim in claims {
            if let Some(pods) = self.by_claim.get_mut(&claim) {
                pods.retain(|p| p != pod);
                if pods.is_empty() {
                    self.by_claim.remove(&claim);
                }
            }
        }
    }

    /// Whether a pod waits.
    pub(super) fn contains(&self, pod: &Uid) -> bool {
        self.pods.contains_key(pod)
    }

    /// The pods that wait and can be late.
    pub(super) fn timed(&self) -> impl Iterator<Item = &Uid> {
        self.timed.iter()
    }

    /// The pods that wait for something about a claim.
    pub(super) fn for_claim(&self, claim: &Key) -> Vec<Uid> {
        self.by_claim.get(claim).cloned().unwrap_or_default()
    }
}
