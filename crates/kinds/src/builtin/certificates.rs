//! The kinds of `certificates.k8s.io`.

use crate::registry::Builtin;

mod certificate_signing_request;
mod cluster_trust_bundle;
mod pod_certificate_request;
mod signature;

/// The kinds of the group.
pub(super) const KINDS: &[&Builtin] = &[
    &certificate_signing_request::CERTIFICATE_SIGNING_REQUEST,
    &cluster_trust_bundle::CLUSTER_TRUST_BUNDLE,
    &pod_certificate_request::POD_CERTIFICATE_REQUEST,
];
