//! The structure of the hub kinds: one line per field.

use super::Presence::{Keep, KeepPointer, Omit, Pointer};
use super::Ty::{self, Bool, Int, List, Map, Meta, Quantity, Raw, Text, Time};
use super::{Field, Presence, Struct};
use crate::kind::Kind;

pub(crate) const fn f(json: &'static str, go: &'static str, ty: Ty, presence: Presence) -> Field {
    Field {
        json,
        go,
        ty,
        presence,
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
    f("metadata", "", Meta, Keep),
    f("spec", "Spec", Ty::Struct(&DEVICE_CLASS_SPEC), Keep),
]);

pub(crate) static DEVICE_CLASS_SPEC: Struct = plain(&[
    f("selectors", "Selectors", SELECTORS, Omit),
    f("config", "Config", CLASS_CONFIG, Omit),
    f(
        "extendedResourceName",
        "ExtendedResourceName",
        Text,
        Pointer,
    ),
]);

pub(crate) const SELECTORS: Ty = List(&Ty::Struct(&SELECTOR));
static SELECTOR: Struct = plain(&[f("cel", "CEL", Ty::Struct(&CEL), Pointer)]);
static CEL: Struct = plain(&[f("expression", "Expression", Text, Keep)]);

pub(crate) const CLASS_CONFIG: Ty = List(&Ty::Struct(&CLASS_CONFIGURATION));
static CLASS_CONFIGURATION: Struct = plain(&[f("opaque", "Opaque", Ty::Struct(&OPAQUE), Pointer)]);
static OPAQUE: Struct = plain(&[
    f("driver", "Driver", Text, Keep),
    f("parameters", "Parameters", Raw, Keep),
]);

static CLAIM: Struct = plain(&[
    f("metadata", "", Meta, Keep),
    f("spec", "Spec", Ty::Struct(&CLAIM_SPEC), Keep),
    f("status", "Status", Ty::Struct(&CLAIM_STATUS), Keep),
]);

pub(crate) static CLAIM_SPEC: Struct =
    plain(&[f("devices", "Devices", Ty::Struct(&DEVICE_CLAIM), Keep)]);

static DEVICE_CLAIM: Struct = plain(&[
    f("requests", "Requests", List(&Ty::Struct(&REQUEST)), Keep),
    f(
        "constraints",
        "Constraints",
        List(&Ty::Struct(&CONSTRAINT)),
        Omit,
    ),
    f("config", "Config", List(&Ty::Struct(&CLAIM_CONFIG)), Omit),
]);

static REQUEST: Struct = plain(&[
    f("name", "Name", Text, Keep),
    f("exactly", "Exactly", Ty::Struct(&EXACT_REQUEST), Pointer),
    f(
        "firstAvailable",
        "FirstAvailable",
        List(&Ty::Struct(&SUB_REQUEST)),
        Omit,
    ),
]);

static EXACT_REQUEST: Struct = plain(&[
    f("deviceClassName", "DeviceClassName", Text, Keep),
    f("selectors", "Selectors", SELECTORS, Omit),
    f("allocationMode", "AllocationMode", Text, Omit),
    f("count", "Count", Int, Omit),
    f("adminAccess", "AdminAccess", Bool, Pointer),
    f("tolerations", "Tolerations", TOLERATIONS, Omit),
    f(
        "capacity",
        "Capacity",
        Ty::Struct(&CAPACITY_REQUIREMENTS),
        Pointer,
    ),
]);

static SUB_REQUEST: Struct = plain(&[
    f("name", "Name", Text, Keep),
    f("deviceClassName", "DeviceClassName", Text, Keep),
    f("selectors", "Selectors", SELECTORS, Omit),
    f("allocationMode", "AllocationMode", Text, Omit),
    f("count", "Count", Int, Omit),
    f("tolerations", "Tolerations", TOLERATIONS, Omit),
    f(
        "capacity",
        "Capacity",
        Ty::Struct(&CAPACITY_REQUIREMENTS),
        Pointer,
    ),
]);

