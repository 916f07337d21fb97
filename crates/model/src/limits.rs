//! Limits of the `resource.k8s.io` API, each in one place.

use allot_cel::device;

/// Requests per claim.
pub const REQUESTS: usize = 32;
/// Results per allocation.
pub const ALLOCATION_RESULTS: usize = 32;
/// Constraints per claim.
pub const CONSTRAINTS: usize = 32;
/// Configurations per claim and per class.
pub const CONFIGS: usize = 32;
/// Configurations per allocation: those of a claim and of a class.
pub const ALLOCATION_CONFIGS: usize = 2 * CONFIGS;
/// Selectors per request and per class.
pub const SELECTORS: usize = 32;
/// Alternatives per request.
pub const FIRST_AVAILABLE: usize = 8;
/// Consumers per claim.
pub const RESERVED_FOR: usize = 256;
/// Consumers per claim before 1.31.
pub const CLASSIC_RESERVED_FOR: usize = 32;
/// Nodes in `potentialNodes` and `unsuitableNodes`, before 1.31 (`PodSchedulingNodeListMaxSize`).
pub const CLASSIC_NODES: usize = 128;
/// Bytes of a CEL expression.
pub const CEL_EXPRESSION: usize = device::MAX_LENGTH;
/// Static cost of a CEL expression.
pub const CEL_COST: u64 = device::MAX_COST;
/// Bytes of opaque parameters and of a device's status data.
pub const OPAQUE_PARAMETERS: usize = 10 * 1024;
/// Conditions per device status.
pub const DEVICE_CONDITIONS: usize = 8;
/// Conditions per taint rule.
pub const TAINT_RULE_CONDITIONS: usize = 8;
/// IP addresses per device status.
pub const NETWORK_IPS: usize = 16;
/// Bytes of a network interface's name.
pub const INTERFACE_NAME: usize = 256;
/// Bytes of a hardware address.
pub const HARDWARE_ADDRESS: usize = 128;
/// Devices per slice.
pub const DEVICES: usize = 128;
/// Devices per slice when any of them has taints, consumes counters or has list attributes.
pub const DEVICES_ADVANCED: usize = 64;
/// Attributes and capacities per device.
pub const ATTRIBUTES_AND_CAPACITIES: usize = 32;
/// Attribute values per device, items of lists counted one by one.
pub const ATTRIBUTE_VALUES: usize = 48;
/// Bytes of a string or version attribute.
pub const ATTRIBUTE_VALUE: usize = 64;
/// Bytes of the domain of a qualified name.
pub const QUALIFIED_DOMAIN: usize = 63;
/// Bytes of the identifier of a qualified name.
pub const QUALIFIED_IDENTIFIER: usize = 32;
/// Bytes of a driver name.
pub const DRIVER_NAME: usize = 63;
/// Bytes of a pool name.
pub const POOL_NAME: usize = 253;
/// Taints per device.
pub const TAINTS: usize = 16;
/// Counter sets per slice.
pub const COUNTER_SETS: usize = 8;
/// Counters per counter set of a slice (`ResourceSliceMaxCountersPerCounterSet`).
pub const COUNTERS_PER_SET: usize = 32;
/// Counter sets that a device consumes from.
pub const COUNTER_CONSUMPTIONS: usize = 2;
/// Counters that a device consumes per set.
pub const COUNTERS_PER_CONSUMPTION: usize = 32;
/// Binding conditions per device.
pub const BINDING_CONDITIONS: usize = 4;
/// Binding failure conditions per device.
pub const BINDING_FAILURE_CONDITIONS: usize = 4;
/// Discrete values of a request policy.
pub const VALID_VALUES: usize = 10;
/// Pools that a status request may ask for.
pub const POOL_STATUS_LIMIT: i64 = 1000;
/// Bytes of all annotations of an object.
pub const ANNOTATIONS: usize = 256 * 1024;
/// Bytes of a DNS label.
pub const DNS_LABEL: usize = 63;
