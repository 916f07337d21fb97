//! Roles and cluster roles.

use super::RBAC;
use crate::registry::{Builtin, Rules};
use crate::validate;

pub(super) static CLUSTER_ROLE: Builtin = Builtin {
    kind: "ClusterRole",
    plural: "clusterroles",
    namespaced: false,
    rules: Rules {
        validate: |object, errors| {
            validate::access::role_or_binding("clusterroles", object, errors)
        },
        ..RBAC.rules
    },
    ..RBAC
};

pub(super) static ROLE: Builtin = Builtin {
    kind: "Role",
    plural: "roles",
    rules: Rules {
        validate: |object, errors| validate::access::role_or_binding("roles", object, errors),
        ..RBAC.rules
    },
    ..RBAC
};
