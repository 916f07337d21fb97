//! Changes of claims by scheduling attempts: reserve allocations, settle them when writes succeed or fail, and release
//! claims that keep a pod from its node.

use super::*;

impl Claims {
    /// Records that an allocation of a claim is being written for a pod, or that the pod shares one that is in flight.
    pub fn reserve(
        &mut self,
        claim: &Arc<ResourceClaim>,
        allocation: &Arc<AllocationResult>,
        pod: &Uid,
    ) {
        let (uid, key) = (Uid::from(uid_of(claim)), key_of(claim));
        self.states.update(&uid, |state| {
            state.orphaned = false;
            let in_flight = state.in_flight.get_or_insert_with(|| InFlight {
                key: key.clone(),
                claim: claim.clone(),
                allocation: allocation.clone(),
                sharers: FxHashSet::default(),
            });
            in_flight.sharers.insert(pod.clone());
        });
        self.recount_known(&uid, &key);
    }

    /// The binding of a pod has ended. After a success the written claim was [assumed](Claims::assume) before, and
    /// nothing is in flight for it any longer; after a failure the allocation stays for the other pods that share it.
    pub fn finish_write(&mut self, uid: &Uid, pod: &Uid, written: bool) -> Change {
        let settled = self.states.clear(uid, |state| {
            let in_flight = state.in_flight.as_mut()?;
            in_flight.sharers.remove(pod);
            match written || in_flight.sharers.is_empty() {
                true => state.in_flight.take(),
                false => None,
            }
        });
        let Some(entry) = settled else {
            return Change::default();
        };
        self.recount_known(uid, &entry.key);
        // An answer can be late: the watch may have shown in the meantime that the claim lost what was written.
        let known = self.get(&entry.key).filter(|c| uid_of(c) == &**uid);
        let has = known.and_then(|c| allocation_of(c));
        let lost = has.is_none_or(|has| identities(has).ne(identities(&entry.allocation)));
        Change {
            key: Some(entry.key),
            freed: !written || lost,
            progressed: true,
            ..Change::default()
        }
    }

    /// Whether a pod must not rely on a claim, because its deallocation or the removal of the reservation is in flight.
    pub fn is_releasing(&self, uid: &str, pod: &Uid) -> bool {
        let state = self.states.get(uid);
        state.is_some_and(|state| state.is_releasing(pod))
    }

    /// Records that the deallocation of a claim, or with a pod the removal of its reservation, is being written.
    pub fn release(&mut self, claim: &ResourceClaim, pod: Option<Uid>) {
        self.states.update(&claim.uid().into(), |state| {
            state.release_tried = Some(claim.version().into());
            match pod {
                Some(pod) => {
                    state.unreserving.insert(pod);
                }
                None => state.deallocating = true,
            }
        });
    }

    /// Whether a release was attempted for this version of the claim: it would fail again.
    pub fn was_tried(&self, claim: &ResourceClaim) -> bool {
        let state = self.states.get(claim.uid());
        let last = state.and_then(|state| state.release_tried.as_deref());
        last == Some(claim.version())
    }

    /// The binding for which a claim was allocated failed; the allocation stays for now.
    pub fn mark_orphaned(&mut self, uid: &Uid) {
        self.states.update(uid, |state| state.orphaned = true);
    }

    /// A pod was bound with the claim: its allocation is no longer orphaned.
    pub fn mark_used(&mut self, uid: &Uid) {
        self.states.clear(uid, |state| state.orphaned = false);
    }

    /// Whether the allocation of a claim remains from a failed binding of this scheduler.
    pub fn is_orphaned(&self, uid: &str) -> bool {
        self.states.get(uid).is_some_and(|state| state.orphaned)
    }

    /// The release has ended, with or without success; the written claim was [assumed](Claims::assume) before.
    pub fn released(&mut self, key: &Key, uid: &Uid, pod: Option<Uid>) -> Change {
        self.states.clear(uid, |state| match &pod {
            Some(pod) => {
                state.unreserving.remove(pod);
            }
            None => state.deallocating = false,
        });
        Change {
            key: Some(key.clone()),
            progressed: true,
            ..Change::default()
        }
    }
}

/// The devices of an allocation, without other fields that a server may add.
fn identities(
    allocation: &AllocationResult,
) -> impl Iterator<Item = (&str, &str, &str, Option<&str>)> {
    let results = allocation.devices.iter().flat_map(|d| &d.results);
    let results = results.flatten();
    results.map(|r| (&*r.driver, &*r.pool, &*r.device, r.share_id.as_deref()))
}
