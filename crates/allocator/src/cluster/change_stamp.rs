//! Time stamps of changes.

use super::{Cluster, Node};
use crate::next_id;

/// A change of a cluster. Stamps are unique in all clusters, and later ones are greater.
///
/// So if two clusters agree on the last change of a part, they also agree on its state: they are copies of one in which
/// it changed last before they were cloned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChangeStamp(u64);

impl ChangeStamp {
    /// For a change that happens now.
    pub(super) fn next() -> Self {
        Self(next_id::next_id())
    }
}

impl Cluster {
    /// The last change of anything that allocations on a node depend on, besides the node itself.
    pub(crate) fn changed(&self, node: &Node) -> ChangeStamp {
        let Some(local) = self.local.get(node.name()) else {
            return self.shared;
        };
        let pools = local.pools.as_slice().iter();
        let changes = pools.map(|(pool, _)| self.pools.get(*pool as usize).changed);
        changes.fold(local.changed.max(self.shared), ChangeStamp::max)
    }
}
