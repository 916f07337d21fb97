//! Claims that hold what they cannot all have.
//!
//! An allocator does not allocate a device twice, but two that do not know of each other do, and an API server does not
//! compare claims. The owner of the cluster can detect that here and release one of the claims.

use smol_str::SmolStr;

use super::{Cluster, Held, HeldKind};
use crate::amount::Amount;
use crate::holder::{Holder, name_holders};
use crate::pool::{DeviceUse, Pool};

/// Why a claim cannot keep its devices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Conflict<'a> {
    /// Another claim holds a device, and at least one of the two holds it exclusively.
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

impl Conflict<'_> {
    /// The conflict in words, for a message that is read in `namespace`. Claims of other namespaces are not named.
    pub fn describe(&self, namespace: &str) -> String {
        let (Self::Device { held, .. } | Self::Overdrawn { held }) = self;
        let device = format!("device {}/{}/{}", held.driver, held.pool, held.device);
        match self {
            Self::Device { by, .. } => {
                let by = name_holders(namespace, std::iter::once(*by));
                format!("{device} is also allocated to {by}")
            }
            Self::Overdrawn { .. } => {
                format!("{device} is allocated beyond its capacity or counters")
            }
        }
    }
}

/// Whether what a claim holds counts.
type Counts<'a> = &'a dyn Fn(&Holder, &Held) -> bool;

impl Cluster {
    /// The conflicts of a claim's devices; empty for an unknown claim, and nearly always empty. Of other claims only
    /// those count for which `counts` is true.
    ///
    /// The caller decides which of two claims must yield: the cluster does not know which was first.
    pub fn conflicts(
        &self,
        uid: &str,
        counts: impl Fn(&Holder, &Held) -> bool,
    ) -> Vec<Conflict<'_>> {
        let mut found = Vec::new();
        let Some(holding) = self.claims.get(uid) else {
            return found;
        };
        let counts: Counts<'_> = &|holder, held| holder.uid == uid || counts(holder, held);
        for held in &holding.devices {
            let Some(&id) = self.ids.get(&(held.driver.clone(), held.pool.clone())) else {
                continue;
            };
            let entry = self.pools.get(id as usize);
            let Some(device) = entry.device_use(&held.device) else {
                continue;
            };
            let others = others(device, held, uid);
            let others = others.filter(|by| self.counts(by, held, None, counts));
            found.extend(others.map(|by| Conflict::Device { held, by }));
            let counted = entry.has_counters() || device.shares.len() > 1;
            if counted && self.is_overdrawn(entry.pool(&self.rules), held, device, counts) {
                found.push(Conflict::Overdrawn { held });
            }
        }
        found
    }

    /// Whether it counts what a claim holds of a device, or of one of its shares.
    fn counts(&self, by: &Holder, at: &Held, share: Option<&str>, counts: Counts<'_>) -> bool {
        let same = |held: &&Held| {
            let names = [
                (&held.driver, &at.driver),
                (&held.pool, &at.pool),
                (&held.device, &at.device),
            ];
            names.iter().all(|(a, b)| a == b)
                && share.is_none_or(
                    |id| matches!(&held.kind, HeldKind::Shared { share_id, .. } if share_id == id),
                )
        };
        let holding = self.claims.get(&by.uid);
        let mut devices = holding.iter().flat_map(|h| &h.devices).filter(same);
        devices.any(|held| counts(by, held))
    }

    /// By the newest generation of the pool that has the device: the counts of older generations are irrelevant.
    fn is_overdrawn(
        &self,
        pool: &Pool,
        held: &Held,
        device: &DeviceUse,
        counts: Counts<'_>,
    ) -> bool {
        let (info, available) = (&pool.info, pool.usage.available());
        let newest = |name: &str| {
            let generation = |slot: &u32| info.slice(*slot).generation;
            info.slots_named(name).max_by_key(generation)
        };
        let Some(slot) = newest(&held.device) else {
            return false;
        };
        let consumed = |capacity: &SmolStr| {
            let shares = device.shares.iter();
            let shares = shares.filter(|s| self.counts(&s.holder, held, Some(&s.id), counts));
            let amounts =
                shares.flat_map(|s| s.capacity.iter().filter(|(name, _)| name == capacity));
            amounts.fold(Amount::ZERO, |sum, (_, amount)| sum.plus(*amount))
        };
        let capacities = &info.device(slot).capacity;
        let all = |name: &str| device.consumed(name);
        let mut beyond = capacities.iter().filter(|c| all(&c.name) > c.value.amount);
        if beyond.any(|c| consumed(&c.name) > c.value.amount) {
            return true;
        }
        let counters = info.consumption(slot).iter().map(|(counter, _)| *counter);
        let mut overdrawn = counters.filter(|c| available[*c as usize].is_negative());
        overdrawn.any(|counter| {
            let drawn = pool.usage.devices().filter(|(name, device)| {
                let at = Held {
                    device: (*name).clone(),
                    ..held.clone()
                };
                let mut holders = device.holders();
                holders.any(|by| self.counts(by, &at, None, counts))
            });
            let slots = drawn.flat_map(|(name, _)| info.slots_named(name));
            let amounts = slots.flat_map(|slot| info.consumption(slot));
            let amounts = amounts.filter(|(c, _)| *c == counter);
            let sum = amounts.fold(Amount::ZERO, |sum, (_, amount)| sum.plus(*amount));
            sum > info.counters()[counter as usize].total
        })
    }
}

/// The other claims that a device cannot serve beside this one.
fn others<'a>(device: &'a DeviceUse, held: &Held, uid: &str) -> impl Iterator<Item = &'a Holder> {
    let alone = matches!(held.kind, HeldKind::Dedicated);
    let all = device.holders().take(match alone {
        true => usize::MAX,
        false => device.dedicated.len(),
    });
    all.filter(move |h| h.uid != uid)
}
