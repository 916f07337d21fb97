//! A device as the allocator sees it: converted once when its slice arrives.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use allot_apimachinery::Quantity as Exact;
use allot_apimachinery::quantity::Format;
use allot_cel::device::Layouts;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1 as api;
use rustc_hash::FxBuildHasher;
use smol_str::SmolStr;

use crate::amount::Amount;
use crate::boxed::exactly;
use crate::capacity::Capacity;
use crate::features::Features;
use crate::node::{Node, NodeSelector, NodeSelectorError};
use crate::selector;
use crate::taint::Taint;

/// The nodes that can use the devices of a slice, or one device.
#[derive(Debug, Clone)]
pub(crate) enum Scope {
    Node(SmolStr),
    AllNodes,
    Selector(Arc<ScopeSelector>),
    /// Each device has its own scope.
    PerDevice,
    /// An unknown way of node selection.
    Unknown,
}

/// A node selector, kept for the result of an allocation and compiled for matching.
#[derive(Debug)]
pub(crate) struct ScopeSelector {
    pub(crate) source: core::NodeSelector,
    pub(crate) compiled: Result<NodeSelector, NodeSelectorError>,
}

impl Scope {
    /// The order of the cases is upstream's: a node name wins over "all nodes", that over a selector.
    fn new(
        node_name: Option<&str>,
        all_nodes: Option<bool>,
        selector: Option<&core::NodeSelector>,
    ) -> Self {
        match (node_name, all_nodes, selector) {
            (Some(name), ..) if !name.is_empty() => Self::Node(SmolStr::new(name)),
            (_, Some(true), _) => Self::AllNodes,
            (.., Some(selector)) => Self::Selector(Arc::new(ScopeSelector {
                source: selector.clone(),
                compiled: NodeSelector::compile(selector),
            })),
            _ => Self::Unknown,
        }
    }

    pub(crate) fn of_slice(spec: &api::ResourceSliceSpec) -> Self {
        match Self::new(
            spec.node_name.as_deref(),
            spec.all_nodes,
            spec.node_selector.as_ref(),
        ) {
            Self::Unknown if spec.per_device_node_selection == Some(true) => Self::PerDevice,
            scope => scope,
        }
    }

    /// Whether a selector has several terms: an allocation can only have one, so it cannot be made. The API allows
    /// exactly one; older objects may have more.
    pub(crate) fn has_several_terms(&self) -> bool {
        self.selector()
            .is_some_and(|selector| selector.node_selector_terms.len() > 1)
    }

    /// Whether the node is in the scope.
    ///
    /// # Errors
    /// The scope is a node selector that cannot be compiled.
    pub(crate) fn matches(&self, node: &Node) -> Result<bool, &NodeSelectorError> {
        match self {
            Self::Node(name) => Ok(name == node.name()),
            Self::AllNodes => Ok(true),
            Self::Selector(selector) => match &selector.compiled {
                Ok(compiled) => Ok(compiled.matches(node)),
                Err(error) => Err(error),
            },
            Self::PerDevice | Self::Unknown => Ok(false),
        }
    }

    pub(crate) fn selector(&self) -> Option<&core::NodeSelector> {
        match self {
            Self::Selector(selector) => Some(&selector.source),
            _ => None,
        }
    }

    /// Equal for every node, as far as can be determined cheaply.
    pub(crate) fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Node(a), Self::Node(b)) => a == b,
            (Self::AllNodes, Self::AllNodes) => true,
            (Self::Selector(a), Self::Selector(b)) => a.source == b.source,
            _ => false,
        }
    }
}

/// An attribute value as constraints compare it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Value {
    Bool(bool),
    Int(i64),
    String(SmolStr),
    Version(SmolStr),
}

/// An attribute of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Attribute {
    Scalar(Value),
    /// The values of one list type; may be empty.
    List(Box<[Value]>),
    /// A type of a later release.
    Unknown,
}

