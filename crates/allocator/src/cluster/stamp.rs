//! When something changed last.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Cluster, Node};

/// A change of a cluster. No two changes have the same one, of whatever clusters, and later ones are greater.
///
/// So two clusters that agree on the last change of something also agree on what it is: they are copies of one that was
/// changed last before they parted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp(u64);

impl Stamp {
    /// For a change that happens now.
    pub(super) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Cluster {
    /// The last change of anything that allocations on a node depend on, besides the node itself.
    pub(crate) fn changed(&self, node: &Node) -> Stamp {
        let Some(local) = self.local.get(node.name()) else {
            return self.shared;
        };
        let pools = local.pools.as_slice().iter();
        let changes = pools.map(|(pool, _)| self.pools.get(*pool as usize).changed);
        changes.fold(local.changed.max(self.shared), Stamp::max)
    }
}