static CAPACITY_REQUIREMENTS: Struct = plain(&[f("requests", "Requests", Map(&Quantity), Omit)]);

const TOLERATIONS: Ty = List(&Ty::Struct(&TOLERATION));
static TOLERATION: Struct = plain(&[
    f("key", "Key", Text, Omit),
    f("operator", "Operator", Text, Omit),
    f("value", "Value", Text, Omit),
    f("effect", "Effect", Text, Omit),
    f("tolerationSeconds", "TolerationSeconds", Int, Pointer),
]);

static CONSTRAINT: Struct = plain(&[
    f("requests", "Requests", TEXTS, Omit),
    f("matchAttribute", "MatchAttribute", Text, Pointer),
    f("distinctAttribute", "DistinctAttribute", Text, Pointer),
]);

static CLAIM_CONFIG: Struct = plain(&[
    f("requests", "Requests", TEXTS, Omit),
    f("opaque", "Opaque", Ty::Struct(&OPAQUE), Pointer),
]);

static CLAIM_STATUS: Struct = plain(&[
    f("allocation", "Allocation", ALLOCATION, Pointer),
    f("reservedFor", "ReservedFor", RESERVED_FOR, Omit),
    f("devices", "Devices", STATUS_DEVICES, Omit),
]);

pub(crate) const ALLOCATION: Ty = Ty::Struct(&ALLOCATION_RESULT);
static ALLOCATION_RESULT: Struct = plain(&[
    f("devices", "Devices", Ty::Struct(&DEVICE_ALLOCATION), Keep),
    f(
        "nodeSelector",
        "NodeSelector",
        Ty::Struct(&NODE_SELECTOR),
        Pointer,
    ),
    f("allocationTimestamp", "AllocationTimestamp", Time, Pointer),
]);

static DEVICE_ALLOCATION: Struct = plain(&[
    f("results", "Results", List(&Ty::Struct(&RESULT)), Omit),
    f(
        "config",
        "Config",
        List(&Ty::Struct(&ALLOCATION_CONFIG)),
        Omit,
    ),
]);

static RESULT: Struct = plain(&[
    f("request", "Request", Text, Keep),
    f("driver", "Driver", Text, Keep),
    f("pool", "Pool", Text, Keep),
    f("device", "Device", Text, Keep),
    f("adminAccess", "AdminAccess", Bool, Pointer),
    f("tolerations", "Tolerations", TOLERATIONS, Omit),
    f("bindingConditions", "BindingConditions", TEXTS, Omit),
    f(
        "bindingFailureConditions",
        "BindingFailureConditions",
        TEXTS,
        Omit,
    ),
    f("shareID", "ShareID", Text, Pointer),
    f("consumedCapacity", "ConsumedCapacity", Map(&Quantity), Omit),
]);

static ALLOCATION_CONFIG: Struct = plain(&[
    f("source", "Source", Text, Keep),
    f("requests", "Requests", TEXTS, Omit),
    f("opaque", "Opaque", Ty::Struct(&OPAQUE), Pointer),
]);

pub(crate) const RESERVED_FOR: Ty = List(&Ty::Struct(&CONSUMER));
static CONSUMER: Struct = plain(&[
    f("apiGroup", "APIGroup", Text, Omit),
    f("resource", "Resource", Text, Keep),
    f("name", "Name", Text, Keep),
    f("uid", "UID", Text, Keep),
]);

pub(crate) const STATUS_DEVICES: Ty = List(&STATUS_DEVICE);
pub(crate) const STATUS_DEVICE: Ty = Ty::Struct(&ALLOCATED_DEVICE_STATUS);
static ALLOCATED_DEVICE_STATUS: Struct = plain(&[
    f("driver", "Driver", Text, Keep),
    f("pool", "Pool", Text, Keep),
    f("device", "Device", Text, Keep),
    f("shareID", "ShareID", Text, Pointer),
    f(
        "conditions",
        "Conditions",
        List(&Ty::Struct(&CONDITION)),
        Keep,
    ),
    f("data", "Data", Raw, Pointer),
    f(
        "networkData",
        "NetworkData",
        Ty::Struct(&NETWORK_DATA),
        Pointer,
    ),
]);

