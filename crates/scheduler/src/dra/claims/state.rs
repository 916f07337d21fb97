//! The scheduler's state of claims in addition to their objects, by UID.
//!
//! Everything about one generation of a claim is in one [`ClaimState`]: when the claim is deleted, one place decides what
//! goes with it. A claim without such state has no entry, so that the table grows with the work in progress only.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use super::InFlight;
use super::conflict::DoubleAllocation;
use crate::pod::Uid;

/// How many UIDs of deleted claims are remembered, to recognise a late answer about one of them.
const REMEMBERED: usize = 8192;

/// The state of one claim.
#[derive(Debug, Default)]
pub(super) struct ClaimState {
    /// The allocation that was decided and is being written.
    pub(super) in_flight: Option<InFlight>,
    /// The claims that held its devices when it was allocated.
    pub(super) double_allocated: Option<DoubleAllocation>,
    /// It was allocated when the first list came, and this scheduler has not written it since.
    pub(super) inherited: bool,
    /// The claim was allocated for a pod whose binding failed, and has not been reserved for another pod since.
    pub(super) orphaned: bool,
    /// The version at which it was to be deallocated or unreserved last.
    pub(super) release_tried: Option<Box<str>>,
    /// A write that deallocates it is in flight: no pod may rely on it.
    pub(super) deallocating: bool,
    /// The pods whose reservation a write in flight removes: they may not rely on it.
    pub(super) unreserving: FxHashSet<Uid>,
}

impl ClaimState {
    fn is_empty(&self) -> bool {
        self.in_flight.is_none()
            && self.double_allocated.is_none()
            && !self.inherited
            && !self.orphaned
            && self.release_tried.is_none()
            && !self.deallocating
            && self.unreserving.is_empty()
    }

    /// Whether a pod may not rely on the claim, because its allocation or the pod's reservation is being removed.
    pub(super) fn is_releasing(&self, pod: &Uid) -> bool {
        self.deallocating || self.unreserving.contains(pod)
    }
}

/// The states of all claims.
#[derive(Debug, Default)]
pub(super) struct ClaimStates {
    states: FxHashMap<Uid, ClaimState>,
    /// The double-allocated claims among them: nearly always none, where the table can be long.
    double_allocated: FxHashSet<Uid>,
    /// UIDs of deleted claims, and the order in which they were deleted.
    deleted: FxHashSet<Uid>,
    deletions: VecDeque<Uid>,
}

impl ClaimStates {
    /// The state of a claim, if anything is known about it.
    pub(super) fn get(&self, uid: &str) -> Option<&ClaimState> {
        self.states.get(uid)
    }

    /// Changes the state of a claim.
    pub(super) fn update<R>(&mut self, uid: &Uid, change: impl FnOnce(&mut ClaimState) -> R) -> R {
        let state = self.states.entry(uid.clone()).or_default();
        let result = change(state);
        match state.double_allocated.is_some() {
            true => self.double_allocated.insert(uid.clone()),
            false => self.double_allocated.remove(uid),
        };
        if state.is_empty() {
            self.states.remove(uid);
        }
        result
    }

    /// Like [`ClaimStates::update`], for changes that only remove state: no entry is created for an unknown claim.
    pub(super) fn clear<R: Default>(
        &mut self,
        uid: &Uid,
        change: impl FnOnce(&mut ClaimState) -> R,
    ) -> R {
        match self.states.contains_key(uid) {
            true => self.update(uid, change),
            false => R::default(),
        }
    }

    /// The writes in flight of all claims.
    pub(super) fn all_in_flight(&self) -> impl Iterator<Item = &InFlight> {
        self.states.values().filter_map(|s| s.in_flight.as_ref())
    }

    /// The double-allocated claims.
    pub(super) fn double_allocations(&self) -> impl Iterator<Item = (&Uid, &DoubleAllocation)> {
        let of = |uid| Some((uid, self.states.get(uid)?.double_allocated.as_ref()?));
        self.double_allocated.iter().filter_map(of)
    }

    /// The claim is deleted. Writes in flight still have an outcome: until then, what they are about is kept.
    pub(super) fn delete(&mut self, uid: &Uid) {
        self.clear(uid, |state| {
            let writes = std::mem::take(state);
            state.in_flight = writes.in_flight;
            state.deallocating = writes.deallocating;
            state.unreserving = writes.unreserving;
        });
        if self.deleted.insert(uid.clone()) {
            self.deletions.push_back(uid.clone());
            if self.deletions.len() > REMEMBERED
                && let Some(oldest) = self.deletions.pop_front()
            {
                self.deleted.remove(&oldest);
            }
        }
    }

    /// Whether the claim was deleted; true for the last [`REMEMBERED`] deletions.
    pub(super) fn is_deleted(&self, uid: &str) -> bool {
        self.deleted.contains(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_without_content_is_removed() {
        let (mut states, uid) = (ClaimStates::default(), Uid::from("1"));
        states.update(&uid, |state| state.orphaned = true);
        assert!(states.get("1").is_some_and(|state| state.orphaned));
        states.clear(&uid, |state| state.orphaned = false);
        assert!(states.get("1").is_none());
        states.clear(&uid, |state| state.orphaned = false);
        assert!(states.states.is_empty());
    }

    #[test]
    fn a_deletion_keeps_the_writes_in_flight() {
        let (mut states, uid) = (ClaimStates::default(), Uid::from("1"));
        states.update(&uid, |state| {
            state.deallocating = true;
            state.inherited = true;
            state.release_tried = Some("7".into());
        });
        states.delete(&uid);
        let state = states.get("1").expect("a write is in flight");
        assert!(state.is_releasing(&Uid::from("any")));
        assert!(!state.inherited && state.release_tried.is_none());
        assert!(states.is_deleted("1"));
        for other in 0..REMEMBERED {
            states.delete(&Uid::from(format!("other-{other}").as_str()));
        }
        assert!(!states.is_deleted("1"), "the oldest deletion is forgotten");
        assert_eq!(states.deleted.len(), states.deletions.len());
    }
}
