//! The modelled hardware, in the profiles of dra-example-driver.

use std::collections::BTreeMap;

use allot_driver::attributes::{flag, number, text, version};
use allot_driver::{Pool, Slice};
use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, Counter, CounterSet, Device,
    DeviceAttribute, DeviceCapacity, DeviceCounterConsumption,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::binding::{CONDITION, FAILURE};

/// Memory of a GPU, in GiB.
const MEMORY: usize = 80;
/// Compute units of a GPU.
const COMPUTE: usize = 100;
/// The maximum number of counter sets in one ResourceSlice.
const COUNTER_SETS: usize = 8;

/// The profile of a node: the number of GPUs, and how they can be allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// The number of GPUs.
    pub gpus: usize,
    /// The number of equal partitions that each GPU can be divided into as an alternative to the whole GPU (KEP-4815);
    /// 0 if GPUs cannot be partitioned.
    pub partitions: usize,
    /// Whether several claims can share a GPU or partition, each with the capacity that it requests (KEP-5075).
    pub shared: bool,
    /// Whether pods are bound only after the driver has reported that their devices are ready (KEP-5007).
    pub binding_conditions: bool,
}

impl Profile {
    /// A profile of whole GPUs, each allocated to one claim.
    pub fn whole(gpus: usize) -> Self {
        Self {
            gpus,
            partitions: 0,
            shared: false,
            binding_conditions: false,
        }
    }

    /// Checks that the devices can be published: a partition has at least 1 GiB of memory and one compute unit.
    ///
    /// # Errors
    /// A message with the violated limit.
    pub fn check(&self) -> Result<(), String> {
        match self.partitions > MEMORY {
            true => Err(format!("a GPU has at most {MEMORY} partitions")),
            false => Ok(()),
        }
    }

    /// The devices of a node: a pure function of its name and the profile.
    pub fn devices(&self, node: &str) -> Vec<Device> {
        let devices = (0..self.gpus).flat_map(|index| self.of_gpu(node, index));
        let binding = |condition: &str| {
            let wanted = self.binding_conditions;
            wanted.then(|| vec![condition.to_owned()])
        };
        devices
            .map(|device| Device {
                binding_conditions: binding(CONDITION),
                binding_failure_conditions: binding(FAILURE),
                ..device
            })
            .collect()
    }

    /// The published pool: the devices, and the shared counters that partitions consume.
    pub fn pool(&self, node: &str) -> Pool {
        let mut pool = Pool::new(self.devices(node));
        if self.partitions == 0 {
            return pool;
        }
        let sets: Vec<CounterSet> = (0..self.gpus).map(counter_set).collect();
        let slices = sets.chunks(COUNTER_SETS).map(|sets| Slice {
            shared_counters: sets.to_vec(),
            ..Slice::default()
        });
        let slices: Vec<Slice> = slices.collect();
        pool.slices.splice(0..0, slices);
        pool
    }

    fn of_gpu(&self, node: &str, index: usize) -> Vec<Device> {
        let whole = device(node, index);
        if self.partitions == 0 {
            return vec![match self.shared {
                true => self.sized(whole, MEMORY << 10, COMPUTE),
                false => whole,
            }];
        }
        let of = |name: String, attribute: (&str, DeviceAttribute), memory, compute| {
            let mut device = self.sized(whole.clone(), memory, compute);
            device.name = name;
            let attributes = device.attributes.get_or_insert_default();
            attributes.insert(attribute.0.to_owned(), attribute.1);
            attributes.insert("partitionable".to_owned(), flag(true));
            device.consumes_counters = Some(vec![DeviceCounterConsumption {
                counter_set: set_name(index),
                counters: counters(memory, compute),
            }]);
            device
        };
        let (memory, compute) = ((MEMORY << 10) / self.partitions, COMPUTE / self.partitions);
        let partitions = (0..self.partitions).map(|part| {
            let name = format!("gpu-{index}-partition-{part}");
            of(name, ("partition", number(part as i64)), memory, compute)
        });
        let full = of(
            format!("gpu-{index}-full"),
            ("full", flag(true)),
            MEMORY << 10,
            COMPUTE,
        );
        partitions.chain([full]).collect()
    }

    /// Adds capacities to a device: memory in MiB, and compute units.
    fn sized(&self, mut device: Device, memory: usize, compute: usize) -> Device {
        let capacity = |value: String, least: &str| DeviceCapacity {
            request_policy: self.shared.then(|| CapacityRequestPolicy {
                default: Some(Quantity(value.clone())),
                valid_range: Some(CapacityRequestPolicyRange {
                    min: Quantity(least.to_owned()),
                    max: Some(Quantity(value.clone())),
                    step: Some(Quantity(least.to_owned())),
                }),
                ..CapacityRequestPolicy::default()
            }),
            value: Quantity(value),
        };
        // Whole GiB, so that every share is a multiple of the minimum.
        let memory = if self.shared {
            memory >> 10 << 10
        } else {
            memory
        };
        device.capacity = Some(BTreeMap::from([
            ("memory".to_owned(), capacity(mebibytes(memory), "1Gi")),
            ("compute".to_owned(), capacity(compute.to_string(), "1")),
        ]));
        device.allow_multiple_allocations = self.shared.then_some(true);
        device
    }
}

fn mebibytes(amount: usize) -> String {
    match amount % 1024 {
        0 => format!("{}Gi", amount / 1024),
        _ => format!("{amount}Mi"),
    }
}

fn set_name(index: usize) -> String {
    format!("gpu-{index}-counters")
}

fn counters(memory: usize, compute: usize) -> BTreeMap<String, Counter> {
    let counter = |value: String| Counter {
        value: Quantity(value),
    };
    BTreeMap::from([
        ("memory".to_owned(), counter(mebibytes(memory))),
        ("compute".to_owned(), counter(compute.to_string())),
    ])
}

fn counter_set(index: usize) -> CounterSet {
    CounterSet {
        name: set_name(index),
        counters: counters(MEMORY << 10, COMPUTE),
    }
}

/// The GPUs of a node: names `gpu-0`, `gpu-1`, …; the UUIDs depend on the node's name and the index only.
pub fn devices(node: &str, count: usize) -> Vec<Device> {
    Profile::whole(count).devices(node)
}

fn device(node: &str, index: usize) -> Device {
    let attributes = BTreeMap::from([
        ("driverVersion".to_owned(), version("1.0.0")),
        ("index".to_owned(), number(index as i64)),
        ("model".to_owned(), text("LATEST-GPU-MODEL")),
        (
            "uuid".to_owned(),
            text(format!("gpu-{}", uuid(node, index))),
        ),
    ]);
    let memory = DeviceCapacity {
        value: Quantity(format!("{MEMORY}Gi")),
        ..DeviceCapacity::default()
    };
    Device {
        name: format!("gpu-{index}"),
        attributes: Some(attributes),
        capacity: Some(BTreeMap::from([("memory".to_owned(), memory)])),
        ..Device::default()
    }
}

/// Sixteen bytes that look random: a hash of the name seeds a small generator. Their quality does not matter.
fn uuid(node: &str, index: usize) -> uuid::Uuid {
    let seed = node.bytes().fold(0u64, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(u64::from(byte))
    });
    let half = |n: u64| mix(seed.wrapping_add(mix(index as u64 * 2 + n)));
    uuid::Uuid::from_u64_pair(half(0), half(1))
}

/// The finalizer of SplitMix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}
