//! Pruning of the search, once the first dead end showed that the problem is not easy.
//!
//! It is only used if no check can fail with an error on the way: then skipping a part of the tree without a solution
//! has no visible effect.

use rustc_hash::{FxHashMap, FxHashSet};

use super::bits::Bits;
use super::{Cursor, Position};
use crate::attempt::Attempt;
use crate::claims::{ConstraintKind, Mode};
use crate::observer::{Observer, Proof};
use crate::pool::ViewState;
use crate::{Error, MAX_RESULTS};

mod proofs;
mod values;

use values::Values;

/// The result of the analysis of the whole problem.
pub(super) enum Survey {
    /// Some request can never be satisfied, and the search ends there before any error can occur.
    Infeasible,
    /// Some check can fail with an error, so the order of the checks matters and all must be run.
    OrderSensitive,
    Clear(Box<Pruner>),
}

/// Facts about the devices of an attempt and the dead ends found so far.
pub(super) struct Pruner {
    /// By alternative: devices that could be taken if nothing else were.
    allowed: Vec<Bits>,
    /// By alternative: devices that this or any later request could take.
    relevant: Vec<Bits>,
    /// Devices that serve several requests at once.
    shareable: Bits,
    /// Devices that consume counters.
    counting: Bits,
    /// By device: equal numbers for devices that are interchangeable everywhere.
    twins: Vec<u32>,
    /// The values of constrained attributes, by claim and constraint.
    constraints: Vec<Vec<Values>>,
    /// Situations that have no solution.
    dead: FxHashSet<Box<[u64]>>,
    /// Situations can be distinguished well enough to cache them.
    remember: bool,
    key: Vec<u64>,
}

/// Most dead ends to remember; beyond, memory would matter more than time.
const MAX_DEAD: usize = 200_000;

const NONE: u32 = u32::MAX;

impl Pruner {
    /// Checks every device for every alternative. No device may be picked.
    pub(super) fn survey<O: Observer>(attempt: &mut Attempt<'_, O>) -> Survey {
        let claims = attempt.claims;
        let mut allowed: Vec<Bits> = claims
            .alternatives
            .iter()
            .map(|_| Bits::new(attempt.devices))
            .collect();
        for claim in &claims.claims {
            for request in &claim.requests {
                let mut possible = false;
                for id in request.alternatives.0..request.alternatives.1 {
                    let alternative = &claims.alternatives[id as usize];
                    let enough = match alternative.mode {
                        Mode::Exact(count) => {
                            // More than the limit of a claim are never searched.
                            let looked_for = count > 0 && count <= MAX_RESULTS;
                            if looked_for
                                && Self::allow(attempt, id, &mut allowed[id as usize]).is_err()
                            {
                                return Survey::OrderSensitive;
                            }
                            count <= allowed[id as usize].len()
                        }
                        Mode::All => {
                            if !alternative.constraints.is_empty() {
                                return Survey::OrderSensitive;
                            }
                            Self::allow_all(attempt, id, &mut allowed[id as usize])
                        }
                        Mode::Unsupported => true,
                    };
                    possible |= enough;
                }
                if !possible {
                    attempt
                        .observer
                        .proven(Proof::Request(request.alternatives.0));
                    return Survey::Infeasible;
                }
            }
        }
        Survey::Clear(Box::new(Self::new(attempt, allowed)))
    }

    fn allow<O: Observer>(
        attempt: &mut Attempt<'_, O>,
        id: u32,
        allowed: &mut Bits,
    ) -> Result<(), Error> {
        let alternative = &attempt.claims.alternatives[id as usize];
        for part in 0..attempt.parts.len() {
            if attempt.parts[part].view.state != ViewState::Usable {
                continue;
            }
            for index in 0..attempt.parts[part].len() {
                let place = attempt.place(part as u32, index);
                if !attempt.in_use(alternative, &place)
                    && attempt.selectable(id, &place)?
                    && (!attempt.features.consumable_capacity
                        || attempt.capacity_fits(alternative, &place))
                    && attempt.could_pick(alternative, &place)
                {
                    allowed.insert(place.number);
                }
            }
        }
        Ok(())
    }

    /// Whether all devices of an "all" can be taken as far as can be seen now.
    fn allow_all<O: Observer>(attempt: &Attempt<'_, O>, id: u32, allowed: &mut Bits) -> bool {
        let alternative = &attempt.claims.alternatives[id as usize];
        let all = attempt.all(id);
        for &number in all {
            let place = attempt.place_of(number);
            if attempt.in_use(alternative, &place) || !attempt.could_pick(alternative, &place) {
                return false;
            }
            allowed.insert(number);
        }
        !all.is_empty()
    }

    fn new<O: Observer>(attempt: &Attempt<'_, O>, allowed: Vec<Bits>) -> Self {
        let claims = attempt.claims;
        let (mut shareable, mut counting) =
            (Bits::new(attempt.devices), Bits::new(attempt.devices));
        for number in 0..attempt.devices {
            let place = attempt.place_of(number);
            if place.device.shareable {
                shareable.insert(number);
            }
            if place.device.consumes_counters() {
                counting.insert(number);
            }
        }
        let mut relevant = allowed.clone();
        for id in (0..relevant.len()).rev() {
            let (before, behind) = relevant.split_at_mut(id + 1);
            if let (Some(own), Some(next)) = (before.last_mut(), behind.first()) {
                own.add(next);
            }
        }
        let mut pruner = Self {
            relevant,
            shareable,
            counting,
            twins: Vec::new(),
            constraints: claims
                .claims
                .iter()
                .map(|claim| {
                    claim
                        .constraints
                        .iter()
                        .map(|c| Values::new(attempt, &c.attribute))
                        .collect()
                })
                .collect(),
            dead: FxHashSet::default(),
            remember: claims.alternatives.iter().all(|a| !a.admin),
            key: Vec::new(),
            allowed,
        };
        pruner.find_twins(attempt);
        pruner
    }

