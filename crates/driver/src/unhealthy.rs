//! Taints on devices that the driver reports as unhealthy.

use std::collections::HashSet;
use std::sync::Arc;

use allot_model::validate::TAINT_EFFECTS;
use k8s_openapi::api::resource::v1::{Device, DeviceTaint};
use tokio::sync::watch;

use crate::error::Error;
use crate::health::{DeviceHealth, Health};
use crate::publisher::{Pool, Resources};

#[cfg(test)]
mod tests;

/// The name behind the driver's in the key of the taint.
const NAME: &str = "unhealthy";
/// The API's limit on the taints of a device.
pub(crate) const MOST_TAINTS: usize = 16;

/// The resources that the driver published, and these with taints on unhealthy devices.
pub(crate) type Desired = Option<Arc<Resources>>;

/// How unhealthy devices are tainted.
#[derive(Debug, Clone)]
pub(crate) struct Tainting {
    /// `DRIVER/unhealthy`.
    key: String,
    effect: String,
}

impl Tainting {
    /// # Errors
    /// The API has no such effect: all slices with such a taint would be rejected when a device becomes unhealthy.
    pub(crate) fn new(driver: &str, effect: String) -> Result<Self, Error> {
        if !TAINT_EFFECTS.contains(&effect.as_str()) {
            return Err(Error::Config(format!(
                "taints for unhealthy devices: {effect:?} is no effect; there are {}",
                TAINT_EFFECTS.join(", ")
            )));
        }
        Ok(Self {
            key: format!("{driver}/{NAME}"),
            effect,
        })
    }

    /// Publishes again whenever the devices or their health change, until the driver ends.
    pub(crate) async fn keep(
        self,
        mut desired: watch::Receiver<Desired>,
        mut health: watch::Receiver<Vec<DeviceHealth>>,
        published: watch::Sender<Desired>,
    ) {
        let mut watched = true;
        loop {
            let resources = desired.borrow_and_update().clone();
            let tainted = {
                let health = health.borrow_and_update();
                resources.map(|resources| Arc::new(self.apply(&resources, &health)))
            };
            published.send_if_modified(|before| {
                let changed = *before != tainted;
                *before = tainted;
                changed
            });
            tokio::select! {
                changed = desired.changed() => if changed.is_err() { return },
                // A driver that no longer watches its devices drops the sender: the last taints stay.
                changed = health.changed(), if watched => watched = changed.is_ok(),
            }
        }
    }

    /// The resources with taints on the devices that are unhealthy. Healthy ones, and those of unknown health, stay as they
    /// are.
    fn apply(&self, resources: &Resources, health: &[DeviceHealth]) -> Resources {
        let unhealthy = health.iter().filter(|it| it.health == Health::Unhealthy);
        let unhealthy: HashSet<(&str, &str)> = unhealthy
            .map(|it| (it.pool.as_str(), it.device.as_str()))
            .collect();
        let pools = resources.pools.iter().map(|(name, pool)| {
            let slices = pool.slices.iter().flat_map(|slice| {
                let mut slice = slice.clone();
                for device in &mut slice.devices {
                    if unhealthy.contains(&(name.as_str(), device.name.as_str())) {
                        self.taint(device);
                    }
                }
                // A slice with a tainted device holds fewer devices than one without.
                slice.split()
            });
            let slices = slices.collect();
            let pool = Pool {
                slices,
                ..pool.clone()
            };
            (name.clone(), pool)
        });
        Resources {
            pools: pools.collect(),
        }
    }

    fn taint(&self, device: &mut Device) {
        let taints = device.taints.get_or_insert_default();
        let there = taints
            .iter()
            .any(|taint| taint.key == self.key && taint.effect == self.effect);
        if !there && taints.len() < MOST_TAINTS {
            taints.push(DeviceTaint {
                key: self.key.clone(),
                effect: self.effect.clone(),
                ..DeviceTaint::default()
            });
        }
    }
}
