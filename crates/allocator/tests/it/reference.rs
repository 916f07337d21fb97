//! The search of the specification, written down as plainly as possible: every device for every request, nothing clever.
//! Slow, and the measure for results: the allocator must find the same.

use std::collections::BTreeMap;

use allot_allocator::problem::Problem;
use allot_apimachinery::quantity::Quantity;
use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::api::resource::v1 as api;

use crate::generate::EXPRESSIONS;

/// A device that a node can reach.
#[derive(Clone)]
pub struct Reachable {
    pub pool: String,
    pub device: api::Device,
    pub per_device: bool,
}

/// The pools of the first node in the order of trying.
pub struct Pools {
    /// Devices of usable pools.
    pub devices: Vec<Reachable>,
    /// Counters by pool, set and name.
    pub counters: BTreeMap<(String, String, String), Quantity>,
    /// All devices of a pool's newest generation, wherever they are.
    pub everywhere: Vec<Reachable>,
    /// Pools that cannot be used, with what is the matter.
    pub unusable: Vec<(String, &'static str)>,
    /// Pool by pool in the order of trying, for messages about the first unusable one.
    order: Vec<String>,
}

pub fn quantity(text: &k8s_openapi::apimachinery::pkg::api::resource::Quantity) -> Quantity {
    text.0.parse().unwrap()
}

fn selects(selector: &NodeSelector, problem: &Problem) -> bool {
    // Generated selectors have one expression with `In`.
    let expression = &selector.node_selector_terms[0]
        .match_expressions
        .as_ref()
        .unwrap()[0];
    let value = problem.nodes[0]
        .metadata
        .labels
        .as_ref()
        .and_then(|l| l.get(&expression.key));
    value.is_some_and(|v| expression.values.as_ref().unwrap().contains(v))
}

fn reaches(
    problem: &Problem,
    name: &Option<String>,
    all: Option<bool>,
    selector: &Option<NodeSelector>,
) -> bool {
    match (name, all, selector) {
        (Some(name), ..) => Some(name) == problem.nodes[0].metadata.name.as_ref(),
        (_, Some(true), _) => true,
        (.., Some(selector)) => selects(selector, problem),
        _ => false,
    }
}

impl Pools {
    pub fn of(problem: &Problem) -> Self {
        let mut pools: BTreeMap<String, Vec<&api::ResourceSlice>> = BTreeMap::new();
        for slice in &problem.resource_slices {
            pools
                .entry(slice.spec.pool.name.clone())
                .or_default()
                .push(slice);
        }
        let mut found = Self {
            devices: vec![],
            counters: BTreeMap::new(),
            everywhere: vec![],
            unusable: vec![],
            order: vec![],
        };
        let mut binding = (Vec::new(), Vec::new());
        for (name, mut slices) in pools {
            slices.sort_by_key(|s| s.metadata.name.clone());
            let relevant: Vec<_> = slices
                .iter()
                .filter(|s| {
                    let spec = &s.spec;
                    spec.shared_counters.is_some()
                        || reaches(
                            problem,
                            &spec.node_name,
                            spec.all_nodes,
                            &spec.node_selector,
                        )
                        || spec.per_device_node_selection == Some(true)
                            && spec.devices.iter().flatten().any(|d| {
                                reaches(problem, &d.node_name, d.all_nodes, &d.node_selector)
                            })
                })
                .collect();
            if relevant.is_empty() {
                continue;
            }
            if slices.len() as i64 != slices[0].spec.pool.resource_slice_count {
                found.unusable.push((name.clone(), "being updated"));
                found.order.push(name);
                continue;
            }
            let list = |slices: &[&api::ResourceSlice]| -> Vec<Reachable> {
                let devices = slices
                    .iter()
                    .flat_map(|s| s.spec.devices.iter().flatten().map(move |d| (s, d)));
                devices
                    .map(|(s, d)| Reachable {
                        pool: s.spec.pool.name.clone(),
                        device: d.clone(),
                        per_device: s.spec.per_device_node_selection == Some(true),
                    })
                    .collect()
            };
            let devices = list(&relevant.iter().map(|s| **s).collect::<Vec<_>>());
            let mut names: Vec<_> = devices.iter().map(|d| &d.device.name).collect();
            names.sort();
            names.dedup();
            if names.len() != devices.len() {
                found.unusable.push((name.clone(), "invalid"));
                found.order.push(name);
                continue;
            }
            for set in slices
                .iter()
                .flat_map(|s| s.spec.shared_counters.iter().flatten())
            {
                for (counter, value) in &set.counters {
                    let key = (name.clone(), set.name.clone(), counter.clone());
                    found.counters.insert(key, quantity(&value.value));
                }
            }
            found.everywhere.extend(list(&slices));
            if devices
                .iter()
                .any(|d| d.device.binding_conditions.is_some())
            {
                binding.0.push(name);
                binding.1.extend(devices);
            } else {
                found.order.push(name);
                found.devices.extend(devices);
            }
        }
        found.order.extend(binding.0);
        found.devices.extend(binding.1);
        for device in &found.everywhere {
            if in_use(problem, &device.pool, &device.device.name) {
                for (key, amount) in consumption(device) {
                    let left = found.counters.get_mut(&key).unwrap();
                    *left = left.checked_sub(&amount).unwrap();
                }
            }
        }
        found
    }
}

pub fn is_dedicated(problem: &Problem, pool: &str, device: &str) -> bool {
    problem
        .allocated_devices
        .iter()
        .any(|d| d.pool == pool && d.device == device)
}

pub fn consumed(problem: &Problem, pool: &str, device: &str) -> Option<BTreeMap<String, Quantity>> {
    let found = problem
        .consumed_capacity
        .iter()
        .find(|c| c.device.pool == pool && c.device.device == device)?;
    Some(
        found
            .capacity
            .iter()
            .map(|(name, q)| (name.clone(), quantity(q)))
            .collect(),
    )
}

fn in_use(problem: &Problem, pool: &str, device: &str) -> bool {
    is_dedicated(problem, pool, device) || consumed(problem, pool, device).is_some()
}

pub fn consumption(device: &Reachable) -> Vec<((String, String, String), Quantity)> {
    let sets = device.device.consumes_counters.iter().flatten();
    sets.flat_map(|set| {
        set.counters.iter().map(|(name, counter)| {
            (
                (device.pool.clone(), set.counter_set.clone(), name.clone()),
                quantity(&counter.value),
            )
        })
    })
    .collect()
}

/// What requests and sub-requests have in common.
#[derive(Clone)]
pub struct Wanted {
    pub name: String,
    pub all: bool,
    pub count: usize,
    pub admin: bool,
    pub expressions: Vec<String>,
    pub tolerates: bool,
    pub capacity: BTreeMap<String, Quantity>,
}

pub fn alternatives(request: &api::DeviceRequest) -> Vec<Wanted> {
    fn make(
        name: String,
        mode: &Option<String>,
        count: Option<i64>,
        admin: Option<bool>,
        selectors: &Option<Vec<api::DeviceSelector>>,
        tolerations: &Option<Vec<api::DeviceToleration>>,
        capacity: &Option<api::CapacityRequirements>,
    ) -> Wanted {
        let requests = capacity.iter().flat_map(|c| c.requests.iter().flatten());
        Wanted {
            name,
            all: mode.as_deref() == Some("All"),
            count: count.unwrap_or(0) as usize,
            admin: admin == Some(true),
            expressions: selectors
                .iter()
                .flatten()
                .map(|s| s.cel.clone().unwrap().expression)
                .collect(),
            tolerates: tolerations.is_some(),
            capacity: requests
                .map(|(name, q)| (name.clone(), quantity(q)))
                .collect(),
        }
    }
    match (&request.exactly, &request.first_available) {
        (Some(e), _) => vec![make(
            request.name.clone(),
            &e.allocation_mode,
            e.count,
            e.admin_access,
            &e.selectors,
            &e.tolerations,
            &e.capacity,
        )],
        (_, Some(list)) => list
            .iter()
            .map(|s| {
                let name = format!("{}/{}", request.name, s.name);
                make(
                    name,
                    &s.allocation_mode,
                    s.count,
                    None,
                    &s.selectors,
                    &s.tolerations,
                    &s.capacity,
                )
            })
            .collect(),
        _ => vec![],
    }
}

/// `Err` = the evaluation fails.
pub fn selected(problem: &Problem, wanted: &Wanted, device: &Reachable) -> Result<bool, ()> {
    for expression in &wanted.expressions {
        let (_, predicate) = EXPRESSIONS.iter().find(|(e, _)| e == expression).unwrap();
        if !predicate(&device.device).ok_or(())? {
            return Ok(false);
        }
    }
    let d = &device.device;
    Ok(!device.per_device || reaches(problem, &d.node_name, d.all_nodes, &d.node_selector))
}

pub fn is_shareable(device: &Reachable) -> bool {
    device.device.allow_multiple_allocations == Some(true)
}

/// What a request takes of each capacity; `None` when the device cannot give it.
pub fn takes(wanted: &Wanted, device: &Reachable) -> Option<BTreeMap<String, Quantity>> {
    let capacity = device.device.capacity.clone().unwrap_or_default();
    if wanted
        .capacity
        .keys()
        .any(|name| !capacity.contains_key(name))
    {
        return None;
    }
    let mut taken = BTreeMap::new();
    for (name, capacity) in &capacity {
        let policy = capacity.request_policy.clone();
        let default = policy
            .as_ref()
            .and_then(|p| p.default.as_ref())
            .map(quantity);
        let amount = match (wanted.capacity.get(name), &policy) {
            (None, _) => default.clone().unwrap_or_else(|| quantity(&capacity.value)),
            (Some(asked), None) => asked.clone(),
            (Some(asked), Some(policy)) => {
                if let Some(range) = &policy.valid_range {
                    let (min, step) = (
                        quantity(&range.min).value(),
                        range.step.as_ref().map(|s| quantity(s).value()),
                    );
                    let asked = asked.value().max(min);
                    let rounded =
                        step.map_or(asked, |step| min + (asked - min + step - 1) / step * step);
                    if range
                        .max
                        .as_ref()
                        .is_some_and(|max| rounded > quantity(max).value())
                        && default.as_ref() != Some(&Quantity::from(rounded))
                    {
                        return None;
                    }
                    Quantity::from(rounded)
                } else {
                    let values: Vec<_> =
                        policy.valid_values.iter().flatten().map(quantity).collect();
                    values.iter().find(|v| *v >= asked)?.clone()
                }
            }
        };
        taken.insert(name.clone(), amount);
    }
    Some(taken)
}

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
                        return Err(());
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

fn covers(constraint: &api::DeviceConstraint, request: &str) -> bool {
    let base = request.split('/').next().unwrap();
    let names = constraint.requests.as_deref().unwrap_or_default();
    names.is_empty() || names.iter().any(|n| n == request || n == base)
}

/// Whether devices of a claim, each with its request, satisfy a constraint. Attributes have type and value in their text form.
pub fn satisfied(
    constraint: &api::DeviceConstraint,
    picks: &[(&str, &Reachable)],
    lists: bool,
) -> bool {
    let (name, same) = match (&constraint.match_attribute, &constraint.distinct_attribute) {
        (Some(name), _) => (name, true),
        (_, Some(name)) => (name, false),
        _ => return false,
    };
    let mut sets = Vec::new();
    for (_, device) in picks
        .iter()
        .filter(|(request, _)| covers(constraint, request))
    {
        let attributes = device.device.attributes.clone().unwrap_or_default();
        let bare = name.strip_prefix("gpu.example.com/").unwrap_or(name);
        let Some(attribute) = attributes.get(name).or_else(|| attributes.get(bare)) else {
            return false;
        };
        let set = match attribute {
            api::DeviceAttribute { int: Some(v), .. } => vec![format!("int {v}")],
            api::DeviceAttribute {
                string: Some(v), ..
            } => vec![format!("string {v}")],
            api::DeviceAttribute {
                ints: Some(list), ..
            } => list.iter().map(|v| format!("int {v}")).collect(),
            other => panic!("not generated: {other:?}"),
        };
        if lists && set.is_empty() {
            return false;
        }
        sets.push(set);
    }
    if same {
        let Some(first) = sets.first() else {
            return true;
        };
        sets.len() == 1 || first.iter().any(|v| sets.iter().all(|s| s.contains(v)))
    } else {
        let disjoint = |a: &[String], b: &[String]| a.iter().all(|v| !b.contains(v));
        (0..sets.len()).all(|i| (0..i).all(|j| disjoint(&sets[i], &sets[j])))
    }
}
