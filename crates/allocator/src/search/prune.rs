//! What lets the search leave out parts of the tree, once the first dead end showed that the problem is not easy.
//!
//! Everything here is only used when no check can fail with an error on the way: then a part of the tree without a solution can be left out
//! without anybody noticing.

use rustc_hash::{FxHashMap, FxHashSet};

use super::bits::Bits;
use super::{Cursor, Position};
use crate::amount::Amount;
use crate::attempt::Attempt;
use crate::claims::{Alternative, ConstraintKind, Mode};
use crate::device::{Attribute, Value};
use crate::observer::{Observer, Proof};
use crate::pool::ViewState;
use crate::{Error, MAX_RESULTS};

/// What the first look at the whole problem gives.
pub(super) enum Survey {
    /// Some request can never be met, and the search ends there before anything can go wrong.
    Hopeless,
    /// Some check can fail with an error, so the order of the checks matters and all have to be made.
    Touchy,
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
    /// By device: equal numbers for devices that can stand in for each other everywhere.
    twins: Vec<u32>,
    /// By claim and constraint.
    constraints: Vec<Vec<Values>>,
    /// Situations that have no solution.
    dead: FxHashSet<Box<[u64]>>,
    /// Situations can be told apart well enough to remember them.
    remember: bool,
    key: Vec<u64>,
}

/// Most dead ends to remember; beyond, memory would matter more than time.
const MAX_DEAD: usize = 200_000;

/// The values of a constraint's attribute.
#[derive(Default)]
struct Values {
    numbers: FxHashMap<Value, u32>,
    /// By value: the devices that have it.
    devices: Vec<Bits>,
    /// By device: its first value.
    first: Vec<u32>,
}

const NONE: u32 = u32::MAX;

/// Devices that are still to be found for an alternative.
struct Demand {
    alternative: u32,
    count: i64,
    candidates: Bits,
}

