//! The plugin NodeRestriction: kubelets change only their own objects; and new nodes get no pods until they are ready.
//!
//! The node authorizer permits kubelets access to kinds of objects; the content of a new or changed object, which it
//! cannot see, is checked here. Rules and texts are those of upstream's plugin/pkg/admission/noderestriction. Of a
//! ResourceSlice only the node is checked, not its pool, as in upstream.

mod pod_certificates;
mod pods;
mod tokens;

use allot_apimachinery::well_known;
use allot_model::features::Release;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

use super::Admission;
use super::escalation::{is_empty, is_same};
use super::{Attributes, Operation, forbidden};
use crate::auth::node::{LEASES, node_of_slice};
use crate::error::Result;
use crate::object::{items, meta, string_map, text};

/// Keeps pods away from a node until its kubelet has reported it ready.
pub(super) fn taint_not_ready(node: &mut Value) {
    let taint = json!({"key": well_known::TAINT_NODE_NOT_READY, "effect": "NoSchedule"});
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

/// Refuses what a node agent may not do to objects of others, or to its own.
///
/// # Errors
/// 403, 404 if an object that it refers to does not exist, and errors of the store.
pub(super) async fn restrict(
    core: &Admission,
    attributes: &Attributes<'_>,
    object: &Value,
) -> Result<()> {
    let Some(node) = attributes.user.node_identity() else {
        return Ok(());
    };
    // Upstream's plugin does not handle streams.
    if attributes.operation == Operation::Connect {
        return Ok(());
    }
    if node.is_empty() {
        let why = format!(
            "could not determine node from user {:?}",
            attributes.user.name
        );
        return Err(forbidden(attributes, &why));
    }
    match (
        attributes.resource.group.as_str(),
        attributes.resource.plural.as_str(),
        attributes.subresource,
    ) {
        ("", "pods", _) => pods::restrict(core, attributes, node, object).await,
        ("", "nodes", _) => own_node(attributes, node, object),
        ("", "persistentvolumeclaims", "status") => claim_status(attributes, node, object),
        ("", "persistentvolumeclaims", _) => {
            Err(forbidden(attributes, "may only update PVC status"))
        }
        ("", "serviceaccounts", "token") if attributes.operation == Operation::Create => {
            tokens::restrict(core, attributes, node, object).await
        }
        ("coordination.k8s.io", "leases", _) => lease(attributes, node, object),
        ("storage.k8s.io", "csinodes", _) => {
            let why = "can only access CSINode with the same name as the requesting node";
            own_name(attributes, node, object, why)
        }
        ("resource.k8s.io", "resourceslices", _) => slice(attributes, node, object),
        ("certificates.k8s.io", "podcertificaterequests", _) => {
            pod_certificates::restrict(core, attributes, node, object).await
        }
        // AllowInsecureKubeletCertificateSigningRequests was the rule before 1.31.
        ("certificates.k8s.io", "certificatesigningrequests", _)
            if core.config.features.release() >= Release::new(31) =>
        {
            certificate(attributes, node, object)
        }
        _ => Ok(()),
    }
}

/// The operation as upstream prints it.
fn operation(attributes: &Attributes<'_>) -> &'static str {
    match attributes.operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
        Operation::Connect => "CONNECT",
    }
}

/// The name of the object: of a new object the one in its metadata.
fn name_of<'a>(attributes: &'a Attributes<'_>, object: &'a Value) -> &'a str {
    match attributes.operation {
        Operation::Create => meta(object, "name"),
        _ => attributes.name,
    }
}

fn own_name(attributes: &Attributes<'_>, node: &str, object: &Value, why: &str) -> Result<()> {
    if name_of(attributes, object) == node {
        Ok(())
    } else {
        Err(forbidden(attributes, why))
    }
}

fn lease(attributes: &Attributes<'_>, node: &str, object: &Value) -> Result<()> {
    if attributes.namespace != LEASES {
        let why = format!("can only access leases in the {LEASES:?} system namespace");
        return Err(forbidden(attributes, &why));
    }
    let why = "can only access node lease with the same name as the requesting node";
    own_name(attributes, node, object, why)
}

