//! Volumes of a pod that is bound: those chosen for it are assumed, and its binding waits until they are bound.

use std::sync::Arc;

use jiff::Timestamp;

use super::{Binding, Core, Time};
use crate::actions::{VolumeTask, VolumeTasks};
use crate::plugins::volumes::PodVolumes;
use crate::pod::{Key, PodInfo, Uid, scheduler_name};
use crate::storage::{ClaimRef, Storage, Volume};
use crate::version::is_newer;

mod observe;

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
    /// Assumes the volumes chosen for a pod. Returns what to write, and what to wait for.
    pub(super) fn assume_volumes(
        &mut self,
        pod: &PodInfo,
        node: &Arc<str>,
        choice: &PodVolumes,
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
            Err(error) => Progress::Failed(format!("binding volumes: {error}")),
        }
    }
}

/// Why the volumes of an assumed pod can no longer be bound on its node: the errors of kube-scheduler's volume binder.
#[derive(Debug, thiserror::Error)]
enum VolumeBindingError {
    #[error("failed to check binding: could not find v1.PersistentVolume {0:?}")]
    NoVolume(String),
    #[error("failed to check binding: could not find v1.PersistentVolumeClaim {0:?}")]
    NoClaim(String),
    #[error("failed to check provisioning pvc: could not find v1.PersistentVolumeClaim {0:?}")]
    NoProvisionedClaim(String),
    #[error(
        "pv {volume:?} node affinity doesn't match node {node:?}: no matching NodeSelectorTerms"
    )]
    Affinity { volume: String, node: String },
    #[error("ClaimRef got reset for pv {0:?}")]
    Unbound(String),
    #[error("provisioning failed for PVC {0:?}")]
    Provisioning(String),
}

/// Whether all volumes are bound; `false` while the watch has not shown that.
fn volumes_bound(
    awaited: &Awaited,
    node: &str,
    storage: &Storage,
    reaches: impl Fn(&Volume) -> bool,
) -> Result<bool, VolumeBindingError> {
    let elsewhere = |volume: &str| VolumeBindingError::Affinity {
        volume: volume.to_owned(),
        node: node.to_owned(),
    };
    for (name, key, written) in &awaited.volumes {
        let Some(volume) = storage.volumes.get(name) else {
            return Err(VolumeBindingError::NoVolume(name.clone()));
        };
        let Some(claim) = storage.claims.get(key) else {
            return Err(VolumeBindingError::NoClaim(key.to_string()));
        };
        // The watch is behind the write.
        if is_newer(written, &volume.version) {
            return Ok(false);
        }
        if !reaches(volume) {
            return Err(elsewhere(name));
        }
        if volume.claim.as_ref().is_none_or(|c| c.uid.is_empty()) {
            return Err(VolumeBindingError::Unbound(name.clone()));
        }
        if !claim.is_bound() {
            return Ok(false);
        }
    }
    for (key, written) in &awaited.claims {
        let Some(claim) = storage.claims.get(key) else {
            return Err(VolumeBindingError::NoProvisionedClaim(key.to_string()));
        };
        if is_newer(written, &claim.version) {
            return Ok(false);
        }
        // A provisioner that gave up takes the node back.
        if claim.selected_node.as_deref() != Some(node) {
            return Err(VolumeBindingError::Provisioning(key.name.to_string()));
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
