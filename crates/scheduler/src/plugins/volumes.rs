//! Claims for volumes (PersistentVolumeClaim): a pod waits until those that it names exist.
//!
//! Which volume a claim is bound to, and from where that can be reached, is not looked at: nothing here provides
//! volumes.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Volume};
use rustc_hash::FxHashMap;

use super::Plugin;
use crate::pod::{Key, PodInfo};
use crate::status::Rejection;

/// What pods have to know about a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumeClaim {
    deleting: bool,
    /// The volume that it had, and that is gone.
    lost: Option<String>,
    /// Identity of its controller.
    owner: Option<String>,
}

/// All claims.
pub type VolumeClaims = FxHashMap<Key, VolumeClaim>;

impl VolumeClaim {
    /// Reads a claim.
    pub fn new(claim: &PersistentVolumeClaim) -> Self {
        let phase = claim.status.as_ref().and_then(|s| s.phase.as_deref());
        let volume = claim.spec.as_ref().and_then(|s| s.volume_name.clone());
        let mut owners = claim.metadata.owner_references.iter().flatten();
        Self {
            deleting: claim.metadata.deletion_timestamp.is_some(),
            lost: (phase == Some("Lost")).then(|| volume.unwrap_or_default()),
            owner: owners
                .find(|o| o.controller == Some(true))
                .map(|o| o.uid.clone()),
        }
    }
}

/// Whether the volumes of a pod are such that it can be tried at all; the texts are upstream's.
///
/// # Errors
/// When a claim does not exist, is going, has lost its volume, or belongs to somebody else.
pub fn pre_filter(pod: &PodInfo, known: &VolumeClaims) -> Result<(), Rejection> {
    let check = |volume: &Volume| {
        let (name, ephemeral) = match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(source), _) => (source.claim_name.clone(), false),
            (None, Some(_)) => (format!("{}-{}", pod.key.name, volume.name), true),
            (None, None) => return None,
        };
        let key = Key::new(&pod.key.namespace, &name);
        let Some(claim) = known.get(&key) else {
            return Some(match ephemeral {
                true => format!(
                    "waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"
                ),
                false => format!("persistentvolumeclaim {name:?} not found"),
            });
        };
        if let Some(volume) = &claim.lost {
            return Some(format!(
                "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
            ));
        }
        if claim.deleting {
            return Some(format!("persistentvolumeclaim {name:?} is being deleted"));
        }
        (ephemeral && claim.owner.as_deref() != Some(&*pod.uid)).then(|| {
            format!(
                "PVC {key} was not created for pod {} (pod is not owner)",
                pod.key
            )
        })
    };
    match pod.spec().volumes.iter().flatten().find_map(check) {
        Some(text) => Err(Rejection::unresolvable(Plugin::VolumeBinding, text)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
