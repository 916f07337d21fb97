//! A resource pool: its slices, the part that a node can access, and its allocations.

use std::cmp::Ordering;
use std::sync::Arc;

use allot_apimachinery::quantity::Format;
use rustc_hash::{FxHashMap, FxHashSet};
use smol_str::SmolStr;

use crate::amount::Amount;
use crate::device::{Device, Scope, name_hash};
use crate::fingerprint::Fingerprint;
use crate::slice::Slice;
use crate::taint::{Taint, TaintRule};

mod sections;
mod usage;
mod view;

pub(crate) use sections::PoolSection;
pub(crate) use usage::{DeviceUse, Share, Usage};
pub(crate) use view::{View, ViewError, ViewRef, ViewState};

/// A pool with its state. Copies share the description.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    pub(crate) info: Arc<PoolInfo>,
    pub(crate) usage: Usage,
}

/// Properties of a pool that follow from its slices.
#[derive(Debug)]
pub(crate) struct PoolInfo {
    pub(crate) driver: SmolStr,
    pub(crate) name: SmolStr,
    /// Newest generation first, within it by name: the order in which devices are tried.
    members: Vec<Arc<Member>>,
    /// All devices of all members, in that order.
    slots: Vec<Slot>,
    /// The first slot of each member.
    starts: Vec<u32>,
    /// All slots with the hashes of their devices' names, sorted.
    names: Vec<(u32, u32)>,
    /// Whether device names are known to be unique, regardless of the generation.
    unique: bool,
    generations: Vec<Generation>,
    counters: Vec<Counter>,
    consumption: Vec<(u32, Amount)>,
    /// Members that are local to a node, in the order in which they were listed.
    local: FxHashMap<SmolStr, Vec<u32>>,
    /// The other members, in the order in which they were listed.
    rest: Vec<u32>,
    /// The one scope of all slices with devices, if there is just one.
    uniform: Option<Scope>,
    /// The view of the nodes in `uniform`.
    inside: Option<View>,
    /// What a node sees that none of the slices is for.
    outside: Option<View>,
    /// Taints from rules, by slot.
    extra_taints: FxHashMap<u32, Vec<Taint>>,
    /// Its fingerprint, if it is simple enough.
    fingerprint: Option<Fingerprint>,
    /// Some devices have their own node selection.
    per_device: bool,
}

/// A slice of the pool.
#[derive(Debug)]
pub(crate) struct Member {
    /// The position in the order of arrival.
    pub(crate) arrival: u64,
    pub(crate) slice: Slice,
}

impl Member {
    /// Newest generation first, within it by name, then as listed.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        (other.slice.generation.cmp(&self.slice.generation))
            .then_with(|| self.slice.name.cmp(&other.slice.name))
            .then_with(|| self.arrival.cmp(&other.arrival))
    }

    /// The node that it is local to.
    pub(crate) fn node(&self) -> Option<&SmolStr> {
        self.slice.node().filter(|_| !self.slice.ignored)
    }

    pub(crate) fn has_counters(&self) -> bool {
        self.slice.has_counters() && !self.slice.ignored
    }

    /// It has devices that are not local to one node.
    pub(crate) fn is_elsewhere(&self) -> bool {
        !self.slice.ignored && !self.slice.has_counters() && self.slice.node().is_none()
    }
}

#[derive(Debug)]
struct Slot {
    member: u32,
    device: u32,
    /// Range in `consumption`.
    consumes: (u32, u32),
}

#[derive(Debug)]
struct Generation {
    number: i64,
    /// Slices that were seen of it.
    seen: i64,
    /// Range in `counters`.
    counters: (u32, u32),
    /// The error that makes the counters of this generation unusable.
    problem: Option<String>,
}

/// A shared counter.
#[derive(Debug)]
pub(crate) struct Counter {
    pub(crate) set: SmolStr,
    pub(crate) name: SmolStr,
    pub(crate) total: Amount,
    /// The notation of its amounts.
    pub(crate) format: Format,
}

