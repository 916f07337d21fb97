//! The order of devices under policies other than [`Policy::FirstFit`].

use rustc_hash::FxHashMap;

use super::PoolPart;
use crate::Policy;
use crate::amount::Amount;
use crate::pool::{View, ViewRef};

/// Most pairs of partitions of a pool that are compared with each other; with more, partitions are ordered as by
/// [`Policy::BestFit`].
const MOST_PAIRS: usize = 1 << 18;

/// The order of devices; the lowest comes first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Pools with binding conditions come last under every policy.
    binding: bool,
    /// The amount that is no longer available when this device is allocated, in thousandths of counters.
    blocks: u64,
    /// Partitioning a whole device ranks lower than using up a partitioned one.
    whole: bool,
    /// How much of the most that there is, in thousandths.
    size: u64,
    /// How much is to spare, in thousandths.
    spare: u64,
}

/// Orders the devices of all pools by rank. A pool may be split into several parts.
pub(super) fn by_policy(policy: Policy, parts: Vec<PoolPart<'_>>) -> Vec<PoolPart<'_>> {
    let mut largest: FxHashMap<&str, Amount> = FxHashMap::default();
    for part in &parts {
        for slot in &part.view.slots {
            for capacity in &part.info().device(*slot).capacity {
                let largest = largest.entry(capacity.name.as_str()).or_default();
                *largest = (*largest).max(capacity.value.amount);
            }
        }
    }
    let mut devices = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let blocks = match policy {
            Policy::LeastFragmentation => blocks(part),
            _ => FxHashMap::default(),
        };
        devices.extend(part.view.slots.iter().map(|slot| {
            let mut rank = rank(part, *slot, &largest);
            rank.blocks = blocks.get(slot).copied().unwrap_or(0);
            if policy == Policy::Spread {
                rank = rank.reversed();
            }
            (rank, index, *slot)
        }));
    }
    // The sort is stable: among equals the first stays first.
    devices.sort_by(|a, b| a.0.cmp(&b.0));
    let mut ordered: Vec<PoolPart<'_>> = Vec::new();
    let mut last = None;
    for (_, index, slot) in devices {
        if last == Some(index)
            && let Some(PoolPart {
                view: ViewRef::Own(view),
                ..
            }) = ordered.last_mut()
        {
            view.slots.push(slot);
            continue;
        }
        last = Some(index);
        ordered.push(parts[index].with_slots(vec![slot]));
    }
    // Pools without devices matter for their state.
    ordered.extend(
        parts
            .iter()
            .filter(|p| p.view.slots.is_empty())
            .map(|p| p.with_slots(Vec::new())),
    );
    ordered
}

fn rank(part: &PoolPart<'_>, slot: u32, largest: &FxHashMap<&str, Amount>) -> Rank {
    let (info, usage) = (part.info(), &part.pool.usage);
    let device = info.device(slot);
    let binding = part.view.binding;
    let consumption = info.consumption(slot);
    if !consumption.is_empty() {
        let counters = || {
            consumption.iter().map(|(counter, amount)| {
                (
                    info.counters()[*counter as usize].total,
                    usage.available()[*counter as usize],
                    *amount,
                )
            })
        };
        return Rank {
            binding,
            blocks: 0,
            whole: counters().all(|(total, available, _)| available >= total),
            size: counters()
                .map(|(total, _, amount)| share(amount, total))
                .max()
                .unwrap_or(0),
            spare: counters()
                .map(|(total, available, _)| share(available, total))
                .max()
                .unwrap_or(0),
        };
    }
    let used = usage.device(&device.name).filter(|_| device.shareable);
    let left = |name: &str, value: Amount| used.map_or(value, |u| value.minus(u.consumed(name)));
    let capacity = || device.capacity.iter();
    Rank {
        binding,
        blocks: 0,
        whole: used.is_none(),
        size: capacity()
            .map(|c| share(c.value.amount, largest[c.name.as_str()]))
            .max()
            .unwrap_or(0),
        spare: capacity()
            .map(|c| share(left(&c.name, c.value.amount), c.value.amount))
            .max()
            .unwrap_or(0),
    }
}

impl Rank {
    /// The reversed order, except for binding conditions.
    fn reversed(self) -> Self {
        Self {
            binding: self.binding,
            blocks: u64::MAX - self.blocks,
            whole: !self.whole,
            size: u64::MAX - self.size,
            spare: u64::MAX - self.spare,
        }
    }
}

/// The share of the pool's other partitions that is no longer available when a partition is allocated, by slot.
fn blocks(part: &PoolPart<'_>) -> FxHashMap<u32, u64> {
    let (info, available) = (part.info(), part.pool.usage.available());
    let fits = |slot: u32| {
        let mut consumption = info.consumption(slot).iter();
        consumption.all(|(counter, amount)| *amount <= available[*counter as usize])
    };
    // Only what draws from a counter that the other one draws from can be in its way.
    let mut drawing: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    let partitions = part.view.slots.iter().copied();
    let partitions = partitions.filter(|slot| !info.consumption(*slot).is_empty() && fits(*slot));
    let partitions: Vec<u32> = partitions.collect();
    for slot in &partitions {
        for (counter, _) in info.consumption(*slot) {
            let others = drawing.entry(*counter).or_default();
            if others.last() != Some(slot) {
                others.push(*slot);
            }
        }
    }
    let pairs: usize = drawing.values().map(|list| list.len() * list.len()).sum();
    if pairs > MOST_PAIRS {
        return FxHashMap::default();
    }
    let size = |slot: u32| -> u64 {
        let consumption = info.consumption(slot).iter();
        let total = |counter: u32| info.counters()[counter as usize].total;
        consumption
            .map(|(counter, amount)| share(*amount, total(*counter)))
            .sum()
    };
    let mut found = FxHashMap::default();
    let mut others: Vec<u32> = Vec::new();
    for slot in partitions {
        let taken = info.consumption(slot);
        let left = |counter: u32| {
            let own = taken.iter().filter(|(c, _)| *c == counter);
            own.fold(available[counter as usize], |left, (_, a)| left.minus(*a))
        };
        others.clear();
        others.extend(taken.iter().flat_map(|(counter, _)| &drawing[counter]));
        others.sort_unstable();
        others.dedup();
        let in_the_way = others
            .iter()
            .filter(|other| **other != slot)
            .filter(|other| {
                let needed = info.consumption(**other);
                needed
                    .iter()
                    .any(|(counter, amount)| *amount > left(*counter))
            });
        found.insert(slot, in_the_way.map(|other| size(*other)).sum());
    }
    found
}

/// A part of a total in thousandths.
fn share(part: Amount, total: Amount) -> u64 {
    let (part, total) = (part.nanos().max(0), total.nanos().max(1));
    u64::try_from(part.saturating_mul(1000) / total).unwrap_or(u64::MAX)
}

impl<'a> PoolPart<'a> {
    fn with_slots(&self, slots: Vec<u32>) -> Self {
        let view = View {
            slots,
            state: self.view.state.clone(),
            generation: self.view.generation,
            binding: self.view.binding,
        };
        Self {
            view: ViewRef::Own(Box::new(view)),
            ..*self
        }
    }
}
