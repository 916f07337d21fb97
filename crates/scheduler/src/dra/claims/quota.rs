//! How many devices the claims of namespaces with quotas have, and which of them give way when there are too many.
//!
//! Two schedulers, or a scheduler and a late write of its predecessor, may each allocate what a quota leaves. As with
//! devices that are allocated twice, the watch decides: the claim whose allocation it shows later exceeds the quota, and
//! yields unless a pod with it is on a node. Lowering a quota takes nothing away, also when the scheduler starts after that: of
//! the claims in a list, those that were allocated before their quota was changed are not late.

use std::sync::Arc;

use allot_resourceclaim::devices_by_class;
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Claims, allocation_of, key_of, uid_of};
use crate::dra::quota::{ByClass, Changed, Quotas, at_least};
use crate::pod::{Key, Uid};

fn by_class(claim: &ResourceClaim, allocation: &AllocationResult) -> ByClass {
    let counts = devices_by_class(claim, allocation).into_iter();
    counts
        .map(|(class, count)| (class.to_owned(), count))
        .collect()
}

/// What a claim has by its own status.
fn held_by(claim: &ResourceClaim) -> Option<ByClass> {
    Some(by_class(claim, allocation_of(claim)?))
}

impl Claims {
    /// The quotas on allocated devices.
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Takes in a ResourceQuota or its deletion, as a watch showed it. Returns the namespaces whose limits changed.
    pub fn observe_quota(&mut self, quota: &ResourceQuota, is_deleted: bool) -> Vec<Arc<str>> {
        let mut changed = Changed::default();
        self.quotas.set(quota, is_deleted, &mut changed);
        self.count(changed)
    }

    /// As [`Claims::observe_quota`], for a list of all quotas.
    pub fn observe_quotas(&mut self, quotas: &[ResourceQuota]) -> Vec<Arc<str>> {
        let mut changed = Changed::default();
        self.quotas.set_list(quotas, &mut changed);
        self.count(changed)
    }

    /// Counts the claims of namespaces that were not counted before.
    fn count(&mut self, changed: Changed) -> Vec<Arc<str>> {
        let Changed {
            new,
            namespaces,
            first,
        } = changed;
        if !new.is_empty() {
            let is_new = |namespace: &str| new.iter().any(|n| **n == *namespace);
            let entries = self.cache.entries();
            let of_new = entries.filter(|(key, _)| is_new(&key.namespace));
            let mut claims: Vec<Arc<ResourceClaim>> = of_new
                .flat_map(|(_, entry)| entry.versions().cloned())
                .collect();
            claims.extend(self.states.all_in_flight().map(|p| p.claim.clone()));
            for claim in claims {
                let uid = Uid::from(uid_of(&claim));
                self.count_seen(&uid, &key_of(&claim));
                self.count_used(&uid, &key_of(&claim));
            }
        }
        if first {
            // Only now are the limits known. Which of the claims was the first is not.
            let seen = self.cache.entries().filter_map(|(_, e)| e.seen());
            let seen: Vec<_> = seen.cloned().collect();
            for claim in &seen {
                self.note_late_in_list(claim);
            }
        }
        self.clear_late();
        namespaces
    }

    /// Updates what a claim counts for, with the decisions of this scheduler.
    pub(super) fn count_used(&mut self, uid: &Uid, key: &Key) {
        if !self.quotas.limits(&key.namespace) {
            return;
        }
        let claim = self.get(key).filter(|c| uid_of(c) == &**uid);
        let held = claim.and_then(|claim| held_by(claim));
        let pending = self.in_flight(uid);
        let pending = pending.map(|p| by_class(&p.claim, &p.allocation));
        // If both differ, one of them will stay.
        let counts = match (held, pending) {
            (Some(held), Some(pending)) => Some(at_least(held, pending)),
            (held, pending) => held.or(pending),
        };
        let counts = counts.map(|counts| (key.namespace.clone(), counts));
        self.quotas.used.set(uid, counts);
    }

    /// Updates what a claim counts for by what the watch has shown.
    pub(super) fn count_seen(&mut self, uid: &Uid, key: &Key) {
        if !self.quotas.limits(&key.namespace) {
            return;
        }
        let seen = self.cache.entry(key).and_then(|e| e.seen());
        let seen = seen.filter(|c| uid_of(c) == &**uid);
        let counts = seen.and_then(|claim| held_by(claim));
        let counts = counts.map(|counts| (key.namespace.clone(), counts));
        self.quotas.seen.set(uid, counts);
    }

    /// The watch shows that a claim got its devices now, or lost them.
    pub(super) fn check_quota(&mut self, claim: &ResourceClaim) {
        self.note_late(claim);
        self.clear_late();
    }

    /// Notes whether a claim is late; [`Claims::clear_late`] has to follow once for all claims that are noted together.
    pub(super) fn note_late(&mut self, claim: &ResourceClaim) {
        let key = key_of(claim);
        if !self.quotas.limits(&key.namespace) {
            return;
        }
        let uid = Uid::from(uid_of(claim));
        match self.quotas.exceeded_by(&key.namespace, &uid) {
            Some(exceeded) => {
                tracing::debug!(claim = %key, exceeded, "a claim got more devices than a quota leaves");
                self.quotas.late.insert(uid, key);
            }
            None => drop(self.quotas.late.remove(&uid)),
        }
    }

    /// As [`Claims::note_late`], for a claim of a list: it is unknown which of the claims was allocated first.
    pub(super) fn note_late_in_list(&mut self, claim: &ResourceClaim) {
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let allocated = allocation_of(claim).and_then(|it| it.allocation_timestamp.as_ref());
        let is_within = |it: &Time| self.quotas.were_lowered(namespace, uid_of(claim), it.0);
        match allocated.is_some_and(is_within) {
            true => drop(self.quotas.late.remove(uid_of(claim))),
            false => self.note_late(claim),
        }
    }

    /// Claims that were late keep what they have if no quota is exceeded any longer.
    pub(super) fn clear_late(&mut self) {
        if self.quotas.late.is_empty() {
            return;
        }
        let mut late = std::mem::take(&mut self.quotas.late);
        late.retain(|uid, key| self.quotas.exceeded_by(&key.namespace, uid).is_some());
        self.quotas.late = late;
    }

    /// The quota that a claim exceeds beside claims that were allocated before it.
    pub(super) fn late_for_quota(&self, claim: &ResourceClaim) -> Option<String> {
        let key = self.quotas.late.get(uid_of(claim))?;
        self.quotas.exceeded_by(&key.namespace, uid_of(claim))
    }
}

#[cfg(test)]
mod tests;