    fn find_twins<O: Observer>(&mut self, attempt: &Attempt<'_, O>) {
        let mut known: FxHashMap<Vec<u64>, u32> = FxHashMap::default();
        for number in 0..attempt.devices {
            let mut key = Vec::with_capacity(8);
            if self.shareable.contains(number) {
                key.push(u64::from(number) + 1);
            } else {
                key.push(0);
                key.extend(
                    self.allowed
                        .iter()
                        .map(|bits| u64::from(bits.contains(number))),
                );
                for values in self.constraints.iter().flatten() {
                    values.describe(number, &mut key);
                }
                if self.counting.contains(number) {
                    let place = attempt.place_of(number);
                    let part = &attempt.parts[place.part as usize];
                    key.push(part.first_counter as u64);
                    for (counter, amount) in place.pool.info.consumption(place.slot) {
                        key.extend([
                            u64::from(*counter),
                            (amount.nanos() >> 64) as u64,
                            amount.nanos() as u64,
                        ]);
                    }
                }
            }
            let next = known.len() as u32;
            self.twins.push(*known.entry(key).or_insert(next));
        }
    }

    pub(super) fn allows(&self, alternative: u32, number: u32) -> bool {
        self.allowed[alternative as usize].contains(number)
    }

    pub(super) fn twin(&self, number: u32) -> u32 {
        self.twins[number as usize]
    }

    /// Whether the situation at a device position is known to have no solution, or can be proven to have none.
    pub(super) fn is_infeasible<O: Observer>(
        &mut self,
        attempt: &mut Attempt<'_, O>,
        at: &Position,
    ) -> bool {
        if self.remember && !self.dead.is_empty() {
            self.describe(attempt, at);
            if self.dead.contains(self.key.as_slice()) {
                return true;
            }
        }
        match self.feasible(attempt, at) {
            Ok(()) => false,
            Err(proof) => {
                attempt.observer.proven(proof);
                true
            }
        }
    }

    /// Remembers that the situation at a device position has no solution.
    pub(super) fn record_dead_end<O: Observer>(&mut self, attempt: &Attempt<'_, O>, at: &Position) {
        if self.remember && self.dead.len() < MAX_DEAD {
            self.describe(attempt, at);
            self.dead.insert(self.key.as_slice().into());
        }
    }

    /// Writes everything that what follows depends on into `key`.
    fn describe<O: Observer>(&mut self, attempt: &Attempt<'_, O>, at: &Position) {
        let id = at.alternative.unwrap_or_default();
        let claims = attempt.claims;
        let start = number_at(attempt, at.start);
        let request = &claims.claims[at.claim as usize].requests[at.request as usize];
        let mut matters = self.allowed[id as usize].clone();
        matters.drop_below(start);
        if let Some(later) = self.relevant.get(request.alternatives.1 as usize) {
            matters.add(later);
        }
        let mut used = Bits::new(attempt.devices);
        let (mut shares, mut own) = (Vec::new(), 0);
        for pick in attempt.picks() {
            if pick.shared {
                shares.push(u64::from(pick.device) << 32 | u64::from(pick.alternative));
            } else {
                used.insert(pick.device);
            }
            own += u64::from(pick.claim == at.claim);
        }
        used.keep(&matters);
        shares.sort_unstable();
        let key = &mut self.key;
        key.clear();
        key.extend([
            u64::from(id),
            at.taken as u64,
            u64::from(start),
            own,
            shares.len() as u64,
        ]);
        key.extend(shares);
        key.extend_from_slice(used.words());
        for amount in attempt.counters_left() {
            key.extend([(amount.nanos() >> 64) as u64, amount.nanos() as u64]);
        }
        let budgets = 0..claims.budgets.len() as u32;
        key.extend(budgets.map(|budget| attempt.budget_left(budget) as u64));
        let constraints = claims.claims[at.claim as usize]
            .constraints
            .iter()
            .zip(&self.constraints[at.claim as usize]);
        for ((described, values), state) in constraints.zip(&attempt.constraints[at.claim as usize])
        {
            let list: Vec<u64> = match (described.kind, state.common.last()) {
                (ConstraintKind::Match, Some(common)) => {
                    common.iter().map(|v| values.number(v)).collect()
                }
                (ConstraintKind::Match, None) => state
                    .attributes
                    .iter()
                    .take(1)
                    .flat_map(|a| values.of(a))
                    .collect(),
                (ConstraintKind::Distinct, _) => {
                    let mut list: Vec<u64> =
                        state.attributes.iter().flat_map(|a| values.of(a)).collect();
                    list.sort_unstable();
                    list
                }
            };
            key.push(state.attributes.len().min(1) as u64 + 2 * list.len() as u64);
            key.extend(list);
        }
    }
}

fn number_at<O: Observer>(attempt: &Attempt<'_, O>, cursor: Cursor) -> u32 {
    attempt
        .parts
        .get(cursor.part as usize)
        .map_or(attempt.devices, |part| part.first + cursor.index)
}
