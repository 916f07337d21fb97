//! The admission plugin PodResizeValidator: whether a pod can be resized on its node at all.

use allot_apimachinery::amounts::{self, Amounts};
use allot_apimachinery::quantity::Quantity;
use allot_apimachinery::status::Cause;
use allot_apimachinery::well_known::LABEL_OS_STABLE;
use allot_model::features::{Feature, Release};
use allot_model::quota;
use serde_json::Value;

use super::{Admission, Attributes, Operation, forbidden};
use crate::error::{ApiError, Result};
use crate::object::text;

/// Refuses resources that are more than the node of a pod has for all its pods, and nodes whose system cannot resize.
///
/// # Errors
/// 403, and those of the store.
pub(super) async fn check(
    core: &Admission,
    attributes: &Attributes<'_>,
    pod: &Value,
) -> Result<()> {
    let features = &core.config.features;
    // Before 1.36 the kubelet reports such a resize as infeasible.
    let active = features.release() >= Release::new(36)
        && features.enabled(Feature::InPlacePodVerticalScaling);
    let resizes = attributes.operation == Operation::Update
        && attributes.resource.is("", "pods")
        && attributes.subresource == "resize";
    let node = text(pod, &["spec", "nodeName"]);
    let same = attributes.old.is_some_and(|old| old["spec"] == pod["spec"]);
    if !active || !resizes || same || node.is_empty() {
        return Ok(());
    }
    let parts = ["metadata.labels", "status.allocatable"];
    let found = node_of_pod(core, attributes, node, &parts).await?;
    let system = &found["metadata"]["labels"][LABEL_OS_STABLE];
    if let Some(system) = system.as_str().filter(|system| *system != "linux") {
        let why =
            format!("pod resize is only supported on linux nodes, node {node:?} is {system:?}");
        return Err(refusal(attributes, &why, "UnsupportedPlatform"));
    }
    let allocatable = amounts::from_json(&found["status"]["allocatable"]);
    let short = shortage(&quota::requests(pod, "requests"), &allocatable);
    if short.is_empty() {
        return Ok(());
    }
    let why = format!(
        "node didn't have enough allocatable resources: {}",
        short.join("; ")
    );
    Err(refusal(attributes, &why, "NodeCapacity"))
}

/// These parts of the node that a pod is on.
///
/// # Errors
/// 403 without the node, and those of the store.
pub(super) async fn node_of_pod(
    core: &Admission,
    attributes: &Attributes<'_>,
    node: &str,
    parts: &[&str],
) -> Result<Value> {
    let found = core.stored_parts("nodes", node, parts).await?;
    found.ok_or_else(|| forbidden(attributes, &format!("node {node:?} not found")))
}

/// The resources that the node has too little of, with the requested and allocatable amounts.
fn shortage(requested: &Amounts, allocatable: &Amounts) -> Vec<String> {
    let short = |name: &str, unit: fn(&Quantity) -> i64| {
        let of = |amounts: &Amounts| amounts.get(name).cloned().unwrap_or_default();
        let (requested, allocatable) = (of(requested), of(allocatable));
        (requested > allocatable).then(|| {
            let (requested, allocatable) = (unit(&requested), unit(&allocatable));
            format!("{name}, requested: {requested}, allocatable: {allocatable}")
        })
    };
    let all = [
        short("cpu", Quantity::milli_value),
        short("memory", Quantity::value),
    ];
    all.into_iter().flatten().collect()
}

/// 403 with a machine-readable reason in `details.causes`.
fn refusal(attributes: &Attributes<'_>, why: &str, reason: &str) -> ApiError {
    let mut error = forbidden(attributes, why);
    let details = error.0.details.get_or_insert_default();
    details.causes.push(Cause {
        reason: reason.to_owned(),
        ..Cause::default()
    });
    error
}