static NETWORK_DATA: Struct = plain(&[
    f("interfaceName", "InterfaceName", Text, Omit),
    f("ips", "IPs", TEXTS, Omit),
    f("hardwareAddress", "HardwareAddress", Text, Omit),
]);

static CONDITION: Struct = tagged(&[
    f("type", "type", Text, Keep),
    f("status", "status", Text, Keep),
    f("observedGeneration", "observedGeneration", Int, Omit),
    f("lastTransitionTime", "lastTransitionTime", Time, Keep),
    f("reason", "reason", Text, Keep),
    f("message", "message", Text, Keep),
]);

pub(crate) static NODE_SELECTOR: Struct = plain(&[f(
    "nodeSelectorTerms",
    "NodeSelectorTerms",
    NODE_SELECTOR_TERMS,
    Keep,
)]);
pub(crate) const NODE_SELECTOR_TERMS: Ty = List(&Ty::Struct(&NODE_SELECTOR_TERM));
static NODE_SELECTOR_TERM: Struct = plain(&[
    f(
        "matchExpressions",
        "MatchExpressions",
        List(&Ty::Struct(&NODE_SELECTOR_REQUIREMENT)),
        Omit,
    ),
    f(
        "matchFields",
        "MatchFields",
        List(&Ty::Struct(&NODE_SELECTOR_REQUIREMENT)),
        Omit,
    ),
]);
static NODE_SELECTOR_REQUIREMENT: Struct = plain(&[
    f("key", "Key", Text, Keep),
    f("operator", "Operator", Text, Keep),
    f("values", "Values", TEXTS, Omit),
]);

static TEMPLATE: Struct = plain(&[
    f("metadata", "", Meta, Keep),
    f("spec", "Spec", Ty::Struct(&TEMPLATE_SPEC), Keep),
]);
pub(crate) static TEMPLATE_SPEC: Struct = plain(&[
    f("metadata", "", Meta, Keep),
    f("spec", "Spec", Ty::Struct(&CLAIM_SPEC), Keep),
]);

static SLICE: Struct = plain(&[
    f("metadata", "", Meta, Keep),
    f("spec", "Spec", Ty::Struct(&SLICE_SPEC), Keep),
]);

pub(crate) static SLICE_SPEC: Struct = plain(&[
    f("driver", "Driver", Text, Keep),
    f("pool", "Pool", Ty::Struct(&POOL), Keep),
    f("nodeName", "NodeName", Text, Pointer),
    f(
        "nodeSelector",
        "NodeSelector",
        Ty::Struct(&NODE_SELECTOR),
        Pointer,
    ),
    f("allNodes", "AllNodes", Bool, Pointer),
    f("devices", "Devices", List(&Ty::Struct(&DEVICE)), Omit),
    f(
        "perDeviceNodeSelection",
        "PerDeviceNodeSelection",
        Bool,
        Pointer,
    ),
    f(
        "sharedCounters",
        "SharedCounters",
        List(&Ty::Struct(&COUNTER_SET)),
        Omit,
    ),
]);

static POOL: Struct = plain(&[
    f("name", "Name", Text, Keep),
    f("generation", "Generation", Int, Keep),
    f("resourceSliceCount", "ResourceSliceCount", Int, Keep),
]);

static COUNTER_SET: Struct = plain(&[
    f("name", "Name", Text, Keep),
    f("counters", "Counters", Map(&Ty::Struct(&COUNTER)), Omit),
]);
static COUNTER: Struct = plain(&[f("value", "Value", Quantity, Keep)]);

