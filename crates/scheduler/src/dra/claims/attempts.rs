//! What scheduling attempts do to claims: reserve allocations, settle them when writes succeed or fail, and release
//! claims that are in the way.

use super::*;

impl Claims {
    /// An attempt decided on an allocation for a claim, or joined one that is in flight.
    pub fn reserve(&mut self, uid: &Uid, key: &Key, allocation: &Arc<AllocationResult>, pod: &Uid) {
        self.left.remove(uid);
        let entry = self
            .in_flight
            .entry(uid.clone())
            .or_insert_with(|| InFlight {
                key: key.clone(),
                allocation: allocation.clone(),
                sharers: FxHashSet::default(),
            });
        entry.sharers.insert(pod.clone());
        self.recount_known(uid, key);
    }

    /// The binding of a pod has ended. After a success the written claim was [assumed](Claims::assume) before, and
    /// nothing is in flight for it any longer; after a failure the allocation stays for the other pods that share it.
    pub fn settle(&mut self, uid: &Uid, pod: &Uid, written: bool) -> Change {
        let Some(entry) = self.in_flight.get_mut(uid) else {
            return Change::default();
        };
        entry.sharers.remove(pod);
        if !written && !entry.sharers.is_empty() {
            return Change::default();
        }
        let Some(entry) = self.in_flight.remove(uid) else {
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
        self.releases.concern(uid, pod)
    }

    /// The deallocation of a claim begins; with a pod, the removal of its reservation.
    pub fn release(&mut self, claim: &ResourceClaim, pod: Option<Uid>) {
        self.releases.begin(claim.uid(), pod);
        self.tried
            .insert(claim.uid().into(), claim.version().into());
    }

    /// Whether a release was attempted for this version of the claim: it would fail again.
    pub fn was_tried(&self, claim: &ResourceClaim) -> bool {
        let last = self.tried.get(claim.uid());
        last.is_some_and(|version| **version == *claim.version())
    }

    /// The binding for which a claim was allocated failed; the allocation stays for now.
    pub fn mark_orphaned(&mut self, uid: &Uid) {
        self.left.insert(uid.clone());
    }

    /// A pod was bound with the claim: its allocation is no longer orphaned.
    pub fn mark_used(&mut self, uid: &Uid) {
        self.left.remove(uid);
    }

    /// Whether the allocation of a claim remains from a failed binding of this scheduler.
    pub fn is_orphaned(&self, uid: &str) -> bool {
        self.left.contains(uid)
    }

    /// The release has ended, with or without success; the written claim was [assumed](Claims::assume) before.
    pub fn released(&mut self, key: &Key, uid: &Uid, pod: Option<Uid>) -> Change {
        self.releases.end(uid, pod);
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
