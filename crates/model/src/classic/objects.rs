//! The classic kinds as structs, for the parts that work with them: scheduler, claim controller, drivers.
//!
//! One form for v1alpha1 and v1alpha2: fields that a version lacks are empty. They are for reading and for creating
//! objects; changes are written as patches, so that unknown fields survive.

use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;

mod structured;

pub use structured::{
    Attribute, ClaimParameters, ClassParameters, DriverRequests, Filter, Instance, Ints,
    NamedResources, ResourceRequest, ResourceSlice, Selector, Strings, VendorParameters,
};

fn is_false(value: &bool) -> bool {
    !value
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A reference to the object that holds parameters of a class or of a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ParametersReference {
    /// Group of the kind; empty for the core group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// Kind of the object with the parameters, for example `ConfigMap`.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Its namespace; only for classes, and only if the kind has one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// A driver with default parameters, that claims refer to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClass {
    /// Object metadata.
    pub metadata: ObjectMeta,
    /// The driver whose controller allocates claims of the class.
    pub driver_name: String,
    /// Parameters for the driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters_ref: Option<ParametersReference>,
    /// Nodes where claims of the class can be allocated; all if not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suitable_nodes: Option<NodeSelector>,
    /// The scheduler allocates instead of the driver (1.30).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_parameters: Option<bool>,
}

/// When a claim is allocated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AllocationMode {
    /// When a pod that uses it is scheduled.
    #[default]
    WaitForFirstConsumer,
    /// As soon as it exists.
    Immediate,
}

/// `spec` of a classic ResourceClaim.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSpec {
    /// Name of the ResourceClass, which names the driver.
    pub resource_class_name: String,
    /// Parameters for the driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters_ref: Option<ParametersReference>,
    /// When to allocate.
    pub allocation_mode: AllocationMode,
}

/// A request for one resource of a class, and its allocation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaim {
    /// Object metadata.
    pub metadata: ObjectMeta,
    /// The request; immutable.
    pub spec: ClaimSpec,
    /// The allocation, written by the driver's controller, and the consumers, written by the scheduler.
    pub status: ClaimStatus,
}

/// The allocation of a claim, and its consumers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimStatus {
    /// The driver that allocated it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver_name: String,
    /// The allocation, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation: Option<Allocation>,
    /// The consumers of the claim.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reserved_for: Vec<Consumer>,
    /// The driver must deallocate the claim.
    #[serde(skip_serializing_if = "is_false")]
    pub deallocation_requested: bool,
}

/// An entry of `status.reservedFor`: a pod that may use the claim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Consumer {
    /// Group of the resource; empty for the core group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// Plural name of the kind, for example `pods`.
    pub resource: String,
    /// Name of the object.
    pub name: String,
    /// UID of the consumer.
    pub uid: String,
}

/// `status.allocation` of a classic ResourceClaim.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Allocation {
    /// Data for the driver's kubelet plugin (v1alpha1).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_handle: String,
    /// Data for the kubelet plugins; empty means one of the claim's driver without data.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_handles: Vec<ResourceHandle>,
    /// Nodes where the claim can be used; all if not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_on_nodes: Option<NodeSelector>,
    /// More than one consumer at a time is possible.
    #[serde(skip_serializing_if = "is_false")]
    pub shareable: bool,
}

/// Data for one kubelet plugin.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceHandle {
    /// The plugin; the claim's driver if empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver_name: String,
    /// The driver's own data.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub data: String,
    /// The allocation of the scheduler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_data: Option<StructuredHandle>,
}

/// The allocation of the scheduler for one driver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StructuredHandle {
    /// Parameters of the class for the driver, as they are.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub vendor_class_parameters: Value,
    /// Parameters of the claim for the driver, as they are.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub vendor_claim_parameters: Value,
    /// The node to which the resources are local.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    /// One per request, in their order.
    pub results: Vec<AllocationResult>,
}

/// The allocation of one request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocationResult {
    /// Parameters of the request, as they are.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub vendor_request_parameters: Value,
    /// The allocated instance, in the `namedResources` model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub named_resources: Option<InstanceName>,
}

/// An allocated instance of the `namedResources` model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceName {
    /// The name of the instance in the slices of its node and driver.
    #[serde(default)]
    pub name: String,
}

/// The negotiation about a pod's node: PodScheduling of 1.26, later PodSchedulingContext.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodScheduling {
    /// Name and namespace are those of the pod.
    pub metadata: ObjectMeta,
    /// The scheduler's choice.
    pub spec: SchedulingSpec,
    /// The responses of the drivers.
    pub status: SchedulingStatus,
}

/// The scheduler's choice.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingSpec {
    /// The node to allocate for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub selected_node: String,
    /// Nodes that may be selected.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub potential_nodes: Vec<String>,
}

/// The responses of the drivers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingStatus {
    /// One entry per claim whose driver has responded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_claims: Vec<ClaimSchedulingStatus>,
}

/// The answer for one claim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSchedulingStatus {
    /// The claim's name in the pod.
    pub name: String,
    /// Nodes for which it cannot be allocated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unsuitable_nodes: Vec<String>,
}

impl ResourceClaim {
    /// Reads the original of a classic claim out of its v1 form (see [`super::exchange`]); `None` for a claim that is
    /// a newer one.
    pub fn from_v1(metadata: &ObjectMeta) -> Option<Self> {
        let text = metadata
            .annotations
            .as_ref()?
            .get(super::exchange::CLASSIC)?;
        let mut claim: Self = serde_json::from_str(text).ok()?;
        claim.metadata = metadata.clone();
        if let Some(annotations) = &mut claim.metadata.annotations {
            annotations.remove(super::exchange::CLASSIC);
        }
        Some(claim)
    }

    /// Whether the consumer with this UID may use the claim.
    pub fn is_reserved_for(&self, uid: &str) -> bool {
        self.status.reserved_for.iter().any(|c| c.uid == uid)
    }

    /// Whether the scheduler allocated it, not a driver.
    pub fn is_structured(&self) -> bool {
        let finalizers = self.metadata.finalizers.as_deref().unwrap_or_default();
        let marked = finalizers.iter().any(|f| f == super::DELETE_PROTECTION);
        let handles = self
            .status
            .allocation
            .iter()
            .flat_map(|a| &a.resource_handles);
        marked || handles.into_iter().any(|h| h.structured_data.is_some())
    }
}
