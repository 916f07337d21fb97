//! The order of [`Policy::BestFit`](crate::Policy::BestFit).

use rustc_hash::FxHashMap;

use super::PoolPart;
use crate::amount::Amount;
use crate::pool::{View, ViewRef};

/// What decides between devices; the least comes first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Pools with binding conditions come last under every policy.
    binding: bool,
    /// Breaking something that is whole is worse than using up what is broken.
    whole: bool,
    /// How much of the most that there is, in thousandths.
    size: u64,
    /// How much is to spare, in thousandths.
    spare: u64,
}

/// Orders the devices of all pools by rank. A pool may come in several parts then.
pub(super) fn best_fit(parts: Vec<PoolPart<'_>>) -> Vec<PoolPart<'_>> {
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
        devices.extend(
            part.view
                .slots
                .iter()
                .map(|slot| (rank(part, *slot, &largest), index, *slot)),
        );
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
    // Pools without devices matter for what they say about themselves.
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

/// A part of a total in thousandths.
fn share(part: Amount, total: Amount) -> u64 {
    let (part, total) = (part.nanos().max(0), total.nanos().max(1));
    u64::try_from(part.saturating_mul(1000) / total).unwrap_or(u64::MAX)
}

impl<'a> PoolPart<'a> {
    fn with_slots(&self, slots: Vec<u32>) -> Self {
        let view = View {
            slots,
            ..(*self.view).clone()
        };
        Self {
            view: ViewRef::Own(Box::new(view)),
            ..*self
        }
    }
}
