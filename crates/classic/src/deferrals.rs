//! Deallocations that wait until another pod was tried that can use the claim where it is allocated.
//!
//! Pods that share a claim and need it on different nodes would otherwise have it deallocated in turn, each before the
//! pod that it was allocated for is tried again. An allocation is left to each pod once: a pod that was tried and could
//! not be placed does not keep others from deallocating the claim any longer.

use std::sync::Arc;

use allot_framework::pod::{Key, PodInfo, Uid};
use rustc_hash::{FxHashMap, FxHashSet};

/// A claim that is left to a pod until the pod was tried.
#[derive(Debug, Clone)]
pub struct Deferral {
    /// Namespace and name of the claim.
    pub claim: Key,
    /// The pod that can use the claim.
    pub pod: Uid,
    /// How often this pod was tried before.
    pub attempts: u32,
}

#[derive(Debug)]
struct Pending {
    attempts: u32,
    /// The pods that would have the claim deallocated.
    waiting: Vec<Arc<PodInfo>>,
}

/// All deferrals, by claim and by the pod that the claim is left to.
#[derive(Debug, Default)]
pub struct Deferrals {
    pending: FxHashMap<(Key, Uid), Pending>,
    /// Pods that were tried while the claim was left to them.
    over: FxHashMap<Key, FxHashSet<Uid>>,
}

impl Deferrals {
    /// Whether the claim, as it is allocated, was left to a pod already.
    pub fn is_over(&self, claim: &Key, pod: &Uid) -> bool {
        self.over.get(claim).is_some_and(|pods| pods.contains(pod))
    }

    /// A pod waits with the deallocation of a claim.
    pub fn begin(&mut self, deferral: Deferral, waiting: Arc<PodInfo>) {
        let pending = self
            .pending
            .entry((deferral.claim, deferral.pod))
            .or_insert_with(|| Pending {
                attempts: deferral.attempts,
                waiting: Vec::new(),
            });
        pending.waiting.retain(|other| other.uid != waiting.uid);
        pending.waiting.push(waiting);
    }

    /// Ends the deferrals whose pod was tried, according to its identity and its attempts before. Returns the pods that
    /// waited for it.
    pub fn end(&mut self, was_tried: impl Fn(&Uid, u32) -> bool) -> Vec<Arc<PodInfo>> {
        let mut waiting = Vec::new();
        let ended = self
            .pending
            .extract_if(|(_, pod), pending| was_tried(pod, pending.attempts));
        for ((claim, pod), pending) in ended {
            self.over.entry(claim).or_default().insert(pod);
            waiting.extend(pending.waiting);
        }
        waiting
    }

    /// The claim is not allocated any longer: its next allocation is left to pods again.
    pub fn forget_claim(&mut self, claim: &Key) {
        self.over.remove(claim);
        self.pending.retain(|(other, _), _| other != claim);
    }

    /// The pod does not exist any longer. Returns the pods that waited for it.
    pub fn forget_pod(&mut self, pod: &Uid) -> Vec<Arc<PodInfo>> {
        self.over.retain(|_, pods| {
            pods.remove(pod);
            !pods.is_empty()
        });
        let ended = self.pending.extract_if(|(_, other), _| other == pod);
        ended.flat_map(|(_, pending)| pending.waiting).collect()
    }
}
