//! Node agents change only what is theirs; new nodes take no pods until they are ready.

use serde_json::{Value, json};

use super::{Attributes, Operation, forbidden, stored};
use crate::error::Result;
use crate::object::{meta, string_map, text};
use crate::server::Core;

/// Keeps pods away from a node whose agent has not said yet that it is ready.
pub(super) fn taint_not_ready(node: &mut Value) {
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let taints = node["spec"]["taints"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    if !taints
        .iter()
        .any(|known| known["key"] == taint["key"] && known["effect"] == taint["effect"])
    {
        if !node["spec"].is_object() {
            node["spec"] = json!({});
        }
        node["spec"]["taints"] = [taints, vec![taint]].concat().into();
    }
}

/// Refuses what a node agent may not do to objects of others.
pub(super) async fn restrict(
    core: &Core,
    attributes: &Attributes<'_>,
    object: &Value,
) -> Result<()> {
    let Some(node) = attributes.user.node_name() else {
        return Ok(());
    };
    match (
        attributes.resource.group.as_str(),
        attributes.resource.plural.as_str(),
    ) {
        ("", "pods") => pods(core, attributes, node, object).await,
        ("", "nodes") => nodes(attributes, node, object),
        ("coordination.k8s.io", "leases") => own_name(
            attributes,
            node,
            object,
            "can only access node lease with the same name as the requesting node",
        ),
        ("storage.k8s.io", "csinodes") => own_name(
            attributes,
            node,
            object,
            "can only access CSINode with the same name as the requesting node",
        ),
        ("resource.k8s.io", "resourceslices") => slices(attributes, node, object),
        _ => Ok(()),
    }
}

fn own_name(attributes: &Attributes<'_>, node: &str, object: &Value, why: &str) -> Result<()> {
    let name = if attributes.name.is_empty() {
        meta(object, "name")
    } else {
        attributes.name
    };
    if name == node {
        Ok(())
    } else {
        Err(forbidden(attributes, why))
    }
}

async fn pods(core: &Core, attributes: &Attributes<'_>, node: &str, object: &Value) -> Result<()> {
    let refuse = |why: String| Err(forbidden(attributes, &why));
    match (attributes.operation, attributes.subresource) {
        (Operation::Create, "") => {
            if !meta_annotation(object, "kubernetes.io/config.mirror") {
                return refuse(format!(
                    "pod does not have \"kubernetes.io/config.mirror\" annotation, node {node:?} can only create mirror pods"
                ));
            }
            if text(object, &["spec", "nodeName"]) != node {
                return refuse(format!(
                    "node {node:?} can only create pods with spec.nodeName set to itself"
                ));
            }
            for (key, what) in [("serviceAccountName", "service accounts")] {
                if !text(object, &["spec", key]).is_empty() {
                    return refuse(format!(
                        "node {node:?} can not create pods that reference {what}"
                    ));
                }
            }
            if object["spec"]["resourceClaims"]
                .as_array()
                .is_some_and(|claims| !claims.is_empty())
            {
                return refuse(format!(
                    "node {node:?} can not create pods that reference resourceclaims"
                ));
            }
            Ok(())
        }
        (Operation::Delete, "") => {
            let old = attributes.old.unwrap_or(&Value::Null);
            if text(old, &["spec", "nodeName"]) != node {
                return refuse(format!(
                    "node {node:?} can only delete pods with spec.nodeName set to itself"
                ));
            }
            Ok(())
        }
        (Operation::Update, "status") => {
            let old = attributes.old.unwrap_or(&Value::Null);
            if text(old, &["spec", "nodeName"]) != node {
                return refuse(format!(
                    "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
                ));
            }
            if string_map(&old["metadata"]["labels"]) != string_map(&object["metadata"]["labels"]) {
                return refuse(format!(
                    "node {node:?} cannot update labels through pod status"
                ));
            }
            for key in ["resourceClaimStatuses", "extendedResourceClaimStatus"] {
                if old["status"][key] != object["status"][key] {
                    return refuse(format!(
                        "node {node:?} cannot update {} for pod status",
                        status_words(key)
                    ));
                }
            }
            Ok(())
        }
        (Operation::Create, "eviction") => {
            let key = format!("{}/{}", attributes.namespace, attributes.name);
            let pod = stored(core, "pods", &key).await?.unwrap_or(Value::Null);
            if text(&pod, &["spec", "nodeName"]) != node {
                return refuse(format!(
                    "node {node} can only evict pods with spec.nodeName set to itself"
                ));
            }
            Ok(())
        }
        (Operation::Connect, _) => Ok(()),
        (_, subresource) => refuse(format!("unexpected operation on pods/{subresource}")),
    }
}

fn status_words(key: &str) -> &'static str {
    if key == "resourceClaimStatuses" {
        "resource claim statuses"
    } else {
        "extended resource claim status"
    }
}

