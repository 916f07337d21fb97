//! The kinds of `certificates.k8s.io`.

use crate::registry::Builtin;

mod certificate_signing_request;

/// The kinds of the group.
pub(super) const KINDS: &[&Builtin] = &[&certificate_signing_request::CERTIFICATE_SIGNING_REQUEST];
