//! A ResourceSlice in the form of the model.

use allot_cel::device::Layouts;
use k8s_openapi::api::resource::v1 as api;
use smol_str::SmolStr;

use crate::amount::Amount;
use crate::counters::CounterSet;
use crate::device::{Device, Scope};
use crate::features::Features;
use crate::fingerprint::Fingerprint;

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
    /// Result and selection use the devices' own scope.
    pub(crate) per_device: bool,
    pub(crate) has_node_name: bool,
    node_selector: Option<k8s_openapi::api::core::v1::NodeSelector>,
    pub(crate) devices: Box<[Device]>,
    pub(crate) counter_sets: Box<[CounterSet]>,
    /// The slice needs a feature that is off, so its devices and counters do not exist for allocation. It still counts as a slice of its pool.
    pub(crate) ignored: bool,
    /// Counters are tracked, so that devices must name existing ones.
    pub(crate) counted: bool,
    /// The fingerprint of its devices.
    pub(crate) fingerprint: Fingerprint,
}

impl Slice {
    pub(crate) fn new(features: &Features, layouts: &Layouts, slice: &api::ResourceSlice) -> Self {
        let spec = &slice.spec;
        let shared = spec.shared_counters.as_deref().unwrap_or_default();
        let counter_sets: Box<[CounterSet]> = shared
            .iter()
            .map(|set| CounterSet {
                name: SmolStr::new(&set.name),
                counters: set
                    .counters
                    .iter()
                    .map(|(name, c)| {
                        let (amount, format) = Amount::written(&c.value);
                        (SmolStr::new(name), amount, format)
                    })
                    .collect(),
            })
            .collect();
        let mut devices: Vec<Device> =
            Vec::with_capacity(spec.devices.as_ref().map_or(0, Vec::len));
        let mut before = None;
        for source in spec.devices.iter().flatten() {
            let like = devices.last().zip(before);
            let device = Device::new(features, layouts, &spec.driver, source, like);
            devices.push(device);
            before = Some(source);
        }
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
            fingerprint: Fingerprint::new(spec, &devices, &counter_sets),
            devices: devices.into(),
            counter_sets,
            counted: features.partitionable_devices,
            ignored: !features.partitionable_devices
                && (spec.per_device_node_selection.is_some() || !shared.is_empty()),
        }
    }

    /// The node selector, by the precedence of the ways to select nodes.
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
