//! The structure of the hub kinds: one line per field.

use super::Presence::{Keep, KeepPointer, Omit, Pointer};
use super::Ty::{self, Bool, Int, List, Map, Meta, Quantity, Raw, Text, Time};
use super::{Field, GoName, Presence, Struct};
use crate::kind::Kind;

mod common;

use common::CONDITION;
pub(crate) use common::{
    NODE_SELECTOR, NODE_SELECTOR_TERM, NODE_SELECTOR_TERMS, OBJECT_META, OWNER, OWNERS,
    POD_RESOURCE_CLAIM,
};

/// A field whose Go name is its JSON name with a capital letter (or just that, in a tagged struct).
pub(crate) const fn f(json: &'static str, ty: Ty, presence: Presence) -> Field {
    Field {
        json,
        go: GoName::Derived,
        ty,
        presence,
    }
}

/// A field whose Go name does not follow from its JSON name.
pub(crate) const fn named(
    json: &'static str,
    go: &'static str,
    ty: Ty,
    presence: Presence,
) -> Field {
    Field {
        go: GoName::Given(go),
        ..f(json, ty, presence)
    }
}

/// An embedded struct.
pub(crate) const fn embedded(json: &'static str, ty: Ty, presence: Presence) -> Field {
    Field {
        go: GoName::Embedded,
        ..f(json, ty, presence)
    }
}

pub(crate) const fn plain(fields: &'static [Field]) -> Struct {
    Struct {
        fields,
        tagged: false,
    }
}

pub(crate) const fn tagged(fields: &'static [Field]) -> Struct {
    Struct {
        fields,
        tagged: true,
    }
}

pub(crate) const TEXTS: Ty = List(&Text);

/// The structure of a kind's hub form.
pub(crate) const fn of(kind: Kind) -> Ty {
    match kind {
        Kind::DeviceClass => Ty::Struct(&DEVICE_CLASS),
        Kind::ResourceClaim => Ty::Struct(&CLAIM),
        Kind::ResourceClaimTemplate => Ty::Struct(&TEMPLATE),
        Kind::ResourceSlice => Ty::Struct(&SLICE),
        Kind::DeviceTaintRule => Ty::Struct(&TAINT_RULE),
        Kind::ResourcePoolStatusRequest => Ty::Struct(&POOL_STATUS_REQUEST),
    }
}

static DEVICE_CLASS: Struct = plain(&[
    embedded("metadata", Meta, Keep),
    f("spec", Ty::Struct(&DEVICE_CLASS_SPEC), Keep),
]);

pub(crate) static DEVICE_CLASS_SPEC: Struct = plain(&[
    f("selectors", SELECTORS, Omit),
    f("config", CLASS_CONFIG, Omit),
    f("extendedResourceName", Text, Pointer),
]);

pub(crate) const SELECTORS: Ty = List(&Ty::Struct(&SELECTOR));
static SELECTOR: Struct = plain(&[named("cel", "CEL", Ty::Struct(&CEL), Pointer)]);
static CEL: Struct = plain(&[f("expression", Text, Keep)]);

pub(crate) const CLASS_CONFIG: Ty = List(&Ty::Struct(&CLASS_CONFIGURATION));
static CLASS_CONFIGURATION: Struct = plain(&[f("opaque", Ty::Struct(&OPAQUE), Pointer)]);
static OPAQUE: Struct = plain(&[f("driver", Text, Keep), f("parameters", Raw, Keep)]);

static CLAIM: Struct = plain(&[
    embedded("metadata", Meta, Keep),
    f("spec", Ty::Struct(&CLAIM_SPEC), Keep),
    f("status", Ty::Struct(&CLAIM_STATUS), Keep),
]);

pub(crate) static CLAIM_SPEC: Struct = plain(&[f("devices", Ty::Struct(&DEVICE_CLAIM), Keep)]);

