//! VolumeRestrictions: claims with the access mode ReadWriteOncePod are used by one pod in the whole cluster.

use std::sync::Arc;

use crate::cache::Snapshot;
use crate::framework::Plugin;
use crate::pod::{Key, PodInfo};
use crate::status::Rejection;
use crate::storage;

/// The ReadWriteOncePod claims of a pod, and how often pods on nodes use them.
#[derive(Debug, Clone)]
pub struct ExclusiveClaims {
    claims: Arc<[Key]>,
    uses: i64,
}

impl ExclusiveClaims {
    /// Looks up the claims of a pod; `None` when it has none with ReadWriteOncePod.
    ///
    /// # Errors
    /// A PersistentVolumeClaim of the pod does not exist.
    pub fn new(pod: &PodInfo, snapshot: &Snapshot) -> Result<Option<Self>, Rejection> {
        let mut claims = Vec::new();
        for (key, _) in storage::claims_of(pod).filter(|(_, ephemeral)| !ephemeral) {
            let Some(claim) = snapshot.storage.claims.get(&key) else {
                let text = format!("persistentvolumeclaim {:?} not found", key.name);
                return Err(Rejection::unresolvable(Plugin::VolumeRestrictions, text));
            };
            if claim.is_exclusive() {
                claims.push(key);
            }
        }
        if claims.is_empty() {
            return Ok(None);
        }
        let mut found = Self {
            claims: claims.into(),
            uses: 0,
        };
        for other in snapshot.nodes.iter().flat_map(|n| &n.pods) {
            found.update(other, 1);
        }
        Ok(Some(found))
    }

    /// Counts a pod that is added to a node, or removed from it.
    pub fn update(&mut self, other: &PodInfo, delta: i64) {
        let used = storage::claims_of(other).filter(|(key, _)| self.claims.contains(key));
        self.uses += delta * used.count() as i64;
    }

    /// Rejects every node while another pod uses a claim.
    pub fn filter(&self) -> Result<(), Rejection> {
        if self.uses <= 0 {
            return Ok(());
        }
        Err(Rejection::unschedulable(
            Plugin::VolumeRestrictions,
            "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode",
        ))
    }
}
