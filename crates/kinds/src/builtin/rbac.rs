//! The kinds of `rbac.authorization.k8s.io`.

use allot_apimachinery::names;

use crate::registry::{BASE, Builtin, Rules};

mod role;
mod role_binding;

/// The kinds of the group.
pub(super) const KINDS: &[&Builtin] = &[
    &role::CLUSTER_ROLE,
    &role::ROLE,
    &role_binding::CLUSTER_ROLE_BINDING,
    &role_binding::ROLE_BINDING,
];

/// What the kinds of the group have in common.
const RBAC: Builtin = Builtin {
    group: "rbac.authorization.k8s.io",
    rules: Rules {
        name: names::path_segment_name,
        create_on_update: true,
        ..Rules::DEFAULT
    },
    ..BASE
};
