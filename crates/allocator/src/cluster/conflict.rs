//! Claims that hold what they can not all have.
//!
//! An allocator does not give a device twice, but two that do not know of each other do, and an API server compares no
//! two claims. Who keeps the cluster can find out here and take one of them back.

use std::fmt;

use super::{Cluster, Held, HeldKind, Holder};
use crate::pool::{DeviceUse, Pool};

/// Why a claim can not have what it holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Conflict<'a> {
    /// Another claim holds a device, and at least one of the two wants it alone.
    Device {
        /// What the claim holds.
        held: &'a Held,
        /// The other claim.
        by: &'a Holder,
    },
    /// All claims together take more from a counter or a capacity of the device than there is.
    Overdrawn {
        /// What the claim holds.
        held: &'a Held,
    },
}

impl fmt::Display for Conflict<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Device { held, .. } | Self::Overdrawn { held }) = self;
        write!(f, "device {}/{}/{}", held.driver, held.pool, held.device)?;
        match self {
            Self::Device { by, .. } => write!(f, " is held by claim {by} as well"),
            Self::Overdrawn { .. } => f.write_str(" is given out beyond its capacity or counters"),
        }
    }
}

impl Cluster {
    /// What speaks against what a claim holds; nothing for a claim that is not known, and nearly always nothing at all.
    ///
    /// Which of two claims has to give way is for the caller to decide: the cluster does not know who was first.
    pub fn conflicts(&self, uid: &str) -> Vec<Conflict<'_>> {
        let mut found = Vec::new();
        let Some(holding) = self.claims.get(uid) else {
            return found;
        };
        for held in &holding.devices {
            let Some(&id) = self.ids.get(&(held.driver.clone(), held.pool.clone())) else {
                continue;
            };
            let entry = self.pools.get(id as usize);
            let Some(device) = entry.device_use(&held.device) else {
                continue;
            };
            let others = others(device, held, uid);
            found.extend(others.map(|by| Conflict::Device { held, by }));
            let counted = entry.has_counters() || device.shares.len() > 1;
            if counted && is_overdrawn(entry.pool(&self.rules), held, device) {
                found.push(Conflict::Overdrawn { held });
            }
        }
        found
    }
}

/// The other claims that a device can not serve beside this one.
fn others<'a>(device: &'a DeviceUse, held: &Held, uid: &str) -> impl Iterator<Item = &'a Holder> {
    let shares = match held.kind {
        HeldKind::Dedicated => device.shares.as_slice(),
        HeldKind::Shared { .. } => &[],
    };
    let all = device
        .dedicated
        .iter()
        .chain(shares.iter().map(|s| &s.holder));
    all.map(|holder| &**holder).filter(move |h| h.uid != uid)
}

/// By the newest generation of the pool that has the device: what an older one counted does not matter any more.
fn is_overdrawn(pool: &Pool, held: &Held, device: &DeviceUse) -> bool {
    let (info, available) = (&pool.info, pool.usage.available());
    let generation = |slot: &u32| info.slice(*slot).generation;
    let Some(slot) = info.slots_named(&held.device).max_by_key(generation) else {
        return false;
    };
    let counters = info.consumption(slot);
    let capacities = &info.device(slot).capacity;
    counters
        .iter()
        .any(|(c, _)| available[*c as usize].is_negative())
        || capacities
            .iter()
            .any(|c| device.consumed(&c.name) > c.value.amount)
}
