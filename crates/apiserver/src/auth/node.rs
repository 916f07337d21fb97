//! The node authorizer: what a node agent may do because of what runs on its node.
//!
//! Upstream keeps a graph of these relations (plugin/pkg/auth/authorizer/node); here they are looked up, so that an
//! answer is never older than the store:
//!
//! ```text
//! node <- pod <- secret, config map, service account, resource claim
//! node <- pod <- persistent volume claim <- persistent volume <- secret
//! node <- resource slice, volume attachment, pod certificate request
//! ```
//!
//! A mirror pod grants nothing: otherwise its node could create one that refers to any object it wants to read.

use allot_model::features::{Feature, Release};
use serde_json::Value;

use super::authorize::AuthorizerAttributes;
use super::decision::Decision;
use super::policy;
use crate::error::Result;
use crate::object::text;
use crate::state::ServerState;

mod relations;

use relations::View;

/// The namespace of the node heartbeat leases.
pub(crate) const LEASES: &str = "kube-node-lease";
const SLICES: &str = "resource.k8s.io/resourceslices";
/// Where a slice names its node, in any version of the API.
const OF_SLICE: [&str; 2] = ["spec.nodeName", "nodeName"];
/// What of a pod refers to other objects.
const OF_POD: [&str; 4] = ["metadata.name", "metadata.annotations", "spec", "status"];

fn no(reason: impl Into<String>) -> Decision {
    Decision::no_opinion(reason)
}

fn allow() -> Decision {
    Decision::allow("")
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
    let features = &core.config.features;
    let release = features.release();
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
        ("", "serviceaccounts") => {
            // KubeletServiceAccountTokenForCredentialProviders, which is on since then, or this one.
            let reads =
                release >= Release::new(34) || features.enabled(Feature::PodCertificateRequest);
            view.account(attributes, reads).await
        }
        ("coordination.k8s.io", "leases") => Ok(lease(attributes, node)),
        ("storage.k8s.io", "csinodes") => Ok(csi_node(attributes, node)),
        ("resource.k8s.io", "resourceslices") => view.slice(attributes, with_selectors).await,
        ("", "nodes") if with_selectors => Ok(own_node(attributes, node)),
        ("", "pods") if with_selectors => view.pod(attributes).await,
        ("certificates.k8s.io", "podcertificaterequests") => {
            match features.enabled(Feature::PodCertificateRequest) && with_selectors {
                true => view.pod_certificate(attributes).await,
                false => Ok(no("")),
            }
        }
        ("certificates.k8s.io", "clustertrustbundles")
            if features.enabled(Feature::ClusterTrustBundle)
                && matches!(attributes.verb, "get" | "list" | "watch") =>
        {
            Ok(allow())
        }
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
