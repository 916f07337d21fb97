//! `pods/binding`: a scheduler assigns a pod to a node.

use allot_apimachinery::Status;
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};

use crate::body::Body;
use crate::encode::value_response;
use crate::error::Result;
use crate::object::{child_mut, meta, metadata_mut, now, text};
use crate::rest::Call;
use crate::strategy::Part;

pub(super) async fn create(call: Call<'_>, body: Bytes) -> Result<Response<Body>> {
    let binding = call.object_of(&body, "v1", "Binding")?;
    let node = text(&binding, &["target", "name"]).to_owned();
    let resource = call.resource.group_resource();
    call.modify(Part::Sub, |pod| {
        let conflict =
            |why: String| Err(Status::conflict(&resource, meta(pod, "name"), &why).into());
        let uid = meta(&binding, "uid");
        if !uid.is_empty() && uid != meta(pod, "uid") {
            return conflict(format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                meta(pod, "uid")
            ));
        }
        if pod["metadata"]["deletionTimestamp"].is_string() {
            return conflict(format!(
                "pod {} is being deleted, cannot be assigned to a host",
                meta(pod, "name")
            ));
        }
        let assigned = text(pod, &["spec", "nodeName"]);
        if !assigned.is_empty() {
            return conflict(format!(
                "pod {} is already assigned to node {assigned:?}",
                meta(pod, "name")
            ));
        }
        let mut pod = pod.clone();
        pod["spec"]["nodeName"] = node.as_str().into();
        if let Some(annotations) = binding["metadata"]["annotations"].as_object() {
            metadata_mut(&mut pod);
            child_mut(&mut pod["metadata"], "annotations").extend(annotations.clone());
        }
        mark_scheduled(&mut pod);
        Ok(pod)
    })
    .await?;
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(value_response(201, &status, call.media))
}

/// Sets the condition `PodScheduled`.
fn mark_scheduled(pod: &mut Value) {
    let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now()});
    let conditions = child_mut(pod, "status")
        .entry("conditions")
        .or_insert_with(|| json!([]));
    if let Value::Array(list) = conditions {
        match list.iter_mut().find(|it| it["type"] == "PodScheduled") {
            Some(known) if known["status"] == "True" => {}
            Some(known) => *known = condition,
            None => list.push(condition),
        }
    }
}
