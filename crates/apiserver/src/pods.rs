//! What the server knows about pods.

use allot_model::features::{Feature, Features};
use serde_json::Value;

use crate::registry::Resource;

/// Whether objects of the kind are pods, or have a pod template.
pub fn has_spec(group: &str, kind: &str) -> bool {
    const WITH_PODS: [(&str, &str); 9] = [
        ("", "Pod"),
        ("", "PodTemplate"),
        ("", "ReplicationController"),
        ("apps", "Deployment"),
        ("apps", "ReplicaSet"),
        ("apps", "DaemonSet"),
        ("apps", "StatefulSet"),
        ("batch", "Job"),
        ("batch", "CronJob"),
    ];
    WITH_PODS.contains(&(group, kind))
}

/// Takes a pod's claims out where dynamic resource allocation is off, unless the stored object has some already.
pub fn drop_disabled_claims(
    features: &Features,
    resource: &Resource,
    new: &mut Value,
    old: &Value,
) {
    let off = !features.enabled(Feature::DynamicResourceAllocation);
    if !off || !has_spec(&resource.group, &resource.kind) {
        return;
    }
    let mut in_use = false;
    allot_model::migrate::pod::each_spec(&mut old.clone(), |spec| {
        in_use |= spec.get("resourceClaims").is_some();
    });
    if in_use {
        return;
    }
    allot_model::migrate::pod::each_spec(new, |spec| {
        let Value::Object(spec) = spec else { return };
        spec.remove("resourceClaims");
        for list in ["containers", "initContainers", "ephemeralContainers"] {
            let containers = spec.get_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                if let Some(Value::Object(resources)) = container.get_mut("resources") {
                    resources.remove("claims");
                }
            }
        }
    });
}

/// The quality-of-service class that follows from requests and limits: those of the pod where it has its own, else those
/// of its containers.
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
            let amount = |which: &str| quantity(&resources[which][name]);
            let (request, limit) = (amount("requests"), amount("limits"));
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// A quantity other than zero.
fn quantity(value: &Value) -> Option<allot_apimachinery::Quantity> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let quantity: allot_apimachinery::Quantity = text.parse().ok()?;
    (quantity.milli_value() != 0).then_some(quantity)
}

/// Seconds that a pod gets to end when nobody says otherwise.
pub const DEFAULT_GRACE_SECONDS: i64 = 30;

/// How long a pod gets to end: what was asked for, else its own setting; none if nothing runs.
pub fn grace_period(pod: &Value, asked: Option<i64>) -> i64 {
    let unassigned = pod["spec"]["nodeName"]
        .as_str()
        .unwrap_or_default()
        .is_empty();
    let finished = matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed")
    );
    if unassigned || finished {
        return 0;
    }
    let own = pod["spec"]["terminationGracePeriodSeconds"]
        .as_i64()
        .unwrap_or(DEFAULT_GRACE_SECONDS);
    // A negative period means "now, but in order".
    match asked.unwrap_or(own) {
        seconds if seconds < 0 => 1,
        seconds => seconds,
    }
}
