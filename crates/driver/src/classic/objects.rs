//! Classic objects for drivers: views of the API server's JSON, so that no field is lost when it is written back.

use std::fmt;
use std::sync::Arc;

use allot_apimachinery::well_known::LABEL_HOSTNAME;
use allot_model::classic::objects::{ParametersReference, ResourceHandle};
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use kube::api::DynamicObject;
use serde::Deserialize;
use serde_json::{Value, json};

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

macro_rules! view {
    ($name:ident) => {
        impl $name {
            /// Name of the object.
            pub fn name(&self) -> &str {
                self.0.metadata.name.as_deref().unwrap_or_default()
            }

            /// UID of the object.
            pub fn uid(&self) -> &str {
                self.0.metadata.uid.as_deref().unwrap_or_default()
            }

            /// The whole object, in the version that the API server has.
            pub fn object(&self) -> &DynamicObject {
                &self.0
            }
        }

        impl From<Arc<DynamicObject>> for $name {
            fn from(object: Arc<DynamicObject>) -> Self {
                Self(object)
            }
        }
    };
}

/// A ResourceClass.
#[derive(Debug, Clone)]
pub struct Class(pub(super) Arc<DynamicObject>);

view!(Class);

impl Class {
    /// The driver that is responsible for claims of this class.
    pub fn driver_name(&self) -> &str {
        text(&self.0.data["driverName"])
    }

    /// The reference to the parameters of the class.
    pub fn parameters(&self) -> Option<ParametersReference> {
        ParametersReference::deserialize(&self.0.data["parametersRef"]).ok()
    }

    /// The scheduler allocates claims of this class (1.30), not the driver.
    pub fn is_structured(&self) -> bool {
        self.0.data["structuredParameters"] == true
    }
}

/// A ResourceClaim.
#[derive(Debug, Clone)]
pub struct Claim(pub(super) Arc<DynamicObject>);

view!(Claim);

impl Claim {
    /// The namespace of the claim, and of the pods that may use it.
    pub fn namespace(&self) -> &str {
        self.0.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// The name of the ResourceClass.
    pub fn class_name(&self) -> &str {
        text(&self.0.data["spec"]["resourceClassName"])
    }

    /// The reference to the parameters of the claim.
    pub fn parameters(&self) -> Option<ParametersReference> {
        ParametersReference::deserialize(&self.0.data["spec"]["parametersRef"]).ok()
    }

    /// It is allocated as soon as it exists, and not when a pod needs it.
    pub fn is_immediate(&self) -> bool {
        self.0.data["spec"]["allocationMode"] == "Immediate"
    }

    /// Whether the claim has an allocation, also one without a resource handle.
    pub fn is_allocated(&self) -> bool {
        self.0.data["status"]["allocation"].is_object()
    }

    /// `status.allocation`; `None` for a claim that is not allocated.
    pub fn allocation(&self) -> Option<Allocation> {
        self.is_allocated()
            .then(|| Allocation::from_wire(&self.0.data["status"]))
    }

    /// The driver that allocated it.
    pub fn driver_name(&self) -> &str {
        text(&self.0.data["status"]["driverName"])
    }

    /// UIDs of its consumers.
    pub fn reserved_for(&self) -> impl Iterator<Item = &str> {
        let list = self.0.data["status"]["reservedFor"].as_array();
        list.into_iter()
            .flatten()
            .map(|consumer| text(&consumer["uid"]))
    }

    /// The allocation must be released.
    pub fn deallocation_requested(&self) -> bool {
        self.0.data["status"]["deallocationRequested"] == true
    }

    /// It was deleted and waits for its finalizers.
    pub fn is_deleting(&self) -> bool {
        self.0.metadata.deletion_timestamp.is_some()
    }

    pub(super) fn has_finalizer(&self, finalizer: &str) -> bool {
        let finalizers = self.0.metadata.finalizers.iter().flatten();
        finalizers.into_iter().any(|found| found == finalizer)
    }

    /// The UID of the object that manages it, if there is one.
    pub(super) fn controller(&self) -> Option<&str> {
        controller_of(&self.0)
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace(), self.name())
    }
}

