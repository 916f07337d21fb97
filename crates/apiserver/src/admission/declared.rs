//! The plugin NodeDeclaredFeatureValidator: a pod on a node is changed only in ways that the node declares to know. The rules
//! are those of 1.36.

use allot_model::features::{Feature, Release};
use serde_json::Value;

use super::resize::node_of_pod;
use super::{Admission, Attributes, Operation, forbidden};
use crate::error::Result;
use crate::object::{at, items, strings, text};

/// New resources of a pod as a whole.
const POD_RESOURCES: &str = "InPlacePodLevelResourcesVerticalScaling";
/// New resources of init containers that end before the others begin.
const INIT_RESOURCES: &str = "InPlacePodVerticalScalingInitContainers";

/// Refuses changes that need features which the node of the pod does not declare.
///
/// # Errors
/// 403, and those of the store.
pub(super) async fn check(
    core: &Admission,
    attributes: &Attributes<'_>,
    pod: &Value,
) -> Result<()> {
    let features = &core.config.features;
    let active =
        features.release() >= Release::new(36) && features.enabled(Feature::NodeDeclaredFeatures);
    let concerned = attributes.operation == Operation::Update
        && attributes.resource.is("", "pods")
        && matches!(attributes.subresource, "" | "resize");
    let node = text(pod, &["spec", "nodeName"]);
    let Some(old) = attributes.old.filter(|_| active && concerned) else {
        return Ok(());
    };
    let needed = needed(old, pod);
    if node.is_empty() || needed.is_empty() {
        return Ok(());
    }
    let parts = ["status.declaredFeatures"];
    let found = node_of_pod(core, attributes, node, &parts).await?;
    let declared = strings(&found["status"]["declaredFeatures"]);
    let is_missing = |feature: &&str| !declared.iter().any(|it| *it == *feature);
    let missing: Vec<&str> = needed.into_iter().filter(is_missing).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(", ");
    let why =
        format!("pod update requires features {missing} which are not available on node {node:?}");
    Err(forbidden(attributes, &why))
}

/// The features that a change of a pod needs, sorted by name.
fn needed(old: &Value, new: &Value) -> Vec<&'static str> {
    let mut needed = Vec::new();
    if old["spec"]["resources"] != new["spec"]["resources"] {
        needed.push(POD_RESOURCES);
    }
    let [before, after] = [old, new].map(|pod| items(at(pod, &["spec", "initContainers"])));
    let ends = |container: &Value| text(container, &["restartPolicy"]) != "Always";
    let mut pairs = before.iter().zip(after);
    if pairs.any(|(old, new)| ends(old) && old["resources"] != new["resources"]) {
        needed.push(INIT_RESOURCES);
    }
    needed
}
