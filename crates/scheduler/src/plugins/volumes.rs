//! The plugins about volumes: VolumeRestrictions, NodeVolumeLimits, VolumeBinding and VolumeZone.
//!
//! The volume of a claim whose class has the binding mode WaitForFirstConsumer is chosen together with the node: an
//! existing one that can be reached from there, or one that is provisioned. All other claims must be bound before the pod
//! is scheduled.

use std::collections::BTreeSet;

use super::Plugin;
use crate::node::NodeInfo;
use crate::pod::{Key, PodInfo, Uid};
use crate::status::{Code, Rejection};
use crate::storage::{self, Class, Storage, Volume, VolumeClaim};

pub mod disks;
mod exclusive;
mod limits;
mod zones;

pub use exclusive::ExclusiveClaims;
pub use limits::Attachments;
pub use zones::zones;

/// The PersistentVolumeClaims of a pod, as PreFilter finds them.
#[derive(Debug)]
pub struct PodVolumeClaims<'a> {
    storage: &'a Storage,
    /// Volumes of claims that have one; `None` for one that does not exist.
    bound: Vec<Option<&'a Volume>>,
    /// Unbound claims of the binding mode WaitForFirstConsumer, small ones first.
    delayed: Vec<Delayed<'a>>,
}

/// An unbound claim whose volume is chosen together with the node.
#[derive(Debug)]
struct Delayed<'a> {
    key: Key,
    claim: &'a VolumeClaim,
    class: &'a Class,
    /// The node for which a volume is being provisioned.
    selected: Option<&'a str>,
    /// Volumes that are bound to this claim already, by users or by an assumed decision.
    own: Vec<(&'a str, &'a Volume)>,
    /// Free volumes that satisfy the claim, small ones first.
    others: Vec<(&'a str, &'a Volume)>,
}

/// The required writes before a pod can be bound to a node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodVolumes {
    /// Volumes to bind to claims.
    pub volumes: Vec<(String, Key)>,
    /// Claims for which volumes must be provisioned.
    pub provisions: Vec<Key>,
}

impl<'a> PodVolumeClaims<'a> {
    /// Looks up the claims of a pod; `None` when it has none.
    ///
    /// # Errors
    /// A claim does not exist, is being deleted, has lost its volume, belongs to another pod, or must be bound and is not;
    /// the texts are upstream's.
    pub fn prepare(pod: &PodInfo, storage: &'a Storage) -> Result<Option<Self>, Rejection> {
        let mut found = Self {
            storage,
            bound: Vec::new(),
            delayed: Vec::new(),
        };
        let mut claims = Vec::new();
        for (key, ephemeral) in storage::claims_of(pod) {
            claims.push(usable(pod, key, ephemeral, storage)?);
        }
        if claims.is_empty() {
            return Ok(None);
        }
        for (key, claim) in claims {
            if claim.is_bound() {
                let volume = claim.volume.as_ref().and_then(|v| storage.volumes.get(v));
                found.bound.push(volume);
                continue;
            }
            let class = storage.classes.get(&claim.class);
            let Some(class) = class.filter(|c| c.waits && claim.volume.is_none()) else {
                let reason = "pod has unbound immediate PersistentVolumeClaims";
                return Err(Rejection::unresolvable(Plugin::VolumeBinding, reason));
            };
            found.delayed.push(Delayed::new(key, claim, class, storage));
        }
        found
            .delayed
            .sort_by(|a, b| a.claim.size.cmp(&b.claim.size));
        Ok(Some(found))
    }

    /// The required writes before the pod can be bound to the node.
    ///
    /// # Errors
    /// A volume cannot be reached from the node, or there is no volume and no space for a claim.
    pub fn find_pod_volumes(&self, node: &NodeInfo) -> Result<PodVolumes, Rejection> {
        let labels = node.labels();
        let mut reasons = Vec::new();
        let mut missing = false;
        for volume in &self.bound {
            match volume {
                None => missing = true,
                Some(volume) if volume.reaches(&node.name, labels) => continue,
                Some(_) => reasons.push("node(s) didn't match PersistentVolume's node affinity"),
            }
            break;
        }
        let mut choice = PodVolumes::default();
        if let Err(reason) = self.find(node, &mut choice) {
            reasons.push(reason);
        }
        if missing {
            reasons
                .push("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)");
        }
        if reasons.is_empty() {
            return Ok(choice);
        }
        Err(Rejection {
            code: Code::Unresolvable,
            plugin: Plugin::VolumeBinding,
            reasons: reasons.into_iter().map(Into::into).collect(),
        })
    }

