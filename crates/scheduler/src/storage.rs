//! Volumes, PersistentVolumeClaims, and the other objects that constrain pods with volumes.
//!
//! In addition to observed objects there are *assumed* decisions: volumes and nodes chosen for the claims of a pod whose
//! binding is being written. Until the writes end they count as if the API server had them, so that no volume is chosen
//! twice (upstream's assume caches of the volume binder).

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::pod::{Key, PodInfo, Uid};

mod attachments;
mod objects;
mod volumes;

pub use attachments::Attachments;
pub use objects::{
    Attachment, Capacity, ClaimRef, Class, Volume, VolumeClaim, limits, reports_capacity,
};
pub use volumes::Volumes;

/// Annotation of a claim: the node for which a volume is to be provisioned.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Annotation of a volume: a controller bound it, not a user.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

/// The storage objects of the cluster, and the decisions about them that are assumed.
#[derive(Debug, Clone, Default)]
pub struct Storage {
    /// The PersistentVolumeClaims by namespace and name.
    pub claims: FxHashMap<Key, VolumeClaim>,
    /// The PersistentVolumes by name, the free ones also by class.
    pub volumes: Volumes,
    /// Storage classes by name.
    pub classes: FxHashMap<String, Class>,
    /// How many volumes of a driver a node takes, by node and driver.
    pub limits: FxHashMap<String, FxHashMap<String, i64>>,
    /// The VolumeAttachments: volumes that are being attached, are attached, or are being detached.
    pub attachments: Attachments,
    /// Drivers that publish CSIStorageCapacity.
    pub capacity_drivers: FxHashSet<String>,
    /// The CSIStorageCapacity objects: space for new volumes, by class and topology.
    pub capacities: FxHashMap<Key, Capacity>,
    assumed_volumes: FxHashMap<String, Vec<(Uid, ClaimRef)>>,
    assumed_nodes: FxHashMap<Key, Vec<(Uid, Arc<str>)>>,
}

impl Storage {
    /// The claim that a volume is bound to or reserved for, by an assumed decision or else by its `claimRef`.
    pub fn holder<'a>(&'a self, name: &str, volume: &'a Volume) -> Option<&'a ClaimRef> {
        let assumed = self.assumed_volumes.get(name).and_then(|p| p.first());
        assumed.map(|(_, claim)| claim).or(volume.claim.as_ref())
    }

    /// Volumes that are bound to or reserved for a claim, with their names.
    pub fn own<'a>(&'a self, claim: &Key, uid: &Uid) -> Vec<(&'a str, &'a Volume)> {
        // Another component may have reserved a volume that was chosen for the claim for another claim meanwhile.
        let assumed = self.assumed_volumes.iter();
        let assumed = assumed
            .filter(|(_, p)| p.first().is_some_and(|(_, c)| c.key == *claim))
            .map(|(name, _)| name.as_str());
        let mut names: Vec<&str> = self.volumes.pre_bound_to(claim).chain(assumed).collect();
        names.sort_unstable();
        names.dedup();
        let all = names.into_iter();
        all.filter_map(|name| Some((name, self.volumes.get(name)?)))
            .filter(|(name, volume)| self.holder(name, volume).is_some_and(|h| h.is(claim, uid)))
            .collect()
    }

    /// Volumes of a class that are neither bound to nor reserved for a claim, with their names.
    pub fn free(&self, class: &str) -> impl Iterator<Item = (&str, &Volume)> {
        let all = self.volumes.free(class);
        all.filter(|(name, volume)| self.holder(name, volume).is_none())
    }

    /// The node for which a volume is provisioned, if one was chosen.
    pub fn selected_node<'a>(&'a self, key: &Key, claim: &'a VolumeClaim) -> Option<&'a str> {
        let assumed = self.assumed_nodes.get(key).and_then(|p| p.first());
        assumed
            .map(|(_, node)| &**node)
            .or(claim.selected_node.as_deref())
    }

    /// Assumes that a volume is bound to a claim of a pod.
    pub fn assume_volume(&mut self, pod: &Uid, volume: &str, claim: ClaimRef) {
        let assumed = self.assumed_volumes.entry(volume.to_owned()).or_default();
        assumed.push((pod.clone(), claim));
    }

    /// Assumes that the volume for a claim of a pod is provisioned for a node.
    pub fn assume_selected_node(&mut self, pod: &Uid, claim: &Key, node: &Arc<str>) {
        let assumed = self.assumed_nodes.entry(claim.clone()).or_default();
        assumed.push((pod.clone(), node.clone()));
    }

    /// Drops the assumed decisions of a pod.
    pub fn forget(&mut self, pod: &Uid) {
        fn forget_pod<K, T>(assumed: &mut FxHashMap<K, Vec<(Uid, T)>>, pod: &Uid) {
            assumed.retain(|_, list| {
                list.retain(|(p, _)| p != pod);
                !list.is_empty()
            });
        }
        forget_pod(&mut self.assumed_volumes, pod);
        forget_pod(&mut self.assumed_nodes, pod);
    }
}

/// The claims that a pod names in its volumes, and whether each is of an ephemeral volume.
pub fn claims_of(pod: &PodInfo) -> impl Iterator<Item = (Key, bool)> {
    let volumes = pod.spec().volumes.iter().flatten();
    volumes.filter_map(
        |volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(source), _) => Some((Key::new(&pod.key.namespace, &source.claim_name), false)),
            (None, Some(_)) => {
                let name = format!("{}-{}", pod.key.name, volume.name);
                Some((Key::new(&pod.key.namespace, &name), true))
            }
            (None, None) => None,
        },
    )
}

#[cfg(test)]
mod tests;
