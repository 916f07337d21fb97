//! Shared counters: the remaining amounts.

use super::{Attempt, PoolPart};
use crate::amount::Amount;
use crate::observer::{Observer, Place};
use crate::pool::ViewState;

impl<'a, O: Observer> Attempt<'a, O> {
    /// Whether the counters of the device are consumed already, because another claim or request shares the device.
    pub(crate) fn counters_paid(&self, place: &Place<'_>) -> bool {
        let picked = || self.scratch.picks.iter().any(|p| p.device == place.number);
        place.device.shareable
            && (self.shared_before(place)
                || picked()
                || self.scratch.left_behind.contains(&place.number))
    }

    /// Whether other claims share the device. Upstream overlooks shares that consume no capacity.
    fn shared_before(&self, place: &Place<'_>) -> bool {
        let usage = &place.pool.usage;
        let takes_some = || {
            let device = usage.device(&place.device.name);
            device.is_some_and(|d| d.shares.iter().any(|s| !s.capacity.is_empty()))
        };
        usage.is_shared(place.slot) && (!self.features.upstream_errors || takes_some())
    }

    /// Remaining amounts of all counters.
    pub(crate) fn counters_left(&self) -> &[Amount] {
        &self.scratch.counters
    }

    /// Remaining amounts of one pool's counters.
    pub(crate) fn counters_of(&self, part: usize) -> &[Amount] {
        let part = &self.parts[part];
        if part.view.state != ViewState::Usable {
            return &[];
        }
        let range = part.info().counters_of(part.view.generation);
        &self.scratch.counters[part.first_counter..part.first_counter + range.len()]
    }

    /// Whether the remaining counters suffice for the device.
    pub(crate) fn counters_fit(&self, place: &Place<'_>) -> bool {
        let (part, table) = self.counter_table(place.part);
        if table.overdrawn {
            return false;
        }
        let consumption = part.info().consumption(place.slot);
        consumption.iter().all(|(counter, _)| {
            // A device may name a counter twice.
            let wanted = consumption.iter().filter(|(c, _)| c == counter);
            let wanted = wanted.fold(Amount::ZERO, |sum, (_, amount)| sum.plus(*amount));
            let index = counter_index(part, table, *counter);
            index.is_none_or(|index| self.scratch.counters[index] >= wanted)
        })
    }

    /// Applies `op` to the remaining amount of each counter that the device in a slot consumes, and to the consumed amount.
    pub(super) fn charge(&mut self, part: u32, slot: u32, op: impl Fn(Amount, Amount) -> Amount) {
        let (part, table) = self.counter_table(part);
        let consumption = part.info().consumption(slot);
        let charges = consumption
            .iter()
            .map(|(counter, amount)| (counter_index(part, table, *counter), *amount));
        for (index, amount) in charges.collect::<Vec<_>>() {
            if let Some(index) = index {
                let left = &mut self.scratch.counters[index];
                *left = op(*left, amount);
            }
        }
    }

    /// A part and the part whose counters it uses; see [`PoolPart::counters_of`].
    fn counter_table(&self, part: u32) -> (&PoolPart<'a>, &PoolPart<'a>) {
        let own = &self.parts[part as usize];
        (
            own,
            own.counters_of
                .map_or(own, |other| &self.parts[other as usize]),
        )
    }

    /// Makes all pools of the same name use the counters of this one, unless they do so already.
    pub(super) fn join_counters(&mut self, part: u32) {
        if self.parts[part as usize].counters_of.is_some() {
            return;
        }
        let info = self.parts[part as usize].info();
        for other in self
            .parts
            .iter_mut()
            .filter(|p| p.pool.info.name == info.name)
        {
            other.counters_of = Some(part);
        }
    }
}

/// The index of a part's counter in the table of another part.
fn counter_index(part: &PoolPart<'_>, table: &PoolPart<'_>, counter: u32) -> Option<usize> {
    let range = part.info().counters_of(part.view.generation);
    if part.first_counter == table.first_counter {
        return Some(part.first_counter + counter as usize - range.start);
    }
    let wanted = &part.info().counters()[counter as usize];
    let range = table.info().counters_of(table.view.generation);
    let mut counters = table.info().counters()[range].iter();
    let found = counters.position(|c| c.set == wanted.set && c.name == wanted.name);
    found.map(|index| table.first_counter + index)
}
