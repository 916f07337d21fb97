//! The kinds of `networking.k8s.io`.

use crate::registry::{BASE, Builtin, Deprecated};

mod ingress;
mod ingress_class;
mod ip_address;
mod network_policy;
mod service_cidr;

/// The kinds of the group.
pub(super) const KINDS: &[&Builtin] = &[
    &ingress::INGRESS,
    &ingress_class::INGRESS_CLASS,
    &ip_address::IP_ADDRESS,
    &network_policy::NETWORK_POLICY,
    &service_cidr::SERVICE_CIDR,
];

/// What the kinds of the group have in common.
const NETWORKING: Builtin = Builtin {
    group: "networking.k8s.io",
    ..BASE
};

/// The versions of the kinds about addresses of services.
const VERSIONS: &[&str] = &["v1", "!v1beta1"];
/// The releases that added them.
const SINCE: &[(&str, u8)] = &[("v1", 33), ("v1beta1", 31)];
/// Their end.
const DEPRECATED: &[Deprecated] = &[("v1beta1", "v1.34", "v1.37", "")];
