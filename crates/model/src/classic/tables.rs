//! The structure of the classic kinds: one line per field. Members of all releases stand side by side.

use super::Kind;
use crate::shape::Presence::{Keep, Omit, Pointer};
use crate::shape::Ty::{self, Bool, Int, List, Meta, Quantity, Raw, Text};
use crate::shape::tables::{CONSUMER, NODE_SELECTOR, TEXTS, embedded, f, named, plain};
use crate::shape::{Field, Struct};

const fn metadata() -> Field {
    embedded("metadata", Meta, Keep)
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
    f("driverName", Text, Keep),
    f("parametersRef", Ty::Struct(&CLASS_REFERENCE), Pointer),
    f("suitableNodes", Ty::Struct(&NODE_SELECTOR), Pointer),
    f("structuredParameters", Bool, Pointer),
]);

static CLASS_REFERENCE: Struct = plain(&[
    named("apiGroup", "APIGroup", Text, Omit),
    f("kind", Text, Keep),
    f("name", Text, Keep),
    f("namespace", Text, Omit),
]);

static CLAIM_REFERENCE: Struct = plain(&[
    named("apiGroup", "APIGroup", Text, Omit),
    f("kind", Text, Keep),
    f("name", Text, Keep),
]);

static CLAIM: Struct = plain(&[
    metadata(),
    f("spec", Ty::Struct(&CLAIM_SPEC), Keep),
    f("status", Ty::Struct(&CLAIM_STATUS), Keep),
]);

pub(super) static CLAIM_SPEC: Struct = plain(&[
    f("resourceClassName", Text, Keep),
    f("parametersRef", Ty::Struct(&CLAIM_REFERENCE), Pointer),
    f("allocationMode", Text, Omit),
]);

static CLAIM_STATUS: Struct = plain(&[
    f("driverName", Text, Omit),
    f("allocation", ALLOCATION, Pointer),
    f("reservedFor", List(&Ty::Struct(&CONSUMER)), Omit),
    f("deallocationRequested", Bool, Omit),
]);

pub(super) const ALLOCATION: Ty = Ty::Struct(&ALLOCATION_RESULT);
static ALLOCATION_RESULT: Struct = plain(&[
    // Of v1alpha1 only.
    f("resourceHandle", Text, Omit),
    f("resourceHandles", List(&Ty::Struct(&HANDLE)), Omit),
    f("availableOnNodes", Ty::Struct(&NODE_SELECTOR), Pointer),
    f("shareable", Bool, Omit),
]);

static HANDLE: Struct = plain(&[
    f("driverName", Text, Omit),
    f("data", Text, Omit),
    f("structuredData", Ty::Struct(&STRUCTURED_HANDLE), Pointer),
]);

static STRUCTURED_HANDLE: Struct = plain(&[
    f("vendorClassParameters", Raw, Pointer),
    f("vendorClaimParameters", Raw, Pointer),
    f("nodeName", Text, Omit),
    f("results", List(&Ty::Struct(&DRIVER_RESULT)), Keep),
]);

static DRIVER_RESULT: Struct = plain(&[
    f("vendorRequestParameters", Raw, Pointer),
    f("namedResources", Ty::Struct(&NAMED_RESULT), Pointer),
]);

static NAMED_RESULT: Struct = plain(&[f("name", Text, Keep)]);

static TEMPLATE: Struct = plain(&[metadata(), f("spec", Ty::Struct(&TEMPLATE_SPEC), Keep)]);
pub(super) static TEMPLATE_SPEC: Struct =
    plain(&[metadata(), f("spec", Ty::Struct(&CLAIM_SPEC), Keep)]);

static POD_SCHEDULING: Struct = plain(&[
    metadata(),
    f("spec", Ty::Struct(&POD_SCHEDULING_SPEC), Keep),
    f("status", Ty::Struct(&POD_SCHEDULING_STATUS), Keep),
]);

static POD_SCHEDULING_SPEC: Struct = plain(&[
    f("selectedNode", Text, Omit),
    f("potentialNodes", TEXTS, Omit),
]);

static POD_SCHEDULING_STATUS: Struct = plain(&[f(
    "resourceClaims",
    List(&Ty::Struct(&CLAIM_SCHEDULING)),
    Omit,
)]);

static CLAIM_SCHEDULING: Struct =
    plain(&[f("name", Text, Omit), f("unsuitableNodes", TEXTS, Omit)]);

static SLICE: Struct = plain(&[
    metadata(),
    f("nodeName", Text, Omit),
    f("driverName", Text, Keep),
    f("namedResources", Ty::Struct(&NAMED_RESOURCES), Pointer),
]);

static NAMED_RESOURCES: Struct = plain(&[f("instances", List(&Ty::Struct(&INSTANCE)), Keep)]);

static INSTANCE: Struct = plain(&[
    f("name", Text, Keep),
    f("attributes", List(&Ty::Struct(&ATTRIBUTE)), Omit),
]);

static ATTRIBUTE: Struct = plain(&[
    f("name", Text, Keep),
    named("quantity", "QuantityValue", Quantity, Pointer),
    named("bool", "BoolValue", Bool, Pointer),
    named("int", "IntValue", Int, Pointer),
    named("intSlice", "IntSliceValue", Ty::Struct(&INTS), Pointer),
    named("string", "StringValue", Text, Pointer),
    named(
        "stringSlice",
        "StringSliceValue",
        Ty::Struct(&STRINGS),
        Pointer,
    ),
    named("version", "VersionValue", Text, Pointer),
]);

static INTS: Struct = plain(&[f("ints", List(&Int), Keep)]);
static STRINGS: Struct = plain(&[f("strings", TEXTS, Keep)]);

static CLAIM_PARAMETERS: Struct = plain(&[
    metadata(),
    f("generatedFrom", Ty::Struct(&CLAIM_REFERENCE), Pointer),
    f("shareable", Bool, Omit),
    f("driverRequests", List(&Ty::Struct(&DRIVER_REQUESTS)), Omit),
]);

static DRIVER_REQUESTS: Struct = plain(&[
    f("driverName", Text, Omit),
    f("vendorParameters", Raw, Pointer),
    f("requests", List(&Ty::Struct(&REQUEST)), Omit),
]);

static REQUEST: Struct = plain(&[
    f("vendorParameters", Raw, Pointer),
    f("namedResources", Ty::Struct(&SELECTOR), Pointer),
]);

static SELECTOR: Struct = plain(&[f("selector", Text, Keep)]);

static CLASS_PARAMETERS: Struct = plain(&[
    metadata(),
    f("generatedFrom", Ty::Struct(&CLASS_REFERENCE), Pointer),
    f(
        "vendorParameters",
        List(&Ty::Struct(&VENDOR_PARAMETERS)),
        Omit,
    ),
    f("filters", List(&Ty::Struct(&FILTER)), Omit),
]);

static VENDOR_PARAMETERS: Struct =
    plain(&[f("driverName", Text, Omit), f("parameters", Raw, Pointer)]);

static FILTER: Struct = plain(&[
    f("driverName", Text, Omit),
    f("namedResources", Ty::Struct(&SELECTOR), Pointer),
]);