impl Pruner {
    /// Looks at every device for every alternative. No device may be picked.
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
                            // More than a claim can have are never looked for.
                            let looked_for = count > 0 && count <= MAX_RESULTS;
                            if looked_for
                                && Self::allow(attempt, id, &mut allowed[id as usize]).is_err()
                            {
                                return Survey::Touchy;
                            }
                            count <= allowed[id as usize].len()
                        }
                        Mode::All => {
                            if !alternative.constraints.is_empty() {
                                return Survey::Touchy;
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
                    return Survey::Hopeless;
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

    /// Whether the situation at a device position is known to have no solution, or can be shown to have none.
    pub(super) fn hopeless<O: Observer>(
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
    pub(super) fn bury<O: Observer>(&mut self, attempt: &Attempt<'_, O>, at: &Position) {
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

    /// Looks for a proof that there is no solution from here.
    fn feasible<O: Observer>(&self, attempt: &Attempt<'_, O>, at: &Position) -> Result<(), Proof> {
        let demands = self.demands(attempt, at)?;
        self.match_possible(attempt, &demands)?;
        self.distinct_possible(attempt, &demands)?;
        if !self.counters_possible(attempt, &demands) {
            return Err(Proof::Counters);
        }
        if !self.devices_suffice(attempt, &demands) {
            return Err(Proof::Devices);
        }
        Ok(())
    }

    /// What is still to be found, unless some request alone cannot be met.
    fn demands<O: Observer>(
        &self,
        attempt: &Attempt<'_, O>,
        at: &Position,
    ) -> Result<Vec<Demand>, Proof> {
        let claims = attempt.claims;
        let mut busy = Bits::new(attempt.devices);
        attempt
            .picks()
            .iter()
            .filter(|p| !p.shared)
            .for_each(|p| busy.insert(p.device));
        let mut demands = Vec::new();
        for (index, claim) in claims.claims.iter().enumerate().skip(at.claim as usize) {
            let current = index == at.claim as usize;
            let skip = if current { at.request as usize } else { 0 };
            for (position, request) in claim.requests.iter().enumerate().skip(skip) {
                let here = current && position == skip;
                let range = request.alternatives;
                let chosen = if here {
                    at.alternative
                } else {
                    (!request.is_list).then_some(range.0)
                };
                if let Some(id) = chosen {
                    let taken = if here { at.taken } else { 0 };
                    let start = if here {
                        number_at(attempt, at.start)
                    } else {
                        0
                    };
                    let demand = self.demand(attempt, id, taken, start, &busy);
                    if !enough(attempt, &demand) {
                        return Err(Proof::Request(range.0));
                    }
                    demands.push(demand);
                } else if !(range.0..range.1)
                    .any(|id| enough(attempt, &self.demand(attempt, id, 0, 0, &busy)))
                {
                    return Err(Proof::Request(range.0));
                }
            }
        }
        Ok(demands)
    }

    fn demand<O: Observer>(
        &self,
        attempt: &Attempt<'_, O>,
        id: u32,
        taken: i64,
        start: u32,
        busy: &Bits,
    ) -> Demand {
        let alternative = &attempt.claims.alternatives[id as usize];
        let mut candidates = self.allowed[id as usize].clone();
        candidates.drop_below(start);
        if alternative.admin {
            // Only what the same claim has is out of reach.
            for pick in attempt
                .picks()
                .iter()
                .filter(|p| p.claim == alternative.claim && !p.shared)
            {
                candidates.remove(pick.device);
            }
        } else {
            candidates.drop(busy);
        }
        self.keep_constrained(attempt, alternative, &mut candidates);
        let mut poor = Vec::new();
        if self.counting.common(&candidates) > 0 {
            for number in candidates.iter().filter(|n| self.counting.contains(*n)) {
                let place = attempt.place_of(number);
                if !attempt.counters_paid(&place) && !attempt.counters_fit(&place) {
                    poor.push(number);
                }
            }
        }
        poor.into_iter()
            .for_each(|number| candidates.remove(number));
        let count = match alternative.mode {
            Mode::Exact(count) => count - taken,
            Mode::All => attempt.all(id).len() as i64 - taken,
            Mode::Unsupported => 0,
        };
        Demand {
            alternative: id,
            count,
            candidates,
        }
    }

    /// Keeps the devices that the constraints allow next to those that are picked.
    fn keep_constrained<O: Observer>(
        &self,
        attempt: &Attempt<'_, O>,
        alternative: &Alternative,
        candidates: &mut Bits,
    ) {
        let claim = alternative.claim as usize;
        for &constraint in &alternative.constraints {
            let state = &attempt.constraints[claim][constraint as usize];
            if state.attributes.is_empty() {
                continue;
            }
            let values = &self.constraints[claim][constraint as usize];
            let mut having = Bits::new(attempt.devices);
            let described = &attempt.claims.claims[claim].constraints[constraint as usize];
            match described.kind {
                ConstraintKind::Match => {
                    let common = match (state.common.last(), state.attributes[0]) {
                        (Some(common), _) => common.as_slice(),
                        (None, Attribute::Scalar(value)) => std::slice::from_ref(value),
                        // Without sets, other types are equal to nothing.
                        (None, _) => &[],
                    };
                    common
                        .iter()
                        .filter_map(|v| values.devices(v))
                        .for_each(|bits| having.add(bits));
                    candidates.keep(&having);
                }
                ConstraintKind::Distinct => {
                    let used = state.attributes.iter().filter_map(|a| a.values()).flatten();
                    used.filter_map(|v| values.devices(v))
                        .for_each(|bits| having.add(bits));
                    candidates.drop(&having);
                }
            }
        }
    }

    /// For each `matchAttribute` that has no device yet, some value must be shared by enough devices.
    fn match_possible<O: Observer>(
        &self,
        attempt: &Attempt<'_, O>,
        demands: &[Demand],
    ) -> Result<(), Proof> {
        self.each_constraint(
            attempt,
            ConstraintKind::Match,
            demands,
            |claim, constraint, covered| {
                if !attempt.constraints[claim][constraint].attributes.is_empty() {
                    return true;
                }
                self.constraints[claim][constraint]
                    .devices
                    .iter()
                    .any(|having| {
                        let mut together = Bits::new(attempt.devices);
                        let mut dedicated = 0;
                        for demand in covered {
                            let common = demand.candidates.common(having);
                            if common < demand.count {
                                return false;
                            }
                            if !attempt.claims.alternatives[demand.alternative as usize].admin {
                                let mut usable = demand.candidates.clone();
                                usable.keep(having);
                                dedicated += (demand.count - usable.common(&self.shareable)).max(0);
                                usable.drop(&self.shareable);
                                together.add(&usable);
                            }
                        }
                        together.len() >= dedicated
                    })
            },
        )
    }

    /// For each `distinctAttribute`, there must be a value of its own for every device.
    fn distinct_possible<O: Observer>(
        &self,
        attempt: &Attempt<'_, O>,
        demands: &[Demand],
    ) -> Result<(), Proof> {
        self.each_constraint(
            attempt,
            ConstraintKind::Distinct,
            demands,
            |claim, constraint, covered| {
                let values = &self.constraints[claim][constraint];
                let mut owner = vec![NONE; values.devices.len()];
                let mut edges = Vec::new();
                for demand in covered {
                    // Devices with several values use up all of them; one to stand for them is enough here.
                    let mut list: Vec<u32> = demand
                        .candidates
                        .iter()
                        .map(|n| values.first[n as usize])
                        .filter(|v| *v != NONE)
                        .collect();
                    list.sort_unstable();
                    list.dedup();
                    for _ in 0..demand.count {
                        edges.push(list.clone());
                    }
                }
                (0..edges.len()).all(|slot| {
                    let mut seen = vec![false; owner.len()];
                    augment(slot, &edges, &mut owner, &mut seen)
                })
            },
        )
    }

    fn each_constraint<O: Observer>(
        &self,
        attempt: &Attempt<'_, O>,
        kind: ConstraintKind,
        demands: &[Demand],
        mut possible: impl FnMut(usize, usize, &[&Demand]) -> bool,
    ) -> Result<(), Proof> {
        for (claim, described) in attempt.claims.claims.iter().enumerate() {
            for (constraint, _) in described
                .constraints
                .iter()
                .enumerate()
                .filter(|(_, c)| c.kind == kind)
            {
                let covered: Vec<&Demand> = demands
                    .iter()
                    .filter(|d| {
                        let alternative = &attempt.claims.alternatives[d.alternative as usize];
                        alternative.claim as usize == claim
                            && alternative.constraints.contains(&(constraint as u32))
                            && d.count > 0
                    })
                    .collect();
                if !covered.is_empty() && !possible(claim, constraint, &covered) {
                    let (claim, constraint) = (claim as u32, constraint as u32);
                    return Err(Proof::Constraint { claim, constraint });
                }
            }
        }
        Ok(())
    }

    /// The counters that are left must do for the number of devices, even if those are the cheapest.
    fn counters_possible<O: Observer>(&self, attempt: &Attempt<'_, O>, demands: &[Demand]) -> bool {
        let (mut union, mut count) = (Bits::new(attempt.devices), 0);
        for demand in demands.iter().filter(|d| d.count > 0) {
            if self.counting.common(&demand.candidates) == 0 {
                continue;
            }
            if self.most(attempt, &demand.candidates) < demand.count {
                return false;
            }
            union.add(&demand.candidates);
            count += demand.count;
        }
        let reusable = self.shareable.common(&union) > 0
            || demands
                .iter()
                .any(|d| attempt.claims.alternatives[d.alternative as usize].admin);
        reusable || self.most(attempt, &union) >= count
    }

    /// An upper bound for how many of these devices the counters allow.
    fn most<O: Observer>(&self, attempt: &Attempt<'_, O>, candidates: &Bits) -> i64 {
        let mut most = 0;
        for (part, pool) in attempt.parts.iter().enumerate() {
            let mut costs: Vec<Vec<Amount>> = Vec::new();
            let left = attempt.counters_of(part);
            let (mut free, mut counted) = (0, 0);
            for number in (pool.first..pool.first + pool.len()).filter(|n| candidates.contains(*n))
            {
                if !self.counting.contains(number) || self.shareable.contains(number) {
                    free += 1;
                    continue;
                }
                counted += 1;
                let place = attempt.place_of(number);
                costs.resize_with(left.len(), Vec::new);
                let start = pool.info().counters_of(pool.view.generation).start;
                let consumption = pool.info().consumption(place.slot);
                for (index, (counter, _)) in consumption.iter().enumerate() {
                    if consumption[..index].iter().all(|(c, _)| c != counter) {
                        costs[*counter as usize - start].push(total(consumption, *counter));
                    }
                }
            }
            let bound = costs.into_iter().zip(left).map(|(mut costs, left)| {
                costs.sort_unstable();
                // Devices that do not need this counter are not limited by it.
                let others = counted - costs.len() as i64;
                let mut sum = Amount::ZERO;
                let fitting = costs.iter().take_while(|cost| {
                    sum = sum.plus(**cost);
                    sum <= *left
                });
                others + fitting.count() as i64
            });
            most += free + bound.min().unwrap_or(counted).min(counted);
        }
        most
    }

    /// Devices that only one can have must do for all requests together: a matching of demands and devices.
    fn devices_suffice<O: Observer>(&self, attempt: &Attempt<'_, O>, demands: &[Demand]) -> bool {
        let mut edges: Vec<Vec<u32>> = Vec::new();
        for demand in demands {
            if attempt.claims.alternatives[demand.alternative as usize].admin {
                continue;
            }
            let dedicated = demand.count - demand.candidates.common(&self.shareable);
            if dedicated <= 0 {
                continue;
            }
            let list: Vec<u32> = demand
                .candidates
                .iter()
                .filter(|n| !self.shareable.contains(*n))
                .collect();
            for _ in 0..dedicated {
                edges.push(list.clone());
            }
        }
        if edges.len() < 2 {
            // One device for one request: that it has candidates was checked.
            return true;
        }
        let mut owner = vec![NONE; attempt.devices as usize];
        (0..edges.len()).all(|slot| {
            let mut seen = vec![false; owner.len()];
            augment(slot, &edges, &mut owner, &mut seen)
        })
    }
}

/// Finds a place for one more slot in a bipartite matching, moving others if need be.
fn augment(slot: usize, edges: &[Vec<u32>], owner: &mut [u32], seen: &mut [bool]) -> bool {
    for &target in &edges[slot] {
        if std::mem::replace(&mut seen[target as usize], true) {
            continue;
        }
        let holder = owner[target as usize];
        if holder == NONE || augment(holder as usize, edges, owner, seen) {
            owner[target as usize] = slot as u32;
            return true;
        }
    }
    false
}

fn enough<O: Observer>(attempt: &Attempt<'_, O>, demand: &Demand) -> bool {
    let mode = attempt.claims.alternatives[demand.alternative as usize].mode;
    match mode {
        Mode::All => {
            let all = attempt.all(demand.alternative);
            let rest = &all[all.len() - (demand.count.max(0) as usize).min(all.len())..];
            !all.is_empty() && rest.iter().all(|n| demand.candidates.contains(*n))
        }
        _ => demand.candidates.len() >= demand.count,
    }
}

/// What a device takes of a counter in all.
fn total(consumption: &[(u32, Amount)], counter: u32) -> Amount {
    consumption
        .iter()
        .filter(|(c, _)| *c == counter)
        .fold(Amount::ZERO, |sum, (_, amount)| sum.plus(*amount))
}

fn number_at<O: Observer>(attempt: &Attempt<'_, O>, cursor: Cursor) -> u32 {
    attempt
        .parts
        .get(cursor.part as usize)
        .map_or(attempt.devices, |part| part.first + cursor.index)
}

impl Values {
    fn new<O: Observer>(attempt: &Attempt<'_, O>, attribute: &str) -> Self {
        let mut values = Self {
            first: vec![NONE; attempt.devices as usize],
            ..Self::default()
        };
        for number in 0..attempt.devices {
            let place = attempt.place_of(number);
            let Some(attribute) = place.device.attribute(&place.pool.info.driver, attribute) else {
                continue;
            };
            if !attempt.features.list_type_attributes && !matches!(attribute, Attribute::Scalar(_))
            {
                // Without sets, such an attribute is equal to nothing, not even to itself.
                values.add(values.devices.len() as u32, number, attempt.devices);
                continue;
            }
            for value in attribute.values().unwrap_or_default() {
                let next = values.devices.len() as u32;
                let id = *values.numbers.entry(value.clone()).or_insert(next);
                values.add(id, number, attempt.devices);
            }
        }
        values
    }

    fn add(&mut self, id: u32, number: u32, devices: u32) {
        if id as usize == self.devices.len() {
            self.devices.push(Bits::new(devices));
        }
        self.devices[id as usize].insert(number);
        let first = &mut self.first[number as usize];
        if *first == NONE {
            *first = id;
        }
    }

    fn number(&self, value: &Value) -> u64 {
        self.numbers
            .get(value)
            .map_or(u64::MAX, |id| u64::from(*id))
    }

    fn devices(&self, value: &Value) -> Option<&Bits> {
        self.numbers
            .get(value)
            .map(|id| &self.devices[*id as usize])
    }

    fn of(&self, attribute: &Attribute) -> impl Iterator<Item = u64> {
        attribute
            .values()
            .unwrap_or_default()
            .iter()
            .map(|v| self.number(v))
    }

    fn describe(&self, number: u32, key: &mut Vec<u64>) {
        let having = self
            .devices
            .iter()
            .enumerate()
            .filter(|(_, bits)| bits.contains(number));
        let start = key.len();
        key.push(0);
        key.extend(having.map(|(id, _)| id as u64));
        key[start] = (key.len() - start) as u64;
    }
}
