//! A ResourceSlice in the form the model keeps.

use k8s_openapi::api::resource::v1 as api;
use smol_str::SmolStr;

use crate::amount::Amount;
use crate::device::{Device, Scope};
use crate::features::Features;

/// A slice, converted once. Never changes afterwards; a changed slice is a new one.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) name: SmolStr,
    pub(crate) driver: SmolStr,
    pub(crate) pool: SmolStr,
    pub(crate) generation: i64,
    /// How many slices the pool has in this generation.
    pub(crate) pool_slices: i64,
    pub(crate) scope: Scope,
    /// Result and selection go by the devices' own scope.
    pub(crate) per_device: bool,
    pub(crate) has_node_name: bool,
    node_selector: Option<k8s_openapi::api::core::v1::NodeSelector>,
    pub(crate) devices: Box<[Device]>,
    pub(crate) counter_sets: Box<[CounterSet]>,
    /// The slice needs a feature that is off, so its devices and counters do not exist for allocation. It still counts as a slice of its pool.
    pub(crate) ignored: bool,
    /// Counters are kept, so that devices have to name some that exist.
    pub(crate) counted: bool,
}

/// A set of shared counters.
#[derive(Debug)]
pub(crate) struct CounterSet {
    pub(crate) name: SmolStr,
    pub(crate) counters: Box<[(SmolStr, Amount)]>,
}

impl Slice {
    pub(crate) fn new(features: &Features, slice: &api::ResourceSlice) -> Self {
        let spec = &slice.spec;
        let shared = spec.shared_counters.as_deref().unwrap_or_default();
        Self {
            name: SmolStr::new(slice.metadata.name.as_deref().unwrap_or_default()),
            driver: SmolStr::new(&spec.driver),
            pool: SmolStr::new(&spec.pool.name),
            generation: spec.pool.generation,
            pool_slices: spec.pool.resource_slice_count,
            scope: Scope::of_slice(spec),
            per_device: spec.per_device_node_selection == Some(true),
            has_node_name: spec.node_name.is_some(),
            node_selector: spec.node_selector.clone(),
            devices: spec
                .devices
                .iter()
                .flatten()
                .map(|d| Device::new(features, &spec.driver, d))
                .collect(),
            counter_sets: shared
                .iter()
                .map(|set| CounterSet {
                    name: SmolStr::new(&set.name),
                    counters: set
                        .counters
                        .iter()
                        .map(|(name, c)| (SmolStr::new(name), Amount::parse(&c.value)))
                        .collect(),
                })
                .collect(),
            counted: features.partitionable_devices,
            ignored: !features.partitionable_devices
                && (spec.per_device_node_selection.is_some() || !shared.is_empty()),
        }
    }

    /// The node selector, whichever of the ways to select nodes takes precedence.
    pub(crate) fn selector(&self) -> Option<&k8s_openapi::api::core::v1::NodeSelector> {
        self.node_selector.as_ref()
    }

    pub(crate) fn has_counters(&self) -> bool {
        !self.counter_sets.is_empty()
    }

    /// The node that the slice is local to. Counters are for the whole pool, wherever they are published.
    pub(crate) fn node(&self) -> Option<&SmolStr> {
        match &self.scope {
            Scope::Node(name) if !self.has_counters() => Some(name),
            _ => None,
        }
    }
}
