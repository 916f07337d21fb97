//! The classic claims: what a watch showed, what a write returned, what is in flight.

use std::sync::Arc;

use allot_framework::assume_cache::AssumeCache;
use allot_framework::pod::{Key, Uid, key_of};
use allot_model::classic::objects::{Allocation, ResourceClaim};
use allot_model::limits::CLASSIC_RESERVED_FOR;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::message::ClaimTask;
use crate::releases::Releases;

/// Pods whose reservation is being written, and the allocation that is written with it.
#[derive(Debug, Default)]
pub struct InFlight {
    pods: FxHashSet<Uid>,
    /// What the scheduler allocated, and the driver of its class.
    allocation: Option<(String, Arc<Allocation>)>,
}

impl InFlight {
    /// Whether an allocation is being written.
    pub fn allocates(&self) -> bool {
        self.allocation.is_some()
    }
}

/// What happened to a claim, for deciding which pods to try again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// The claim, if pods that use it may continue.
    pub progressed: Option<Key>,
    /// Structured resources may be free now.
    pub freed: bool,
}

/// All classic claims. See the module.
#[derive(Debug, Default)]
pub struct Claims {
    cache: AssumeCache<ResourceClaim>,
    in_flight: FxHashMap<Uid, InFlight>,
    releases: Releases,
}

/// The identity of a claim.
pub fn uid_of(claim: &ResourceClaim) -> &str {
    claim.metadata.uid.as_deref().unwrap_or_default()
}

impl Claims {
    /// The newest known version of a claim.
    pub fn get(&self, key: &Key) -> Option<&Arc<ResourceClaim>> {
        self.cache.get(key)
    }

    /// The newest known version of every claim.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ResourceClaim>> {
        self.cache.iter()
    }

    /// Names of all claims.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.cache.entries().map(|(key, _)| key)
    }

    /// The writes in flight for a claim.
    pub fn in_flight(&self, uid: &str) -> Option<&InFlight> {
        self.in_flight.get(uid)
    }

    /// Whether a pod must not rely on a claim, because its deallocation or the removal of the reservation is in flight.
    pub fn is_releasing(&self, uid: &str, pod: &Uid) -> bool {
        self.releases.concern(uid, pod)
    }

    /// The deallocation of a claim begins; with a pod, the removal of its reservation.
    pub fn release(&mut self, uid: &str, pod: Option<Uid>) {
        self.releases.begin(uid, pod);
    }

    /// The deallocation or removal has ended, with or without success; the written claim was [assumed](Claims::assume)
    /// before.
    pub fn released(&mut self, key: &Key, uid: &Uid, pod: Option<Uid>) -> Change {
        self.releases.end(uid, pod);
        Change {
            progressed: Some(key.clone()),
            freed: false,
        }
    }

    /// Allocations that are being written, with the driver of each claim's class.
    pub fn allocations_in_flight(&self) -> impl Iterator<Item = (&str, &Allocation)> {
        let allocations = self
            .in_flight
            .values()
            .filter_map(|i| i.allocation.as_ref());
        allocations.map(|(driver, allocation)| (driver.as_str(), &**allocation))
    }

    /// Whether the claim can be reserved for one more pod.
    pub fn can_be_reserved(&self, claim: &ResourceClaim, pod: &str) -> bool {
        let writing = self.in_flight.get(uid_of(claim));
        let in_flight_for = |uid: &str| writing.is_some_and(|w| w.pods.contains(uid));
        if claim.is_reserved_for(pod) || in_flight_for(pod) {
            return true;
        }
        let written = &claim.status.reserved_for;
        let unwritten = writing.map_or(0, |w| {
            w.pods.iter().filter(|p| !claim.is_reserved_for(p)).count()
        });
        let users = written.len() + unwritten;
        let shareable = claim
            .status
            .allocation
            .as_ref()
            .is_some_and(|a| a.shareable);
        users == 0 || (shareable && users < CLASSIC_RESERVED_FOR)
    }

    /// A watch showed a claim.
    pub fn observe(&mut self, claim: Arc<ResourceClaim>) -> Change {
        let key = key_of(&claim.metadata);
        let entry = self.cache.entry_mut(key.clone());
        let before = entry.effective().cloned();
        if !entry.observe(claim) {
            return Change::default();
        }
        let after = entry.effective().cloned();
        change(key, before.as_deref(), after.as_deref())
    }

    /// Assumes the claim that a write returned until a watch shows a version as new. Deleted claims stay deleted.
    pub fn assume(&mut self, claim: Arc<ResourceClaim>) -> Change {
        let key = key_of(&claim.metadata);
        let Some(before) = self.cache.get(&key).cloned() else {
            return Change::default();
        };
        if !self.cache.entry_mut(key.clone()).assume(claim.clone()) {
            return Change::default();
        }
        change(key, Some(&before), Some(&claim))
    }

    /// A watch showed the deletion of a claim, or a new list lacks it.
    pub fn observe_deleted(&mut self, key: &Key) -> Change {
        match self.cache.remove(key) {
            Some(entry) => change(key.clone(), entry.effective().map(|c| &**c), None),
            None => Change::default(),
        }
    }

    /// An attempt decided to reserve a claim for a pod, perhaps after allocating it.
    pub fn assume_allocated(&mut self, task: &ClaimTask, pod: &Uid) {
        let entry = self.in_flight.entry(task.uid.clone()).or_default();
        entry.pods.insert(pod.clone());
        if task.allocation.is_some() {
            entry.allocation.clone_from(&task.allocation);
        }
    }

    /// The write for a pod has ended. After a success the claim was [assumed](Claims::assume) before, so that the
    /// allocation counts as in use throughout.
    pub fn finish_write(&mut self, key: &Key, uid: &str, pod: &str, written: bool) -> Change {
        let Some(entry) = self.in_flight.get_mut(uid) else {
            return Change::default();
        };
        entry.pods.remove(pod);
        if !entry.pods.is_empty() {
            return Change::default();
        }
        let allocated = self.in_flight.remove(uid).is_some_and(|e| e.allocates());
        // An answer can be late: the watch may have shown in the meantime that the claim lost what was written.
        let known = self.get(key).filter(|c| uid_of(c) == uid);
        let lost = known.is_none_or(|c| c.status.allocation.is_none());
        let freed = allocated && (!written || lost);
        Change {
            progressed: Some(key.clone()),
            freed,
        }
    }
}

/// What a new version of a claim means: a change of its metadata alone requeues no pod.
fn change(key: Key, before: Option<&ResourceClaim>, after: Option<&ResourceClaim>) -> Change {
    let structured = |c: Option<&ResourceClaim>| {
        c.is_some_and(|c| c.status.allocation.is_some() && c.is_structured())
    };
    let freed = structured(before) && after.is_none_or(|a| a.status.allocation.is_none());
    let progressed = match (before, after) {
        (Some(before), Some(after)) => {
            before.status != after.status
                || before.metadata.uid != after.metadata.uid
                || before.metadata.deletion_timestamp != after.metadata.deletion_timestamp
                || before.metadata.owner_references != after.metadata.owner_references
        }
        _ => true,
    };
    Change {
        progressed: progressed.then_some(key),
        freed,
    }
}
