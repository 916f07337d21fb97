//! Objects about volumes, as far as the scheduler reads them.

use std::str::FromStr;

use allot_apimachinery::quantity::Quantity;
use allot_apimachinery::well_known::BETA_STORAGE_CLASS_ANNOTATION;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, TopologySelectorTerm};
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use rustc_hash::FxHashMap;

use super::{BOUND_BY_CONTROLLER, SELECTED_NODE};
use crate::pod::{Key, Uid};
use crate::selectors::{LabelMap, Labels, Nodes};

/// Annotation of a claim: its binding is complete.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Provisioner of a class whose volumes are created by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// A PersistentVolumeClaim, as far as scheduling needs it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VolumeClaim {
    /// UID of the claim.
    pub uid: Uid,
    /// The `resourceVersion`, for writes that expect it.
    pub version: String,
    /// Whether `deletionTimestamp` is set.
    pub deleting: bool,
    /// Whether its volume no longer exists.
    pub lost: bool,
    /// The name of its volume, bound or requested.
    pub volume: Option<String>,
    /// Whether the binding to that volume is complete.
    pub completed: bool,
    /// Name of the class, which may be empty.
    pub class: String,
    /// The node for which a volume is to be provisioned.
    pub selected_node: Option<String>,
    /// The requested size.
    pub size: Option<Quantity>,
    /// Labels that the volume has to have.
    pub selector: Option<Labels>,
    /// Whether it requests a block device (`volumeMode: Block`).
    pub block: bool,
    /// `spec.accessModes`.
    pub access_modes: Vec<String>,
    /// Identity of its controller.
    pub owner: Option<String>,
}

/// The claim that a volume is reserved for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRef {
    /// Namespace and name of the PersistentVolumeClaim.
    pub key: Key,
    /// Its identity; empty when a user wrote the reference.
    pub uid: Uid,
}

/// A PersistentVolume, as far as scheduling needs it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Volume {
    /// The `resourceVersion`, for writes that expect it.
    pub version: String,
    /// The claim that it is reserved for.
    pub claim: Option<ClaimRef>,
    /// Whether a controller set the reference, not a user (`pv.kubernetes.io/bound-by-controller`).
    pub by_controller: bool,
    /// The storage capacity.
    pub size: Option<Quantity>,
    /// Name of the class, which may be empty.
    pub class: String,
    /// Whether it is a block device (`volumeMode: Block`).
    pub block: bool,
    /// `spec.accessModes`.
    pub access_modes: Vec<String>,
    /// Whether `deletionTimestamp` is set.
    pub deleting: bool,
    /// Whether the phase is `Available`, so that a claim can be bound to the volume.
    pub available: bool,
    /// The nodes from which it can be reached; all when absent.
    pub nodes: Option<Nodes>,
    /// The labels that selectors of claims compare.
    pub labels: LabelMap,
    /// Driver and handle of a CSI volume.
    pub csi: Option<(String, String)>,
}

/// A storage class.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Class {
    /// `WaitForFirstConsumer`: volumes are bound when a pod is scheduled.
    pub waits: bool,
    /// The provisioner of volumes, if there is one.
    pub provisioner: Option<String>,
    topologies: Vec<Vec<(String, Vec<String>)>>,
}

/// A volume that takes a place on a node, whether or not a pod there still names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The name of the node.
    pub node: String,
    /// Name of the volume.
    pub volume: String,
}

/// A CSIStorageCapacity: the space for volumes of a class on some nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Capacity {
    /// Name of the class.
    pub class: String,
    limit: Option<Quantity>,
    nodes: Option<Labels>,
}

fn size(quantity: Option<&ApiQuantity>) -> Option<Quantity> {
    Quantity::from_str(&quantity?.0).ok()
}

fn annotation<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    let all = metadata.annotations.as_ref()?;
    all.get(name).map(String::as_str)
}

fn class(metadata: &ObjectMeta, field: Option<&String>) -> String {
    annotation(metadata, BETA_STORAGE_CLASS_ANNOTATION)
        .map_or_else(|| field.cloned().unwrap_or_default(), str::to_owned)
}

impl VolumeClaim {
    /// Reads a claim.
    pub fn new(claim: &PersistentVolumeClaim) -> Self {
        let metadata = &claim.metadata;
        let spec = claim.spec.as_ref();
        let phase = claim.status.as_ref().and_then(|s| s.phase.as_deref());
        let mut owners = metadata.owner_references.iter().flatten();
        let requests = spec.and_then(|s| s.resources.as_ref()?.requests.as_ref());
        Self {
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            version: metadata.resource_version.clone().unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            lost: phase == Some("Lost"),
            volume: spec
                .and_then(|s| s.volume_name.clone())
                .filter(|v| !v.is_empty()),
            completed: annotation(metadata, BIND_COMPLETED).is_some(),
            class: class(metadata, spec.and_then(|s| s.storage_class_name.as_ref())),
            selected_node: annotation(metadata, SELECTED_NODE).map(str::to_owned),
            size: size(requests.and_then(|r| r.get("storage"))),
            selector: spec
                .and_then(|s| s.selector.as_ref())
                .map(|s| Labels::new(Some(s))),
            block: spec.and_then(|s| s.volume_mode.as_deref()) == Some("Block"),
            access_modes: spec
                .and_then(|s| s.access_modes.clone())
                .unwrap_or_default(),
            owner: owners
                .find(|o| o.controller == Some(true))
                .map(|o| o.uid.clone()),
        }
    }

