//! The kinds of `networking.k8s.io`.

use crate::registry::{BASE, Builtin};

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
