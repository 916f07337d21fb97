//! Volumes: the state known from watches, and bindings that wait until volumes are bound.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment,
};
use kube::ResourceExt;

use super::{Binding, Core, Time};
use crate::actions::{VolumeTask, VolumeTasks};
use crate::classic::key_of;
use crate::hints::ClusterEvent;
use crate::plugins::volumes::Choice;
use crate::pod::{Key, PodInfo, Uid, scheduler_name};
use crate::storage::{self, Attachment, Capacity, ClaimRef, Class, Storage, Volume, VolumeClaim};
use crate::version::is_newer;
use allot_reflector::Observed;

/// What the binding of a pod waits for, with the versions that were written.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    volumes: Vec<(String, Key, String)>,
    claims: Vec<(Key, String)>,
}

/// How far the volumes of a pod are.
pub(super) enum Progress {
    Bound,
    Waiting,
    Failed(String),
}

impl Awaited {
    pub(super) fn is_empty(&self) -> bool {
        self.volumes.is_empty() && self.claims.is_empty()
    }
}

impl Core {
    pub(super) fn observe_volume_claims(
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

    pub(super) fn observe_volumes(&mut self, observed: Observed<PersistentVolume>, time: Time) {
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

    pub(super) fn observe_storage_classes(&mut self, observed: Observed<StorageClass>, time: Time) {
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

    pub(super) fn observe_csi_nodes(&mut self, observed: Observed<CSINode>, time: Time) {
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

    pub(super) fn observe_attachments(&mut self, observed: Observed<VolumeAttachment>, time: Time) {
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

    pub(super) fn observe_csi_drivers(&mut self, observed: Observed<CSIDriver>, time: Time) {
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

    pub(super) fn observe_capacities(
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

    /// Assumes the volumes chosen for a pod. Returns what to write, and what to wait for.
    pub(super) fn assume_volumes(
        &mut self,
        pod: &PodInfo,
        node: &Arc<str>,
        choice: &Choice,
    ) -> (VolumeTasks, Awaited) {
        let (mut tasks, mut awaited) = (VolumeTasks::default(), Awaited::default());
        if choice.volumes.is_empty() && choice.provisions.is_empty() {
            return (tasks, awaited);
        }
        let storage = self.cache.storage_mut();
        for (name, key) in &choice.volumes {
            let (Some(volume), Some(claim)) = (storage.volumes.get(name), storage.claims.get(key))
            else {
                continue;
            };
            let own = volume.claim.as_ref();
            let is_own = own.is_some_and(|c| c.is(key, &claim.uid));
            let complete = is_own && own.is_some_and(|c| c.uid == claim.uid);
            tasks.volumes.push(VolumeTask {
                volume: name.clone(),
                version: (!complete).then(|| volume.version.clone()),
                claim: (key.clone(), claim.uid.clone(), claim.version.clone()),
                by_controller: !is_own && !volume.by_controller,
            });
            let version = volume.version.clone();
            awaited.volumes.push((name.clone(), key.clone(), version));
            let uid = claim.uid.clone();
            let key = key.clone();
            storage.assume_volume(&pod.uid, name, ClaimRef { key, uid });
        }
        for key in &choice.provisions {
            let Some(claim) = storage.claims.get(key) else {
                continue;
            };
            let version = claim.version.clone();
            awaited.claims.push((key.clone(), version.clone()));
            if claim.selected_node.is_none() {
                tasks.claims.push((key.clone(), claim.uid.clone(), version));
            }
            storage.assume_selected_node(&pod.uid, key, node);
        }
        (tasks, awaited)
    }

    /// The volumes of a pod are written.
    pub(super) fn volumes_written(
        &mut self,
        pod: &Uid,
        volumes: Vec<(String, String)>,
        claims: Vec<(Key, String)>,
    ) {
        let Some(binding) = self.bindings.get_mut(pod) else {
            return;
        };
        for (name, version) in volumes {
            let found = binding.volumes.volumes.iter_mut().find(|v| v.0 == name);
            if let Some(found) = found {
                found.2 = version;
            }
        }
        for (key, version) in claims {
            if let Some(found) = binding.volumes.claims.iter_mut().find(|c| c.0 == key) {
                found.1 = version;
            }
        }
    }

    /// The deadline for the volumes of a pod whose claims are written now; `None` without volumes.
    pub(super) fn volumes_deadline(&self, binding: &Binding, time: Time) -> Option<Timestamp> {
        if binding.volumes.is_empty() {
            return None;
        }
        let profile = self.profile(scheduler_name(&binding.queued.info.pod));
        let timeout = profile.map_or_else(Default::default, |p| p.volume_binding_timeout);
        time.wall.checked_add(timeout).ok()
    }

    /// Checks the bindings that wait for volumes.
    fn check_volumes(&mut self, time: Time) {
        let waits = |pod: &&Uid| {
            self.bindings
                .get(*pod)
                .is_some_and(|b| !b.volumes.is_empty())
        };
        let concerned: Vec<Uid> = self.waiting.timed().filter(waits).cloned().collect();
        for pod in concerned {
            self.check_binding(&pod, time);
        }
    }

    /// How far the volumes of a pod are.
    pub(super) fn volume_progress(&self, binding: &Binding, time: Time) -> Progress {
        let node = self.cache.node(&binding.node);
        let labels = node.map(|n| n.labels().clone()).unwrap_or_default();
        let storage = &*self.cache.snapshot().storage;
        let reaches = |volume: &Volume| volume.reaches(&binding.node, &labels);
        match volumes_bound(&binding.volumes, &binding.node, storage, reaches) {
            Ok(true) => Progress::Bound,
            Ok(false) => match binding
                .phase
                .volumes_deadline()
                .is_some_and(|at| at <= time.wall)
            {
                true => Progress::Failed("binding volumes: context deadline exceeded".to_owned()),
                false => Progress::Waiting,
            },
            Err(text) => Progress::Failed(format!("binding volumes: {text}")),
        }
    }
}

/// Whether all volumes are bound; the error says why they cannot be.
fn volumes_bound(
    awaited: &Awaited,
    node: &str,
    storage: &Storage,
    reaches: impl Fn(&Volume) -> bool,
) -> Result<bool, String> {
    let elsewhere = |name: &str| {
        format!(
            "pv {name:?} node affinity doesn't match node {node:?}: no matching NodeSelectorTerms"
        )
    };
    for (name, key, written) in &awaited.volumes {
        let Some(volume) = storage.volumes.get(name) else {
            return Err(format!(
                "failed to check binding: could not find v1.PersistentVolume {name:?}"
            ));
        };
        let Some(claim) = storage.claims.get(key) else {
            return Err(format!(
                "failed to check binding: could not find v1.PersistentVolumeClaim {:?}",
                key.to_string()
            ));
        };
        // The watch is behind the write.
        if is_newer(written, &volume.version) {
            return Ok(false);
        }
        if !reaches(volume) {
            return Err(elsewhere(name));
        }
        if volume.claim.as_ref().is_none_or(|c| c.uid.is_empty()) {
            return Err(format!("ClaimRef got reset for pv {name:?}"));
        }
        if !claim.is_bound() {
            return Ok(false);
        }
    }
    for (key, written) in &awaited.claims {
        let Some(claim) = storage.claims.get(key) else {
            return Err(format!(
                "failed to check provisioning pvc: could not find v1.PersistentVolumeClaim {:?}",
                key.to_string()
            ));
        };
        if is_newer(written, &claim.version) {
            return Ok(false);
        }
        // A provisioner that gave up takes the node back.
        if claim.selected_node.as_deref() != Some(node) {
            return Err(format!("provisioning failed for PVC {:?}", key.name));
        }
        if let Some(name) = &claim.volume {
            let Some(volume) = storage.volumes.get(name) else {
                return Ok(false);
            };
            if !reaches(volume) {
                return Err(elsewhere(name));
            }
        }
        if !claim.is_bound() {
            return Ok(false);
        }
    }
    Ok(true)
}
