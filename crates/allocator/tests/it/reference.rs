//! The search of the specification, written down as plainly as possible: every device for every request, nothing clever.
//! Slow, and the measure for results: the allocator must find the same.

use std::collections::BTreeMap;

use allot_allocator::problem::Problem;
use allot_apimachinery::quantity::Quantity;

mod constraints;
mod pools;
mod wanted;

pub use constraints::satisfied;
pub use pools::{Pools, Reachable, consumed, consumption, is_dedicated, quantity};
pub use wanted::{Wanted, alternatives, is_shareable, selected, takes};

use constraints::covers;

struct Pick<'a> {
    claim: usize,
    request: String,
    wanted: &'a Wanted,
    device: &'a Reachable,
    number: usize,
}

struct Search<'a> {
    problem: &'a Problem,
    pools: &'a Pools,
    /// By claim and request.
    requests: Vec<Vec<Vec<Wanted>>>,
    /// By claim, request and alternative: what "all" is.
    all: BTreeMap<(usize, usize, usize), Vec<usize>>,
    steps: u64,
}

enum Stop {
    Error,
    TooLong,
}

/// The outcome in the words of [`crate::make::solve`], except that errors are just `error`. `None` = it takes too long.
pub fn solve(problem: &Problem, limit: u64) -> Option<String> {
    let pools = Pools::of(problem);
    let claims = &problem.claims;
    let requests = claims.iter().map(|c| {
        let devices = c.spec.devices.as_ref().unwrap();
        devices
            .requests
            .iter()
            .flatten()
            .map(alternatives)
            .collect()
    });
    let requests: Vec<Vec<Vec<Wanted>>> = requests.collect();
    let mut search = Search {
        problem,
        pools: &pools,
        requests: requests.clone(),
        all: BTreeMap::new(),
        steps: limit,
    };
    if search.find_all().is_err() {
        return Some("error".into());
    }
    let mut picks = Vec::new();
    match search.next(&requests, &mut picks, 0, 0) {
        Ok(true) => {
            let claim = |index| {
                let own = picks.iter().filter(|p| p.claim == index);
                let own = own
                    .map(|p| format!("{}={}/{}", p.request, p.device.pool, p.device.device.name));
                own.collect::<Vec<_>>().join(" ")
            };
            Some((0..claims.len()).map(claim).collect::<Vec<_>>().join("; "))
        }
        Ok(false) if pools.unusable.iter().any(|(_, why)| *why == "invalid") => {
            Some("error".into())
        }
        Ok(false) => Some("nothing".into()),
        Err(Stop::Error) => Some("error".into()),
        Err(Stop::TooLong) => None,
    }
}

impl<'a> Search<'a> {
    fn find_all(&mut self) -> Result<(), ()> {
        for (claim, requests) in self.requests.iter().enumerate() {
            let mut least = 0;
            for (request, alternatives) in requests.iter().enumerate() {
                let mut counts = Vec::new();
                for (index, wanted) in alternatives.iter().enumerate() {
                    if !wanted.all {
                        counts.push(wanted.count);
                        continue;
                    }
                    if !self.pools.unusable.is_empty() {
                        // Of a list the next alternative is tried.
                        if !wanted.name.contains('/') {
                            return Err(());
                        }
                        counts.push(0);
                        self.all.insert((claim, request, index), Vec::new());
                        continue;
                    }
                    let mut list = Vec::new();
                    for (number, device) in self.pools.devices.iter().enumerate() {
                        if selected(self.problem, wanted, device)? && self.fits(wanted, device, &[])
                        {
                            list.push(number);
                        }
                    }
                    counts.push(list.len());
                    self.all.insert((claim, request, index), list);
                }
                least += counts.into_iter().min().unwrap_or(0);
            }
            if least > 32 {
                return Err(());
            }
        }
        Ok(())
    }

