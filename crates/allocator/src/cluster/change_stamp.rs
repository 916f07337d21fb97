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
    /// The stamp of a new change: greater than all before.
    pub(super) fn next() -> Self {
        Self(next_id::next_id())
    }
}

/// Where the state of a node is in a cluster: what [`Cluster::changed`] finds by the node's name. It stays valid until a
/// pool becomes local to a node, or is no longer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodePlace {
    entered: ChangeStamp,
    /// The only pool that is local to the node, and when it became that.
    local: Option<(ChangeStamp, u32)>,
}

impl Cluster {
    /// The place of a node; `None` if several pools are local to it.
    pub(crate) fn place(&self, node: &Node) -> Option<NodePlace> {
        let local = match self.local.get(node.name()) {
            None => None,
            Some(local) => match local.pools.as_slice() {
                [(pool, _)] => Some((local.changed, *pool)),
                _ => return None,
            },
        };
        let entered = self.entered;
        Some(NodePlace { entered, local })
    }

    /// As [`Cluster::changed`], without looking for the node; `None` if the place is no longer valid.
    pub(crate) fn changed_at(&self, place: &NodePlace) -> Option<ChangeStamp> {
        if place.entered != self.entered {
            return None;
        }
        Some(match place.local {
            None => self.shared,
            Some((local, pool)) => {
                let pool = self.pools.get(pool as usize).changed;
                local.max(self.shared).max(pool)
            }
        })
    }

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
