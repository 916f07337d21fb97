//! How much of the devices of a node is free, and in pieces of which size.
//!
//! A unit is a piece of hardware: a device that is allocated as a whole, a device that several claims share, or a set of
//! shared counters that partitions consume. Amounts are thousandths of a unit.

use std::sync::Arc;

use crate::allocation::Allocation;
use crate::amount::Amount;
use crate::attempt::{PoolPart, pools_of};
use crate::claims::Claims;
use crate::cluster::Cluster;
use crate::node::Node;
use crate::pool::{PoolInfo, ViewState};

/// A whole unit.
pub const WHOLE: u32 = 1000;

/// The sizes of requests that fragmentation is judged by, in thousandths: from an eighth of a unit to eight of them.
const SIZES: [u32; 7] = [125, 250, 500, 1000, 2000, 4000, 8000];

/// What the module documentation calls a unit, with amounts in thousandths of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unit {
    /// The free amount, in thousandths.
    pub free: u32,
    /// The largest piece of it that one request can have.
    pub largest: u32,
}

/// The units that a node sees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FreeDevices {
    units: Vec<Unit>,
}

impl FreeDevices {
    /// The units, in the order of pools and devices.
    #[must_use]
    pub fn units(&self) -> &[Unit] {
        &self.units
    }

    /// The sum of all units, in thousandths.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.units.len() as u64 * u64::from(WHOLE)
    }

    /// The free part of all units, in thousandths.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.units.iter().map(|unit| u64::from(unit.free)).sum()
    }

    /// The number of unused units.
    #[must_use]
    pub fn untouched(&self) -> u64 {
        self.units.iter().filter(|unit| unit.is_whole()).count() as u64
    }

    /// The number of units that are used in part.
    #[must_use]
    pub fn broken(&self) -> u64 {
        let partly = |unit: &&Unit| unit.free > 0 && !unit.is_whole();
        self.units.iter().filter(partly).count() as u64
    }

    fn sizes(&self) -> impl Iterator<Item = u32> {
        // Requests that are larger than the node do not count.
        let most = self.total().max(u64::from(WHOLE));
        SIZES
            .into_iter()
            .filter(move |size| u64::from(*size) <= most)
    }

    /// Free units that requests of each size cannot use, summed over the sizes that the node could hold: of a single
    /// unit the fraction, of several the integer number.
    #[must_use]
    pub fn wasted(&self) -> u64 {
        let (free, untouched) = (self.free(), self.untouched());
        let of = |size: u32| match size <= WHOLE {
            true => {
                let small = self.units.iter().filter(|unit| unit.largest < size);
                small.map(|unit| u64::from(unit.free)).sum()
            }
            false if untouched * u64::from(WHOLE) < u64::from(size) => free,
            false => free - untouched * u64::from(WHOLE),
        };
        self.sizes().map(of).sum()
    }

    /// The share of free resources that a request cannot use, averaged over the sizes of requests: a numerator and a
    /// denominator, so that nodes can be summed.
    #[must_use]
    pub fn fragmentation(&self) -> (u64, u64) {
        let sizes = self.sizes().count() as u64;
        (self.wasted(), self.free() * sizes)
    }
}

impl Unit {
    fn is_whole(self) -> bool {
        self.free >= WHOLE && self.largest >= WHOLE
    }
}

impl Cluster {
    /// The free resources of a node. Takes time in proportion to the devices that it can access. Unusable pools, and
    /// nodes whose pools are unknown, count as having none.
    #[must_use]
    pub fn free_devices(&self, node: &Node) -> FreeDevices {
        let parts = pools_of(self, node).unwrap_or_default();
        free_devices(&parts, None)
    }
}

/// The free resources of the node before and after an allocation.
pub(crate) fn before_and_after(
    cluster: &Cluster,
    node: &Node,
    found: &Allocation,
    claims: &Claims,
) -> (FreeDevices, FreeDevices) {
    let parts = pools_of(cluster, node).unwrap_or_default();
    (
        free_devices(&parts, None),
        free_devices(&parts, Some((found, claims))),
    )
}

fn free_devices(parts: &[PoolPart<'_>], taken: Option<(&Allocation, &Claims)>) -> FreeDevices {
    let mut free = FreeDevices::default();
    for part in parts.iter().filter(|p| p.view.state == ViewState::Usable) {
        let taken = Taken::new(part.info(), taken);
        counter_sets(part, &taken, &mut free.units);
        devices(part, &taken, &mut free.units);
    }
    free
}

/// The devices of one pool that an allocation takes.
#[derive(Default)]
struct Taken<'a> {
    /// Slot, the alternative, and whether the device is shared.
    picks: Vec<(u32, u32, bool)>,
    claims: Option<&'a Claims>,
}