    /// Finds a volume for each unbound claim, or the claims for which volumes can be provisioned.
    ///
    /// # Errors
    /// Upstream's reason for rejecting the node.
    fn find(&self, node: &NodeInfo, choice: &mut PodVolumes) -> Result<(), &'static str> {
        const NONE: &str = "node(s) didn't find available persistent volumes to bind";
        let chosen = |claim: &Delayed<'_>| claim.selected.is_some();
        if self
            .delayed
            .iter()
            .any(|c| c.selected.is_some_and(|n| *n != *node.name))
        {
            return Err(NONE);
        }
        let mut taken = BTreeSet::new();
        let mut provisions: Vec<&Delayed<'_>> = self.delayed.iter().filter(|c| chosen(c)).collect();
        for claim in self.delayed.iter().filter(|c| !chosen(c)) {
            match claim.volume(node, &taken) {
                Some(name) => {
                    taken.insert(name);
                    choice.volumes.push((name.to_owned(), claim.key.clone()));
                }
                None => provisions.push(claim),
            }
        }
        for claim in provisions {
            let provisioner = claim.class.provisioner.as_deref();
            let Some(provisioner) = provisioner.filter(|_| claim.class.allows(node.labels()))
            else {
                return Err(NONE);
            };
            if !self.has_space(claim, provisioner, node) {
                return Err("node(s) did not have enough free storage");
            }
            choice.provisions.push(claim.key.clone());
        }
        Ok(())
    }

    /// Whether the driver has space for the volume of a claim on a node. True if the driver does not publish its capacity.
    fn has_space(&self, claim: &Delayed<'_>, provisioner: &str, node: &NodeInfo) -> bool {
        let Some(size) = &claim.claim.size else {
            return true;
        };
        !self.storage.capacity_drivers.contains(provisioner)
            || self
                .storage
                .capacities
                .values()
                .any(|c| c.class == claim.claim.class && c.holds(size, node.labels()))
    }
}

/// The claim of a pod with this key.
///
/// # Errors
/// The pod cannot be scheduled with the claim on any node.
fn usable<'a>(
    pod: &PodInfo,
    key: Key,
    ephemeral: bool,
    storage: &'a Storage,
) -> Result<(Key, &'a VolumeClaim), Rejection> {
    let refused = |text| Err(Rejection::unresolvable(Plugin::VolumeBinding, text));
    let name = &key.name;
    let Some(claim) = storage.claims.get(&key) else {
        return refused(match ephemeral {
            true => format!(
                "waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"
            ),
            false => format!("persistentvolumeclaim {name:?} not found"),
        });
    };
    if claim.lost {
        let volume = claim.volume.as_deref().unwrap_or_default();
        return refused(format!(
            "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
        ));
    }
    if claim.deleting {
        return refused(format!("persistentvolumeclaim {name:?} is being deleted"));
    }
    if ephemeral && claim.owner.as_deref() != Some(&*pod.uid) {
        return refused(format!(
            "PVC {key} was not created for pod {} (pod is not owner)",
            pod.key
        ));
    }
    Ok((key, claim))
}

impl<'a> Delayed<'a> {
    fn new(key: Key, claim: &'a VolumeClaim, class: &'a Class, storage: &'a Storage) -> Self {
        let suits = |volume: &Volume| {
            volume.class == claim.class
                && volume.size >= claim.size
                && volume.block == claim.block
                && !volume.deleting
        };
        let may_be_used = |volume: &Volume| {
            let selector = claim.selector.as_ref();
            let mut modes = claim.access_modes.iter();
            volume.available
                && selector.is_none_or(|s| s.matches(Some(&volume.labels)))
                && modes.all(|m| volume.access_modes.contains(m))
        };
        let mut own = storage.own(&key, &claim.uid);
        own.retain(|(_, volume)| suits(volume));
        let free = storage.free(&claim.class);
        let mut others: Vec<_> = free
            .filter(|(_, volume)| suits(volume) && may_be_used(volume))
            .collect();
        others.sort_by(|(_, a), (_, b)| a.size.cmp(&b.size));
        Self {
            selected: storage.selected_node(&key, claim),
            key,
            claim,
            class,
            own,
            others,
        }
    }

    /// A volume for the claim on a node: one that is bound to it already, otherwise the smallest free one.
    fn volume(&self, node: &NodeInfo, taken: &BTreeSet<&str>) -> Option<&'a str> {
        let free = |name: &str| !taken.contains(name);
        let reaches = |volume: &Volume| volume.reaches(&node.name, node.labels());
        if let Some((name, volume)) = self.own.iter().find(|(name, _)| free(name)) {
            return reaches(volume).then_some(*name);
        }
        let mut others = self.others.iter();
        others
            .find(|(name, volume)| free(name) && reaches(volume))
            .map(|(name, _)| *name)
    }
}

/// Identity and version of a claim, for writing.
pub fn identity<'a>(storage: &'a Storage, key: &Key) -> Option<(&'a Uid, &'a str)> {
    let claim = storage.claims.get(key)?;
    Some((&claim.uid, &claim.version))
}

#[cfg(test)]
mod tests;