/// The UID of the managing owner of an object.
pub(super) fn controller_of(object: &DynamicObject) -> Option<&str> {
    let owners = object.metadata.owner_references.iter().flatten();
    owners
        .into_iter()
        .find(|owner| owner.controller == Some(true))
        .map(|owner| owner.uid.as_str())
}

/// The result of an allocation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Allocation {
    /// One for each plugin that prepares devices. Empty means: the driver's own plugin, without data.
    pub handles: Vec<ResourceHandle>,
    /// Nodes for pods that use the claim; all nodes if absent.
    pub available_on_nodes: Option<NodeSelector>,
    /// More than one pod may use it.
    pub shareable: bool,
}

impl Allocation {
    /// An allocation with data for the driver's own plugin only.
    pub fn opaque(driver_name: impl Into<String>, data: impl Into<String>) -> Self {
        let handle = ResourceHandle {
            driver_name: driver_name.into(),
            data: data.into(),
            ..ResourceHandle::default()
        };
        Self {
            handles: vec![handle],
            ..Self::default()
        }
    }

    /// Limits it to one node, by the label that every node has.
    #[must_use]
    pub fn on_node(mut self, node: &str) -> Self {
        let requirement = NodeSelectorRequirement {
            key: LABEL_HOSTNAME.into(),
            operator: "In".into(),
            values: Some(vec![node.to_owned()]),
        };
        let term = NodeSelectorTerm {
            match_expressions: Some(vec![requirement]),
            ..NodeSelectorTerm::default()
        };
        self.available_on_nodes = Some(NodeSelector {
            node_selector_terms: vec![term],
        });
        self
    }

    /// Allows several pods to use it.
    #[must_use]
    pub fn shareable(mut self, on: bool) -> Self {
        self.shareable = on;
        self
    }

    /// Out of the status of a claim, of any version.
    fn from_wire(status: &Value) -> Self {
        let allocation = &status["allocation"];
        let mut handles: Vec<ResourceHandle> =
            Vec::deserialize(&allocation["resourceHandles"]).unwrap_or_default();
        // v1alpha1 has one, for the driver of the claim.
        if let Some(data) = allocation["resourceHandle"].as_str() {
            handles.push(ResourceHandle {
                driver_name: text(&status["driverName"]).to_owned(),
                data: data.to_owned(),
                ..ResourceHandle::default()
            });
        }
        Self {
            handles,
            available_on_nodes: NodeSelector::deserialize(&allocation["availableOnNodes"]).ok(),
            shareable: allocation["shareable"] == true,
        }
    }

    /// The form in the status of a claim of `driver`. `single` is v1alpha1, with only one handle.
    pub(super) fn to_wire(&self, driver: &str, single: bool) -> Result<Value, String> {
        let mut wire = json!({});
        match self.handles.as_slice() {
            [] => {}
            [handle] if single && [driver, ""].contains(&handle.driver_name.as_str()) => {
                wire["resourceHandle"] = json!(handle.data);
            }
            _ if single => {
                return Err(
                    "resource.k8s.io/v1alpha1 has one resource handle, for the driver itself"
                        .into(),
                );
            }
            handles => wire["resourceHandles"] = json!(handles),
        }
        if let Some(nodes) = &self.available_on_nodes {
            wire["availableOnNodes"] = json!(nodes);
        }
        if self.shareable {
            wire["shareable"] = json!(true);
        }
        Ok(wire)
    }
}

/// A PodScheduling or PodSchedulingContext.
#[derive(Debug, Clone)]
pub(super) struct Negotiation(pub(super) Arc<DynamicObject>);

impl Negotiation {
    pub(super) fn name(&self) -> &str {
        self.0.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> &str {
        self.0.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// `spec.selectedNode`, the node that the scheduler chose; empty before.
    pub(super) fn selected_node(&self) -> &str {
        text(&self.0.data["spec"]["selectedNode"])
    }

    pub(super) fn potential_nodes(&self) -> Vec<String> {
        Vec::deserialize(&self.0.data["spec"]["potentialNodes"]).unwrap_or_default()
    }
}
