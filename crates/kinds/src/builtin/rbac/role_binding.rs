//! Role bindings and cluster role bindings.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::{Value, json};

use super::RBAC;
use crate::object::{self, items};
use crate::registry::{Builtin, Rules};
use crate::table::age;
use crate::table::format::name;
use crate::validate::{internal, list, rule, text};

pub(super) static CLUSTER_ROLE_BINDING: Builtin = Builtin {
    kind: "ClusterRoleBinding",
    plural: "clusterrolebindings",
    namespaced: false,
    rules: rules::<false>(),
    ..RBAC
};

pub(super) static ROLE_BINDING: Builtin = Builtin {
    kind: "RoleBinding",
    plural: "rolebindings",
    rules: rules::<true>(),
    ..RBAC
};

/// The rules of both kinds: bindings in a namespace can refer to roles in it.
const fn rules<const NAMESPACED: bool>() -> Rules {
    Rules {
        validate: |object, errors| validate_binding(object, NAMESPACED, errors),
        validate_update: Some(|object, old, errors| {
            validate_binding(object, NAMESPACED, errors);
            same_role(object, old, errors);
        }),
        table: Some(("Name|Role|Age|Users::1|Groups::1|ServiceAccounts::1", row)),
        ..RBAC.rules
    }
}

fn same_role(object: &Value, old: &Value, errors: &mut ErrorList) {
    if object["roleRef"] != old["roleRef"] {
        let detail = "cannot change roleRef";
        let kind = (API_GROUP, "v1", "RoleBinding");
        let shown = internal::shown(kind, &["roleRef"], &object["roleRef"]);
        errors.push(Error::invalid(&Path::new("roleRef"), shown, detail));
    }
}

const API_GROUP: &str = RBAC.group;

fn validate_binding(object: &Value, namespaced: bool, errors: &mut ErrorList) {
    let (role, path) = (&object["roleRef"], Path::new("roleRef"));
    if text(role, "apiGroup") != API_GROUP {
        errors.push(Error::not_supported(
            &path.child("apiGroup"),
            text(role, "apiGroup"),
            &[API_GROUP],
        ));
    }
    let kinds: &[&str] = if namespaced {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    let kind = text(role, "kind");
    if !kinds.contains(&kind) {
        errors.push(Error::not_supported(&path.child("kind"), kind, kinds));
    }
    let name = text(role, "name");
    if name.is_empty() {
        errors.push(Error::required(&path.child("name"), ""));
    } else {
        rule(
            names::path_segment_name(name),
            name,
            &path.child("name"),
            errors,
        );
    }
    for (index, subject) in list(object, "subjects").iter().enumerate() {
        let at = Path::new("subjects").index(index);
        let (kind, name) = (text(subject, "kind"), text(subject, "name"));
        if name.is_empty() {
            errors.push(Error::required(&at.child("name"), ""));
        }
        let group = text(subject, "apiGroup");
        match kind {
            "ServiceAccount" => {
                if !name.is_empty() {
                    rule(
                        names::dns1123_subdomain(name),
                        name,
                        &at.child("name"),
                        errors,
                    );
                }
                if !group.is_empty() {
                    errors.push(Error::not_supported(&at.child("apiGroup"), group, &[""]));
                }
                if !namespaced && text(subject, "namespace").is_empty() {
                    errors.push(Error::required(&at.child("namespace"), ""));
                }
            }
            "User" | "Group" => {
                if group != API_GROUP {
                    errors.push(Error::not_supported(
                        &at.child("apiGroup"),
                        group,
                        &[API_GROUP],
                    ));
                }
            }
            other => {
                let kinds = ["ServiceAccount", "User", "Group"];
                errors.push(Error::not_supported(&at.child("kind"), other, &kinds));
            }
        }
    }
}

fn subjects(object: &Value) -> [String; 3] {
    let of = |kind: &str| {
        items(&object["subjects"])
            .iter()
            .filter(|it| it["kind"] == kind)
            .map(|it| match it["namespace"].as_str() {
                Some(namespace) if kind == "ServiceAccount" => {
                    format!("{namespace}/{}", it["name"].as_str().unwrap_or_default())
                }
                _ => it["name"].as_str().unwrap_or_default().to_owned(),
            })
            .collect::<Vec<_>>()
            .join(", ")
    };
    [of("User"), of("Group"), of("ServiceAccount")]
}

fn row(object: &Value) -> Vec<Value> {
    let role = format!(
        "{}/{}",
        object::text(object, &["roleRef", "kind"]),
        object::text(object, &["roleRef", "name"])
    );
    let [users, groups, accounts] = subjects(object);
    vec![
        name(object),
        json!(role),
        age(object),
        json!(users),
        json!(groups),
        json!(accounts),
    ]
}