impl Attribute {
    fn new(attribute: &api::DeviceAttribute) -> Self {
        fn list<T>(values: &[T], make: impl Fn(&T) -> Value) -> Attribute {
            Attribute::List(values.iter().map(make).collect())
        }
        if let Some(v) = &attribute.string {
            Self::Scalar(Value::String(v.into()))
        } else if let Some(v) = attribute.int {
            Self::Scalar(Value::Int(v))
        } else if let Some(v) = attribute.bool {
            Self::Scalar(Value::Bool(v))
        } else if let Some(v) = &attribute.version {
            Self::Scalar(Value::Version(v.into()))
        } else if let Some(v) = &attribute.strings {
            list(v, |x| Value::String(x.into()))
        } else if let Some(v) = &attribute.ints {
            list(v, |x| Value::Int(*x))
        } else if let Some(v) = &attribute.bools {
            list(v, |x| Value::Bool(*x))
        } else if let Some(v) = &attribute.versions {
            list(v, |x| Value::Version(x.into()))
        } else {
            Self::Unknown
        }
    }

    /// The values as a set; `None` for an unknown type or without a value.
    pub(crate) fn values(&self) -> Option<&[Value]> {
        match self {
            Self::Scalar(value) => Some(std::slice::from_ref(value)),
            Self::List(values) if !values.is_empty() => Some(values),
            _ => None,
        }
    }
}

/// What a device takes from one shared counter.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Consumption {
    pub(crate) set: SmolStr,
    pub(crate) counter: SmolStr,
    pub(crate) amount: Amount,
    /// The notation of the amount.
    pub(crate) format: Format,
}

/// A short hash for sorting and finding names.
pub(crate) fn name_hash(name: &str) -> u32 {
    (FxBuildHasher.hash_one(name) >> 32) as u32
}

/// A device of a slice, prepared for selectors and checks.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) name: SmolStr,
    /// [`name_hash`] of the name.
    pub(crate) name_hash: u32,
    pub(crate) cel: selector::Device,
    /// Names of the attributes as written, shared by the devices of a slice that have the same.
    names: Arc<[SmolStr]>,
    /// Their values.
    attributes: Box<[Attribute]>,
    pub(crate) capacity: Box<[Capacity]>,
    /// The counter sets that it names, even if it consumes nothing.
    pub(crate) counter_sets: Box<[SmolStr]>,
    pub(crate) consumes: Box<[Consumption]>,
    pub(crate) taints: Box<[Taint]>,
    /// The device can serve several claims. Always `false` when the feature is off.
    pub(crate) shareable: bool,
    /// Only for devices in slices with a selection per device.
    pub(crate) scope: Scope,
    pub(crate) has_node_name: bool,
    pub(crate) binds_to_node: bool,
    pub(crate) binding_conditions: Option<Box<[String]>>,
    pub(crate) binding_failure_conditions: Option<Box<[String]>>,
}

