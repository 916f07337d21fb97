//! Roles and bindings.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::labels::LabelSelector;
use allot_apimachinery::names;
use serde_json::Value;

use super::{label_selector, list, rule, text};

const RBAC: &str = "rbac.authorization.k8s.io";

/// Validates a role or binding.
pub(crate) fn role_or_binding(plural: &str, object: &Value, errors: &mut ErrorList) {
    match plural {
        "roles" | "clusterroles" => {
            for (index, item) in list(object, "rules").iter().enumerate() {
                access_rule(
                    item,
                    plural == "roles",
                    &Path::new("rules").index(index),
                    errors,
                );
            }
            let (collected, path) = (&object["aggregationRule"], Path::new("aggregationRule"));
            let path = path.child("clusterRoleSelectors");
            let selectors = list(collected, "clusterRoleSelectors");
            if collected.is_object() && selectors.is_empty() {
                let detail =
                    "at least one clusterRoleSelector required if aggregationRule is non-nil";
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
        "rolebindings" | "clusterrolebindings" => binding(object, plural == "rolebindings", errors),
        _ => {}
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

fn binding(object: &Value, namespaced: bool, errors: &mut ErrorList) {
    let (role, path) = (&object["roleRef"], Path::new("roleRef"));
    if text(role, "apiGroup") != RBAC {
        errors.push(Error::not_supported(
            &path.child("apiGroup"),
            text(role, "apiGroup"),
            &[RBAC],
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
                if group != RBAC {
                    errors.push(Error::not_supported(&at.child("apiGroup"), group, &[RBAC]));
                }
            }
            other => {
                let kinds = ["ServiceAccount", "User", "Group"];
                errors.push(Error::not_supported(&at.child("kind"), other, &kinds));
            }
        }
    }
}
