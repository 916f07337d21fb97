//! Proofs that a situation has no solution.

use super::{NONE, Pruner, number_at};
use crate::amount::Amount;
use crate::attempt::Attempt;
use crate::claims::{Alternative, ConstraintKind, Mode};
use crate::device::Attribute;
use crate::observer::{Observer, Proof};
use crate::search::Position;
use crate::search::bits::Bits;

/// Devices that are still to be found for an alternative.
struct Demand {
    alternative: u32,
    count: i64,
    candidates: Bits,
}

impl Pruner {
    /// Searches for a proof that the current state has no solution.
    pub(super) fn feasible<O: Observer>(
        &self,
        attempt: &Attempt<'_, O>,
        at: &Position,
    ) -> Result<(), Proof> {
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

    /// The open demands, unless some request alone cannot be satisfied.
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

    /// Keeps the devices that satisfy the constraints together with the picked ones.
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

    /// For each `distinctAttribute`, every device must have a different value.
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
                    // Devices with several values use up all of them; one representative is sufficient here.
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

    /// The remaining counters must suffice for the number of devices, even if those are the cheapest.
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
