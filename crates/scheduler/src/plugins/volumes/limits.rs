//! NodeVolumeLimits: how many volumes of a CSI driver a node takes (CSINode).

use rustc_hash::FxHashMap;
use rustc_hash::FxHashSet;

use crate::framework::Plugin;
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::status::Rejection;
use crate::storage::{self, Storage};

/// Volumes by driver.
type ByDriver = FxHashMap<String, FxHashSet<String>>;

/// The CSI volumes that a pod brings to its node.
#[derive(Debug)]
pub struct Attachments<'a> {
    storage: &'a Storage,
    volumes: ByDriver,
}

impl<'a> Attachments<'a> {
    /// Looks up the claims of a pod; `None` when no node has a limit that could matter.
    pub fn new(pod: &PodInfo, storage: &'a Storage) -> Option<Self> {
        if storage.limits.values().all(FxHashMap::is_empty) {
            return None;
        }
        let mut volumes = ByDriver::default();
        attached(pod, storage, &mut volumes);
        (!volumes.is_empty()).then_some(Self { storage, volumes })
    }

    /// Rejects a node to which not all of them can be attached.
    pub fn filter(&self, node: &NodeInfo) -> Result<(), Rejection> {
        let limits = self.storage.limits.get(&*node.name);
        let limited = |driver: &String| limits.is_some_and(|l| l.contains_key(driver));
        if !self.volumes.keys().any(limited) {
            return Ok(());
        }
        let mut present = ByDriver::default();
        for pod in &node.pods {
            attached(pod, self.storage, &mut present);
        }
        self.add_attachments(&node.name, &mut present);
        for (driver, new) in &self.volumes {
            let Some(limit) = limits.and_then(|l| l.get(driver)) else {
                continue;
            };
            let present = present.get(driver);
            let before = present.map_or(0, FxHashSet::len);
            let added = new
                .iter()
                .filter(|v| present.is_none_or(|p| !p.contains(*v)));
            let added = added.count();
            if added > 0 && (before + added) as i64 > *limit {
                let reason = "node(s) exceed max volume count";
                return Err(Rejection::unschedulable(Plugin::NodeVolumeLimits, reason));
            }
        }
        Ok(())
    }

    /// Adds the volumes attached to a node, also those that no pod there uses: they may be about to be detached.
    fn add_attachments(&self, node: &str, to: &mut ByDriver) {
        for name in self.storage.attachments.on(node) {
            let volume = self.storage.volumes.get(name);
            if let Some((driver, handle)) = volume.and_then(|v| v.csi.as_ref()) {
                to.entry(driver.clone()).or_default().insert(handle.clone());
            }
        }
    }
}

/// Adds the CSI volumes of a pod. A volume that does not exist yet counts for the driver that will provision it.
fn attached(pod: &PodInfo, storage: &Storage, to: &mut ByDriver) {
    for (key, _) in storage::claims_of(pod) {
        let Some(claim) = storage.claims.get(&key) else {
            continue;
        };
        let volume = claim.volume.as_ref().and_then(|v| storage.volumes.get(v));
        let (driver, handle) = match volume {
            Some(volume) => match &volume.csi {
                Some((driver, handle)) => (driver.clone(), handle.clone()),
                None => continue,
            },
            None => {
                let class = storage.classes.get(&claim.class);
                let Some(driver) = class.and_then(|c| c.provisioner.clone()) else {
                    continue;
                };
                // No volume handle of a driver begins with a NUL byte.
                (driver, format!("\0{key}"))
            }
        };
        to.entry(driver).or_default().insert(handle);
    }
}
