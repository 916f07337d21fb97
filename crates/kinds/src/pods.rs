//! Pods and pod templates: the fields of disabled features, and the quality of service.

use allot_apimachinery::Quantity;
use allot_model::features::{Feature, Features};
use serde_json::Value;

use crate::object::{at, items};
use crate::registry::Resource;

/// The lists of containers in the spec of a pod.
const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// The quality-of-service class that follows from requests and limits: pod-level ones if set, else those of its
/// containers.
pub fn qos_class(pod: &Value) -> &'static str {
    let own = &pod["spec"]["resources"];
    let has_own = ["requests", "limits"].iter().any(|key| {
        let amounts = own[*key].as_object();
        amounts.is_some_and(|amounts| !amounts.is_empty())
    });
    let containers = ["containers", "initContainers"]
        .iter()
        .flat_map(|key| pod["spec"][*key].as_array().into_iter().flatten())
        .map(|container| &container["resources"])
        .filter(|_| !has_own);
    let (mut any, mut guaranteed) = (false, true);
    for resources in containers.chain(has_own.then_some(own)) {
        for name in ["cpu", "memory"] {
            let amount = |which: &str| positive(&resources[which][name]);
            let (request, limit) = (amount("requests"), amount("limits"));
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && request == limit;
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// A quantity above zero: others do not count. A pod with one that cannot be read has not passed decoding.
fn positive(value: &Value) -> Option<Quantity> {
    let quantity = Quantity::from_json(value).ok();
    quantity.filter(|quantity| quantity.signum() > 0)
}

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
    let projections = PROJECTIONS.into_iter().filter(|(key, feature)| {
        let in_use = || projected_sources(before).any(|source| source[*key].is_object());
        !features.enabled(*feature) && !in_use()
    });
    let projections: Vec<&str> = projections.map(|(key, _)| key).collect();
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
const PROJECTIONS: [(&str, Feature); 2] = [
    ("clusterTrustBundle", Feature::ClusterTrustBundleProjection),
    ("podCertificate", Feature::PodCertificateRequest),
];

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