impl Device {
    /// Converts a device. `before` is the one before it in the slice, with its source.
    pub(crate) fn new(
        features: &Features,
        layouts: &Layouts,
        driver: &str,
        device: &api::Device,
        before: Option<(&Self, &api::Device)>,
    ) -> Self {
        let attributes = || device.attributes.iter().flatten();
        let same = |names: &&Arc<[SmolStr]>| attributes().map(|(name, _)| name).eq(names.iter());
        let names = before
            .map(|(before, _)| &before.names)
            .filter(same)
            .cloned();
        let (capacity, exact, same_capacity) = Self::convert_capacity(features, device, before);
        let like = before
            .filter(|_| names.is_some() && same_capacity)
            .map(|(before, _)| &before.cel);
        let cel = selector::Device::new(layouts, driver, device, exact, like);
        let own = attributes().map(|(_, a)| Attribute::new(a));
        let own = exactly(device.attributes.as_ref().map_or(0, |a| a.len()), own);
        let sets = device.consumes_counters.iter().flatten();
        let consumes = device.consumes_counters.iter().flatten().flat_map(|set| {
            set.counters.iter().map(|(name, counter)| {
                let (amount, format) = Amount::written(&counter.value);
                Consumption {
                    set: SmolStr::new(&set.counter_set),
                    counter: SmolStr::new(name),
                    amount,
                    format,
                }
            })
        });
        Self {
            name: SmolStr::new(&device.name),
            name_hash: name_hash(&device.name),
            cel,
            names: names
                .unwrap_or_else(|| attributes().map(|(name, _)| SmolStr::new(name)).collect()),
            attributes: own,
            capacity,
            counter_sets: sets.map(|set| SmolStr::new(&set.counter_set)).collect(),
            consumes: consumes.collect(),
            taints: device.taints.iter().flatten().map(Taint::new).collect(),
            shareable: features.consumable_capacity
                && device.allow_multiple_allocations == Some(true),
            scope: Scope::new(
                device.node_name.as_deref(),
                device.all_nodes,
                device.node_selector.as_ref(),
            ),
            has_node_name: device.node_name.is_some(),
            binds_to_node: device.binds_to_node == Some(true),
            binding_conditions: device
                .binding_conditions
                .as_ref()
                .map(|c| c.iter().cloned().collect()),
            binding_failure_conditions: device
                .binding_failure_conditions
                .as_ref()
                .map(|c| c.iter().cloned().collect()),
        }
    }

    /// The capacities, also as values for selectors, and whether their names equal those of the device before.
    fn convert_capacity(
        features: &Features,
        device: &api::Device,
        before: Option<(&Self, &api::Device)>,
    ) -> (Box<[Capacity]>, Box<[Exact]>, bool) {
        let given = device.capacity.as_ref();
        let len = given.map_or(0, |given| given.len());
        let (mut own, mut exact) = (Vec::with_capacity(len), Vec::with_capacity(len));
        let mut known = before.map(|(known, source)| {
            let both = known.capacity.iter().zip(known.cel.capacity());
            both.zip(source.capacity.iter().flatten())
        });
        let mut same_names = true;
        for (name, capacity) in given.into_iter().flatten() {
            let like = known.as_mut().and_then(Iterator::next);
            let like = like.filter(|(_, (known, _))| *known == name);
            same_names &= like.is_some();
            let like = like.map(|((own, exact), (_, source))| (own, exact, source));
            let fractional = features.fractional_capacity_range;
            let (capacity, quantity) = Capacity::new(name, capacity, like, fractional);
            own.push(capacity);
            exact.push(quantity);
        }
        same_names &= known.is_some_and(|mut rest| rest.next().is_none());
        (own.into(), exact.into(), same_names)
    }

    /// Hashes everything that the search uses, except for attributes.
    pub(crate) fn hash_rest(&self, hasher: &mut impl Hasher) {
        let binding = self.binding_conditions.as_ref().map(|c| c.is_empty());
        (&self.capacity, &self.counter_sets, &self.consumes).hash(hasher);
        (&self.taints, self.shareable, binding).hash(hasher);
    }

    pub(crate) fn consumes_counters(&self) -> bool {
        !self.counter_sets.is_empty()
    }

    /// Names of the attributes and capacities as written.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let capacities = self.capacity.iter().map(|c| &*c.name);
        self.names.iter().map(SmolStr::as_str).chain(capacities)
    }

    /// The attribute with a fully qualified name: as written, or without the domain when that is the driver's name.
    pub(crate) fn attribute(&self, driver: &str, name: &str) -> Option<&Attribute> {
        let find = |name: &str| {
            let place = self.names.iter().position(|known| known == name)?;
            Some(&self.attributes[place])
        };
        find(name).or_else(|| match name.split_once('/') {
            Some((domain, id)) if domain == driver => find(id),
            _ => None,
        })
    }
}
