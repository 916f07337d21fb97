//! The kinds of `apiregistration.k8s.io`.

use crate::registry::Builtin;

mod api_service;

/// The kinds of the group.
pub(super) const KINDS: &[&Builtin] = &[&api_service::API_SERVICE];
