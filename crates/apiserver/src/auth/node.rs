//! The node authorizer: what a node agent may do because of what runs on its node.
//!
//! Upstream keeps a graph of these relations (plugin/pkg/auth/authorizer/node); here they are looked up, so that an
//! answer is never older than the store:
//!
//! ```text
//! node <- pod <- secret, config map, service account, resource claim
//! node <- pod <- persistent volume claim <- persistent volume <- secret
//! node <- resource slice, volume attachment
//! ```
//!
//! A mirror pod grants nothing: otherwise its node could create one that refers to any object it wants to read.

use std::sync::Arc;

use allot_model::features::Release;
use allot_store::{Entry, ListOptions};
use serde_json::Value;

use super::authorize::{AuthorizerAttributes, Decision};
use super::policy;
use crate::error::Result;
use crate::object::text;
use crate::references;
use crate::select::{Attributes, extract};
use crate::state::ServerState;

/// The namespace of the node heartbeat leases.
pub(crate) const LEASES: &str = "kube-node-lease";
const SLICES: &str = "resource.k8s.io/resourceslices";
/// Where a slice names its node, in any version of the API.
const OF_SLICE: [&str; 2] = ["spec.nodeName", "nodeName"];
/// What of a pod refers to other objects.
const OF_POD: [&str; 4] = ["metadata.name", "metadata.annotations", "spec", "status"];

fn no(reason: impl Into<String>) -> Decision {
    Decision::NoOpinion(reason.into())
}

fn allow() -> Decision {
    Decision::Allow(String::new())
}

/// The node that a ResourceSlice belongs to, in any version of the API; empty if it is for several nodes.
pub(crate) fn node_of_slice(slice: &Value) -> &str {
    match text(slice, &["spec", "nodeName"]) {
        "" => text(slice, &["nodeName"]),
        named => named,
    }
}

/// Decides about a request of a node agent; of all other users it has no opinion.
///
/// # Errors
/// Those of the store.
pub(super) async fn decide(
    core: &ServerState,
    attributes: &AuthorizerAttributes<'_>,
) -> Result<Decision> {
    let Some(node) = attributes.user.node_identity() else {
        return Ok(no(""));
    };
    if node.is_empty() {
        return Ok(no(format!(
            "unknown node for user {:?}",
            attributes.user.name
        )));
    }
    if !attributes.is_resource {
        return Ok(by_rules(attributes));
    }
    let release = core.config.features.release();
    // AuthorizeNodeWithSelectors.
    let with_selectors = release >= Release::new(32);
    let view = View { core, node };
    match (attributes.group, attributes.resource) {
        ("", "secrets" | "configmaps") => view.read(attributes).await,
        ("", "persistentvolumeclaims") if attributes.subresource == "status" => {
            view.update_status(attributes).await
        }
        ("", "persistentvolumeclaims" | "persistentvolumes")
        | ("resource.k8s.io", "resourceclaims")
        | ("storage.k8s.io", "volumeattachments") => view.get(attributes).await,
        ("", "serviceaccounts") => view.account(attributes, release).await,
        ("coordination.k8s.io", "leases") => Ok(lease(attributes, node)),
        ("storage.k8s.io", "csinodes") => Ok(csi_node(attributes, node)),
        ("resource.k8s.io", "resourceslices") => view.slice(attributes, with_selectors).await,
        ("", "nodes") if with_selectors => Ok(own_node(attributes, node)),
        ("", "pods") if with_selectors => view.pod(attributes).await,
        // The feature PodCertificateRequest is off by default, and the resource is not served.
        ("certificates.k8s.io", "podcertificaterequests") => Ok(no("")),
        ("", "nodes" | "pods") if matches!(attributes.verb, "get" | "list" | "watch") => {
            Ok(match attributes.subresource.is_empty() {
                true => allow(),
                false => no(""),
            })
        }
        _ => Ok(by_rules(attributes)),
    }
}

/// What all nodes may do.
fn by_rules(attributes: &AuthorizerAttributes<'_>) -> Decision {
    if policy::node_rules()
        .iter()
        .any(|rule| rule.allows(attributes))
    {
        allow()
    } else {
        no("")
    }
}

/// The request's field selector restricts it to objects of this node.
fn selects(attributes: &AuthorizerAttributes<'_>, fields: &[&str], node: &str) -> bool {
    attributes.fields.is_some_and(|selector| {
        selector.requirements().iter().any(|requirement| {
            !requirement.negated
                && requirement.value == node
                && fields.contains(&requirement.field.as_str())
        })
    })
}

/// What a node has to do with the objects of the store.
struct View<'a> {
    core: &'a ServerState,
    node: &'a str,
}