    fn fits(&self, wanted: &Wanted, device: &Reachable, picks: &[Pick<'_>]) -> bool {
        let Some(taken) = takes(wanted, device) else {
            return false;
        };
        let used = consumed(self.problem, &device.pool, &device.device.name).unwrap_or_default();
        taken.iter().all(|(name, amount)| {
            let mut sum = amount.clone();
            if let Some(used) = used.get(name) {
                sum = sum.checked_add(used).unwrap();
            }
            for pick in picks
                .iter()
                .filter(|p| std::ptr::eq(p.device, device) && is_shareable(device))
            {
                sum = sum
                    .checked_add(&takes(pick.wanted, device).unwrap()[name])
                    .unwrap();
            }
            sum <= quantity(&device.device.capacity.as_ref().unwrap()[name].value)
        })
    }

    fn next(
        &mut self,
        requests: &'a [Vec<Vec<Wanted>>],
        picks: &mut Vec<Pick<'a>>,
        claim: usize,
        request: usize,
    ) -> Result<bool, Stop> {
        if claim == requests.len() {
            return Ok(true);
        }
        if request == requests[claim].len() {
            return self.next(requests, picks, claim + 1, 0);
        }
        for alternative in 0..requests[claim][request].len() {
            if self.devices(requests, picks, (claim, request, alternative), 0, 0)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether as many devices of the class as an alternative needs may be allocated.
    fn is_allowed(&self, wanted: &Wanted, at: (usize, usize, usize), picks: &[Pick<'_>]) -> bool {
        let Some(limit) = self.problem.device_limits.get(&wanted.class) else {
            return true;
        };
        let count = match wanted.all {
            true => self.all[&at].len(),
            false => wanted.count,
        };
        let of_class = |p: &&Pick<'_>| p.wanted.class == wanted.class && !p.wanted.admin;
        let taken = picks.iter().filter(of_class).count();
        wanted.admin || (taken + count) as i64 <= *limit
    }

    fn devices(
        &mut self,
        requests: &'a [Vec<Vec<Wanted>>],
        picks: &mut Vec<Pick<'a>>,
        at: (usize, usize, usize),
        taken: usize,
        start: usize,
    ) -> Result<bool, Stop> {
        self.steps = self.steps.checked_sub(1).ok_or(Stop::TooLong)?;
        let wanted = &requests[at.0][at.1][at.2];
        if taken == 0 && !self.is_allowed(wanted, at, picks) {
            return Ok(false);
        }
        if wanted.all {
            let list = self.all[&at].clone();
            if list.is_empty() {
                return Ok(false);
            }
            let Some(&number) = list.get(taken) else {
                return self.next(requests, picks, at.0, at.1 + 1);
            };
            let done = self.try_device(requests, picks, at, taken, number)?;
            return Ok(done);
        }
        if taken == wanted.count {
            return self.next(requests, picks, at.0, at.1 + 1);
        }
        for number in start..self.pools.devices.len() {
            if self.try_device(requests, picks, at, taken, number)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn try_device(
        &mut self,
        requests: &'a [Vec<Vec<Wanted>>],
        picks: &mut Vec<Pick<'a>>,
        at: (usize, usize, usize),
        taken: usize,
        number: usize,
    ) -> Result<bool, Stop> {
        let pools = self.pools;
        let (wanted, device) = (&requests[at.0][at.1][at.2], &pools.devices[number]);
        let shareable = is_shareable(device);
        let mut others = picks.iter().filter(|p| p.number == number && !shareable);
        let busy = if wanted.admin {
            others.any(|p| p.claim == at.0)
        } else {
            is_dedicated(self.problem, &device.pool, &device.device.name) || others.next().is_some()
        };
        if busy {
            return Ok(false);
        }
        if !selected(self.problem, wanted, device).map_err(|()| Stop::Error)? {
            return Ok(false);
        }
        if !wanted.all && !self.fits(wanted, device, picks) {
            return Ok(false);
        }
        let mut used: BTreeMap<_, Quantity> = BTreeMap::new();
        let mut paid = Vec::new();
        for device in picks.iter().map(|p| p.device).chain([device]) {
            let shared = is_shareable(device)
                && (consumed(self.problem, &device.pool, &device.device.name).is_some()
                    || paid.iter().any(|d| std::ptr::eq(*d, device)));
            if !shared {
                for (key, amount) in consumption(device) {
                    let sum = used.entry(key).or_default();
                    *sum = sum.checked_add(&amount).unwrap();
                }
            }
            paid.push(device);
        }
        let counts = !consumption(device).is_empty()
            && !(shareable
                && (consumed(self.problem, &device.pool, &device.device.name).is_some()
                    || picks.iter().any(|p| p.number == number)));
        if counts {
            let own = pools
                .counters
                .iter()
                .filter(|((pool, ..), _)| *pool == device.pool);
            for (key, left) in own {
                if used.get(key).cloned().unwrap_or_default() > *left {
                    return Ok(false);
                }
            }
        }
        let tainted = device
            .device
            .taints
            .iter()
            .flatten()
            .any(|t| t.effect != "None");
        if tainted && !wanted.tolerates {
            return Ok(false);
        }
        picks.push(Pick {
            claim: at.0,
            request: wanted.name.clone(),
            wanted,
            device,
            number,
        });
        let claim = self.problem.claims[at.0].spec.devices.as_ref().unwrap();
        let lists = self.problem.features().list_type_attributes;
        for constraint in claim.constraints.iter().flatten() {
            let own: Vec<_> = picks
                .iter()
                .filter(|p| p.claim == at.0)
                .map(|p| (p.request.as_str(), p.device))
                .collect();
            if covers(constraint, &wanted.name) && !satisfied(constraint, &own, lists) {
                picks.pop();
                return if wanted.all {
                    Err(Stop::Error)
                } else {
                    Ok(false)
                };
            }
        }
        if wanted.all && !self.fits(wanted, device, &picks[..picks.len() - 1]) {
            picks.pop();
            return Ok(false);
        }
        if self.devices(requests, picks, at, taken + 1, number + 1)? {
            return Ok(true);
        }
        picks.pop();
        Ok(false)
    }
}
