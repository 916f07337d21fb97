//! The interfaces that are moved into pods.

use std::collections::BTreeMap;

use allot_netlink::Link;
use k8s_openapi::api::resource::v1::Device;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::inventory::Found;
use super::parameters::Mode;
use super::plan::Planned;

/// State shared between the driver and the publishers.
#[derive(Default)]
pub(super) struct Held {
    /// Interfaces that are moved into pods, by claim, from before the move until they are restored.
    claims: Mutex<BTreeMap<String, Vec<Planned>>>,
    /// Notified when the held interfaces change.
    pub(super) changed: Notify,
}

impl Held {
    pub(super) fn set(&self, uid: &str, interfaces: &[Planned]) {
        let moved = interfaces
            .iter()
            .filter(|it| it.config.mode == Mode::HostDevice);
        let moved = moved.cloned().collect();
        self.claims.lock().insert(uid.to_owned(), moved);
        self.changed.notify_one();
    }

    pub(super) fn forget(&self, uid: &str) {
        self.claims.lock().remove(uid);
        self.changed.notify_one();
    }

    pub(super) fn all(&self) -> Vec<Planned> {
        self.claims.lock().values().flatten().cloned().collect()
    }

    /// UID of another claim that holds this interface.
    pub(super) fn holder(&self, link: &Link, uid: &str) -> Option<String> {
        let claims = self.claims.lock();
        let mut others = claims.iter().filter(|(other, _)| *other != uid);
        let holds = |held: &[Planned]| held.iter().any(|it| it.identity.is(link));
        others
            .find(|(_, held)| holds(held))
            .map(|(uid, _)| uid.clone())
    }

    /// The devices of the node, including those whose interfaces are in pods. Until an interface is restored, its device
    /// is as it was recorded: a pod may have left it with any name and attributes.
    pub(super) fn complete(&self, found: Vec<Found>) -> Vec<Device> {
        let held = self.all();
        let free = found
            .into_iter()
            .filter(|it| !held.iter().any(|held| held.identity.is(&it.link)));
        let mut all: BTreeMap<String, Device> =
            free.map(|it| (it.device.name.clone(), it.device)).collect();
        for one in &held {
            all.insert(one.device.clone(), one.published.clone());
        }
        all.into_values().collect()
    }
}