/// A node may report the resize of a volume in the claim's status; all other fields must stay.
fn claim_status(attributes: &Attributes<'_>, node: &str, object: &Value) -> Result<()> {
    if attributes.operation != Operation::Update {
        let why = format!("unexpected operation {:?}", operation(attributes));
        return Err(forbidden(attributes, &why));
    }
    let bare = |claim: &Value| {
        let mut claim = claim.clone();
        let parts: [(&str, &[&str]); 2] = [
            ("metadata", &["resourceVersion", "managedFields"]),
            (
                "status",
                &[
                    "capacity",
                    "conditions",
                    "allocatedResourceStatuses",
                    "allocatedResources",
                ],
            ),
        ];
        for (part, keys) in parts {
            if let Some(part) = claim[part].as_object_mut() {
                part.retain(|key, value| !keys.contains(&key.as_str()) && !is_empty(value));
            }
        }
        claim
    };
    let (old, new) = (bare(attributes.old.unwrap_or(&Value::Null)), bare(object));
    let mut changed = Vec::new();
    for part in ["metadata", "spec", "status"] {
        let of = |claim: &Value| claim[part].as_object().cloned().unwrap_or_default();
        let (old, new) = (of(&old), of(&new));
        let keys: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        let differs = |key: &&String| old.get(*key) != new.get(*key);
        changed.extend(
            keys.into_iter()
                .filter(differs)
                .map(|key| format!("{part}.{key}")),
        );
    }
    if changed.is_empty() {
        return Ok(());
    }
    let why = format!(
        "node {node:?} is not allowed to update fields other than status.quantity and status.conditions: {}",
        changed.join(", ")
    );
    Err(forbidden(attributes, &why))
}

fn own_node(attributes: &Attributes<'_>, node: &str, object: &Value) -> Result<()> {
    let refuse = |why: String| Err(forbidden(attributes, &why));
    let name = name_of(attributes, object);
    if name != node {
        return refuse(format!(
            "node {node:?} is not allowed to modify node {name:?}"
        ));
    }
    let old = attributes.old.unwrap_or(&Value::Null);
    let source = &object["spec"]["configSource"];
    match attributes.operation {
        Operation::Create => {
            if !source.is_null() {
                return refuse(format!(
                    "node {node:?} is not allowed to create pods with a non-nil configSource"
                ));
            }
            let labels = restricted_labels(object, &Value::Null);
            if !labels.is_empty() {
                return refuse(format!(
                    "node {node:?} is not allowed to set the following labels: {labels}"
                ));
            }
        }
        Operation::Update => {
            if !source.is_null() && *source != old["spec"]["configSource"] {
                return refuse(format!(
                    "node {node:?} is not allowed to update configSource to a new non-nil configSource"
                ));
            }
            if !is_same(&object["spec"]["taints"], &old["spec"]["taints"]) {
                return refuse(format!("node {node:?} is not allowed to modify taints"));
            }
            // Garbage collection would delete the node, and its kubelet could create it again without restriction.
            let owners = |node: &Value| node["metadata"]["ownerReferences"].clone();
            if !is_same(&owners(object), &owners(old)) {
                return refuse(format!(
                    "node {node:?} is not allowed to modify ownerReferences"
                ));
            }
            let labels = restricted_labels(object, old);
            if !labels.is_empty() {
                return refuse(format!("is not allowed to modify labels: {labels}"));
            }
        }
        Operation::Delete | Operation::Connect => {}
    }
    Ok(())
}

/// The labels that differ and that a node agent may not give itself, in order, with commas between them.
fn restricted_labels(new: &Value, old: &Value) -> String {
    let labels = |node: &Value| string_map(&node["metadata"]["labels"]);
    let (new, old) = (labels(new), labels(old));
    let keys: std::collections::BTreeSet<&String> = new.keys().chain(old.keys()).collect();
    let restricted = |key: &&String| new.get(*key) != old.get(*key) && is_restricted(key);
    let found: Vec<&str> = keys
        .into_iter()
        .filter(restricted)
        .map(String::as_str)
        .collect();
    found.join(", ")
}