impl<'a> Taken<'a> {
    fn new(info: &PoolInfo, taken: Option<(&Allocation, &'a Claims)>) -> Self {
        let Some((allocation, claims)) = taken else {
            return Self::default();
        };
        let here = allocation
            .picks
            .iter()
            .filter(|pick| std::ptr::eq(Arc::as_ptr(&pick.pool), info));
        Self {
            picks: here.map(|p| (p.slot, p.alternative, p.shared)).collect(),
            claims: Some(claims),
        }
    }

    fn has(&self, slot: u32) -> bool {
        self.picks.iter().any(|(taken, ..)| *taken == slot)
    }
}

/// A part of a total.
fn share(part: Amount, total: Amount) -> u32 {
    let (part, total) = (part.nanos().max(0), total.nanos());
    if total <= 0 {
        return 0;
    }
    let share = part.saturating_mul(i128::from(WHOLE)) / total;
    u32::try_from(share).unwrap_or(u32::MAX).min(WHOLE)
}

/// Devices that draw from no counters.
fn devices(part: &PoolPart<'_>, taken: &Taken<'_>, units: &mut Vec<Unit>) {
    let (info, usage) = (part.info(), &part.pool.usage);
    for &slot in &part.view.slots {
        let device = info.device(slot);
        if device.consumes_counters() {
            continue;
        }
        let in_use = usage.is_dedicated(slot);
        if !device.shareable {
            let free = if in_use || taken.has(slot) { 0 } else { WHOLE };
            units.push(Unit {
                free,
                largest: free,
            });
            continue;
        }
        if device.capacity.is_empty() {
            // There is always more of it.
            continue;
        }
        let shares = usage.device(&device.name);
        let left = device.capacity.iter().map(|capacity| {
            let mut left = capacity.value.amount;
            if let Some(shares) = shares {
                left = left.minus(shares.consumed(&capacity.name));
            }
            let picks = taken.picks.iter().filter(|(taken, ..)| *taken == slot);
            for (_, alternative, _) in picks {
                let Some(claims) = taken.claims else { break };
                let asked = &claims.alternatives[*alternative as usize];
                let consumed = capacity.consumed(asked.requested(&capacity.name));
                left = left.minus(consumed.amount());
            }
            share(left, capacity.value.amount)
        });
        let free = if in_use { 0 } else { left.min().unwrap_or(0) };
        units.push(Unit {
            free,
            largest: free,
        });
    }
}

/// Adds the counter sets that devices of a pool draw from.
fn counter_sets(part: &PoolPart<'_>, taken: &Taken<'_>, units: &mut Vec<Unit>) {
    let (info, usage) = (part.info(), &part.pool.usage);
    let range = info.counters_of(part.view.generation);
    if range.is_empty() {
        return;
    }
    let first = range.start;
    let counters = &info.counters()[range.clone()];
    let mut left = usage.available()[range].to_vec();
    let mut paid: Vec<u32> = Vec::new();
    for (slot, _, shared) in &taken.picks {
        // The first share of a device takes its counters.
        if *shared && (usage.is_shared(*slot) || paid.contains(slot)) {
            continue;
        }
        paid.push(*slot);
        for (counter, amount) in info.consumption(*slot) {
            let left = &mut left[*counter as usize - first];
            *left = left.minus(*amount);
        }
    }
    let mut sets: Vec<Set> = Vec::new();
    let mut set_of = Vec::with_capacity(counters.len());
    for (at, counter) in counters.iter().enumerate() {
        let new = at == 0 || counters[at - 1].set != counter.set;
        if new {
            sets.push(Set::default());
        }
        let last = sets.len() - 1;
        set_of.push(last);
        sets[last].counters += 1;
        sets[last].free += share(left[at], counter.total);
    }
    for &slot in &part.view.slots {
        let consumption = info.consumption(slot);
        if consumption.is_empty() {
            continue;
        }
        let fits = consumption
            .iter()
            .all(|(counter, amount)| *amount <= left[*counter as usize - first]);
        let fits = fits && !usage.is_dedicated(slot) && !taken.has(slot);
        for (at, set) in sets.iter_mut().enumerate() {
            let own = consumption
                .iter()
                .filter(|(counter, _)| set_of[*counter as usize - first] == at);
            let of = |(counter, amount): &(u32, Amount)| {
                share(*amount, counters[*counter as usize - first].total)
            };
            let size: u32 = own.map(of).sum();
            set.whole = set.whole.max(size);
            if fits {
                set.largest = set.largest.max(size);
            }
        }
    }
    units.extend(sets.iter().filter(|set| set.whole > 0).map(Set::unit));
}

/// A set of counters; amounts are sums over its counters.
#[derive(Default)]
struct Set {
    counters: u32,
    free: u32,
    /// The size of the largest device, which is what counts as the whole.
    whole: u32,
    /// The size of the largest device that is available.
    largest: u32,
}

impl Set {
    fn unit(&self) -> Unit {
        let part = |amount: u32| (amount * WHOLE / self.whole).min(WHOLE);
        Unit {
            free: part(self.free),
            largest: part(self.largest),
        }
    }
}

#[cfg(test)]
mod tests;
