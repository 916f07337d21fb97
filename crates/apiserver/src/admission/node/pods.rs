//! Pods of a node agent: mirror pods, the status of pods on its node, evictions from it.

use allot_model::features::Feature;
use serde_json::Value;

use super::{has_any, is_same, not_there, operation};
use crate::admission::Admission;
use crate::admission::{Attributes, Operation, forbidden};
use crate::error::Result;
use crate::object::{items, meta, string_map, text};
use crate::references;

pub(super) async fn restrict(
    core: &Admission,
    attributes: &Attributes<'_>,
    node: &str,
    object: &Value,
) -> Result<()> {
    let refuse = |why: String| Err(forbidden(attributes, &why));
    match attributes.subresource {
        "" => match attributes.operation {
            Operation::Create => mirror(core, attributes, node, object).await,
            Operation::Delete => {
                let old = attributes.old.unwrap_or(&Value::Null);
                if text(old, &["spec", "nodeName"]) == node {
                    return Ok(());
                }
                refuse(format!(
                    "node {node:?} can only delete pods with spec.nodeName set to itself"
                ))
            }
            _ => refuse(format!(
                "unexpected operation {:?}, node {node:?} can only create and delete mirror pods",
                operation(attributes)
            )),
        },
        "status" => status(core, attributes, node, object),
        "eviction" => eviction(core, attributes, node).await,
        other => refuse(format!(
            "unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"
        )),
    }
}

/// A node shows the pods that it runs from its own files. They are the node's, and name nothing that it could not read
/// before.
async fn mirror(
    core: &Admission,
    attributes: &Attributes<'_>,
    node: &str,
    pod: &Value,
) -> Result<()> {
    let refuse = |why: String| Err(forbidden(attributes, &why));
    if !references::is_mirror(pod) {
        return refuse(format!(
            "pod does not have {:?} annotation, node {node:?} can only create mirror pods",
            allot_model::validate::pod::MIRROR_ANNOTATION
        ));
    }
    if text(pod, &["spec", "nodeName"]) != node {
        return refuse(format!(
            "node {node:?} can only create pods with spec.nodeName set to itself"
        ));
    }
    let owner = match items(&pod["metadata"]["ownerReferences"]) {
        [owner] => owner,
        [] => {
            return refuse(format!(
                "node {node:?} can only create pods with an owner reference set to itself"
            ));
        }
        _ => {
            return refuse(format!(
                "node {node:?} can only create pods with a single owner reference set to itself"
            ));
        }
    };
    if owner["apiVersion"] != "v1" || owner["kind"] != "Node" || owner["name"] != node {
        return refuse(format!(
            "node {node:?} can only create pods with an owner reference set to itself"
        ));
    }
    if owner["controller"] != true {
        return refuse(format!(
            "node {node:?} can only create pods with a controller owner reference set to itself"
        ));
    }
    if owner["blockOwnerDeletion"] == true {
        return refuse(format!(
            "node {node:?} must not set blockOwnerDeletion on an owner reference"
        ));
    }
    let Some(known) = core.stored_parts("nodes", node, &["metadata.uid"]).await? else {
        return Err(not_there("node", node));
    };
    let (uid, sent) = (meta(&known, "uid"), text(owner, &["uid"]));
    if sent != uid {
        return refuse(format!(
            "node {node} UID mismatch: expected {sent} got {uid}"
        ));
    }
    match references::of_api(pod) {
        Ok(None) => Ok(()),
        Ok(Some(what)) => refuse(format!(
            "node {node:?} can not create pods that reference {what}"
        )),
        Err(why) => refuse(format!(
            "error checking mirror pod for API references: {why}"
        )),
    }
}

fn status(core: &Admission, attributes: &Attributes<'_>, node: &str, pod: &Value) -> Result<()> {
    let refuse = |why: String| Err(forbidden(attributes, &why));
    if attributes.operation != Operation::Update {
        return refuse(format!("unexpected operation {:?}", operation(attributes)));
    }
    let old = attributes.old.unwrap_or(&Value::Null);
    if text(old, &["spec", "nodeName"]) != node {
        return refuse(format!(
            "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
        ));
    }
    let labels = |pod: &Value| string_map(&pod["metadata"]["labels"]);
    if labels(old) != labels(pod) {
        return refuse(format!(
            "node {node:?} cannot update labels through pod status"
        ));
    }
    // Either would let the node read claims.
    if claim_statuses(old) != claim_statuses(pod) {
        return refuse(format!(
            "node {node:?} cannot update resource claim statues"
        ));
    }
    if extended_claim(old) != extended_claim(pod) {
        return refuse(format!(
            "node {node:?} cannot update extended resource claim status"
        ));
    }
    // The scheduler's record of node resources. Upstream checks it from 1.37 on.
    let counted = |pod: &Value| pod["status"]["nodeAllocatableResourceClaimStatuses"].clone();
    let features = &core.config.features;
    if features.enabled(Feature::DRANodeAllocatableResources)
        && !is_same(&counted(old), &counted(pod))
    {
        return refuse(format!(
            "node {node:?} cannot update node allocatable resource claim statuses"
        ));
    }
    Ok(())
}

/// What of the claims in a pod's status counts: their names, and whether there is one.
fn claim_statuses(pod: &Value) -> Vec<(&str, Option<&str>)> {
    items(&pod["status"]["resourceClaimStatuses"])
        .iter()
        .map(|status| {
            let claim = status["resourceClaimName"].as_str();
            (text(status, &["name"]), claim)
        })
        .collect()
}

/// The extended resource claim of a pod, and its requests by container.
fn extended_claim(pod: &Value) -> Option<(&str, Vec<[&str; 3]>)> {
    let status = &pod["status"]["extendedResourceClaimStatus"];
    if status.is_null() {
        return None;
    }
    let mappings = match has_any(&status["requestMappings"]) {
        true => items(&status["requestMappings"]),
        false => &[],
    };
    let mapped = mappings.iter().map(|mapping| {
        ["containerName", "resourceName", "requestName"].map(|key| text(mapping, &[key]))
    });
    Some((text(status, &["resourceClaimName"]), mapped.collect()))
}

async fn eviction(core: &Admission, attributes: &Attributes<'_>, node: &str) -> Result<()> {
    let refuse = |why: String| Err(forbidden(attributes, &why));
    if attributes.operation != Operation::Create {
        return refuse(format!("unexpected operation {}", operation(attributes)));
    }
    let key = format!("{}/{}", attributes.namespace, attributes.name);
    let Some(pod) = core.stored_parts("pods", &key, &["spec.nodeName"]).await? else {
        return Err(not_there("pod", attributes.name));
    };
    if text(&pod, &["spec", "nodeName"]) != node {
        return refuse(format!(
            "node {node} can only evict pods with spec.nodeName set to itself"
        ));
    }
    Ok(())
}