impl View<'_> {
    /// Secrets and config maps, which may be watched one by one.
    async fn read(&self, attributes: &AuthorizerAttributes<'_>) -> Result<Decision> {
        if !matches!(attributes.verb, "get" | "list" | "watch") {
            return Ok(no("can only read resources of this type"));
        }
        if !attributes.subresource.is_empty() {
            return Ok(no("cannot read subresource"));
        }
        if attributes.namespace.is_empty() {
            return Ok(no("can only read namespaced object of this type"));
        }
        self.related(attributes).await
    }

    async fn get(&self, attributes: &AuthorizerAttributes<'_>) -> Result<Decision> {
        if attributes.verb != "get" {
            return Ok(no("can only get individual resources of this type"));
        }
        if !attributes.subresource.is_empty() {
            return Ok(no("cannot get subresource"));
        }
        self.related(attributes).await
    }

    async fn update_status(&self, attributes: &AuthorizerAttributes<'_>) -> Result<Decision> {
        if !matches!(attributes.verb, "update" | "patch") {
            return Ok(no("can only get/update/patch this type"));
        }
        self.related(attributes).await
    }

    async fn account(
        &self,
        attributes: &AuthorizerAttributes<'_>,
        release: Release,
    ) -> Result<Decision> {
        if attributes.verb == "get" && attributes.subresource.is_empty() {
            // KubeletServiceAccountTokenForCredentialProviders.
            if release < Release::new(34) {
                return Ok(no("not allowed to get service accounts"));
            }
            return self.read(attributes).await;
        }
        if attributes.verb != "create" || attributes.name.is_empty() {
            return Ok(no("can only create tokens for individual service accounts"));
        }
        if attributes.subresource != "token" {
            return Ok(no("can only create token subresource of serviceaccount"));
        }
        self.related(attributes).await
    }

    async fn pod(&self, attributes: &AuthorizerAttributes<'_>) -> Result<Decision> {
        match (attributes.subresource, attributes.verb) {
            ("", "get") => self.get(attributes).await,
            ("", "list" | "watch") => {
                if selects(attributes, &["spec.nodeName"], self.node) {
                    Ok(allow())
                } else if attributes.name.is_empty() {
                    Ok(no(
                        "can only list/watch pods with spec.nodeName field selector",
                    ))
                } else {
                    self.related(attributes).await
                }
            }
            // Which pods they are is for the plugin NodeRestriction, which sees them.
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => {
                Ok(allow())
            }
            _ => Ok(no("")),
        }
    }

    async fn slice(
        &self,
        attributes: &AuthorizerAttributes<'_>,
        with_selectors: bool,
    ) -> Result<Decision> {
        if !attributes.subresource.is_empty() {
            return Ok(no("cannot authorize ResourceSlice subresources"));
        }
        match attributes.verb {
            // For which node it is the plugin NodeRestriction sees.
            "create" => Ok(allow()),
            "get" | "update" | "patch" | "delete" => self.related(attributes).await,
            "list" | "watch" | "deletecollection" => {
                if !with_selectors || selects(attributes, &["spec.nodeName", "nodeName"], self.node)
                {
                    return Ok(allow());
                }
                Ok(no(
                    "can only list/watch/deletecollection resourceslices with nodeName field selector",
                ))
            }
            _ => Ok(no(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, \
                 delete, deletecollection",
            )),
        }
    }

    /// Allows what has to do with the node.
    async fn related(&self, attributes: &AuthorizerAttributes<'_>) -> Result<Decision> {
        if attributes.name.is_empty() {
            return Ok(no("No Object name found"));
        }
        if self.is_related(attributes).await? {
            return Ok(allow());
        }
        Ok(no(format!(
            "no relationship found between node '{}' and this object",
            self.node
        )))
    }

    async fn is_related(&self, attributes: &AuthorizerAttributes<'_>) -> Result<bool> {
        let (namespace, name) = (attributes.namespace, attributes.name);
        match attributes.resource {
            "pods" => {
                let key = format!("{namespace}/{name}");
                let pod = self.stored("pods", &key, &["spec.nodeName"]).await?;
                Ok(text(&pod, &["spec", "nodeName"]) == self.node)
            }
            "resourceslices" => {
                let slice = self.stored(SLICES, name, &OF_SLICE).await?;
                Ok(node_of_slice(&slice) == self.node)
            }
            "volumeattachments" => {
                let collection = "storage.k8s.io/volumeattachments";
                let found = self.stored(collection, name, &["spec.nodeName"]).await?;
                Ok(text(&found, &["spec", "nodeName"]) == self.node)
            }
            "persistentvolumes" => {
                let volume = self
                    .stored("persistentvolumes", name, &["spec.claimRef"])
                    .await?;
                self.mounts(&volume).await
            }
            "persistentvolumeclaims" => self.claims(namespace, name).await,
            "resourceclaims" => {
                let refers = |pod: &Value| references::resource_claims(pod).any(|it| it == name);
                self.some_pod(namespace, refers).await
            }
            "serviceaccounts" => {
                let refers = |pod: &Value| text(pod, &["spec", "serviceAccountName"]) == name;
                self.some_pod(namespace, refers).await
            }
            "configmaps" => {
                let refers = |pod: &Value| references::config_maps(pod).any(|it| it == name);
                self.some_pod(namespace, refers).await
            }
            "secrets" => {
                let refers = |pod: &Value| references::secrets(pod).any(|it| it == name);
                Ok(self.some_pod(namespace, refers).await?
                    || self.some_volume_needs(namespace, name).await?)
            }
            _ => Ok(false),
        }
    }

    /// A pod of the node uses the persistent volume claim.
    async fn claims(&self, namespace: &str, name: &str) -> Result<bool> {
        let refers = |pod: &Value| references::volume_claims(pod).any(|it| it == name);
        self.some_pod(namespace, refers).await
    }

    /// A pod of the node uses the claim that a persistent volume is for.
    async fn mounts(&self, volume: &Value) -> Result<bool> {
        let claim = |key| text(volume, &["spec", "claimRef", key]);
        match (claim("namespace"), claim("name")) {
            ("", _) | (_, "") => Ok(false),
            (namespace, name) => self.claims(namespace, name).await,
        }
    }

    /// A persistent volume of the node's pods needs the secret.
    async fn some_volume_needs(&self, namespace: &str, name: &str) -> Result<bool> {
        let volumes = self
            .core
            .backend
            .list("persistentvolumes", ListOptions::default())
            .await?;
        for entry in &volumes.entries {
            // Most volumes do not have the name anywhere: only the others are read.
            if !std::str::from_utf8(&entry.value).is_ok_and(|text| text.contains(name)) {
                continue;
            }
            let volume = extract(&entry.value, &["spec"]);
            if references::secrets_of_volume(&volume).contains(&(namespace, name))
                && self.mounts(&volume).await?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The namespace has a pod on the node that is no mirror pod and `refers` to the object.
    async fn some_pod(&self, namespace: &str, refers: impl Fn(&Value) -> bool) -> Result<bool> {
        let Some(resource) = self.core.registry.load().get("", "pods").cloned() else {
            return Ok(false);
        };
        let prefix = format!("{namespace}/");
        let options = ListOptions {
            prefix: &prefix,
            ..ListOptions::default()
        };
        let page = self.core.backend.list("pods", options).await?;
        let on_node = |entry: &&Arc<Entry>| {
            Attributes::of_entry(&resource, entry).field("spec.nodeName") == Some(self.node)
        };
        Ok(page
            .entries
            .iter()
            .filter(on_node)
            .map(|entry| extract(&entry.value, &OF_POD))
            .any(|pod| !references::is_mirror(&pod) && refers(&pod)))
    }

    /// What counts of a stored object, null if it does not exist.
    async fn stored(&self, collection: &str, key: &str, paths: &[&str]) -> Result<Value> {
        let found = self.core.stored_parts(collection, key, paths).await?;
        Ok(found.unwrap_or_default())
    }
}

/// Node objects: a node reads its own, also before it exists; writes are checked by the plugin NodeRestriction.
fn own_node(attributes: &AuthorizerAttributes<'_>, node: &str) -> Decision {
    match (attributes.subresource, attributes.verb) {
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => allow(),
        ("", "get" | "list" | "watch") if attributes.name == node => allow(),
        ("", "get" | "list" | "watch") if attributes.name.is_empty() => no(format!(
            "node '{node}' cannot read all nodes, only its own Node object"
        )),
        ("", "get" | "list" | "watch") => no(format!(
            "node '{node}' cannot read '{}', only its own Node object",
            attributes.name
        )),
        _ => no(""),
    }
}

fn lease(attributes: &AuthorizerAttributes<'_>, node: &str) -> Decision {
    if !matches!(
        attributes.verb,
        "get" | "create" | "update" | "patch" | "delete"
    ) {
        return no("can only get, create, update, patch, or delete a node lease");
    }
    if attributes.namespace != LEASES {
        return no(format!(
            "can only access leases in the {LEASES:?} system namespace"
        ));
    }
    // The name of a new object is not part of its path.
    if attributes.verb != "create" && attributes.name != node {
        return no("can only access node lease with the same name as the requesting node");
    }
    allow()
}

fn csi_node(attributes: &AuthorizerAttributes<'_>, node: &str) -> Decision {
    if !matches!(
        attributes.verb,
        "get" | "create" | "update" | "patch" | "delete"
    ) {
        return no("can only get, create, update, patch, or delete a CSINode");
    }
    if !attributes.subresource.is_empty() {
        return no("cannot authorize CSINode subresources");
    }
    if attributes.verb != "create" && attributes.name != node {
        return no("can only access CSINode with the same name as the requesting node");
    }
    allow()
}
