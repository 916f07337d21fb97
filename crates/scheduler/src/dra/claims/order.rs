//! Who was first, where two claims got the same device.
//!
//! An API server orders all writes of claims, and compares none of them: two schedulers, or one that was started again
//! while requests of the one before were still under way, can write a device into two claims. Both see it, because a
//! watch shows all writes in their order. So each scheduler keeps to two rules, and no device serves two pods, however
//! late a request or an event is:
//!
//! - a pod is bound only after the watch has shown what was written for its claims ([`Claims::is_seen`]);
//! - a claim whose allocation the watch shows when somebody else has the device already is *contested*, and gives way
//!   ([`Claims::conflict`]). Of several that a list shows for the first time none is known to be the first, and whichever
//!   is tried first gives way.
//!
//! A scheduler that died may also have been taking a claim back, by a request that arrives when its successor counts on
//! that claim. Such requests are based on a version of the claim; so the successor makes a new version of each claim that
//! it finds allocated before it binds a pod with it ([`Claims::is_inherited`]), and what is late is refused.

use std::sync::Arc;

use allot_allocator::Conflict;
use k8s_openapi::api::resource::v1::{
    DeviceAllocationResult, ResourceClaim, ResourceClaimConsumerReference,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Change, Claims, allocation_of, key_of, uid_of};
use crate::dra::groups;
use crate::pod::{Key, PodInfo, Uid};

/// Who had before what a claim got.
#[derive(Debug, Default)]
pub(super) struct Rivals {
    claims: FxHashSet<Uid>,
    /// Everybody who draws from a counter or capacity that is overdrawn.
    overdrawn: bool,
}

/// The devices that a version of a claim holds.
pub(super) fn devices_of(claim: Option<&ResourceClaim>) -> Option<&DeviceAllocationResult> {
    allocation_of(claim?)?.devices.as_ref()
}

impl Claims {
    /// A list showed these claims: all at once, so that none of them is known to be written before another.
    pub fn see_list(&mut self, claims: impl Iterator<Item = Arc<ResourceClaim>>) -> Vec<Change> {
        let (mut changes, mut gained) = (Vec::new(), Vec::new());
        for claim in claims {
            let key = key_of(&claim);
            let before = self.known.entry(&key).and_then(|e| e.seen()).cloned();
            let change = self.see(claim.clone());
            if devices_of(before.as_deref()) != devices_of(Some(&claim)) {
                gained.push(claim);
            }
            changes.push(change);
        }
        if changes.iter().any(|c| c.contested) {
            for claim in &gained {
                self.order(claim);
            }
        }
        if !std::mem::replace(&mut self.is_listed, true) {
            let allocated = gained.iter().filter(|c| allocation_of(c).is_some());
            self.inherited = allocated.map(|c| Uid::from(uid_of(c))).collect();
        }
        changes
    }

    /// The watch shows that a claim got its devices now, or lost them. Says whether somebody else had them before.
    pub(super) fn order(&mut self, claim: &ResourceClaim) -> bool {
        let uid = uid_of(claim);
        let mut rivals = Rivals::default();
        for conflict in self.cluster.conflicts(uid) {
            match conflict {
                // What we have in mind or have written is going to be seen, and is the later one then.
                Conflict::Device { held, by } => {
                    let key = Key::new(&by.namespace, &by.name);
                    let seen = self.known.entry(&key).and_then(|e| e.seen());
                    let seen = seen.filter(|c| uid_of(c) == by.uid);
                    let results = devices_of(seen.map(|c| &**c)).and_then(|d| d.results.as_deref());
                    let same = results.unwrap_or_default().iter().any(|r| {
                        r.device == held.device && r.pool == held.pool && r.driver == held.driver
                    });
                    if same {
                        rivals.claims.insert(by.uid.as_str().into());
                    }
                }
                Conflict::Overdrawn { .. } => rivals.overdrawn = true,
            }
        }
        let contested = rivals.overdrawn || !rivals.claims.is_empty();
        if contested {
            self.contested.insert(uid.into(), rivals);
        } else if !self.contested.is_empty() {
            self.contested.remove(uid);
        }
        contested
    }

    /// Whether the watch has shown what a claim holds.
    pub fn is_seen(&self, key: &Key) -> bool {
        self.known.entry(key).is_none_or(|entry| {
            let (seen, newest) = (entry.seen(), entry.effective());
            seen.map(|c| uid_of(c)) == newest.map(|c| uid_of(c))
                && devices_of(seen.map(|c| &**c)) == devices_of(newest.map(|c| &**c))
        })
    }

    /// Whether a claim may be taken back by somebody who does not exist any more: it was allocated when this scheduler
    /// started, which has not written it since.
    pub fn is_inherited(&self, uid: &str) -> bool {
        self.inherited.contains(uid)
    }

    /// Why a claim has to give back what it holds, if it has to.
    pub fn conflict(&self, uid: &str) -> Option<Conflict<'_>> {
        let rivals = self.contested.get(uid)?;
        // Who was first may have gone meanwhile.
        let stands = |conflict: &Conflict<'_>| match conflict {
            Conflict::Device { by, .. } => rivals.claims.contains(by.uid.as_str()),
            Conflict::Overdrawn { .. } => rivals.overdrawn,
        };
        self.cluster.conflicts(uid).into_iter().find(stands)
    }

    /// As [`Claims::conflict`], for a claim that can still give way: no pod that uses it has a node.
    pub fn has_to_give_way(
        &self,
        claim: &ResourceClaim,
        pods: &FxHashMap<Key, Arc<PodInfo>>,
    ) -> Option<Conflict<'_>> {
        let conflict = self.conflict(uid_of(claim))?;
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let users = claim
            .status
            .iter()
            .flat_map(|s| s.reserved_for.iter().flatten());
        let runs = |user: &ResourceClaimConsumerReference| {
            if user.resource == groups::RESOURCE {
                let member = |p: &Arc<PodInfo>| {
                    p.group() == Some(&*user.name) && *p.key.namespace == *namespace
                };
                return pods.values().any(|p| member(p) && p.node_name().is_some());
            }
            let pod = pods.get(&Key::new(namespace, &user.name));
            pod.is_some_and(|p| *p.uid == *user.uid && p.node_name().is_some())
        };
        (!users.into_iter().any(runs)).then_some(conflict)
    }
}
