//! Role bindings and cluster role bindings.

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::Value;

use super::RBAC;
use crate::registry::{Builtin, Rules};
use crate::validate::internal;
use crate::{table, validate};

pub(super) static CLUSTER_ROLE_BINDING: Builtin = Builtin {
    kind: "ClusterRoleBinding",
    plural: "clusterrolebindings",
    namespaced: false,
    rules: Rules {
        validate: |object, errors| {
            validate::access::role_or_binding("clusterrolebindings", object, errors)
        },
        validate_update: Some(|object, old, errors| {
            validate::access::role_or_binding("clusterrolebindings", object, errors);
            same_role(object, old, errors);
        }),
        table: Some((
            "Name|Role|Age|Users::1|Groups::1|ServiceAccounts::1",
            table::control::role_binding,
        )),
        ..RBAC.rules
    },
    ..RBAC
};

pub(super) static ROLE_BINDING: Builtin = Builtin {
    kind: "RoleBinding",
    plural: "rolebindings",
    rules: Rules {
        validate: |object, errors| {
            validate::access::role_or_binding("rolebindings", object, errors)
        },
        validate_update: Some(|object, old, errors| {
            validate::access::role_or_binding("rolebindings", object, errors);
            same_role(object, old, errors);
        }),
        table: Some((
            "Name|Role|Age|Users::1|Groups::1|ServiceAccounts::1",
            table::control::role_binding,
        )),
        ..RBAC.rules
    },
    ..RBAC
};

fn same_role(object: &Value, old: &Value, errors: &mut ErrorList) {
    if object["roleRef"] != old["roleRef"] {
        let detail = "cannot change roleRef";
        let kind = ("rbac.authorization.k8s.io", "v1", "RoleBinding");
        let shown = internal::shown(kind, &["roleRef"], &object["roleRef"]);
        errors.push(Error::invalid(&Path::new("roleRef"), shown, detail));
    }
}
