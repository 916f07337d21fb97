//! The claims, and the devices that are allocated to them.
//!
//! Three sources determine the allocation of a claim: what a watch *saw*, what a write returned (*assumed*, until a
//! watch is at least as new) and what an attempt decided but has not written yet (*in flight*). The invariant of this
//! file: as long as any of them allocates a device to a claim, the device is in use in the [`Cluster`] that attempts
//! allocate from. It holds after every single call, in any order, because every call ends in [`Claims::recount`].
//!
//! What attempts do to claims is in [`attempts`]; claims that other schedulers write are in [`conflict`].

use std::sync::Arc;

use allot_allocator::{Cluster, Holder};
use allot_resourceclaim::{EXTENDED_RESOURCE_CLAIM_ANNOTATION, same_devices};
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::assume_cache::{AssumeCache, Object};
use crate::dra::quota::Quotas;
use crate::pod::{Key, Uid};
use crate::podgroups::claims::Groups;
use crate::version::is_newer;

mod attempts;
mod conflict;
mod quota;
mod state;

pub use conflict::Version;
use conflict::devices_of;
use state::ClaimStates;

/// An allocation that was decided and is being written.
#[derive(Debug, Clone)]
pub struct InFlight {
    /// The claim it is for.
    pub key: Key,
    /// The claim as it was when that was decided.
    claim: Arc<ResourceClaim>,
    /// The decided allocation.
    pub allocation: Arc<AllocationResult>,
    /// Pods whose bindings depend on it.
    sharers: FxHashSet<Uid>,
}

/// What happened to a claim, for deciding which pods to try again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// Namespace and name of the changed claim.
    pub key: Option<Key>,
    /// Devices of the claim may be free now.
    pub freed: bool,
    /// A pod that waits for this claim may continue.
    pub progressed: bool,
    /// The claim got what another one had before.
    pub double_allocated: bool,
    /// The extended resource claim of this pod was deleted.
    pub extended_resource_claim_gone: Option<Uid>,
}

/// All claims. See the module.
#[derive(Debug)]
pub struct Claims {
    cache: AssumeCache<ResourceClaim>,
    states: ClaimStates,
    cluster: Cluster,
    /// Extended resource claims by owning pod: more than one if the answer to a create request was lost.
    extended_resource_claims: FxHashMap<Uid, Vec<Key>>,
    is_listed: bool,
    quotas: Quotas,
    /// PodGroups; `None` if groups have no claims.
    groups: Option<Groups>,
}

/// `metadata.uid`, the key of the assume cache; empty for an object that was never stored.
pub fn uid_of(claim: &ResourceClaim) -> &str {
    claim.metadata.uid.as_deref().unwrap_or_default()
}

/// Namespace and name of a claim.
pub fn key_of(claim: &ResourceClaim) -> Key {
    Key::new(
        claim.metadata.namespace.as_deref().unwrap_or_default(),
        claim.metadata.name.as_deref().unwrap_or_default(),
    )
}

/// The allocation of a claim, if it has one.
pub fn allocation_of(claim: &ResourceClaim) -> Option<&AllocationResult> {
    claim.status.as_ref()?.allocation.as_ref()
}

impl Claims {
    /// No claims, on a cluster that so far only has its features.
    pub fn new(cluster: Cluster) -> Self {
        Self {
            cache: AssumeCache::default(),
            states: ClaimStates::default(),
            cluster,
            extended_resource_claims: FxHashMap::default(),
            is_listed: false,
            quotas: Quotas::default(),
            groups: None,
        }
    }

    /// Groups of pods have claims.
    #[must_use]
    pub fn with_groups(mut self, on: bool) -> Self {
        self.groups = on.then(Groups::default);
        self
    }

    /// PodGroups, if groups have claims.
    pub fn groups(&self) -> Option<&Groups> {
        self.groups.as_ref()
    }

    /// The PodGroups, to change them; `None` if groups have no claims.
    pub fn groups_mut(&mut self) -> Option<&mut Groups> {
        self.groups.as_mut()
    }