impl PoolInfo {
    /// Describes a pool with these slices, which are in their [order](Member::order).
    pub(crate) fn new(
        driver: &SmolStr,
        name: &SmolStr,
        members: Vec<Arc<Member>>,
        rules: &[TaintRule],
    ) -> Self {
        let mut info = Self {
            driver: driver.clone(),
            name: name.clone(),
            members,
            slots: Vec::new(),
            starts: Vec::new(),
            names: Vec::new(),
            unique: false,
            generations: Vec::new(),
            counters: Vec::new(),
            consumption: Vec::new(),
            local: FxHashMap::default(),
            rest: Vec::new(),
            uniform: None,
            inside: None,
            outside: None,
            extra_taints: FxHashMap::default(),
            fingerprint: None,
            per_device: false,
        };
        info.number();
        info.index();
        info.apply_rules(rules);
        info.find_views();
        info.per_device = info.members.iter().any(|m| m.slice.per_device);
        if let [only] = &info.members[..]
            && info.extra_taints.is_empty()
        {
            info.fingerprint = Some(only.slice.fingerprint.clone());
        }
        info
    }

    /// Numbers devices and counters.
    fn number(&mut self) {
        let mut start = 0;
        while start < self.members.len() {
            let number = self.members[start].slice.generation;
            let end = start
                + self.members[start..]
                    .iter()
                    .take_while(|m| m.slice.generation == number)
                    .count();
            let first_counter = self.counters.len();
            let (sets, mut problem) = self.number_counters(start..end);
            for member in start..end {
                self.starts.push(self.slots.len() as u32);
                let owner = Arc::clone(&self.members[member]);
                let slice = &owner.slice;
                for (index, device) in slice.devices.iter().enumerate() {
                    if slice.counted && problem.is_none() {
                        let unknown = device.counter_sets.iter().find(|set| !sets.contains(*set));
                        problem = unknown.map(|set| format!("counter set {set} not found"));
                    }
                    let first = self.consumption.len() as u32;
                    for consumption in &device.consumes {
                        let known = self.counters[first_counter..].iter().position(|c| {
                            c.set == consumption.set && c.name == consumption.counter
                        });
                        if let Some(known) = known {
                            let counter = (first_counter + known) as u32;
                            self.consumption.push((counter, consumption.amount));
                        } else if slice.counted && problem.is_none() {
                            let (counter, set) = (&consumption.counter, &consumption.set);
                            problem =
                                Some(format!("counter {counter} not found in counter set {set}"));
                        }
                    }
                    self.slots.push(Slot {
                        member: member as u32,
                        device: index as u32,
                        consumes: (first, self.consumption.len() as u32),
                    });
                }
            }
            self.generations.push(Generation {
                number,
                seen: (end - start) as i64,
                counters: (first_counter as u32, self.counters.len() as u32),
                problem,
            });
            start = end;
        }
        let names = (0..self.slots.len() as u32).map(|slot| (self.device(slot).name_hash, slot));
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        self.unique = names.windows(2).all(|two| two[0].0 != two[1].0);
        self.names = names;
    }

    /// Adds the counter sets of one generation: their names, and whether one is duplicate.
    fn number_counters(
        &mut self,
        members: std::ops::Range<usize>,
    ) -> (FxHashSet<SmolStr>, Option<String>) {
        let mut names = FxHashSet::default();
        for member in &self.members[members] {
            if member.slice.ignored {
                continue;
            }
            for set in &member.slice.counter_sets {
                if !names.insert(set.name.clone()) {
                    let problem = format!("duplicate counter set name {}", set.name);
                    return (names, Some(problem));
                }
                self.counters
                    .extend(set.counters.iter().map(|(name, total, format)| Counter {
                        set: set.name.clone(),
                        name: name.clone(),
                        total: *total,
                        format: *format,
                    }));
            }
        }
        (names, None)
    }

    fn index(&mut self) {
        let mut order: Vec<u32> = (0..self.members.len() as u32).collect();
        order.sort_by_key(|m| self.members[*m as usize].arrival);
        let mut scopes = Vec::new();
        for index in order {
            let slice = &self.members[index as usize].slice;
            if slice.ignored {
                continue;
            }
            match slice.node() {
                Some(node) => self.local.entry(node.clone()).or_default().push(index),
                None => self.rest.push(index),
            }
            if !slice.has_counters() {
                scopes.push(&slice.scope);
            }
        }
        if let Some((first, others)) = scopes.split_first()
            && first.same(first)
            && others.iter().all(|s| s.same(first))
        {
            self.uniform = Some((*first).clone());
        }
    }

