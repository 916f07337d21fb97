//! How many devices provide an extended resource on a node, for the scores of resources.

use std::sync::Arc;

use allot_allocator::{ClassSelectors, Cluster};

use super::{DraContext, PodDevices};
use crate::node::NodeInfo;

/// The extended resources of a pod that devices provide, with the selectors of the devices.
pub struct Counts<'a> {
    cluster: &'a Cluster,
    classes: Vec<(String, ClassSelectors)>,
}

impl PodDevices {
    /// Prepares the count of devices; `None` when devices provide none of the pod's scored resources.
    pub fn counts<'a>(
        &self,
        scored: &[(Arc<str>, i64)],
        cx: &DraContext<'a>,
    ) -> Option<Counts<'a>> {
        let resources = self.extended.as_ref()?.resources.iter();
        let scored = resources.filter(|(name, _)| scored.iter().any(|(s, _)| **s == **name));
        let classes: Vec<(String, ClassSelectors)> = scored
            .filter_map(|(name, class)| {
                let class = cx.classes.get(class)?;
                Some((name.clone(), cx.allocator.selectors(class)))
            })
            .collect();
        (!classes.is_empty()).then(|| Counts {
            cluster: cx.claims.cluster(),
            classes,
        })
    }
}

impl Counts<'_> {
    /// How many devices provide a resource on a node, and how many of them are in use. `None` if that cannot be
    /// determined; the resource then does not count.
    pub fn of(&self, resource: &str, node: &NodeInfo) -> Option<(i64, i64)> {
        let (_, class) = self.classes.iter().find(|(name, _)| name == resource)?;
        let count = self.cluster.count(&node.device_node, class).ok()?;
        Some((count.all, count.in_use))
    }
}
