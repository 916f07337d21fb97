//! What claims take: devices, shares of devices, and what partitions draw from counters. What of it is given twice, and
//! what is left.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::api::{State, results_of};
use super::devices::{CHIP, MEMORY, PARTITIONS, SHARE};
use super::workloads::EXTENDED;

/// What a claim, or a pod by an extended resource, asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// So many devices.
    Devices(usize),
    /// A share of a device, with so much of its memory.
    Share(i64),
    /// A partition: one of this size, or any.
    Partition(Option<i64>),
}

fn of_class(class: &str, count: usize, memory: Option<i64>) -> Need {
    match class.strip_prefix("partition") {
        Some(size) => Need::Partition(size.parse().ok()),
        None if class == "share" => Need::Share(memory.unwrap_or(SHARE)),
        None => Need::Devices(count),
    }
}

fn number(amount: &Value) -> Option<i64> {
    amount.as_str()?.parse().ok()
}

/// What a claim asks for.
pub fn of_claim(claim: &Value) -> Need {
    let request = &claim["spec"]["devices"]["requests"][0]["exactly"];
    let class = request["deviceClassName"].as_str().unwrap_or_default();
    let count = request["count"].as_u64().unwrap_or(1) as usize;
    let memory = number(&request["capacity"]["requests"]["memory"]);
    of_class(class, count, memory)
}

/// What a pod asks for as an extended resource.
pub fn of_pod(pod: &Value) -> Option<Need> {
    let requests = pod["spec"]["containers"][0]["resources"]["requests"].as_object()?;
    let class = requests.keys().find_map(|k| k.strip_prefix(EXTENDED))?;
    Some(of_class(class, 1, None))
}

/// The size of a partition, which its name says.
fn size(device: &str) -> Option<i64> {
    let (_, partition) = device.split_once("-p")?;
    partition[..1].parse().ok()
}

/// What is taken.
#[derive(Default)]
struct Taken<'a> {
    /// The claim of each device. For a shared device, the first one.
    devices: BTreeMap<&'a str, &'a str>,
    shared: BTreeSet<&'a str>,
    shares: BTreeSet<&'a str>,
    /// Memory by shared device.
    memory: BTreeMap<&'a str, i64>,
    /// What is drawn from the chip of each node.
    chips: BTreeMap<&'a str, i64>,
}

impl<'a> Taken<'a> {
    /// Adds what a claim holds; says what of it another one has.
    fn add(&mut self, name: &'a str, claim: &'a Value) -> Option<String> {
        for result in results_of(claim) {
            let device = result["device"].as_str().unwrap_or_default();
            if let Some(id) = result["shareID"].as_str() {
                if !self.shares.insert(id) {
                    return Some(format!("share {id} of {device} is in {name} and elsewhere"));
                }
                let memory = number(&result["consumedCapacity"]["memory"]).unwrap_or(MEMORY);
                *self.memory.entry(device).or_default() += memory;
                if self.shared.insert(device) {
                    let other = self.devices.insert(device, name);
                    if let Some(other) = other {
                        return Some(format!("{device} is in {other}, and shared by {name}"));
                    }
                }
                continue;
            }
            if let Some(other) = self.devices.insert(device, name) {
                return Some(format!("{device} is in {other} and in {name}"));
            }
            if let (Some(size), Some((node, _))) = (size(device), device.split_once('-')) {
                *self.chips.entry(node).or_default() += size;
            }
        }
        None
    }

    fn overdrawn(&self) -> Option<String> {
        let memory = self.memory.iter().find(|(_, taken)| **taken > MEMORY);
        let chip = self.chips.iter().find(|(_, taken)| **taken > CHIP);
        let (of, taken) = memory.or(chip)?;
        Some(format!("of {of} {taken} are given out"))
    }
}

/// Something that is given out twice, or beyond what exists, by the claims that `counts` takes into account.
pub fn given_twice(s: &State, counts: impl Fn(&Value) -> bool) -> Option<String> {
    let mut taken = Taken::default();
    let claims = s.objects.iter().filter(|((c, _), _)| c == "resourceclaims");
    let mut claims = claims.filter(|(_, claim)| counts(claim));
    let twice = claims.find_map(|((_, name), claim)| taken.add(name, claim));
    twice.or_else(|| taken.overdrawn())
}

/// Devices that are free.
pub struct Left<'a> {
    taken: Taken<'a>,
    /// Devices that may not be used.
    closed: &'a BTreeSet<String>,
    /// Devices per node.
    devices: usize,
}

impl<'a> Left<'a> {
    pub fn new(s: &'a State, closed: &'a BTreeSet<String>, devices: usize) -> Self {
        let mut taken = Taken::default();
        for ((collection, name), claim) in &s.objects {
            if collection == "resourceclaims" {
                taken.add(name, claim);
            }
        }
        Self {
            taken,
            closed,
            devices,
        }
    }

    /// Whether a node has all that is needed. A pod needs at most one partition, and one share.
    pub fn has(&self, node: &str, needs: &[Need]) -> bool {
        let free = |device: &String| !self.taken.devices.contains_key(device.as_str());
        let names = (0..self.devices).map(|d| format!("{node}-{d}"));
        let devices = names.filter(|d| free(d) && !self.closed.contains(d));
        let of_chip = CHIP - self.taken.chips.get(node).copied().unwrap_or(0);
        let memory = self.taken.memory.get(format!("{node}-s").as_str());
        let memory = MEMORY - memory.copied().unwrap_or(0);
        let partition = |wanted: &Option<i64>| {
            PARTITIONS.iter().any(|partition| {
                let size = size(&format!("{node}-{partition}")).unwrap_or(CHIP);
                wanted.is_none_or(|w| w == size)
                    && size <= of_chip
                    && free(&format!("{node}-{partition}"))
            })
        };
        let mut wanted = 0;
        let others = needs.iter().all(|need| match need {
            Need::Devices(count) => {
                wanted += count;
                true
            }
            Need::Share(amount) => *amount <= memory,
            Need::Partition(size) => partition(size),
        });
        others && wanted <= devices.count()
    }
}
