//! The structure of the classic kinds: one line per field. Members of all releases stand side by side.

use super::Kind;
use crate::shape::Presence::{Keep, Omit, Pointer};
use crate::shape::Ty::{self, Bool, Int, List, Meta, Quantity, Raw, Text};
use crate::shape::tables::{NODE_SELECTOR, TEXTS, f, plain};
use crate::shape::{Field, Struct};

const fn metadata() -> Field {
    f("metadata", "", Meta, Keep)
}

/// The structure of a kind.
pub(super) const fn of(kind: Kind) -> Ty {
    match kind {
        Kind::ResourceClass => Ty::Struct(&CLASS),
        Kind::ResourceClaim => Ty::Struct(&CLAIM),
        Kind::ResourceClaimTemplate => Ty::Struct(&TEMPLATE),
        Kind::PodScheduling | Kind::PodSchedulingContext => Ty::Struct(&POD_SCHEDULING),
        Kind::ResourceSlice => Ty::Struct(&SLICE),
        Kind::ResourceClaimParameters => Ty::Struct(&CLAIM_PARAMETERS),
        Kind::ResourceClassParameters => Ty::Struct(&CLASS_PARAMETERS),
    }
}

static CLASS: Struct = plain(&[
    metadata(),
    f("driverName", "DriverName", Text, Keep),
    f(
        "parametersRef",
        "ParametersRef",
        Ty::Struct(&CLASS_REFERENCE),
        Pointer,
    ),
    f(
        "suitableNodes",
        "SuitableNodes",
        Ty::Struct(&NODE_SELECTOR),
        Pointer,
    ),
    f(
        "structuredParameters",
        "StructuredParameters",
        Bool,
        Pointer,
    ),
]);

static CLASS_REFERENCE: Struct = plain(&[
    f("apiGroup", "APIGroup", Text, Omit),
    f("kind", "Kind", Text, Keep),
    f("name", "Name", Text, Keep),
    f("namespace", "Namespace", Text, Omit),
]);

static CLAIM_REFERENCE: Struct = plain(&[
    f("apiGroup", "APIGroup", Text, Omit),
    f("kind", "Kind", Text, Keep),
    f("name", "Name", Text, Keep),
]);

static CLAIM: Struct = plain(&[
    metadata(),
    f("spec", "Spec", Ty::Struct(&CLAIM_SPEC), Keep),
    f("status", "Status", Ty::Struct(&CLAIM_STATUS), Keep),
]);

pub(super) static CLAIM_SPEC: Struct = plain(&[
    f("resourceClassName", "ResourceClassName", Text, Keep),
    f(
        "parametersRef",
        "ParametersRef",
        Ty::Struct(&CLAIM_REFERENCE),
        Pointer,
    ),
    f("allocationMode", "AllocationMode", Text, Omit),
]);

static CLAIM_STATUS: Struct = plain(&[
    f("driverName", "DriverName", Text, Omit),
    f("allocation", "Allocation", ALLOCATION, Pointer),
    f(
        "reservedFor",
        "ReservedFor",
        List(&Ty::Struct(&CONSUMER)),
        Omit,
    ),
    f("deallocationRequested", "DeallocationRequested", Bool, Omit),
]);

pub(super) const ALLOCATION: Ty = Ty::Struct(&ALLOCATION_RESULT);
static ALLOCATION_RESULT: Struct = plain(&[
    // Of v1alpha1 only.
    f("resourceHandle", "ResourceHandle", Text, Omit),
    f(
        "resourceHandles",
        "ResourceHandles",
        List(&Ty::Struct(&HANDLE)),
        Omit,
    ),
    f(
        "availableOnNodes",
        "AvailableOnNodes",
        Ty::Struct(&NODE_SELECTOR),
        Pointer,
    ),
    f("shareable", "Shareable", Bool, Omit),
]);

static HANDLE: Struct = plain(&[
    f("driverName", "DriverName", Text, Omit),
    f("data", "Data", Text, Omit),
    f(
        "structuredData",
        "StructuredData",
        Ty::Struct(&STRUCTURED_HANDLE),
        Pointer,
    ),
]);

static STRUCTURED_HANDLE: Struct = plain(&[
    f(
        "vendorClassParameters",
        "VendorClassParameters",
        Raw,
        Pointer,
    ),
    f(
        "vendorClaimParameters",
        "VendorClaimParameters",
        Raw,
        Pointer,
    ),
    f("nodeName", "NodeName", Text, Omit),
    f(
        "results",
        "Results",
        List(&Ty::Struct(&DRIVER_RESULT)),
        Keep,
    ),
]);

static DRIVER_RESULT: Struct = plain(&[
    f(
        "vendorRequestParameters",
        "VendorRequestParameters",
        Raw,
        Pointer,
    ),
    f(
        "namedResources",
        "NamedResources",
        Ty::Struct(&NAMED_RESULT),
        Pointer,
    ),
]);

static NAMED_RESULT: Struct = plain(&[f("name", "Name", Text, Keep)]);

