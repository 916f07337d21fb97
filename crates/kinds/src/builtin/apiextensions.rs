//! The kinds of `apiextensions.k8s.io`.

use crate::registry::Builtin;

mod custom_resource_definition;

/// The kinds of the group.
pub(super) const KINDS: &[&Builtin] = &[&custom_resource_definition::CUSTOM_RESOURCE_DEFINITION];