/// Labels of the kubernetes.io domains that a node agent may not give itself.
fn is_restricted(key: &str) -> bool {
    const OWN: [&str; 11] = [
        well_known::LABEL_HOSTNAME,
        well_known::LABEL_TOPOLOGY_ZONE,
        well_known::LABEL_TOPOLOGY_REGION,
        well_known::LABEL_FAILURE_DOMAIN_BETA_ZONE,
        well_known::LABEL_FAILURE_DOMAIN_BETA_REGION,
        well_known::LABEL_INSTANCE_TYPE,
        well_known::LABEL_INSTANCE_TYPE_STABLE,
        well_known::LABEL_OS_STABLE,
        well_known::LABEL_ARCH_STABLE,
        well_known::LABEL_OS,
        well_known::LABEL_ARCH,
    ];
    let Some((domain, _)) = key.split_once('/') else {
        return false;
    };
    let within = |suffix: &str| {
        domain
            .strip_suffix(suffix)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    within("node-restriction.kubernetes.io")
        || (within("kubernetes.io") || within("k8s.io"))
            && !OWN.contains(&key)
            && !within("kubelet.kubernetes.io")
            && !within("node.kubernetes.io")
}

/// The authorizer has checked reads, updates and deletions of single slices; a deletion of a collection arrives here
/// one by one.
fn slice(attributes: &Attributes<'_>, node: &str, object: &Value) -> Result<()> {
    let refuse = |verb: &str| {
        let why =
            format!("can only {verb} ResourceSlice with the same NodeName as the requesting node");
        Err(forbidden(attributes, &why))
    };
    match attributes.operation {
        Operation::Create if node_of_slice(object) != node => refuse("create"),
        Operation::Delete if node_of_slice(attributes.old.unwrap_or(&Value::Null)) != node => {
            refuse("delete")
        }
        _ => Ok(()),
    }
}

/// A node's client certificate may be requested by that node only.
fn certificate(attributes: &Attributes<'_>, node: &str, request: &Value) -> Result<()> {
    const SIGNERS: [&str; 2] = [
        "kubernetes.io/kubelet-serving",
        "kubernetes.io/kube-apiserver-client-kubelet",
    ];
    if attributes.operation != Operation::Create
        || !SIGNERS.contains(&text(request, &["spec", "signerName"]))
    {
        return Ok(());
    }
    match common_name(text(request, &["spec", "request"])) {
        Err(why) => Err(forbidden(
            attributes,
            &format!("unable to parse csr: {why}"),
        )),
        Ok(name) if name == format!("system:node:{node}") => Ok(()),
        Ok(_) => Err(forbidden(
            attributes,
            &format!("can only create a node CSR with CN=system:node:{node}"),
        )),
    }
}

/// The common name in a certificate request. A name that cannot be decoded is an error.
fn common_name(request: &str) -> Result<String, String> {
    const WRONG: &str = "PEM block type must be CERTIFICATE REQUEST";
    let bytes = STANDARD
        .decode(request)
        .map_err(|error| error.to_string())?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&bytes).map_err(|_| WRONG.to_owned())?;
    if pem.label != "CERTIFICATE REQUEST" {
        return Err(WRONG.to_owned());
    }
    let (_, parsed) =
        X509CertificationRequest::from_der(&pem.contents).map_err(|error| error.to_string())?;
    let subject = &parsed.certification_request_info.subject;
    // Of several names the last one is used, as in Go.
    let last = subject.iter_common_name().last();
    Ok(last
        .and_then(|name| name.as_str().ok())
        .unwrap_or_default()
        .to_owned())
}

/// 404 as upstream's listers word it: they name the kind, not the resource.
fn not_there(kind: &str, name: &str) -> crate::error::ApiError {
    let kind = allot_apimachinery::gvk::GroupResource::new("", kind);
    allot_apimachinery::Status::not_found(&kind, name).into()
}

/// Whether the list is not empty.
fn has_any(list: &Value) -> bool {
    !items(list).is_empty()
}
