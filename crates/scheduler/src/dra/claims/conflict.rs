//! Double allocations: which of two claims that hold the same device keeps it.
//!
//! An API server orders all writes of claims, but does not compare them: two schedulers, or a restarted one while
//! requests of its predecessor were still in flight, can allocate a device to two claims. Both observe it, because a
//! watch shows all writes in order. Each scheduler follows two rules, and no device serves two pods, however late a
//! request or an event is:
//!
//! - a pod is bound only after the watch has shown the version of its claims that the decision rests on, or that was
//!   written for it ([`Claims::is_observed`]);
//! - a claim whose allocation the watch shows while another claim already has the device is *double-allocated*, and
//!   yields ([`Claims::conflict`]). If a list shows several of them for the first time, none is known to be the first,
//!   and the one that is tried first yields. Claims that exceed a quota yield as well ([`super::quota`]).
//!
//! A scheduler that died may also have sent a release of a claim that arrives when its successor relies on that claim.
//! Such requests are based on a version of the claim; so the successor makes a new version of each claim that it finds
//! allocated before it binds a pod with it ([`Claims::needs_fencing`]), and late requests get a conflict. Conversely,
//! the dead scheduler may have sent the binding of a pod whose claims its successor releases. Bindings name the version
//! of their pod; so the successor makes a new version of a pod that it finds pending before it releases anything that
//! is reserved for it ([`Action::Fenced`](crate::actions::Action::Fenced)).

use std::sync::Arc;

use allot_allocator::{Conflict, Held, HeldKind, Holder};
use allot_resourceclaim::{consumers, is_pod_group};
use k8s_openapi::api::resource::v1::{
    DeviceAllocationResult, ResourceClaim, ResourceClaimConsumerReference,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Change, Claims, allocation_of, key_of, uid_of};
use crate::assume_cache::Object;
use crate::pod::{Key, PodInfo, Uid};
use crate::podgroups::claims::serves;
use crate::version::is_newer;

/// A version of a claim.
#[derive(Debug, Clone)]
pub struct Version {
    /// Namespace and name.
    pub key: Key,
    /// UID of the claim.
    pub uid: Uid,
    version: String,
}

impl From<&ResourceClaim> for Version {
    fn from(claim: &ResourceClaim) -> Self {
        Self {
            key: key_of(claim),
            uid: uid_of(claim).into(),
            version: claim.version().to_owned(),
        }
    }
}

/// The claims that held a device before this claim got it.
#[derive(Debug)]
pub(super) struct DoubleAllocation {
    /// The claim.
    of: Key,
    claims: FxHashSet<Uid>,
    /// All claims together consume more of a counter or capacity than there is.
    overdrawn: bool,
}

impl DoubleAllocation {
    fn is_empty(&self) -> bool {
        self.claims.is_empty() && !self.overdrawn
    }
}

/// The devices that a version of a claim holds.
pub(super) fn devices_of(claim: Option<&ResourceClaim>) -> Option<&DeviceAllocationResult> {
    allocation_of(claim?)?.devices.as_ref()
}

impl Claims {
    /// Records claims from a list: all at once, so that none of them is known to have been written before another.
    pub fn observe_list(
        &mut self,
        claims: impl Iterator<Item = Arc<ResourceClaim>>,
    ) -> Vec<Change> {
        let (mut changes, mut moved) = (Vec::new(), Vec::new());
        for claim in claims {
            // A claim that changed while the watch was down may have lost its devices and got them again.
            let changes_anything = !self.is_observed(&Version::from(&*claim));
            let changes_anything = changes_anything && allocation_of(&claim).is_some();
            let (change, has_moved) = self.update(claim.clone());
            if has_moved || changes_anything {
                moved.push((changes.len(), claim));
            }
            changes.push(change);
        }
        for (at, claim) in &moved {
            changes[*at].double_allocated = self.check_double_allocation(claim);
            self.note_late_in_list(claim);
        }
        self.clear_late();
        if !std::mem::replace(&mut self.is_listed, true) {
            let allocated = moved.iter().filter(|(_, c)| allocation_of(c).is_some());
            let uids = allocated.map(|(_, c)| Uid::from(uid_of(c)));
            for uid in uids.collect::<Vec<_>>() {
                self.states.update(&uid, |state| state.inherited = true);
            }
        }
        changes
    }

    /// The watch shows that a claim got its devices now, or lost them. Returns whether another claim held them before.
    pub(super) fn check_double_allocation(&mut self, claim: &ResourceClaim) -> bool {
        self.forget_resolved_conflicts();
        let uid = uid_of(claim);
        let mut earlier = DoubleAllocation {
            of: key_of(claim),
            claims: FxHashSet::default(),
            overdrawn: false,
        };
        for conflict in self.conflicts_seen(uid) {
            match conflict {
                Conflict::Device { by, .. } => {
                    earlier.claims.insert(by.uid.as_str().into());
                }
                Conflict::Overdrawn { .. } => earlier.overdrawn = true,
            }
        }
        let double_allocated = !earlier.is_empty();
        let uid = Uid::from(uid);
        if double_allocated {
            self.states
                .update(&uid, |state| state.double_allocated = Some(earlier));
        } else {
            self.states
                .clear(&uid, |state| state.double_allocated = None);
        }
        double_allocated
    }

