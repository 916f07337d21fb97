//! Pods and pod templates: the fields of disabled features.

use allot_model::features::{Feature, Features};
use serde_json::Value;

use crate::object::{at, items};
use crate::registry::Resource;

/// The lists of containers in the spec of a pod.
const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// Removes a pod's claims if dynamic resource allocation is off, unless the stored object has some already.
pub fn drop_disabled_claims(
    features: &Features,
    resource: &Resource,
    new: &mut Value,
    old: &Value,
) {
    let Some(path) = resource.rules.pod_template else {
        return;
    };
    let on = features.enabled(Feature::DynamicResourceAllocation);
    if on || at(old, path)["spec"].get("resourceClaims").is_some() {
        return;
    }
    allot_model::migrate::pod::each_spec(new, |spec| {
        let Value::Object(spec) = spec else { return };
        spec.remove("resourceClaims");
        for list in CONTAINERS {
            let containers = spec.get_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                if let Some(Value::Object(resources)) = container.get_mut("resources") {
                    resources.remove("claims");
                }
            }
        }
    });
}

/// Removes fields of disabled features from pods and templates, unless the stored object has them already.
pub fn drop_disabled_fields(
    features: &Features,
    resource: &Resource,
    new: &mut Value,
    old: &Value,
) {
    let Some(path) = resource.rules.pod_template else {
        return;
    };
    let before = &at(old, path)["spec"];
    let grouped =
        features.enabled(Feature::GenericWorkload) || before.get("schedulingGroup").is_some();
    let mut containers = CONTAINERS.iter().flat_map(|list| items(&before[*list]));
    let signalled = containers.any(|it| it["lifecycle"].get("stopSignal").is_some());
    let projections = PROJECTIONS
        .into_iter()
        .filter(|key| !projected_sources(before).any(|source| source[*key].is_object()));
    let projections: Vec<&str> = projections.collect();
    allot_model::migrate::pod::each_spec(new, |spec| {
        if let Value::Object(spec) = spec
            && !grouped
        {
            spec.remove("schedulingGroup");
        }
        drop_projections(spec, &projections);
        if !signalled {
            each_lifecycle(spec, |hooks| {
                hooks.remove("stopSignal");
            });
        }
    });
}

/// Sources of projected volumes whose features are off by default.
const PROJECTIONS: [&str; 2] = ["clusterTrustBundle", "podCertificate"];

/// The sources of all projected volumes.
fn projected_sources(spec: &Value) -> impl Iterator<Item = &Value> {
    let volumes = items(&spec["volumes"]).iter();
    volumes.flat_map(|volume| items(&volume["projected"]["sources"]))
}

/// Empties the sources of these kinds, which stay where they are.
fn drop_projections(spec: &mut Value, kinds: &[&str]) {
    let volumes = spec.get_mut("volumes").and_then(Value::as_array_mut);
    for volume in volumes.into_iter().flatten() {
        let sources = volume.pointer_mut("/projected/sources");
        let sources = sources.and_then(Value::as_array_mut);
        for source in sources.into_iter().flatten() {
            if let Value::Object(source) = source {
                source.retain(|key, _| !kinds.contains(&key.as_str()));
            }
        }
    }
}

fn each_lifecycle(spec: &mut Value, mut with: impl FnMut(&mut serde_json::Map<String, Value>)) {
    for list in CONTAINERS {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            if let Some(Value::Object(hooks)) = container.get_mut("lifecycle") {
                let before = hooks.len();
                with(hooks);
                if hooks.is_empty()
                    && before > 0
                    && let Value::Object(container) = container
                {
                    container.remove("lifecycle");
                }
            }
        }
    }
}