static DEVICE: Struct = plain(&[
    f("name", "Name", Text, Keep),
    f("attributes", "Attributes", Map(&ATTRIBUTE), Omit),
    f("capacity", "Capacity", CAPACITY, Omit),
    f(
        "consumesCounters",
        "ConsumesCounters",
        List(&Ty::Struct(&COUNTER_CONSUMPTION)),
        Omit,
    ),
    f("nodeName", "NodeName", Text, Pointer),
    f(
        "nodeSelector",
        "NodeSelector",
        Ty::Struct(&NODE_SELECTOR),
        Pointer,
    ),
    f("allNodes", "AllNodes", Bool, Pointer),
    f("taints", "Taints", TAINTS, Omit),
    f("bindsToNode", "BindsToNode", Bool, Pointer),
    f("bindingConditions", "BindingConditions", TEXTS, Omit),
    f(
        "bindingFailureConditions",
        "BindingFailureConditions",
        TEXTS,
        Omit,
    ),
    f(
        "allowMultipleAllocations",
        "AllowMultipleAllocations",
        Bool,
        Pointer,
    ),
    f(
        "nodeAllocatableResourceMappings",
        "NodeAllocatableResourceMappings",
        Map(&Ty::Struct(&NODE_ALLOCATABLE_MAPPING)),
        Omit,
    ),
]);

pub(crate) const ATTRIBUTE: Ty = Ty::Struct(&DEVICE_ATTRIBUTE);
static DEVICE_ATTRIBUTE: Struct = plain(&[
    f("int", "IntValue", Int, Pointer),
    f("bool", "BoolValue", Bool, Pointer),
    f("string", "StringValue", Text, Pointer),
    f("version", "VersionValue", Text, Pointer),
    f("ints", "IntValues", List(&Int), Omit),
    f("bools", "BoolValues", List(&Bool), Omit),
    f("strings", "StringValues", TEXTS, Omit),
    f("versions", "VersionValues", TEXTS, Omit),
]);

pub(crate) const CAPACITY: Ty = Map(&Ty::Struct(&DEVICE_CAPACITY));
static DEVICE_CAPACITY: Struct = plain(&[
    f("value", "Value", Quantity, Keep),
    f(
        "requestPolicy",
        "RequestPolicy",
        Ty::Struct(&REQUEST_POLICY),
        Pointer,
    ),
]);
static REQUEST_POLICY: Struct = plain(&[
    f("default", "Default", Quantity, KeepPointer),
    f("validValues", "ValidValues", List(&Quantity), Omit),
    f(
        "validRange",
        "ValidRange",
        Ty::Struct(&VALID_RANGE),
        Pointer,
    ),
]);
static VALID_RANGE: Struct = plain(&[
    f("min", "Min", Quantity, Pointer),
    f("max", "Max", Quantity, Pointer),
    f("step", "Step", Quantity, Pointer),
]);

static COUNTER_CONSUMPTION: Struct = plain(&[
    f("counterSet", "CounterSet", Text, Keep),
    f("counters", "Counters", Map(&Ty::Struct(&COUNTER)), Omit),
]);

static NODE_ALLOCATABLE_MAPPING: Struct = plain(&[
    f("capacityKey", "CapacityKey", Text, Pointer),
    f(
        "allocationMultiplier",
        "AllocationMultiplier",
        Quantity,
        Pointer,
    ),
]);

pub(crate) const TAINTS: Ty = List(&Ty::Struct(&TAINT));
static TAINT: Struct = plain(&[
    f("key", "Key", Text, Keep),
    f("value", "Value", Text, Omit),
    f("effect", "Effect", Text, Keep),
    f("timeAdded", "TimeAdded", Time, Pointer),
]);

static TAINT_RULE: Struct = plain(&[
    f("metadata", "", Meta, Keep),
    f("spec", "Spec", Ty::Struct(&TAINT_RULE_SPEC), Keep),
    f("status", "Status", Ty::Struct(&TAINT_RULE_STATUS), Keep),
]);
pub(crate) static TAINT_RULE_SPEC: Struct = plain(&[
    f(
        "deviceSelector",
        "DeviceSelector",
        Ty::Struct(&TAINT_SELECTOR),
        Pointer,
    ),
    f("taint", "Taint", Ty::Struct(&TAINT), Keep),
]);
static TAINT_SELECTOR: Struct = plain(&[
    f("driver", "Driver", Text, Pointer),
    f("pool", "Pool", Text, Pointer),
    f("device", "Device", Text, Pointer),
]);
static TAINT_RULE_STATUS: Struct = plain(&[f(
    "conditions",
    "Conditions",
    List(&Ty::Struct(&CONDITION)),
    Omit,
)]);