static DEVICE_CLAIM: Struct = plain(&[
    f("requests", List(&Ty::Struct(&REQUEST)), Keep),
    f("constraints", List(&Ty::Struct(&CONSTRAINT)), Omit),
    f("config", List(&Ty::Struct(&CLAIM_CONFIG)), Omit),
]);

static REQUEST: Struct = plain(&[
    f("name", Text, Keep),
    f("exactly", Ty::Struct(&EXACT_REQUEST), Pointer),
    f("firstAvailable", List(&Ty::Struct(&SUB_REQUEST)), Omit),
]);

static EXACT_REQUEST: Struct = plain(&[
    f("deviceClassName", Text, Keep),
    f("selectors", SELECTORS, Omit),
    f("allocationMode", Text, Omit),
    f("count", Int, Omit),
    f("adminAccess", Bool, Pointer),
    f("tolerations", TOLERATIONS, Omit),
    f("capacity", Ty::Struct(&CAPACITY_REQUIREMENTS), Pointer),
]);

static SUB_REQUEST: Struct = plain(&[
    f("name", Text, Keep),
    f("deviceClassName", Text, Keep),
    f("selectors", SELECTORS, Omit),
    f("allocationMode", Text, Omit),
    f("count", Int, Omit),
    f("tolerations", TOLERATIONS, Omit),
    f("capacity", Ty::Struct(&CAPACITY_REQUIREMENTS), Pointer),
]);

static CAPACITY_REQUIREMENTS: Struct = plain(&[f("requests", Map(&Quantity), Omit)]);

const TOLERATIONS: Ty = List(&Ty::Struct(&TOLERATION));
static TOLERATION: Struct = plain(&[
    f("key", Text, Omit),
    f("operator", Text, Omit),
    f("value", Text, Omit),
    f("effect", Text, Omit),
    f("tolerationSeconds", Int, Pointer),
]);

static CONSTRAINT: Struct = plain(&[
    f("requests", TEXTS, Omit),
    f("matchAttribute", Text, Pointer),
    f("distinctAttribute", Text, Pointer),
]);

static CLAIM_CONFIG: Struct = plain(&[
    f("requests", TEXTS, Omit),
    f("opaque", Ty::Struct(&OPAQUE), Pointer),
]);

static CLAIM_STATUS: Struct = plain(&[
    f("allocation", ALLOCATION, Pointer),
    f("reservedFor", RESERVED_FOR, Omit),
    f("devices", STATUS_DEVICES, Omit),
]);

pub(crate) const ALLOCATION: Ty = Ty::Struct(&ALLOCATION_RESULT);
static ALLOCATION_RESULT: Struct = plain(&[
    f("devices", Ty::Struct(&DEVICE_ALLOCATION), Keep),
    f("nodeSelector", Ty::Struct(&NODE_SELECTOR), Pointer),
    f("allocationTimestamp", Time, Pointer),
]);

static DEVICE_ALLOCATION: Struct = plain(&[
    f("results", List(&Ty::Struct(&RESULT)), Omit),
    f("config", List(&Ty::Struct(&ALLOCATION_CONFIG)), Omit),
]);

static RESULT: Struct = plain(&[
    f("request", Text, Keep),
    f("driver", Text, Keep),
    f("pool", Text, Keep),
    f("device", Text, Keep),
    f("adminAccess", Bool, Pointer),
    f("tolerations", TOLERATIONS, Omit),
    f("bindingConditions", TEXTS, Omit),
    f("bindingFailureConditions", TEXTS, Omit),
    f("shareID", Text, Pointer),
    f("consumedCapacity", Map(&Quantity), Omit),
]);

static ALLOCATION_CONFIG: Struct = plain(&[
    f("source", Text, Keep),
    f("requests", TEXTS, Omit),
    f("opaque", Ty::Struct(&OPAQUE), Pointer),
]);