    fn apply_rules(&mut self, rules: &[TaintRule]) {
        for rule in rules
            .iter()
            .filter(|r| r.covers_pool(&self.driver, &self.name))
        {
            for slot in 0..self.slots.len() as u32 {
                if rule.covers_device(&self.device(slot).name) {
                    self.extra_taints
                        .entry(slot)
                        .or_default()
                        .push(Taint::new(&rule.taint));
                }
            }
        }
    }

    /// The pool's fingerprint; `None` if it is unknown.
    pub(crate) fn fingerprint(&self) -> Option<&Fingerprint> {
        self.fingerprint.as_ref()
    }

    /// Whether some devices have their own node selection.
    pub(crate) fn is_per_device(&self) -> bool {
        self.per_device
    }

    /// Whether the pool is relevant for nodes without local slices.
    pub(crate) fn is_global(&self) -> bool {
        let is_unusable = self
            .outside
            .as_ref()
            .is_some_and(|v| v.state != ViewState::Usable);
        is_unusable
            || self
                .rest
                .iter()
                .any(|m| !self.members[*m as usize].slice.has_counters())
    }

    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn slice(&self, slot: u32) -> &Slice {
        &self.members[self.slots[slot as usize].member as usize].slice
    }

    pub(crate) fn device(&self, slot: u32) -> &Device {
        let slot = &self.slots[slot as usize];
        &self.members[slot.member as usize].slice.devices[slot.device as usize]
    }

    /// The place of a device in its slice.
    pub(crate) fn index_in_slice(&self, slot: u32) -> usize {
        self.slots[slot as usize].device as usize
    }

    /// The slots of the devices with a name: more than one only across generations or in an invalid pool.
    pub(crate) fn slots_named(&self, name: &str) -> impl Iterator<Item = u32> {
        let hash = name_hash(name);
        let start = self.names.partition_point(|(known, _)| *known < hash);
        let same = self.names[start..]
            .iter()
            .take_while(move |(known, _)| *known == hash);
        same.map(|(_, slot)| *slot)
            .filter(move |slot| self.device(*slot).name == name)
    }

    pub(crate) fn consumption(&self, slot: u32) -> &[(u32, Amount)] {
        let (start, end) = self.slots[slot as usize].consumes;
        &self.consumption[start as usize..end as usize]
    }

    /// Whether there are counters that devices can take from.
    pub(crate) fn has_counters(&self) -> bool {
        !self.counters.is_empty()
    }

    /// The first counter of which a device needs more than remains, as a text.
    pub(crate) fn lacking_counter(&self, slot: u32, available: &[Amount]) -> Option<String> {
        let lacks = |(counter, amount): &&(u32, Amount)| available[*counter as usize] < *amount;
        let (counter, amount) = self.consumption(slot).iter().find(lacks)?;
        let (described, left) = (
            &self.counters[*counter as usize],
            available[*counter as usize],
        );
        let mut consumes = self.device(slot).consumes.iter();
        let written = consumes
            .find(|c| c.set == described.set && c.counter == described.name && c.amount == *amount);
        Some(format!(
            "counter {}/{}: {} left, it takes {}",
            described.set,
            described.name,
            left.shown(described.format),
            amount.shown(written.map_or(described.format, |c| c.format)),
        ))
    }

    pub(crate) fn counters(&self) -> &[Counter] {
        &self.counters
    }

    /// The counters that devices of the generation with this index use.
    pub(crate) fn counters_of(&self, generation: u32) -> std::ops::Range<usize> {
        let (start, end) = self.generations[generation as usize].counters;
        start as usize..end as usize
    }

    pub(crate) fn extra_taints(&self, slot: u32) -> &[Taint] {
        if self.extra_taints.is_empty() {
            return &[];
        }
        self.extra_taints.get(&slot).map_or(&[], Vec::as_slice)
    }
}
