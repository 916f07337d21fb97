//! Allocation problems as files: claims, nodes, slices and allocations, all in one JSON object.
//!
//! This is the format of `allot allocate`, of the conformance data and of the fuzzer's seeds: the objects are in `resource.k8s.io/v1` form.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Deserializer, Serialize};
use smol_str::SmolStr;

use crate::{Claims, Classes, Cluster, Features, Held, HeldKind, Holder, Node, SelectorCache};

/// An input of `allot allocate`: claims, and the cluster that they are allocated in.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Problem {
    /// The name of the problem, which its result repeats.
    pub name: String,
    /// Names of the feature gates that are on.
    #[serde(deserialize_with = "nullable")]
    pub features: Vec<String>,
    /// The node of a problem with a single node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<core::Node>,
    /// The nodes; they are tried one after the other, each against the same state.
    #[serde(deserialize_with = "nullable")]
    pub nodes: Vec<core::Node>,
    /// The claims to allocate together.
    #[serde(deserialize_with = "nullable")]
    pub claims: Vec<api::ResourceClaim>,
    /// Devices that other claims hold exclusively.
    #[serde(deserialize_with = "nullable")]
    pub allocated_devices: Vec<DeviceName>,
    /// Shares that other claims hold, as `driver/pool/device/share`.
    #[serde(deserialize_with = "nullable")]
    pub allocated_shared_devices: Vec<String>,
    /// The capacity of shared devices that other claims consume.
    #[serde(deserialize_with = "nullable")]
    pub consumed_capacity: Vec<ConsumedCapacity>,
    /// The DeviceClasses that the claims can name.
    #[serde(deserialize_with = "nullable")]
    pub device_classes: Vec<api::DeviceClass>,
    /// The slices, in the order in which they are listed.
    #[serde(deserialize_with = "nullable")]
    pub resource_slices: Vec<api::ResourceSlice>,
    /// How many devices of a class the claims may get together ([`Claims::limit_devices`]).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub device_limits: BTreeMap<String, i64>,
    /// Reproduce the known bugs of Kubernetes 1.36 ([`Features::upstream_errors`]).
    #[serde(skip)]
    pub upstream_errors: bool,
}

/// A device of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceName {
    /// Name of the driver, `spec.driver` of the slice.
    pub driver: String,
    /// Name of the pool, unique within the driver.
    pub pool: String,
    /// Name of the device, unique within the pool.
    pub device: String,
}

/// The consumed capacity of a shared device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConsumedCapacity {
    /// The device that the shares are of.
    #[serde(flatten)]
    pub device: DeviceName,
    /// The sum over all shares, by capacity.
    pub capacity: BTreeMap<String, Quantity>,
}

/// Answers to a problem.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Solution {
    /// The problem's name.
    pub name: String,
    /// One result per node.
    pub results: Vec<NodeResult>,
}

/// The answer for one node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeResult {
    /// Name of the node.
    pub node: String,
    /// One result per claim; `None` when they do not fit.
    pub allocations: Option<Vec<api::AllocationResult>>,
    /// Text of the error that ended the allocation for this node; with one there are no allocations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Go encodes empty lists as `null`.
fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Classes with the text that the recorded problems have for an unknown one.
struct Recorded<'a>(&'a [api::DeviceClass]);

impl Classes for Recorded<'_> {
    fn class(&self, name: &str) -> Option<&api::DeviceClass> {
        self.0.class(name)
    }

    fn not_found(&self, _: &str) -> String {
        " \"not found\" not found".to_owned()
    }
}

impl Problem {
    /// The features that are on. Unknown names are ignored.
    pub fn features(&self) -> Features {
        let mut features = Features {
            upstream_errors: self.upstream_errors,
            ..Features::NONE
        };
        for name in &self.features {
            features.enable(name);
        }
        features
    }

    /// The model of the cluster.
    pub fn cluster(&self) -> Cluster {
        let mut cluster = Cluster::new(self.features());
        for (index, slice) in self.resource_slices.iter().enumerate() {
            // Names need not be unique in a problem.
            cluster.apply_as(&format!("#{index}"), slice);
        }
        let others = self
            .allocated_devices
            .iter()
            .map(|name| name.held(HeldKind::Dedicated));
        let shares = self.allocated_shared_devices.iter().filter_map(|text| {
            // Pool names may contain slashes.
            let (rest, share) = text.rsplit_once('/')?;
            let (rest, device) = rest.rsplit_once('/')?;
            let (driver, pool) = rest.split_once('/')?;
            let name = DeviceName {
                driver: driver.into(),
                pool: pool.into(),
                device: device.into(),
            };
            Some(name.held(HeldKind::Shared {
                share_id: share.into(),
                capacity: Vec::new(),
            }))
        });
        let consumed = self.consumed_capacity.iter().map(|consumed| {
            let capacity = consumed
                .capacity
                .iter()
                .map(|(name, q)| (SmolStr::new(name), q.clone()))
                .collect();
            consumed.device.held(HeldKind::Shared {
                share_id: SmolStr::default(),
                capacity,
            })
        });
        for (index, held) in others.chain(shares).chain(consumed).enumerate() {
            let holder = Holder {
                uid: format!("#{index}").into(),
                name: "other".into(),
                ..Holder::default()
            };
            cluster.hold(&holder, vec![held]);
        }
        cluster
    }

    /// The claims, prepared.
    pub fn claims(&self, selectors: &SelectorCache) -> Claims {
        let mut claims = Claims::prepare(
            &self.features(),
            selectors,
            &Recorded(&self.device_classes),
            &self.claims,
        );
        claims.limit_devices(&|class| self.device_limits.get(class).copied());
        claims
    }

    /// The nodes to try.
    pub fn nodes(&self) -> Vec<Node> {
        self.node
            .iter()
            .chain(&self.nodes)
            .map(Node::from)
            .collect()
    }
}

impl DeviceName {
    fn held(&self, kind: HeldKind) -> Held {
        Held {
            driver: SmolStr::new(&self.driver),
            pool: SmolStr::new(&self.pool),
            device: SmolStr::new(&self.device),
            kind,
        }
    }
}