static POOL_STATUS_REQUEST: Struct = plain(&[
    f("metadata", "", Meta, Keep),
    f("spec", "Spec", Ty::Struct(&POOL_STATUS_REQUEST_SPEC), Keep),
    f("status", "Status", POOL_STATUS_REQUEST_STATUS, Pointer),
]);
pub(crate) static POOL_STATUS_REQUEST_SPEC: Struct = plain(&[
    f("driver", "Driver", Text, Keep),
    f("poolName", "PoolName", Text, Pointer),
    f("limit", "Limit", Int, Pointer),
]);
pub(crate) const POOL_STATUS_REQUEST_STATUS: Ty = Ty::Struct(&REQUEST_STATUS);
static REQUEST_STATUS: Struct = plain(&[
    f("poolCount", "PoolCount", Int, Pointer),
    f("pools", "Pools", List(&Ty::Struct(&POOL_STATUS)), Omit),
    f(
        "conditions",
        "Conditions",
        List(&Ty::Struct(&CONDITION)),
        Omit,
    ),
]);
static POOL_STATUS: Struct = plain(&[
    f("driver", "Driver", Text, Keep),
    f("poolName", "PoolName", Text, Keep),
    f("generation", "Generation", Int, Keep),
    f("resourceSliceCount", "ResourceSliceCount", Int, Pointer),
    f("totalDevices", "TotalDevices", Int, Pointer),
    f("allocatedDevices", "AllocatedDevices", Int, Pointer),
    f("availableDevices", "AvailableDevices", Int, Pointer),
    f("unavailableDevices", "UnavailableDevices", Int, Pointer),
    f("nodeName", "NodeName", Text, Pointer),
    f("validationError", "ValidationError", Text, Pointer),
]);

pub(crate) static OBJECT_META: Struct = tagged(&[
    f("name", "name", Text, Omit),
    f("generateName", "generateName", Text, Omit),
    f("namespace", "namespace", Text, Omit),
    f("selfLink", "selfLink", Text, Omit),
    f("uid", "uid", Text, Omit),
    f("resourceVersion", "resourceVersion", Text, Omit),
    f("generation", "generation", Int, Omit),
    f("creationTimestamp", "creationTimestamp", Time, Omit),
    f("deletionTimestamp", "deletionTimestamp", Time, Pointer),
    f(
        "deletionGracePeriodSeconds",
        "deletionGracePeriodSeconds",
        Int,
        Pointer,
    ),
    f("labels", "labels", Map(&Text), Omit),
    f("annotations", "annotations", Map(&Text), Omit),
    f("ownerReferences", "ownerReferences", OWNERS, Omit),
    f("finalizers", "finalizers", TEXTS, Omit),
    f("managedFields", "managedFields", List(&Raw), Omit),
]);
pub(crate) const OWNER: Ty = Ty::Struct(&OWNER_REFERENCE);
pub(crate) const OWNERS: Ty = List(&OWNER);
static OWNER_REFERENCE: Struct = tagged(&[
    f("apiVersion", "apiVersion", Text, Keep),
    f("kind", "kind", Text, Keep),
    f("name", "name", Text, Keep),
    f("uid", "uid", Text, Keep),
    f("controller", "controller", Bool, Pointer),
    f("blockOwnerDeletion", "blockOwnerDeletion", Bool, Pointer),
]);

pub(crate) const POD_RESOURCE_CLAIM: Ty = Ty::Struct(&POD_CLAIM);
static POD_CLAIM: Struct = plain(&[
    f("name", "Name", Text, Keep),
    f("resourceClaimName", "ResourceClaimName", Text, Pointer),
    f(
        "resourceClaimTemplateName",
        "ResourceClaimTemplateName",
        Text,
        Pointer,
    ),
]);
