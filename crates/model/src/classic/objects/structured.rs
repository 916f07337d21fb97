//! Structured parameters of 1.30 (KEP 4381): the resources of a node, and the requests of claims and classes.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ParametersReference, is_default, is_false};

/// Resources of a driver on a node, as the kubelet of 1.30 publishes them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceSlice {
    /// Object metadata.
    pub metadata: ObjectMeta,
    /// The node; such without one are of no use.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    /// Name of the driver, unique in the cluster.
    pub driver_name: String,
    /// The resources of the node, in the `namedResources` model, which is the only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub named_resources: Option<NamedResources>,
}

/// Resources with names and attributes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamedResources {
    /// The instances that can be allocated, each to one claim.
    pub instances: Vec<Instance>,
}

/// An instance that is allocated as a whole, comparable to a device of newer versions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Instance {
    /// The name within node and driver.
    pub name: String,
    /// The attributes of the instance that selectors can read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<Attribute>,
}

/// One attribute; exactly one of the values is set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Attribute {
    /// The name by which selectors read it, as in `attributes.int["name"]`.
    pub name: String,
    /// A quantity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantity: Option<Quantity>,
    /// Yes or no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bool: Option<bool>,
    /// A 64-bit integer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub int: Option<i64>,
    /// A list of 64-bit integers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub int_slice: Option<Ints>,
    /// A string.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub string: Option<String>,
    /// A list of strings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub string_slice: Option<Strings>,
    /// A semantic version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// The wrapper of a list of integers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ints {
    /// The elements of the list.
    #[serde(default)]
    pub ints: Vec<i64>,
}

/// The wrapper of a list of strings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strings {
    /// The elements of the list.
    #[serde(default)]
    pub strings: Vec<String>,
}

/// Parameters of claims that the scheduler understands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimParameters {
    /// Object metadata.
    pub metadata: ObjectMeta,
    /// The vendor's object that these were generated from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generated_from: Option<ParametersReference>,
    /// Several consumers may share the claim.
    #[serde(skip_serializing_if = "is_false")]
    pub shareable: bool,
    /// The requests, grouped by the driver that has to satisfy them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub driver_requests: Vec<DriverRequests>,
}

/// The requests of a claim to a driver, which must be satisfied on one node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DriverRequests {
    /// Name of the driver, unique in the cluster.
    pub driver_name: String,
    /// Parameters for the driver, as they are.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub vendor_parameters: Value,
    /// One resource each.
    pub requests: Vec<ResourceRequest>,
}

/// A request for an instance that a selector selects.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceRequest {
    /// Parameters for the driver, as they are.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub vendor_parameters: Value,
    /// The selector of suitable instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub named_resources: Option<Selector>,
}

/// Selects named resources.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selector {
    /// A CEL expression over the attributes.
    #[serde(default)]
    pub selector: String,
}

/// Parameters of classes that the scheduler understands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClassParameters {
    /// Object metadata.
    pub metadata: ObjectMeta,
    /// The vendor's object that these were generated from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generated_from: Option<ParametersReference>,
    /// Parameters for drivers, as they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vendor_parameters: Vec<VendorParameters>,
    /// Conditions that resources must meet in addition to those of the requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<Filter>,
}

/// Parameters for one driver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VendorParameters {
    /// The driver; all if empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver_name: String,
    /// The parameters, as they are.
    #[serde(skip_serializing_if = "is_default")]
    pub parameters: Value,
}

/// A condition for the resources of one driver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Filter {
    /// The driver; all if empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver_name: String,
    /// The condition that instances must satisfy as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub named_resources: Option<Selector>,
}