    /// A claim that was observed without the device loses its precedence, even if it is allocated the device again.
    pub(super) fn forget_resolved_conflicts(&mut self) {
        let double_allocations = self.states.double_allocations();
        let uids: Vec<Uid> = double_allocations.map(|(uid, _)| uid.clone()).collect();
        for uid in &uids {
            let (mut still, mut overdrawn) = (FxHashSet::default(), false);
            for conflict in self.conflicts_seen(uid) {
                match conflict {
                    Conflict::Device { by, .. } => {
                        still.insert(Uid::from(by.uid.as_str()));
                    }
                    Conflict::Overdrawn { .. } => overdrawn = true,
                }
            }
            self.states.update(uid, |state| {
                state.double_allocated.take_if(|earlier| {
                    earlier.claims.retain(|claim| still.contains(claim));
                    earlier.overdrawn &= overdrawn;
                    earlier.is_empty()
                });
            });
        }
    }

    /// The conflicts of a claim's allocation according to the watch. Decisions in flight and unobserved writes of this
    /// scheduler do not count: they will be observed later, and are then the later ones.
    fn conflicts_seen(&self, uid: &str) -> Vec<Conflict<'_>> {
        let holds = |by: &Holder, held: &Held| {
            let key = Key::new(&by.namespace, &by.name);
            let seen = self.cache.entry(&key).and_then(|e| e.seen());
            let seen = seen.filter(|c| uid_of(c) == by.uid);
            let results = devices_of(seen.map(|c| &**c)).and_then(|d| d.results.as_deref());
            let mut results = results.unwrap_or_default().iter();
            results.any(|r| {
                let names = r.device == held.device && r.pool == held.pool;
                let share = match &held.kind {
                    HeldKind::Shared { share_id, .. } => r.share_id.as_deref() == Some(share_id),
                    HeldKind::Dedicated => true,
                };
                names && r.driver == held.driver && share
            })
        };
        self.cluster.conflicts(uid, holds)
    }

    /// The first list of slices arrived: only now are counters and capacities known. No claim is known to be the first
    /// to consume them.
    pub fn check_all_double_allocations(&mut self) {
        let seen = self.cache.entries().filter_map(|(_, e)| e.seen());
        let allocated: Vec<_> = seen
            .filter(|c| allocation_of(c).is_some())
            .cloned()
            .collect();
        for claim in &allocated {
            self.check_double_allocation(claim);
        }
    }

    /// Whether the watch has shown this version of a claim, or a later one. An equal observed allocation is not enough:
    /// the claim may have been deallocated in between, and the devices allocated to another one.
    pub fn is_observed(&self, version: &Version) -> bool {
        let seen = self.cache.entry(&version.key).and_then(|e| e.seen());
        seen.is_some_and(|c| uid_of(c) == &*version.uid && !is_newer(&version.version, c.version()))
    }

    /// Whether a write of an earlier scheduler that deallocates the claim may still be in flight: the claim was allocated
    /// when this scheduler started, and has not been written since.
    pub fn needs_fencing(&self, uid: &str) -> bool {
        self.states.get(uid).is_some_and(|state| state.inherited)
    }

    /// Why a claim must yield; `None` if it keeps its allocation.
    pub fn conflict(&self, uid: &str) -> Option<Conflict<'_>> {
        let earlier = self.states.get(uid)?.double_allocated.as_ref()?;
        // The earlier claim may have been deallocated since.
        let stands = |conflict: &Conflict<'_>| match conflict {
            Conflict::Device { by, .. } => earlier.claims.contains(by.uid.as_str()),
            Conflict::Overdrawn { .. } => earlier.overdrawn,
        };
        self.conflicts_seen(uid).into_iter().find(stands)
    }

    /// The claims of a pod, or of its PodGroup, that are double-allocated or exceed a quota, and may have to yield.
    pub fn double_allocated_of(&self, pod: &PodInfo) -> Vec<Key> {
        let double_allocations = self.states.double_allocations();
        let keys = double_allocations.map(|(_, earlier)| &earlier.of);
        let of_pod = |key: &&Key| {
            let claim = self.get(key).filter(|_| key.namespace == pod.key.namespace);
            claim.is_some_and(|claim| consumers(claim).iter().any(|u| serves(u, pod)))
        };
        keys.chain(self.quotas.late.values())
            .filter(of_pod)
            .cloned()
            .collect()
    }

    /// Why a claim has to yield: a double allocation, or a quota that it exceeds. `None` if it has no such reason, or if a
    /// pod that uses it is on a node: then it keeps its devices.
    pub fn must_yield(
        &self,
        claim: &ResourceClaim,
        pods: &FxHashMap<Key, Arc<PodInfo>>,
    ) -> Option<String> {
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let conflict = self.conflict(uid_of(claim));
        let conflict = conflict.map(|conflict| conflict.describe(namespace));
        let reason = conflict.or_else(|| self.late_for_quota(claim))?;
        let runs = |user: &ResourceClaimConsumerReference| {
            let on_node = |p: &Arc<PodInfo>| serves(user, p) && p.node_name().is_some();
            match is_pod_group(user) {
                true => pods
                    .values()
                    .any(|p| *p.key.namespace == *namespace && on_node(p)),
                false => pods
                    .get(&Key::new(namespace, &user.name))
                    .is_some_and(on_node),
            }
        };
        (!consumers(claim).iter().any(runs)).then_some(reason)
    }
}
