//! The first structured model (1.30) on the wire between kubelet and plugin.

use allot_model::classic::objects::{
    AllocationResult, Attribute, Instance, InstanceName, StructuredHandle,
};
use allot_protos::dra_v1alpha3 as wire;

/// The data for a plugin in an allocation.
#[derive(Debug, Clone, PartialEq)]
pub enum Handle {
    /// What the driver's controller wrote.
    Opaque(String),
    /// The allocation by the scheduler (structured parameters).
    Structured(StructuredHandle),
}

pub(super) fn instance(instance: &Instance) -> wire::NamedResourcesInstance {
    let value = |attribute: Attribute| wire::NamedResourcesAttributeValue {
        bool: attribute.bool,
        int: attribute.int,
        int_slice: attribute
            .int_slice
            .map(|slice| wire::NamedResourcesIntSlice { ints: slice.ints }),
        string: attribute.string,
        string_slice: attribute
            .string_slice
            .map(|slice| wire::NamedResourcesStringSlice {
                strings: slice.strings,
            }),
        version: attribute.version,
        quantity: attribute.quantity.map(|quantity| wire::Quantity {
            string: Some(quantity.0),
        }),
    };
    let attribute = |attribute: &Attribute| wire::NamedResourcesAttribute {
        name: attribute.name.clone(),
        attribute_value: Some(value(attribute.clone())),
    };
    wire::NamedResourcesInstance {
        name: instance.name.clone(),
        attributes: instance.attributes.iter().map(attribute).collect(),
    }
}

pub(super) fn handle(handle: wire::StructuredResourceHandle) -> StructuredHandle {
    let raw = |extension: Option<wire::RawExtension>| {
        let raw = extension.and_then(|extension| extension.raw);
        raw.and_then(|raw| serde_json::from_slice(&raw).ok())
            .unwrap_or_default()
    };
    let result = |result: wire::DriverAllocationResult| {
        let model = result.allocation_result_model;
        let named = model.and_then(|model| model.named_resources);
        AllocationResult {
            vendor_request_parameters: raw(result.vendor_request_parameters),
            named_resources: named.map(|named| InstanceName { name: named.name }),
        }
    };
    StructuredHandle {
        vendor_class_parameters: raw(handle.vendor_class_parameters),
        vendor_claim_parameters: raw(handle.vendor_claim_parameters),
        node_name: handle.node_name,
        results: handle.results.into_iter().map(result).collect(),
    }
}
