//! All devices and their availability, for reports; attempts use the view of a node.

use super::{Cluster, DeviceState};
use crate::capacity::Capacity;
use crate::pool::{DeviceUse, Pool, PoolSection, ViewState};

/// A device of the newest generation of its pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inventoried<'a> {
    /// Name of the driver.
    pub driver: &'a str,
    /// Name of the pool.
    pub pool: &'a str,
    /// Name of the device.
    pub device: &'a str,
    /// Name of the slice that has it.
    pub slice: &'a str,
    /// The index of the device in its slice.
    pub index: usize,
    /// Why devices of its pool cannot be allocated.
    pub problem: Option<PoolProblem>,
    /// What can be done with it. Administrative access does not count.
    pub state: DeviceState,
    /// What shares take of each capacity, in the notation of the capacity.
    pub consumed: Vec<(&'a str, String)>,
    /// Taints that matter for allocation, `key=value:effect`; also those of rules.
    pub taints: Vec<String>,
    /// The counter of which it needs more than remains, while it is not in use.
    pub lacks: Option<String>,
}

/// Why devices of a pool cannot be allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolProblem {
    /// Some of its slices are not published yet.
    Incomplete {
        /// The newest generation, as seen by the devices' nodes.
        generation: i64,
        /// The number of observed slices.
        seen: i64,
        /// `resourceSliceCount`: the expected number of slices.
        expected: i64,
    },
    /// Its slices contradict each other, for this reason.
    Invalid(String),
}

impl Cluster {
    /// All devices by driver, pool and slice. Takes time in proportion to the cluster.
    pub fn inventory(&self) -> Vec<Inventoried<'_>> {
        let mut pools: Vec<&Pool> = (0..self.pools.len())
            .map(|id| self.pools.get(id).pool(&self.rules))
            .collect();
        pools.sort_by(|a, b| (&a.info.driver, &a.info.name).cmp(&(&b.info.driver, &b.info.name)));
        let mut devices = Vec::new();
        for pool in pools {
            for part in pool.info.parts() {
                let problem = problem(&part);
                let slots = part.slots.into_iter();
                devices.extend(slots.map(|slot| self.inventoried(pool, slot, problem.clone())));
            }
        }
        devices
    }

    fn inventoried<'a>(
        &self,
        pool: &'a Pool,
        slot: u32,
        problem: Option<PoolProblem>,
    ) -> Inventoried<'a> {
        let (info, usage) = (&pool.info, &pool.usage);
        let (slice, device) = (info.slice(slot), info.device(slot));
        let in_use = usage.device(&device.name);
        let shares = in_use.filter(|_| device.shareable);
        let consumed = |used: &'a DeviceUse| {
            let capacities = device.capacity.iter().filter(|c| used.takes(&c.name));
            capacities.map(|c| (&*c.name, used.consumed(&c.name).shown(c.value.format())))
        };
        let taints = device.taints.iter().chain(info.extra_taints(slot));
        let taints = taints.filter(|t| self.features.device_taints && t.blocks());
        let state = self.device_state(pool, slot, problem.is_none());
        Inventoried {
            driver: &info.driver,
            pool: &info.name,
            device: &device.name,
            slice: &slice.name,
            index: info.index_in_slice(slot),
            problem,
            state,
            consumed: shares.into_iter().flat_map(consumed).collect(),
            taints: taints.map(ToString::to_string).collect(),
            lacks: match in_use {
                Some(_) => None,
                None => info.lacking_counter(slot, usage.available()),
            },
        }
    }

    /// What can be done with a device. `is_usable`: its pool is complete there and does not contradict itself.
    pub(super) fn device_state(&self, pool: &Pool, slot: u32, is_usable: bool) -> DeviceState {
        let (info, usage) = (&pool.info, &pool.usage);
        let device = info.device(slot);
        let has_more = |used: &DeviceUse| {
            device.shareable && used.dedicated.is_empty() && !used_up(used, &device.capacity)
        };
        let mut taints = device.taints.iter().chain(info.extra_taints(slot));
        match usage.device(&device.name) {
            Some(used) if has_more(used) => DeviceState::Shared,
            Some(_) => DeviceState::InUse,
            None if !is_usable => DeviceState::Unusable,
            None if info.lacking_counter(slot, usage.available()).is_some() => DeviceState::Blocked,
            None if self.features.device_taints && taints.any(|t| t.blocks()) => {
                DeviceState::Tainted
            }
            None => DeviceState::Free,
        }
    }
}

/// Whether a capacity is exhausted.
fn used_up(used: &DeviceUse, capacities: &[Capacity]) -> bool {
    let taken = |c: &Capacity| used.takes(&c.name) && used.consumed(&c.name) >= c.value.amount;
    capacities.iter().any(taken)
}

fn problem(part: &PoolSection) -> Option<PoolProblem> {
    let PoolSection {
        generation,
        seen,
        expected,
        ..
    } = *part;
    match &part.state {
        ViewState::Usable => None,
        ViewState::Invalid(reason) => Some(PoolProblem::Invalid(reason.clone())),
        ViewState::Incomplete if seen > expected => Some(PoolProblem::Invalid(format!(
            "it has {seen} slices and says that there are {expected}"
        ))),
        ViewState::Incomplete => Some(PoolProblem::Incomplete {
            generation,
            seen,
            expected,
        }),
    }
}
