//! The controller's state of taints, rules and evictions.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Rule;
use super::plan::{Eviction, Tainted};
use crate::controller::informer::Key;

#[cfg(test)]
mod tests;

/// Evicted pods are remembered so that each is counted once (as many as upstream remembers).
const REMEMBERED: usize = 500;

#[derive(Default)]
pub(super) struct State {
    pub tainted: Tainted,
    pub rules: Vec<Arc<Rule>>,
    /// Pods that are to be evicted, with why.
    pub pending: FxHashMap<Key, Eviction>,
    evicted: VecDeque<String>,
    pub evicted_uids: FxHashSet<String>,
    /// Per rule (by UID): pods evicted since the controller started.
    pub counts: FxHashMap<String, usize>,
    /// Per rule: when its status was written last, and for which generation.
    pub written: FxHashMap<String, (Timestamp, i64)>,
}

impl State {
    /// Removes the eviction of a pod. A pod of the same name may have been created during the request for the previous
    /// one: its eviction stays.
    pub(super) fn take_pending(&mut self, key: &str, uid: &str) -> Option<Eviction> {
        self.pending.get(key).filter(|e| e.uid == uid)?;
        self.pending.remove(key)
    }

    /// Notes that a pod was evicted; whether that is news.
    pub(super) fn remember(&mut self, uid: &str) -> bool {
        if !self.evicted_uids.insert(uid.to_owned()) {
            return false;
        }
        self.evicted.push_back(uid.to_owned());
        if self.evicted.len() > REMEMBERED
            && let Some(oldest) = self.evicted.pop_front()
        {
            self.evicted_uids.remove(&oldest);
        }
        true
    }
}
