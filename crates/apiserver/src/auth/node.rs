//! What node agents may see: what the pods on their node need.

use std::sync::Arc;

use allot_store::{Entry, ListOptions};
use serde_json::Value;

use super::authorize::{Ask, Decision};
use super::policy;
use crate::error::Result;
use crate::object::text;
use crate::select::Attributes;
use crate::server::Core;

fn no(reason: impl Into<String>) -> Decision {
    Decision::NoOpinion(reason.into())
}

fn allow() -> Decision {
    Decision::Allow(String::new())
}

/// The node authorizer.
pub(super) async fn decide(core: &Core, ask: &Ask<'_>) -> Result<Decision> {
    let Some(node) = ask.user.node_name() else {
        return Ok(no(""));
    };
    if !ask.is_resource {
        return Ok(by_rules(ask));
    }
    match (ask.group, ask.resource) {
        ("", "secrets" | "configmaps") => read_related(core, ask, node, true).await,
        ("", "persistentvolumeclaims") if ask.subresource == "status" => Ok(by_rules(ask)),
        ("", "persistentvolumeclaims") => get_related(core, ask, node).await,
        ("resource.k8s.io", "resourceclaims") => get_related(core, ask, node).await,
        ("", "serviceaccounts") if ask.subresource == "token" => token(core, ask, node).await,
        ("", "nodes") => Ok(nodes(ask, node)),
        ("", "pods") => Ok(pods(ask, node)),
        ("resource.k8s.io", "resourceslices") => slices(core, ask, node).await,
        ("coordination.k8s.io", "leases") => Ok(leases(ask, node)),
        ("storage.k8s.io", "csinodes") => Ok(csi_nodes(ask, node)),
        _ => Ok(by_rules(ask)),
    }
}

/// What all nodes may do.
fn by_rules(ask: &Ask<'_>) -> Decision {
    if policy::node_rules().iter().any(|rule| rule.allows(ask)) {
        allow()
    } else {
        no("")
    }
}

fn unrelated(node: &str) -> Decision {
    no(format!(
        "no relationship found between node '{node}' and this object"
    ))
}

async fn read_related(core: &Core, ask: &Ask<'_>, node: &str, _single: bool) -> Result<Decision> {
    if !matches!(ask.verb, "get" | "list" | "watch") {
        return Ok(no("can only read resources of this type"));
    }
    if !ask.subresource.is_empty() {
        return Ok(no("cannot read subresource"));
    }
    if ask.name.is_empty() || ask.namespace.is_empty() {
        return Ok(no("No Object name found"));
    }
    related(core, ask, node).await
}

async fn get_related(core: &Core, ask: &Ask<'_>, node: &str) -> Result<Decision> {
    if ask.verb != "get" || ask.name.is_empty() {
        return Ok(no("can only get individual resources of this type"));
    }
    if !ask.subresource.is_empty() {
        return Ok(no("cannot get subresource"));
    }
    related(core, ask, node).await
}

async fn related(core: &Core, ask: &Ask<'_>, node: &str) -> Result<Decision> {
    for pod in pods_on(core, node, ask.namespace).await? {
        if refers(&pod, ask.resource, ask.name) {
            return Ok(allow());
        }
    }
    Ok(unrelated(node))
}

async fn token(core: &Core, ask: &Ask<'_>, node: &str) -> Result<Decision> {
    if ask.verb != "create" || ask.name.is_empty() {
        return Ok(no("can only create tokens for individual service accounts"));
    }
    for pod in pods_on(core, node, ask.namespace).await? {
        if text(&pod, &["spec", "serviceAccountName"]) == ask.name {
            return Ok(allow());
        }
    }
    Ok(unrelated(node))
}

fn nodes(ask: &Ask<'_>, node: &str) -> Decision {
    match (ask.subresource, ask.verb) {
        ("", "create" | "update" | "patch") => allow(),
        ("", "get" | "list" | "watch") => {
            if ask.name == node {
                allow()
            } else if ask.name.is_empty() {
                no(format!(
                    "node '{node}' cannot read all nodes, only its own Node object"
                ))
            } else {
                no(format!(
                    "node '{node}' cannot read '{}', only its own Node object",
                    ask.name
                ))
            }
        }
        ("status", "update" | "patch") => allow(),
        _ => by_rules(ask),
    }
}

fn pods(ask: &Ask<'_>, node: &str) -> Decision {
    match (ask.subresource, ask.verb) {
        ("", "list" | "watch") => match ask.fields.and_then(|fields| fields.exact("spec.nodeName"))
        {
            Some(selected) if selected == node => allow(),
            _ => no("can only list/watch pods with spec.nodeName field selector"),
        },
        ("", "get" | "create" | "delete") => allow(),
        ("status", "update" | "patch") => allow(),
        ("eviction", "create") => allow(),
        _ => no(""),
    }
}

