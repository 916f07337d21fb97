//! What a node can reach, and what of it is in use.

use std::collections::BTreeMap;

use allot_allocator::problem::Problem;
use allot_apimachinery::quantity::Quantity;
use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::api::resource::v1 as api;

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
    pub order: Vec<String>,
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

pub fn reaches(
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
            let mut relevant: Vec<_> = slices
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
            // Of the generations that the node sees the newest counts. One that is being replaced elsewhere does so only as a whole.
            let generation = |s: &&&api::ResourceSlice| s.spec.pool.generation;
            let newest = relevant.iter().map(generation).max().unwrap();
            relevant.retain(|s| generation(s) == newest);
            let newer = slices.iter().any(|s| s.spec.pool.generation > newest);
            let expected = relevant[0].spec.pool.resource_slice_count;
            if newer && relevant.len() as i64 != expected {
                continue;
            }
            let relevant: Vec<&api::ResourceSlice> = relevant.into_iter().copied().collect();
            slices.retain(|s| s.spec.pool.generation == newest);
            if relevant.len() as i64 != expected && slices.len() as i64 != expected {
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
            let devices = list(&relevant);
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
