//! The devices of a pool on all nodes: drivers may use the same name for the pools of all nodes, each of which has its
//! own generation.

use super::PoolInfo;
use super::view::ViewState;

/// What of a pool is on one node, or on no node in particular.
#[derive(Debug)]
pub(crate) struct PoolSection {
    pub(crate) state: ViewState,
    /// The newest generation that is seen there.
    pub(crate) generation: i64,
    /// The number of observed slices.
    pub(crate) seen: i64,
    /// `resourceSliceCount`: the expected number of slices.
    pub(crate) expected: i64,
    /// Its devices, in any state.
    pub(crate) slots: Vec<u32>,
}

impl PoolInfo {
    /// The sections of the pool: the one without a node, then those of nodes by name. Every device of the newest
    /// generation that its node can access is in one of them.
    pub(crate) fn parts(&self) -> Vec<PoolSection> {
        if self.local.is_empty() {
            // Includes devices for unknown nodes.
            return self.section((0..self.members.len() as u32).collect(), |_| true);
        }
        let mut nodes: Vec<_> = self.local.iter().collect();
        nodes.sort_by(|a, b| a.0.cmp(b.0));
        let is_local = |m: u32| self.members[m as usize].node().is_some();
        let mut parts = self.section(self.rest.clone(), |m| !is_local(m));
        for (_, members) in nodes {
            let seen = members.iter().chain(&self.rest).copied().collect();
            parts.extend(self.section(seen, is_local));
        }
        parts
    }

    /// The section of these members; of their devices those whose member is `own`.
    fn section(&self, members: Vec<u32>, own: impl Fn(u32) -> bool) -> Vec<PoolSection> {
        let generation = |m: u32| self.members[m as usize].slice.generation;
        let Some(newest) = members.iter().map(|m| generation(*m)).max() else {
            return Vec::new();
        };
        let (expected, everywhere) = self.slices_of(newest);
        let here = members.iter().filter(|m| generation(**m) == newest).count() as i64;
        let mut order: Vec<u32> = members
            .iter()
            .copied()
            .filter(|m| generation(*m) == newest && own(*m))
            .collect();
        order.sort_unstable();
        let slots = order.into_iter().flat_map(|member| {
            let count = self.members[member as usize].slice.devices.len() as u32;
            let start = self.starts[member as usize];
            start..start + count
        });
        let slots: Vec<u32> = slots.collect();
        if slots.is_empty() {
            return Vec::new();
        }
        let (state, seen) = match self.build(members) {
            Some(view) => (view.state, everywhere),
            // There is a newer generation on other nodes, and this one is not whole.
            None => (ViewState::Incomplete, here),
        };
        vec![PoolSection {
            state,
            generation: newest,
            seen,
            expected,
            slots,
        }]
    }

    /// How many slices there should be of a generation, and how many there are.
    fn slices_of(&self, generation: i64) -> (i64, i64) {
        let mut members = self.members.iter();
        let first = members.find(|m| m.slice.generation == generation);
        let known = self.generations.iter().find(|g| g.number == generation);
        (
            first.map_or(0, |m| m.slice.pool_slices),
            known.map_or(0, |g| g.seen),
        )
    }
}
