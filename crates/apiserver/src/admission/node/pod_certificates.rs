//! Pod certificate requests of a node agent: for pods that run on its node, with their own service accounts.

use allot_model::features::Feature;
use serde_json::Value;

use super::operation;
use crate::admission::Admission;
use crate::admission::{Attributes, Operation, forbidden};
use crate::error::{ApiError, Result};
use crate::object::{meta, text};
use crate::references;

pub(super) async fn restrict(
    core: &Admission,
    attributes: &Attributes<'_>,
    node: &str,
    object: &Value,
) -> Result<()> {
    let refuse = |why: String| Err(forbidden(attributes, &why));
    // What may have changed a moment ago: a node tries again.
    let stale = |why: String| Err(ApiError::unknown(why));
    if !core.config.features.enabled(Feature::PodCertificateRequest) {
        return refuse("PodCertificateRequest feature gate is disabled".to_owned());
    }
    if attributes.operation != Operation::Create {
        return refuse(format!("unexpected operation {}", operation(attributes)));
    }
    if !attributes.subresource.is_empty() {
        let subresource = attributes.subresource;
        return refuse(format!("unexpected subresource {subresource}"));
    }
    let asked = |key: &str| text(object, &["spec", key]);
    let namespace = attributes.namespace;
    let named = asked("nodeName");
    if named != node {
        return refuse(format!(
            "PodCertificateRequest.Spec.NodeName={named:?}, which is not the requesting node {node:?}"
        ));
    }
    let pod_key = format!("{namespace}/{}", asked("podName"));
    let missing = |what: String, kind: &str, name: &str| {
        stale(format!(
            "while retrieving {what} named in the PodCertificateRequest: {kind} {name:?} not found"
        ))
    };
    let Some(found) = core.stored("nodes", node).await? else {
        return missing(format!("node {node:?}"), "nodes", node);
    };
    let (uid, known) = (asked("nodeUID"), meta(&found, "uid"));
    if uid != known {
        return stale(format!(
            "PodCertificateRequest for pod {pod_key:?} names node UID {uid:?}, inconsistent with the running node ({known:?})"
        ));
    }
    let Some(pod) = core.stored("pods", &pod_key).await? else {
        return missing(format!("pod {pod_key:?}"), "pods", asked("podName"));
    };
    let (uid, known) = (asked("podUID"), meta(&pod, "uid"));
    if uid != known {
        return stale(format!(
            "PodCertificateRequest for pod {pod_key:?} contains pod UID ({uid:?}) which differs from running pod {known:?}"
        ));
    }
    if text(&pod, &["spec", "nodeName"]) != named {
        return refuse(format!(
            "pod {pod_key:?} is not running on node {named:?} named in the PodCertificateRequest"
        ));
    }
    if references::is_mirror(&pod) {
        return refuse(format!("pod {pod_key:?} is a mirror pod"));
    }
    let (account, known) = (
        asked("serviceAccountName"),
        text(&pod, &["spec", "serviceAccountName"]),
    );
    if account != known {
        return refuse(format!(
            "PodCertificateRequest for pod {pod_key:?} contains serviceAccountName ({account:?}) that differs from running pod ({known:?})"
        ));
    }
    let account_key = format!("{namespace}/{account}");
    let Some(found) = core.stored("serviceaccounts", &account_key).await? else {
        let what = format!("service account {account_key:?}");
        return missing(what, "serviceaccounts", account);
    };
    let (uid, known) = (asked("serviceAccountUID"), meta(&found, "uid"));
    if uid != known {
        return stale(format!(
            "PodCertificateRequest for pod {pod_key:?} names service account UID {uid:?}, which differs from the running service account ({known:?})"
        ));
    }
    Ok(())
}
