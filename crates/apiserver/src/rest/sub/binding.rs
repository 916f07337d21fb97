//! `pods/binding` and `bindings`: a scheduler assigns a pod to a node.

use allot_apimachinery::Status;
use allot_apimachinery::field::joined;
use allot_apimachinery::gvk::GroupResource;
use allot_apimachinery::quote::quote;
use allot_model::features::{Feature, Release};
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};

use super::success;
use crate::admission::Operation;
use crate::body::Body;
use crate::context::Call;
use crate::error::{ApiError, Result};
use crate::object::{self, child_mut, meta, now, text};

/// What a binding of its own, without the path of a pod, binds.
const PODS: (&str, &str) = ("", "pods");

pub(super) async fn create(call: Call<'_>, body: Bytes) -> Result<Response<Body>> {
    let mut binding = call.object_of(&body, "v1", "Binding")?;
    call.check_namespace(&mut binding)?;
    call.admit_sent(Operation::Create, &mut binding).await?;
    bind(&call, &binding).await?;
    Ok(success(&call))
}

/// `POST` on `bindings`: the pod is named by the object.
pub(in crate::rest) async fn create_top_level(
    call: Call<'_>,
    mut binding: Value,
) -> Result<Response<Body>> {
    call.admit_sent(Operation::Create, &mut binding).await?;
    check_target(&binding)?;
    if meta(&binding, "name").is_empty() {
        return Err(ApiError::bad_request("Name parameter required."));
    }
    let Some(pods) = call.core.registry.load().get(PODS.0, PODS.1).cloned() else {
        return Err(ApiError::no_such_path());
    };
    let call = Call {
        resource: pods,
        object_name: Some(meta(&binding, "name").to_owned()),
        ..call
    };
    bind(&call, &binding).await?;
    Ok(success(&call))
}

/// A pod is bound to a node that is named.
fn check_target(binding: &Value) -> Result<()> {
    let target = &binding["target"];
    let kind = text(target, &["kind"]);
    let node = text(target, &["name"]);
    let mut errors = Vec::new();
    if !matches!(kind, "" | "Node") {
        errors.push(format!(
            "target.kind: Unsupported value: {}: supported values: \"Node\", \"<empty>\"",
            quote(kind)
        ));
    }
    if node.is_empty() {
        errors.push("target.name: Required value".to_owned());
    }
    if let Some(errors) = joined(&errors) {
        return Err(ApiError::unknown(errors));
    }
    Ok(())
}

async fn bind(call: &Call<'_>, binding: &Value) -> Result<()> {
    if meta(binding, "name") != call.name() {
        return Err(ApiError::bad_request(
            "name in URL does not match name in Binding object",
        ));
    }
    check_target(binding)?;
    let node = text(&binding["target"], &["name"]);
    let features = &call.core.config.features;
    call.change(|pod| {
        let resource = GroupResource::new(PODS.0, format!("{}/binding", PODS.1));
        let conflict =
            |why: String| Err(Status::conflict(&resource, meta(pod, "name"), &why).into());
        let uid = meta(binding, "uid");
        if !uid.is_empty() && uid != meta(pod, "uid") {
            return Err(call.uid_conflict(uid, meta(pod, "uid")));
        }
        let version = meta(binding, "resourceVersion");
        if !version.is_empty() && version != meta(pod, "resourceVersion") {
            let found = meta(pod, "resourceVersion");
            return Err(call.precondition_failed("ResourceVersion", version, found));
        }
        let name = meta(pod, "name");
        if pod["metadata"]["deletionTimestamp"].is_string() {
            return conflict(format!(
                "pod {name} is being deleted, cannot be assigned to a host"
            ));
        }
        let assigned = text(pod, &["spec", "nodeName"]);
        if !assigned.is_empty() {
            return conflict(format!(
                "pod {name} is already assigned to node {assigned:?}"
            ));
        }
        if pod["spec"]["schedulingGates"]
            .as_array()
            .is_some_and(|gates| !gates.is_empty())
        {
            return conflict(format!("pod {name} has non-empty .spec.schedulingGates"));
        }
        pod["spec"]["nodeName"] = node.into();
        if let Some(annotations) = binding["metadata"]["annotations"].as_object() {
            child_mut(&mut pod["metadata"], "annotations").extend(annotations.clone());
        }
        if features.enabled(Feature::PodTopologyLabelsAdmission)
            && let Some(labels) = binding["metadata"]["labels"].as_object()
        {
            child_mut(&mut pod["metadata"], "labels").extend(labels.clone());
        }
        mark_scheduled(pod);
        if features.release() >= Release::new(35) {
            child_mut(pod, "status").remove("nominatedNodeName");
        }
        Ok(())
    })
    .await?;
    Ok(())
}

/// Sets the condition `PodScheduled`.
fn mark_scheduled(pod: &mut Value) {
    let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now()});
    let known = pod["status"]["conditions"].as_array();
    let is_set = |it: &Value| it["type"] == "PodScheduled" && it["status"] == "True";
    if !known.is_some_and(|known| known.iter().any(is_set)) {
        object::set_condition(pod, condition);
    }
}