fn meta_annotation(object: &Value, key: &str) -> bool {
    object["metadata"]["annotations"][key].is_string()
}

fn nodes(attributes: &Attributes<'_>, node: &str, object: &Value) -> Result<()> {
    let refuse = |why: String| Err(forbidden(attributes, &why));
    let name = if attributes.name.is_empty() {
        meta(object, "name")
    } else {
        attributes.name
    };
    if attributes.operation == Operation::Delete {
        return Ok(());
    }
    if name != node {
        return refuse(format!(
            "node {node:?} is not allowed to modify node {name:?}"
        ));
    }
    let old = attributes.old.unwrap_or(&Value::Null);
    if attributes.operation == Operation::Create && object["spec"]["configSource"].is_object() {
        return refuse(format!(
            "node {node:?} is not allowed to create pods with a non-nil configSource"
        ));
    }
    if attributes.operation == Operation::Update
        && object["spec"]["taints"] != old["spec"]["taints"]
        && attributes.subresource.is_empty()
    {
        return refuse(format!("node {node:?} is not allowed to modify taints"));
    }
    let (new, known) = (
        string_map(&object["metadata"]["labels"]),
        string_map(&old["metadata"]["labels"]),
    );
    let changed = |key: &str| new.get(key) != known.get(key);
    let keys: std::collections::BTreeSet<&String> = new.keys().chain(known.keys()).collect();
    let restricted: Vec<&str> = keys
        .into_iter()
        .filter(|key| changed(key) && is_restricted(key))
        .map(String::as_str)
        .collect();
    if !restricted.is_empty() {
        let verb = if attributes.operation == Operation::Create {
            "set"
        } else {
            "modify"
        };
        return refuse(format!(
            "is not allowed to {verb} the following labels: {}",
            restricted.join(", ")
        ));
    }
    Ok(())
}

/// Labels of the kubernetes.io domains that a node agent may not give itself.
fn is_restricted(key: &str) -> bool {
    const OWN: [&str; 12] = [
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.kubernetes.io/zone",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
    ];
    let Some((domain, _)) = key.split_once('/') else {
        return false;
    };
    let kubernetes = |suffix: &str| domain == suffix || domain.ends_with(&format!(".{suffix}"));
    if domain == "node-restriction.kubernetes.io"
        || domain.ends_with(".node-restriction.kubernetes.io")
    {
        return true;
    }
    if !(kubernetes("kubernetes.io") || kubernetes("k8s.io")) || OWN.contains(&key) {
        return false;
    }
    !["kubelet.kubernetes.io", "node.kubernetes.io"]
        .iter()
        .any(|own| domain == *own || domain.ends_with(&format!(".{own}")))
}

fn slices(attributes: &Attributes<'_>, node: &str, object: &Value) -> Result<()> {
    match attributes.operation {
        Operation::Create if text(object, &["spec", "nodeName"]) != node => Err(forbidden(
            attributes,
            "can only create ResourceSlice with the same NodeName as the requesting node",
        )),
        Operation::Delete
            if text(
                attributes.old.unwrap_or(&Value::Null),
                &["spec", "nodeName"],
            ) != node =>
        {
            Err(forbidden(
                attributes,
                "can only delete ResourceSlice with the same NodeName as the requesting node",
            ))
        }
        _ => Ok(()),
    }
}