static CONSUMER: Struct = plain(&[
    f("apiGroup", "APIGroup", Text, Omit),
    f("resource", "Resource", Text, Keep),
    f("name", "Name", Text, Keep),
    f("uid", "UID", Text, Keep),
]);

static TEMPLATE: Struct = plain(&[
    metadata(),
    f("spec", "Spec", Ty::Struct(&TEMPLATE_SPEC), Keep),
]);
pub(super) static TEMPLATE_SPEC: Struct =
    plain(&[metadata(), f("spec", "Spec", Ty::Struct(&CLAIM_SPEC), Keep)]);

static POD_SCHEDULING: Struct = plain(&[
    metadata(),
    f("spec", "Spec", Ty::Struct(&POD_SCHEDULING_SPEC), Keep),
    f("status", "Status", Ty::Struct(&POD_SCHEDULING_STATUS), Keep),
]);

static POD_SCHEDULING_SPEC: Struct = plain(&[
    f("selectedNode", "SelectedNode", Text, Omit),
    f("potentialNodes", "PotentialNodes", TEXTS, Omit),
]);

static POD_SCHEDULING_STATUS: Struct = plain(&[f(
    "resourceClaims",
    "ResourceClaims",
    List(&Ty::Struct(&CLAIM_SCHEDULING)),
    Omit,
)]);

static CLAIM_SCHEDULING: Struct = plain(&[
    f("name", "Name", Text, Omit),
    f("unsuitableNodes", "UnsuitableNodes", TEXTS, Omit),
]);

static SLICE: Struct = plain(&[
    metadata(),
    f("nodeName", "NodeName", Text, Omit),
    f("driverName", "DriverName", Text, Keep),
    f(
        "namedResources",
        "NamedResources",
        Ty::Struct(&NAMED_RESOURCES),
        Pointer,
    ),
]);

static NAMED_RESOURCES: Struct = plain(&[f(
    "instances",
    "Instances",
    List(&Ty::Struct(&INSTANCE)),
    Keep,
)]);

static INSTANCE: Struct = plain(&[
    f("name", "Name", Text, Keep),
    f(
        "attributes",
        "Attributes",
        List(&Ty::Struct(&ATTRIBUTE)),
        Omit,
    ),
]);

static ATTRIBUTE: Struct = plain(&[
    f("name", "Name", Text, Keep),
    f("quantity", "QuantityValue", Quantity, Pointer),
    f("bool", "BoolValue", Bool, Pointer),
    f("int", "IntValue", Int, Pointer),
    f("intSlice", "IntSliceValue", Ty::Struct(&INTS), Pointer),
    f("string", "StringValue", Text, Pointer),
    f(
        "stringSlice",
        "StringSliceValue",
        Ty::Struct(&STRINGS),
        Pointer,
    ),
    f("version", "VersionValue", Text, Pointer),
]);

static INTS: Struct = plain(&[f("ints", "Ints", List(&Int), Keep)]);
static STRINGS: Struct = plain(&[f("strings", "Strings", TEXTS, Keep)]);

static CLAIM_PARAMETERS: Struct = plain(&[
    metadata(),
    f(
        "generatedFrom",
        "GeneratedFrom",
        Ty::Struct(&CLAIM_REFERENCE),
        Pointer,
    ),
    f("shareable", "Shareable", Bool, Omit),
    f(
        "driverRequests",
        "DriverRequests",
        List(&Ty::Struct(&DRIVER_REQUESTS)),
        Omit,
    ),
]);

static DRIVER_REQUESTS: Struct = plain(&[
    f("driverName", "DriverName", Text, Omit),
    f("vendorParameters", "VendorParameters", Raw, Pointer),
    f("requests", "Requests", List(&Ty::Struct(&REQUEST)), Omit),
]);

static REQUEST: Struct = plain(&[
    f("vendorParameters", "VendorParameters", Raw, Pointer),
    f(
        "namedResources",
        "NamedResources",
        Ty::Struct(&SELECTOR),
        Pointer,
    ),
]);

static SELECTOR: Struct = plain(&[f("selector", "Selector", Text, Keep)]);

static CLASS_PARAMETERS: Struct = plain(&[
    metadata(),
    f(
        "generatedFrom",
        "GeneratedFrom",
        Ty::Struct(&CLASS_REFERENCE),
        Pointer,
    ),
    f(
        "vendorParameters",
        "VendorParameters",
        List(&Ty::Struct(&VENDOR_PARAMETERS)),
        Omit,
    ),
    f("filters", "Filters", List(&Ty::Struct(&FILTER)), Omit),
]);

static VENDOR_PARAMETERS: Struct = plain(&[
    f("driverName", "DriverName", Text, Omit),
    f("parameters", "Parameters", Raw, Pointer),
]);

static FILTER: Struct = plain(&[
    f("driverName", "DriverName", Text, Omit),
    f(
        "namedResources",
        "NamedResources",
        Ty::Struct(&SELECTOR),
        Pointer,
    ),
]);