    /// The devices, and which are in use.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The devices, to apply changes of slices and taint rules. Allocations are recorded by this type alone.
    pub fn cluster_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
    }

    /// The newest known version of a claim.
    pub fn get(&self, key: &Key) -> Option<&Arc<ResourceClaim>> {
        self.cache.get(key)
    }

    /// The newest known version of every claim.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ResourceClaim>> {
        self.cache.iter()
    }

    /// The extended resource claims that were created for a pod: at most one, unless an answer was lost.
    pub fn extended_resource_claims_of(
        &self,
        pod_uid: &str,
    ) -> impl Iterator<Item = &Arc<ResourceClaim>> {
        let keys = self
            .extended_resource_claims
            .get(pod_uid)
            .into_iter()
            .flatten();
        keys.filter_map(|key| self.get(key))
    }

    /// The allocation or reservation that is being written for a claim; `None` when no write is under way.
    pub fn in_flight(&self, uid: &str) -> Option<&InFlight> {
        self.states.get(uid)?.in_flight.as_ref()
    }

    /// Number of allocations in flight.
    #[cfg(test)]
    pub fn in_flight_len(&self) -> usize {
        self.states.all_in_flight().count()
    }

    /// Takes in a claim that a watch showed.
    pub fn observe(&mut self, claim: Arc<ResourceClaim>) -> Change {
        let (mut change, moved) = self.update(claim.clone());
        if moved {
            change.double_allocated = self.check_double_allocation(&claim);
            self.check_quota(&claim);
        }
        change
    }

    /// As [`Claims::observe`], without checking for double allocations. Returns also whether the claim got or lost devices.
    fn update(&mut self, claim: Arc<ResourceClaim>) -> (Change, bool) {
        let key = key_of(&claim);
        let mut change = Change {
            key: Some(key.clone()),
            progressed: true,
            ..Change::default()
        };
        if let Some(old) = self.cache.get(&key).cloned()
            && uid_of(&old) != uid_of(&claim)
        {
            // Re-created while the watch was away; or a watch shows a claim older than one that was assumed.
            if self.cache.entry(&key).is_some_and(|e| e.is_unseen())
                && !is_newer(claim.version(), old.version())
            {
                return (Change::default(), false);
            }
            change.freed |= self.observe_deleted(&key).freed;
        }
        let uid = Uid::from(uid_of(&claim));
        if self.states.is_deleted(&uid) {
            return (change, false);
        }
        self.note_extended_resource_claim(&claim, &key);
        let entry = self.cache.entry_mut(key.clone());
        let before = entry.effective().cloned();
        let seen_before = entry.seen().cloned();
        if !entry.observe(claim.clone()) {
            return (Change::default(), false);
        }
        let after = entry.effective().cloned();
        change.freed |= lost_allocation(before.as_deref(), after.as_deref());
        if after.as_deref().is_none_or(|c| allocation_of(c).is_none()) {
            self.states.clear(&uid, |state| state.orphaned = false);
        }
        // Most changes of a claim are not about its devices.
        let same = |a: &Option<Arc<ResourceClaim>>, b: &Option<Arc<ResourceClaim>>| {
            devices_of(a.as_deref()) == devices_of(b.as_deref())
        };
        let claim = Some(claim);
        let moved = !same(&seen_before, &claim);
        if moved {
            self.count_seen(&uid, &key);
        }
        // Unless a newer version was assumed, it is the same two versions.
        let is_observed = |a: &Option<Arc<_>>, b: &Option<Arc<_>>| match (a, b) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        let changed = match is_observed(&before, &seen_before) && is_observed(&after, &claim) {
            true => moved,
            false => !same(&before, &after),
        };
        if changed || self.in_flight(&uid).is_some() {
            self.recount(&uid, after.as_deref());
        }
        (change, moved)
    }

    /// A watch showed the deletion of a claim, or a new list lacks it.
    pub fn observe_deleted(&mut self, key: &Key) -> Change {
        let Some(entry) = self.cache.remove(key) else {
            return Change::default();
        };
        let mut change = Change {
            key: Some(key.clone()),
            progressed: true,
            ..Change::default()
        };
        for claim in entry.versions() {
            change.freed |= allocation_of(claim).is_some();
            if let Some(pod) = extended_resource_claim_owner(claim) {
                let pod = Uid::from(pod);
                if let Some(keys) = self.extended_resource_claims.get_mut(&pod) {
                    keys.retain(|k| k != key);
                    if keys.is_empty() {
                        self.extended_resource_claims.remove(&pod);
                    }
                }
                change.extended_resource_claim_gone = Some(pod);
            }
            let uid = Uid::from(uid_of(claim));
            self.states.delete(&uid);
            self.recount(&uid, None);
            self.quotas.seen.set(&uid, None);
            self.quotas.late.remove(&uid);
        }
        self.clear_late();
        self.forget_resolved_conflicts();
        change
    }

    /// Claims that a watch showed; one that a new list lacks was deleted.
    pub fn observed_keys(&self) -> Vec<Key> {
        self.cache
            .entries()
            .filter(|(_, e)| !e.is_unseen())
            .map(|(k, _)| k.clone())
            .collect()
    }

    /// Claims of which only a write of this scheduler is known; one that is missing from a list newer than the write
    /// was deleted.
    pub fn unseen_older_than(&self, list_version: &str) -> Vec<Key> {
        let is_old = |c: &Arc<ResourceClaim>| !is_newer(c.version(), list_version);
        self.cache
            .entries()
            .filter(|(_, e)| e.is_unseen() && e.effective().is_some_and(is_old))
            .map(|(k, _)| k.clone())
            .collect()
    }

    /// Records the claim that a write of this scheduler returned; it counts until a watch shows a version that is as new.
    pub fn assume(&mut self, claim: Arc<ResourceClaim>) -> Change {
        let (key, uid) = (key_of(&claim), Uid::from(uid_of(&claim)));
        if self.states.is_deleted(&uid) {
            return Change::default();
        }
        self.states.clear(&uid, |state| state.inherited = false);
        let entry = self.cache.entry_mut(key.clone());
        let before = entry.effective().cloned();
        if !entry.assume(claim.clone()) {
            return Change::default();
        }
        self.note_extended_resource_claim(&claim, &key);
        let freed = lost_allocation(before.as_deref(), Some(&claim));
        self.recount(&uid, Some(&claim));
        Change {
            key: Some(key),
            freed,
            progressed: true,
            ..Change::default()
        }
    }

    fn note_extended_resource_claim(&mut self, claim: &ResourceClaim, key: &Key) {
        if let Some(pod) = extended_resource_claim_owner(claim) {
            let keys = self.extended_resource_claims.entry(pod.into()).or_default();
            if !keys.contains(key) {
                keys.push(key.clone());
            }
        }
    }

    fn recount_known(&mut self, uid: &Uid, key: &Key) {
        let claim = self.get(key).filter(|c| uid_of(c) == &**uid).cloned();
        self.recount(uid, claim.as_deref());
    }

    /// Updates the devices in use for the claim with this UID: its allocation as observed or assumed, and the one in
    /// flight.
    fn recount(&mut self, uid: &Uid, claim: Option<&ResourceClaim>) {
        let held = claim.and_then(|c| Some((Holder::from(c), allocation_of(c)?)));
        let pending = self
            .states
            .get(uid)
            .and_then(|state| state.in_flight.as_ref());
        let pending_id = format!("{uid}/pending");
        let both = held.as_ref().zip(pending).is_some_and(|((_, a), p)| {
            !same_devices(a.devices.as_ref(), p.allocation.devices.as_ref())
        });
        if let Some(pending) = pending.filter(|_| held.is_none() || both) {
            let holder = Holder {
                namespace: (*pending.key.namespace).into(),
                name: (*pending.key.name).into(),
                uid: pending_id.into(),
            };
            self.cluster.claim_allocated(&holder, &pending.allocation);
            if let Some((holder, allocation)) = held {
                self.cluster.claim_allocated(&holder, allocation);
            } else {
                self.cluster.claim_released(uid);
            }
        } else {
            // The order inside one call matters little, but allocate before freeing nevertheless.
            match held {
                Some((holder, allocation)) => self.cluster.claim_allocated(&holder, allocation),
                None => self.cluster.claim_released(uid),
            }
            self.cluster.claim_released(&pending_id);
        }
        if !self.quotas.are_unused() {
            let key = claim.map(key_of);
            let key = key.or_else(|| Some(self.in_flight(uid)?.key.clone()));
            match key {
                Some(key) => self.count_used(uid, &key),
                None => self.quotas.used.set(uid, None),
            }
        }
    }
}

/// The pod for whose extended resources the claim was created.
fn extended_resource_claim_owner(claim: &ResourceClaim) -> Option<&str> {
    let extended = claim
        .metadata
        .annotations
        .as_ref()?
        .get(EXTENDED_RESOURCE_CLAIM_ANNOTATION)?
        == "true";
    let owners = claim
        .metadata
        .owner_references
        .as_deref()
        .filter(|_| extended)?;
    owners
        .iter()
        .find(|o| o.controller == Some(true))
        .map(|o| o.uid.as_str())
}

/// Whether devices that `before` held are not held by `after`.
fn lost_allocation(before: Option<&ResourceClaim>, after: Option<&ResourceClaim>) -> bool {
    before.is_some_and(|b| allocation_of(b).is_some())
        && after.is_none_or(|a| allocation_of(a).is_none())
}

#[cfg(test)]
mod tests;
