//! Roles and cluster roles.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::labels::LabelSelector;
use serde_json::Value;

use super::RBAC;
use crate::registry::{Builtin, Rules};
use crate::validate::{label_selector, list};

pub(super) static CLUSTER_ROLE: Builtin = Builtin {
    kind: "ClusterRole",
    plural: "clusterroles",
    namespaced: false,
    rules: Rules {
        validate: |object, errors| validate_role(object, false, errors),
        ..RBAC.rules
    },
    ..RBAC
};

pub(super) static ROLE: Builtin = Builtin {
    kind: "Role",
    plural: "roles",
    rules: Rules {
        validate: |object, errors| validate_role(object, true, errors),
        ..RBAC.rules
    },
    ..RBAC
};

/// Validates a role or a cluster role.
fn validate_role(object: &Value, namespaced: bool, errors: &mut ErrorList) {
    for (index, item) in list(object, "rules").iter().enumerate() {
        access_rule(item, namespaced, &Path::new("rules").index(index), errors);
    }
    let (collected, path) = (&object["aggregationRule"], Path::new("aggregationRule"));
    let path = path.child("clusterRoleSelectors");
    let selectors = list(collected, "clusterRoleSelectors");
    if collected.is_object() && selectors.is_empty() {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.push(Error::required(&path, detail));
    }
    for (index, selector) in selectors.iter().enumerate() {
        let at = path.index(index);
        label_selector(selector, &at, errors);
        let parsed = LabelSelector::from_json(selector)
            .ok()
            .and_then(|selector| selector.to_selector().ok());
        if parsed.is_none() {
            errors.push(Error::invalid(&at, &Value::Null, "invalid label selector."));
        }
    }
}

fn access_rule(item: &Value, namespaced: bool, path: &Path, errors: &mut ErrorList) {
    if list(item, "verbs").is_empty() {
        errors.push(Error::required(
            &path.child("verbs"),
            "verbs must contain at least one value",
        ));
    }
    if !list(item, "nonResourceURLs").is_empty() {
        let at = path.child("nonResourceURLs");
        if namespaced {
            let detail = "namespaced rules cannot apply to non-resource URLs";
            errors.push(Error::invalid(&at, &item["nonResourceURLs"], detail));
        }
        if !list(item, "apiGroups").is_empty() || !list(item, "resources").is_empty() {
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(Error::invalid(&at, &item["nonResourceURLs"], detail));
        }
        return;
    }
    if list(item, "apiGroups").is_empty() {
        let detail = "resource rules must supply at least one api group";
        errors.push(Error::required(&path.child("apiGroups"), detail));
    }
    if list(item, "resources").is_empty() {
        let detail = "resource rules must supply at least one resource";
        errors.push(Error::required(&path.child("resources"), detail));
    }
}