pub(crate) const RESERVED_FOR: Ty = List(&Ty::Struct(&CONSUMER));
pub(crate) static CONSUMER: Struct = plain(&[
    named("apiGroup", "APIGroup", Text, Omit),
    f("resource", Text, Keep),
    f("name", Text, Keep),
    named("uid", "UID", Text, Keep),
]);

pub(crate) const STATUS_DEVICES: Ty = List(&STATUS_DEVICE);
pub(crate) const STATUS_DEVICE: Ty = Ty::Struct(&ALLOCATED_DEVICE_STATUS);
static ALLOCATED_DEVICE_STATUS: Struct = plain(&[
    f("driver", Text, Keep),
    f("pool", Text, Keep),
    f("device", Text, Keep),
    f("shareID", Text, Pointer),
    f("conditions", List(&Ty::Struct(&CONDITION)), Keep),
    f("data", Raw, Pointer),
    f("networkData", Ty::Struct(&NETWORK_DATA), Pointer),
]);

static NETWORK_DATA: Struct = plain(&[
    f("interfaceName", Text, Omit),
    named("ips", "IPs", TEXTS, Omit),
    f("hardwareAddress", Text, Omit),
]);

static TEMPLATE: Struct = plain(&[
    embedded("metadata", Meta, Keep),
    f("spec", Ty::Struct(&TEMPLATE_SPEC), Keep),
]);
pub(crate) static TEMPLATE_SPEC: Struct = plain(&[
    embedded("metadata", Meta, Keep),
    f("spec", Ty::Struct(&CLAIM_SPEC), Keep),
]);

static SLICE: Struct = plain(&[
    embedded("metadata", Meta, Keep),
    f("spec", Ty::Struct(&SLICE_SPEC), Keep),
]);

pub(crate) static SLICE_SPEC: Struct = plain(&[
    f("driver", Text, Keep),
    f("pool", Ty::Struct(&POOL), Keep),
    f("nodeName", Text, Pointer),
    f("nodeSelector", Ty::Struct(&NODE_SELECTOR), Pointer),
    f("allNodes", Bool, Pointer),
    f("devices", List(&Ty::Struct(&DEVICE)), Omit),
    f("perDeviceNodeSelection", Bool, Pointer),
    f("sharedCounters", List(&Ty::Struct(&COUNTER_SET)), Omit),
]);

static POOL: Struct = plain(&[
    f("name", Text, Keep),
    f("generation", Int, Keep),
    f("resourceSliceCount", Int, Keep),
]);

static COUNTER_SET: Struct = plain(&[
    f("name", Text, Keep),
    f("counters", Map(&Ty::Struct(&COUNTER)), Omit),
]);
static COUNTER: Struct = plain(&[f("value", Quantity, Keep)]);

static DEVICE: Struct = plain(&[
    f("name", Text, Keep),
    f("attributes", Map(&ATTRIBUTE), Omit),
    f("capacity", CAPACITY, Omit),
    f(
        "consumesCounters",
        List(&Ty::Struct(&COUNTER_CONSUMPTION)),
        Omit,
    ),
    f("nodeName", Text, Pointer),
    f("nodeSelector", Ty::Struct(&NODE_SELECTOR), Pointer),
    f("allNodes", Bool, Pointer),
    f("taints", TAINTS, Omit),
    f("bindsToNode", Bool, Pointer),
    f("bindingConditions", TEXTS, Omit),
    f("bindingFailureConditions", TEXTS, Omit),
    f("allowMultipleAllocations", Bool, Pointer),
    f(
        "nodeAllocatableResourceMappings",
        Map(&Ty::Struct(&NODE_ALLOCATABLE_MAPPING)),
        Omit,
    ),
]);

pub(crate) const ATTRIBUTE: Ty = Ty::Struct(&DEVICE_ATTRIBUTE);
static DEVICE_ATTRIBUTE: Struct = plain(&[
    named("int", "IntValue", Int, Pointer),
    named("bool", "BoolValue", Bool, Pointer),
    named("string", "StringValue", Text, Pointer),
    named("version", "VersionValue", Text, Pointer),
    named("ints", "IntValues", List(&Int), Omit),
    named("bools", "BoolValues", List(&Bool), Omit),
    named("strings", "StringValues", TEXTS, Omit),
    named("versions", "VersionValues", TEXTS, Omit),
]);