    /// Whether the claim has a volume and the volume controller completed the binding
    /// (`pv.kubernetes.io/bind-completed`).
    pub fn is_bound(&self) -> bool {
        self.volume.is_some() && self.completed
    }

    /// Whether only one pod may use the claim (ReadWriteOncePod).
    pub fn is_exclusive(&self) -> bool {
        self.access_modes.iter().any(|m| m == "ReadWriteOncePod")
    }

    /// Whether two versions are the same to the scheduler.
    pub fn is_same(&self, other: &Self) -> bool {
        let version = other.version.clone();
        Self {
            version,
            ..self.clone()
        } == *other
    }
}

impl ClaimRef {
    /// Whether the reference is to this claim; one without UID is to any claim of the name.
    pub fn is(&self, key: &Key, uid: &Uid) -> bool {
        self.key == *key && (self.uid.is_empty() || self.uid == *uid)
    }
}

impl Volume {
    /// Reads a volume.
    pub fn new(volume: &PersistentVolume) -> Self {
        let metadata = &volume.metadata;
        let spec = volume.spec.as_ref();
        let phase = volume.status.as_ref().and_then(|s| s.phase.as_deref());
        let reference = spec.and_then(|s| s.claim_ref.as_ref());
        let capacity = spec.and_then(|s| s.capacity.as_ref());
        let affinity = spec.and_then(|s| s.node_affinity.as_ref());
        let csi = spec.and_then(|s| s.csi.as_ref());
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        Self {
            version: metadata.resource_version.clone().unwrap_or_default(),
            claim: reference.map(|r| ClaimRef {
                key: Key::new(&text(&r.namespace), &text(&r.name)),
                uid: text(&r.uid).into(),
            }),
            by_controller: annotation(metadata, BOUND_BY_CONTROLLER).is_some(),
            size: size(capacity.and_then(|c| c.get("storage"))),
            class: class(metadata, spec.and_then(|s| s.storage_class_name.as_ref())),
            block: spec.and_then(|s| s.volume_mode.as_deref()) == Some("Block"),
            access_modes: spec
                .and_then(|s| s.access_modes.clone())
                .unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            available: phase == Some("Available"),
            nodes: affinity.and_then(|a| a.required.as_ref()).map(Nodes::new),
            labels: metadata.labels.clone().unwrap_or_default(),
            csi: csi.map(|c| (c.driver.clone(), c.volume_handle.clone())),
        }
    }

    /// Whether it can be reached from a node.
    pub fn reaches(&self, node: &str, labels: &LabelMap) -> bool {
        self.nodes.as_ref().is_none_or(|n| n.matches(node, labels))
    }

    /// Whether two versions are the same to the scheduler.
    pub fn is_same(&self, other: &Self) -> bool {
        let version = other.version.clone();
        Self {
            version,
            ..self.clone()
        } == *other
    }
}

impl Class {
    /// Reads a class.
    pub fn new(class: &StorageClass) -> Self {
        let read = |term: &TopologySelectorTerm| {
            let expressions = term.match_label_expressions.iter().flatten();
            expressions
                .map(|e| (e.key.clone(), e.values.clone()))
                .collect()
        };
        Self {
            waits: class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
            provisioner: Some(class.provisioner.clone())
                .filter(|p| !p.is_empty() && p != NO_PROVISIONER),
            topologies: class
                .allowed_topologies
                .iter()
                .flatten()
                .map(read)
                .collect(),
        }
    }

    /// Whether a volume can be provisioned for a node with these labels.
    pub fn allows(&self, labels: &LabelMap) -> bool {
        let has = |(key, values): &(String, Vec<String>)| {
            labels.get(key).is_some_and(|value| values.contains(value))
        };
        self.topologies.is_empty()
            || self
                .topologies
                .iter()
                .any(|term| !term.is_empty() && term.iter().all(has))
    }
}

impl Attachment {
    /// Reads an attachment; `None` for one of a volume that is described inside of a pod.
    pub fn new(attachment: &VolumeAttachment) -> Option<Self> {
        let spec = &attachment.spec;
        let volume = spec.source.persistent_volume_name.clone()?;
        let node = spec.node_name.clone();
        (!spec.attacher.is_empty()).then_some(Self { node, volume })
    }
}

impl Capacity {
    /// Reads a CSIStorageCapacity.
    pub fn new(capacity: &CSIStorageCapacity) -> Self {
        // The maximum volume size is more precise than the total free capacity.
        let limit = capacity.maximum_volume_size.as_ref();
        Self {
            class: capacity.storage_class_name.clone(),
            limit: size(limit.or(capacity.capacity.as_ref())),
            nodes: capacity
                .node_topology
                .as_ref()
                .map(|s| Labels::new(Some(s))),
        }
    }

    /// Whether a volume of this size fits, reachable from a node with these labels.
    pub fn holds(&self, size: &Quantity, labels: &LabelMap) -> bool {
        self.limit.as_ref().is_some_and(|limit| limit >= size)
            && self.nodes.as_ref().is_some_and(|n| n.matches(Some(labels)))
    }
}

/// The volume limit of each driver on a node, if there is one.
pub fn limits(node: &CSINode) -> FxHashMap<String, i64> {
    let limit = |d: &k8s_openapi::api::storage::v1::CSINodeDriver| {
        let count = d.allocatable.as_ref()?.count?;
        Some((d.name.clone(), i64::from(count)))
    };
    node.spec.drivers.iter().filter_map(limit).collect()
}

/// Whether a driver publishes CSIStorageCapacity.
pub fn reports_capacity(driver: &CSIDriver) -> bool {
    driver.spec.storage_capacity == Some(true)
}
