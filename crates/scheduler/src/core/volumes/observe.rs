//! Observed storage objects: they update the state of storage in the snapshot, requeue the pods that they may help, and
//! complete bindings that wait for volumes.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment,
};
use kube::ResourceExt;

use crate::core::{Core, Time};
use crate::hints::ClusterEvent;
use crate::pod::key_of;
use crate::storage::{self, Attachment, Capacity, Class, Volume, VolumeClaim};
use allot_reflector::Observed;

impl Core {
    pub(in crate::core) fn observe_volume_claims(
        &mut self,
        observed: Observed<PersistentVolumeClaim>,
        time: Time,
    ) {
        let read = |c: &PersistentVolumeClaim| (key_of(&c.metadata), VolumeClaim::new(c));
        let mut changed = Vec::new();
        match observed {
            Observed::Applied(claim) => {
                let (key, claim) = read(&claim);
                let before = self.cache.storage_mut().claims.insert(key.clone(), claim);
                let after = self.cache.snapshot().storage.claims.get(&key);
                if !before.is_some_and(|b| after.is_some_and(|a| a.is_same(&b))) {
                    changed.push(key);
                }
            }
            Observed::Deleted(claim) => {
                let key = read(&claim).0;
                self.cache.storage_mut().claims.remove(&key);
                changed.push(key);
            }
            Observed::Listed { items, .. } => {
                let claims = &mut self.cache.storage_mut().claims;
                *claims = items.iter().map(read).collect();
                changed.extend(claims.keys().cloned());
            }
        }
        for key in &changed {
            self.requeue(&ClusterEvent::VolumeClaimChanged(key), time);
        }
        self.check_volumes(time);
    }

    pub(in crate::core) fn observe_volumes(
        &mut self,
        observed: Observed<PersistentVolume>,
        time: Time,
    ) {
        let mut matters = true;
        let volumes = &mut self.cache.storage_mut().volumes;
        match observed {
            Observed::Applied(volume) => {
                let after = Volume::new(&volume);
                let before = volumes.insert(volume.name_any(), after.clone());
                matters = before.is_none_or(|before| !before.is_same(&after));
            }
            Observed::Deleted(volume) => {
                volumes.remove(&volume.name_any());
                matters = false;
            }
            Observed::Listed { items, .. } => {
                *volumes = items
                    .iter()
                    .map(|v| (v.name_any(), Volume::new(v)))
                    .collect();
            }
        }
        if matters {
            self.requeue(&ClusterEvent::StorageChanged, time);
        }
        self.check_volumes(time);
    }

    pub(in crate::core) fn observe_storage_classes(
        &mut self,
        observed: Observed<StorageClass>,
        time: Time,
    ) {
        let classes = &mut self.cache.storage_mut().classes;
        match observed {
            Observed::Applied(class) => {
                let after = Class::new(&class);
                let before = classes.insert(class.name_any(), after.clone());
                if before == Some(after) {
                    return;
                }
            }
            Observed::Deleted(class) => {
                classes.remove(&class.name_any());
                return;
            }
            Observed::Listed { items, .. } => {
                *classes = items
                    .iter()
                    .map(|c| (c.name_any(), Class::new(c)))
                    .collect();
            }
        }
        self.requeue(&ClusterEvent::StorageChanged, time);
    }

    pub(in crate::core) fn observe_csi_nodes(&mut self, observed: Observed<CSINode>, time: Time) {
        let limits = &mut self.cache.storage_mut().limits;
        match observed {
            Observed::Applied(node) => {
                let after = storage::limits(&node);
                let before = limits.insert(node.name_any(), after.clone());
                if before == Some(after) {
                    return;
                }
            }
            Observed::Deleted(node) => {
                limits.remove(&node.name_any());
            }
            Observed::Listed { items, .. } => {
                *limits = items
                    .iter()
                    .map(|n| (n.name_any(), storage::limits(n)))
                    .collect();
            }
        }
        self.requeue(&ClusterEvent::StorageChanged, time);
    }

    pub(in crate::core) fn observe_attachments(
        &mut self,
        observed: Observed<VolumeAttachment>,
        time: Time,
    ) {
        let attachments = &mut self.cache.storage_mut().attachments;
        match observed {
            Observed::Applied(object) => {
                let after = Attachment::new(&object);
                let name = object.name_any();
                let before = match after.clone() {
                    Some(after) => attachments.insert(name, after),
                    None => attachments.remove(&name),
                };
                // Its node affinity does not change, only its phase, and one more volume does not help.
                if before == after || before.is_none() {
                    return;
                }
            }
            Observed::Deleted(object) => {
                attachments.remove(&object.name_any());
            }
            Observed::Listed { items, .. } => {
                let read = |a: &VolumeAttachment| Some((a.name_any(), Attachment::new(a)?));
                *attachments = items.iter().filter_map(read).collect();
            }
        }
        self.requeue(&ClusterEvent::StorageChanged, time);
    }

    pub(in crate::core) fn observe_csi_drivers(
        &mut self,
        observed: Observed<CSIDriver>,
        time: Time,
    ) {
        let drivers = &mut self.cache.storage_mut().capacity_drivers;
        match observed {
            Observed::Applied(driver) => {
                let changed = match storage::reports_capacity(&driver) {
                    true => drivers.insert(driver.name_any()),
                    false => drivers.remove(&driver.name_any()),
                };
                if !changed {
                    return;
                }
            }
            Observed::Deleted(driver) => {
                drivers.remove(&driver.name_any());
            }
            Observed::Listed { items, .. } => {
                let reporting = items.iter().filter(|d| storage::reports_capacity(d));
                *drivers = reporting.map(ResourceExt::name_any).collect();
            }
        }
        self.requeue(&ClusterEvent::StorageChanged, time);
    }

    pub(in crate::core) fn observe_capacities(
        &mut self,
        observed: Observed<CSIStorageCapacity>,
        time: Time,
    ) {
        let capacities = &mut self.cache.storage_mut().capacities;
        match observed {
            Observed::Applied(capacity) => {
                let after = Capacity::new(&capacity);
                let before = capacities.insert(key_of(&capacity.metadata), after.clone());
                if before == Some(after) {
                    return;
                }
            }
            Observed::Deleted(capacity) => {
                capacities.remove(&key_of(&capacity.metadata));
                return;
            }
            Observed::Listed { items, .. } => {
                let read = |c: &CSIStorageCapacity| (key_of(&c.metadata), Capacity::new(c));
                *capacities = items.iter().map(read).collect();
            }
        }
        self.requeue(&ClusterEvent::StorageChanged, time);
    }
}