pub(crate) const CAPACITY: Ty = Map(&Ty::Struct(&DEVICE_CAPACITY));
static DEVICE_CAPACITY: Struct = plain(&[
    f("value", Quantity, Keep),
    f("requestPolicy", Ty::Struct(&REQUEST_POLICY), Pointer),
]);
static REQUEST_POLICY: Struct = plain(&[
    f("default", Quantity, KeepPointer),
    f("validValues", List(&Quantity), Omit),
    f("validRange", Ty::Struct(&VALID_RANGE), Pointer),
]);
static VALID_RANGE: Struct = plain(&[
    f("min", Quantity, Pointer),
    f("max", Quantity, Pointer),
    f("step", Quantity, Pointer),
]);

static COUNTER_CONSUMPTION: Struct = plain(&[
    f("counterSet", Text, Keep),
    f("counters", Map(&Ty::Struct(&COUNTER)), Omit),
]);

static NODE_ALLOCATABLE_MAPPING: Struct = plain(&[
    f("capacityKey", Text, Pointer),
    f("allocationMultiplier", Quantity, Pointer),
]);

pub(crate) const TAINTS: Ty = List(&Ty::Struct(&TAINT));
static TAINT: Struct = plain(&[
    f("key", Text, Keep),
    f("value", Text, Omit),
    f("effect", Text, Keep),
    f("timeAdded", Time, Pointer),
]);

static TAINT_RULE: Struct = plain(&[
    embedded("metadata", Meta, Keep),
    f("spec", Ty::Struct(&TAINT_RULE_SPEC), Keep),
    f("status", Ty::Struct(&TAINT_RULE_STATUS), Keep),
]);
pub(crate) static TAINT_RULE_SPEC: Struct = plain(&[
    f("deviceSelector", Ty::Struct(&TAINT_SELECTOR), Pointer),
    f("taint", Ty::Struct(&TAINT), Keep),
]);
static TAINT_SELECTOR: Struct = plain(&[
    f("driver", Text, Pointer),
    f("pool", Text, Pointer),
    f("device", Text, Pointer),
]);
static TAINT_RULE_STATUS: Struct = plain(&[f("conditions", List(&Ty::Struct(&CONDITION)), Omit)]);

static POOL_STATUS_REQUEST: Struct = plain(&[
    embedded("metadata", Meta, Keep),
    f("spec", Ty::Struct(&POOL_STATUS_REQUEST_SPEC), Keep),
    f("status", POOL_STATUS_REQUEST_STATUS, Pointer),
]);
pub(crate) static POOL_STATUS_REQUEST_SPEC: Struct = plain(&[
    f("driver", Text, Keep),
    f("poolName", Text, Pointer),
    f("limit", Int, Pointer),
]);
pub(crate) const POOL_STATUS_REQUEST_STATUS: Ty = Ty::Struct(&REQUEST_STATUS);
static REQUEST_STATUS: Struct = plain(&[
    f("poolCount", Int, Pointer),
    f("pools", List(&Ty::Struct(&POOL_STATUS)), Omit),
    f("conditions", List(&Ty::Struct(&CONDITION)), Omit),
]);
static POOL_STATUS: Struct = plain(&[
    f("driver", Text, Keep),
    f("poolName", Text, Keep),
    f("generation", Int, Keep),
    f("resourceSliceCount", Int, Pointer),
    f("totalDevices", Int, Pointer),
    f("allocatedDevices", Int, Pointer),
    f("availableDevices", Int, Pointer),
    f("unavailableDevices", Int, Pointer),
    f("nodeName", Text, Pointer),
    f("validationError", Text, Pointer),
]);
