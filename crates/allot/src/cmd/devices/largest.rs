//! Fragmentation: the largest request for a class that still fits, which is less than the free amount if that is
//! scattered.

use std::collections::{BTreeMap, HashSet};

use allot_allocator::{Allocator, Claims, Cluster, Limits, Node, Outcome, SelectorCache};
use allot_apimachinery::Quantity;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim};
use serde::Serialize;
use serde_json::{Value, json};

use super::inventory::{Device, State};
use crate::cmd::manifests::typed;

/// A claim has no more devices.
const MOST: usize = allot_allocator::MAX_RESULTS as usize;

/// The largest request for a class that still fits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Largest {
    /// As many devices fit in one request, on one node.
    pub largest_request: usize,
    /// On this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_on: Option<String>,
    /// The largest remaining capacity of one device that can be shared, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub largest_capacity: BTreeMap<String, String>,
}

impl Largest {
    /// `4 on node-1; bandwidth 7G of one device`
    pub fn words(&self) -> String {
        let mut text = match &self.largest_on {
            Some(node) => format!("{} on {node}", self.largest_request),
            None => "none".to_owned(),
        };
        for (name, left) in &self.largest_capacity {
            text += &format!("; {name} {left} of one device");
        }
        text
    }
}

/// Computes fragmentation with the allocator.
pub struct Fragmentation<'a> {
    cluster: Cluster,
    devices: &'a [Device],
    nodes: Vec<Node>,
    classes: Vec<DeviceClass>,
    selectors: SelectorCache,
}

impl<'a> Fragmentation<'a> {
    /// The nodes are those among the objects; without permission to list them, those that slices name.
    ///
    /// # Errors
    /// An object that does not match its kind; the message names it.
    pub fn new(cluster: Cluster, devices: &'a [Device], objects: &[Value]) -> anyhow::Result<Self> {
        let found = objects.iter().filter(|o| o["kind"] == "Node");
        let mut nodes: Vec<Node> = found
            .filter_map(|node| {
                let name = node.pointer("/metadata/name")?.as_str()?;
                let labels = node.pointer("/metadata/labels").and_then(Value::as_object);
                let labels = labels.into_iter().flatten();
                let labels = labels.map(|(key, value)| (key, value.as_str().unwrap_or_default()));
                Some(Node::new(name, labels))
            })
            .collect();
        if nodes.is_empty() {
            let names: HashSet<&str> = devices.iter().map(|d| &*d.node).collect();
            let named = names.into_iter().filter(|name| !matches!(*name, "" | "*"));
            nodes = named.map(|name| Node::new(name, [("", ""); 0])).collect();
        }
        nodes.sort_by(|a, b| a.name().cmp(b.name()));
        Ok(Self {
            cluster,
            devices,
            nodes,
            classes: typed(objects, "DeviceClass")?,
            selectors: SelectorCache::new(),
        })
    }

    /// The largest request for a class; tolerates no taint. `None` if claims that are not shown may have its devices.
    pub fn largest(&self, class: &str) -> Option<Largest> {
        let unknown = self.devices.iter().filter(|d| d.state == State::Unknown);
        if unknown.flat_map(|d| &d.classes).any(|known| known == class) {
            return None;
        }
        if !self
            .classes
            .iter()
            .any(|c| c.metadata.name.as_deref() == Some(class))
        {
            return None;
        }
        // How many could fit at most, which spares most nodes the search.
        let mut free: BTreeMap<&str, usize> = BTreeMap::new();
        for device in self.of_class(class) {
            *free.entry(&device.node).or_default() += 1;
        }
        let anywhere = free.get("*").copied().unwrap_or_default();
        let bound = |node: &Node| {
            (anywhere + free.get(node.name().as_str()).copied().unwrap_or_default()).min(MOST)
        };
        let mut nodes: Vec<&Node> = self.nodes.iter().filter(|n| bound(n) > 0).collect();
        nodes.sort_by_key(|node| std::cmp::Reverse(bound(node)));
        let mut best: (usize, Option<String>) = (0, None);
        let mut allocator = Allocator::new();
        for node in nodes {
            if bound(node) <= best.0 {
                break;
            }
            let most = self.most_on(&mut allocator, class, node, best.0, bound(node));
            if most > best.0 {
                best = (most, Some(node.name().to_string()));
            }
        }
        Some(Largest {
            largest_request: best.0,
            largest_on: best.1,
            largest_capacity: self.capacity(class),
        })
    }

    /// Devices of the class that a claim without tolerations may get, or a part of them.
    fn of_class(&self, class: &str) -> impl Iterator<Item = &'a Device> {
        let can = |d: &&Device| matches!(d.state, State::Free | State::Shared);
        let of = self.devices.iter().filter(can);
        let class = class.to_owned();
        of.filter(move |device| device.classes.contains(&class))
    }

    /// The most devices of a class that one request gets on a node: more than `above`, at most `bound`; else `above`.
    fn most_on(
        &self,
        allocator: &mut Allocator,
        class: &str,
        node: &Node,
        above: usize,
        bound: usize,
    ) -> usize {
        let (mut fits, mut fails) = (above, bound + 1);
        while fits + 1 < fails {
            let middle = fits + (fails - fits) / 2;
            match self.fits(allocator, class, node, middle) {
                true => fits = middle,
                false => fails = middle,
            }
        }
        fits
    }

    fn fits(&self, allocator: &mut Allocator, class: &str, node: &Node, count: usize) -> bool {
        let claim = json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r",
            "exactly": {"deviceClassName": class, "allocationMode": "ExactCount", "count": count}}]}}});
        let Ok(claim) = serde_json::from_value::<ResourceClaim>(claim) else {
            return false;
        };
        let features = self.cluster.features();
        let claims = Claims::prepare(features, &self.selectors, &self.classes, [&claim]);
        let outcome = allocator.allocate(&self.cluster, node, &claims, &Limits::default());
        matches!(outcome, Outcome::Allocated(_))
    }

    /// The largest remaining capacities of one device that can be shared.
    fn capacity(&self, class: &str) -> BTreeMap<String, String> {
        let mut most: BTreeMap<String, Quantity> = BTreeMap::new();
        for device in self.of_class(class).filter(|device| device.shareable) {
            for (name, whole) in &device.capacity {
                let Ok(whole) = whole.parse::<Quantity>() else {
                    continue;
                };
                let used = device.consumed.get(name).and_then(|used| used.parse().ok());
                let left = match used {
                    Some(used) => whole.checked_sub(&used).unwrap_or_default(),
                    None => whole,
                };
                let best = most.entry(name.clone()).or_default();
                if left > *best {
                    *best = left;
                }
            }
        }
        let most = most.into_iter().filter(|(_, left)| !left.is_zero());
        most.map(|(name, left)| (name, left.to_string())).collect()
    }
}
