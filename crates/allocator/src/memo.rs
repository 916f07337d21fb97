//! Answers for nodes that are equal.
//!
//! Most nodes of a cluster are alike. An allocator caches the answers for claims of the last requested shape, under
//! everything that the search can see of a node: the fingerprints of its pools (of attributes only those that the
//! claims read), the devices in use and the remaining counters. For the next node with the same key the search is
//! skipped, and the same positions in that node's pools are the answer.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::attempt::PoolPart;
use crate::claims::Claims;
use crate::features::Features;
use crate::pool::{PoolInfo, ViewRef, ViewState};

mod fits;

pub use fits::KnownFit;
pub(crate) use fits::{Fit, Fits};

/// Limit of cached answers.
const LIMIT: usize = 4096;

/// A device of an answer, by its position in the pools of a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlaceOf {
    pub(crate) claim: u32,
    pub(crate) alternative: u32,
    pub(crate) part: u32,
    pub(crate) slot: u32,
    pub(crate) shared: bool,
}

/// An answer that holds for all nodes with the key.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// The devices; `None` when the claims do not fit.
    pub(crate) picks: Option<Box<[PlaceOf]>>,
    /// How many decisions the search took.
    pub(crate) steps: u64,
}

/// The answers for claims of one shape.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    /// The shape of claims and the features that the answers are for.
    of: Option<(u64, Features)>,
    key: Vec<u64>,
    answers: FxHashMap<Box<[u64]>, Answer>,
    /// Keeps pools alive that are in keys by their address, so that no other pool gets the address.
    held: FxHashMap<u64, Arc<PoolInfo>>,
}

impl Memo {
    /// Computes the key of a node, for [`Memo::get`] and [`Memo::insert`]. Returns `false` if the answer for the node
    /// depends on state that is not part of keys.
    pub(crate) fn find_key(
        &mut self,
        features: &Features,
        claims: &Claims,
        parts: &[PoolPart<'_>],
    ) -> bool {
        let of = Some((claims.shape, *features));
        if self.of != of || self.answers.len().max(self.held.len()) >= LIMIT {
            self.of = of;
            self.answers.clear();
            self.held.clear();
        }
        self.key.clear();
        parts.iter().all(|part| self.add(features, claims, part))
    }

    /// Appends a pool to the key; `false` as in [`Memo::find_key`].
    fn add(&mut self, features: &Features, claims: &Claims, part: &PoolPart<'_>) -> bool {
        let info = part.info();
        let ViewRef::Shared(view) = part.view else {
            return false;
        };
        if info.is_per_device() || (features.upstream_errors && info.has_counters()) {
            return false;
        }
        match info.fingerprint() {
            Some(fingerprint) => {
                self.key.push(0);
                self.key.extend(fingerprint.rest);
                match &claims.attributes {
                    Some(names) => {
                        for name in names {
                            self.key.push(1);
                            self.key.extend(fingerprint.values(*name).flatten());
                        }
                    }
                    None => self.key.extend(fingerprint.attributes),
                }
            }
            None => {
                let address = std::ptr::from_ref(info) as usize as u64;
                let held = self.held.entry(address);
                held.or_insert_with(|| Arc::clone(&part.pool.info));
                self.key.extend([2, address]);
            }
        }
        let state = match view.state {
            ViewState::Usable => 3,
            ViewState::Incomplete => 4,
            ViewState::Invalid(_) => 5,
        };
        // A pool has several views, with different devices.
        self.key
            .extend([state, view.slots.len() as u64, u64::from(view.generation)]);
        if view.state == ViewState::Usable {
            let usage = &part.pool.usage;
            if usage.any_shared() {
                return false;
            }
            self.key.push(u64::from(usage.has_unpublished()));
            self.key.extend_from_slice(usage.dedicated());
            for amount in usage.available() {
                self.key.extend(amount.words());
            }
        }
        true
    }

    /// The answer for the key that was computed last.
    pub(crate) fn get(&self) -> Option<&Answer> {
        self.answers.get(&*self.key)
    }

    /// Caches an answer for the key that was computed last.
    pub(crate) fn insert(&mut self, answer: Answer) {
        self.answers.insert(self.key.as_slice().into(), answer);
    }
}