async fn slices(core: &Core, ask: &Ask<'_>, node: &str) -> Result<Decision> {
    if !ask.subresource.is_empty() {
        return Ok(no("cannot authorize ResourceSlice subresources"));
    }
    match ask.verb {
        "create" => Ok(allow()),
        "get" | "update" | "patch" | "delete" => {
            let entry = core
                .backend
                .get("resource.k8s.io/resourceslices", ask.name)
                .await?;
            let slice: Value = entry
                .and_then(|entry| serde_json::from_slice(&entry.value).ok())
                .unwrap_or(Value::Null);
            Ok(if text(&slice, &["spec", "nodeName"]) == node {
                allow()
            } else {
                unrelated(node)
            })
        }
        "list" | "watch" | "deletecollection" => {
            match ask.fields.and_then(|fields| fields.exact("spec.nodeName")) {
                Some(selected) if selected == node => Ok(allow()),
                _ => Ok(no(
                    "can only list/watch/deletecollection resourceslices with nodeName field selector",
                )),
            }
        }
        _ => Ok(no(
            "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
        )),
    }
}

fn leases(ask: &Ask<'_>, node: &str) -> Decision {
    if !matches!(ask.verb, "get" | "create" | "update" | "patch" | "delete") {
        return no("can only get, create, update, patch, or delete a node lease");
    }
    if ask.namespace != "kube-node-lease" {
        return no("can only access leases in the \"kube-node-lease\" system namespace");
    }
    // The name of a new object is not part of its path.
    if ask.verb != "create" && ask.name != node {
        return no("can only access node lease with the same name as the requesting node");
    }
    allow()
}

fn csi_nodes(ask: &Ask<'_>, node: &str) -> Decision {
    if !matches!(ask.verb, "get" | "create" | "update" | "patch" | "delete") {
        return no("can only get, create, update, patch, or delete a CSINode");
    }
    if !ask.subresource.is_empty() {
        return no("cannot authorize CSINode subresources");
    }
    if ask.verb != "create" && ask.name != node {
        return no("can only access CSINode with the same name as the requesting node");
    }
    allow()
}

/// The pods of a namespace that are assigned to a node.
async fn pods_on(core: &Core, node: &str, namespace: &str) -> Result<Vec<Value>> {
    let registry = core.registry.load();
    let Some(resource) = registry.get("", "pods") else {
        return Ok(Vec::new());
    };
    let prefix = format!("{namespace}/");
    let page = core
        .backend
        .list(
            "pods",
            ListOptions {
                prefix: &prefix,
                ..ListOptions::default()
            },
        )
        .await?;
    let on_node = |entry: &&Arc<Entry>| {
        Attributes::of_entry(resource, entry).field("spec.nodeName") == Some(node)
    };
    Ok(page
        .entries
        .iter()
        .filter(on_node)
        .filter_map(|entry| serde_json::from_slice(&entry.value).ok())
        .collect())
}

/// A pod needs an object of its namespace.
fn refers(pod: &Value, resource: &str, name: &str) -> bool {
    let spec = &pod["spec"];
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let containers = ["containers", "initContainers", "ephemeralContainers"]
        .iter()
        .flat_map(|key| items(&spec[*key]));
    match resource {
        "resourceclaims" => {
            items(&spec["resourceClaims"])
                .iter()
                .any(|claim| claim["resourceClaimName"] == name)
                || items(&pod["status"]["resourceClaimStatuses"])
                    .iter()
                    .any(|claim| claim["resourceClaimName"] == name)
                || pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"] == name
        }
        "persistentvolumeclaims" => items(&spec["volumes"]).iter().any(|volume| {
            volume["persistentVolumeClaim"]["claimName"] == name
                || (volume["ephemeral"].is_object()
                    && format!(
                        "{}-{}",
                        text(pod, &["metadata", "name"]),
                        text(volume, &["name"])
                    ) == name)
        }),
        "configmaps" | "secrets" => {
            let (volume_key, name_key, env_key, ref_key) = if resource == "secrets" {
                ("secret", "secretName", "secretKeyRef", "secretRef")
            } else {
                ("configMap", "name", "configMapKeyRef", "configMapRef")
            };
            items(&spec["volumes"]).iter().any(|volume| {
                volume[volume_key][name_key] == name
                    || items(&volume["projected"]["sources"])
                        .iter()
                        .any(|source| source[volume_key]["name"] == name)
            }) || (resource == "secrets"
                && items(&spec["imagePullSecrets"])
                    .iter()
                    .any(|secret| secret["name"] == name))
                || containers.into_iter().any(|container| {
                    items(&container["env"])
                        .iter()
                        .any(|env| env["valueFrom"][env_key]["name"] == name)
                        || items(&container["envFrom"])
                            .iter()
                            .any(|env| env[ref_key]["name"] == name)
                })
        }
        _ => false,
    }
}
