//! Preparation of pods: labels in selectors, what a status update keeps, grace period of a deletion.

use std::collections::{HashMap, VecDeque};

use allot_apimachinery::well_known::is_terminal_phase;
use allot_model::features::{Feature, Features};
use serde_json::{Map, Value, json};

use crate::object::items;

/// Adds the labels of a new pod that `matchLabelKeys` and `mismatchLabelKeys` name to the label selectors of the same terms.
pub(super) fn merge_label_keys(pod: &mut Value) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let labels = pod["metadata"]["labels"].clone();
    let spec = &mut pod["spec"];
    let mut merge = |holder: &mut Value| {
        let mut found = Vec::new();
        for (name, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
            for key in holder[name].as_array().into_iter().flatten() {
                if let Some(value) = key.as_str().and_then(|key| labels[key].as_str()) {
                    found.push(json!({"key": key, "operator": operator, "values": [value]}));
                }
            }
        }
        // An absent selector matches nothing, and stays absent.
        if let (false, Some(Value::Object(selector))) =
            (found.is_empty(), holder.get_mut("labelSelector"))
        {
            match selector
                .entry("matchExpressions")
                .or_insert_with(|| json!([]))
            {
                Value::Array(expressions) => expressions.append(&mut found),
                other => *other = found.into(),
            }
        }
    };
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = spec.pointer_mut(&format!("/affinity/{kind}")) else {
            continue;
        };
        let preferred = affinity.get_mut(PREFERRED).and_then(Value::as_array_mut);
        for item in preferred.into_iter().flatten() {
            item.get_mut("podAffinityTerm").map(&mut merge);
        }
        let required = affinity.get_mut(REQUIRED).and_then(Value::as_array_mut);
        required.into_iter().flatten().for_each(&mut merge);
    }
    let constraints = spec
        .get_mut("topologySpreadConstraints")
        .and_then(Value::as_array_mut);
    constraints.into_iter().flatten().for_each(&mut merge);
}

/// Removes what is reported about disabled features, unless the stored pod has it already.
pub(super) fn drop_disabled(features: &Features, pod: &mut Value, old: &Value) {
    let before = &old["status"];
    let claims = items(&old["spec"]["resourceClaims"]);
    let reports = [
        (
            "resourceClaimStatuses",
            Feature::DynamicResourceAllocation,
            !claims.is_empty(),
        ),
        (
            "extendedResourceClaimStatus",
            Feature::DRAExtendedResource,
            before["extendedResourceClaimStatus"].is_object(),
        ),
        (
            "nodeAllocatableResourceClaimStatuses",
            Feature::DRANodeAllocatableResources,
            !items(&before["nodeAllocatableResourceClaimStatuses"]).is_empty(),
        ),
    ];
    let Some(Value::Object(status)) = pod.get_mut("status") else {
        return;
    };
    for (key, feature, in_use) in reports {
        if !in_use && !features.enabled(feature) {
            status.remove(key);
        }
    }
    let mut containers = ["containers", "initContainers"].into_iter();
    let is_resizable = containers.any(|list| {
        let mut all = items(&old["spec"][list]).iter();
        all.any(|container| !items(&container["resizePolicy"]).is_empty())
    });
    if !is_resizable && !features.enabled(Feature::InPlacePodVerticalScaling) {
        each_container(status, |container| {
            container.remove("resources");
            container.remove("allocatedResources");
        });
    }
    drop_digests(status, before);
}

/// The lists of container statuses.
const STATUSES: [&str; 3] = [
    "containerStatuses",
    "initContainerStatuses",
    "ephemeralContainerStatuses",
];

/// Calls `with` for the status of each container.
fn each_container(status: &mut Map<String, Value>, mut with: impl FnMut(&mut Map<String, Value>)) {
    for list in STATUSES {
        let all = status.get_mut(list).and_then(Value::as_array_mut);
        for container in all.into_iter().flatten() {
            if let Value::Object(container) = container {
                with(container);
            }
        }
    }
}

/// Removes the status of mounted image volumes: ImageVolumeWithDigest is off by default.
fn drop_digests(status: &mut Map<String, Value>, before: &Value) {
    const REPORT: &str = "volumeStatus";
    let mut mounts = STATUSES
        .iter()
        .flat_map(|key| items(&before[*key]))
        .flat_map(|container| items(&container["volumeMounts"]));
    if mounts.any(|mount| mount[REPORT].is_object()) {
        return;
    }
    each_container(status, |container| {
        let mounts = container.get_mut("volumeMounts");
        let mounts = mounts.and_then(Value::as_array_mut);
        for mount in mounts.into_iter().flatten() {
            if let Value::Object(mount) = mount {
                mount.remove(REPORT);
            }
        }
    });
}

/// Keeps fields of a pod's status that older reporters omit: its QoS class, and the observed generation.
pub(super) fn keep_reported(pod: &mut Value, old: &Value) {
    const SEEN: &str = "observedGeneration";
    let (Some(status), before) = (pod.get_mut("status"), &old["status"]) else {
        return;
    };
    let number = |value: &Value| value[SEEN].as_i64().unwrap_or_default();
    if status["qosClass"].as_str().unwrap_or_default().is_empty() && before["qosClass"].is_string()
    {
        status["qosClass"] = before["qosClass"].clone();
    }
    if number(status) == 0 && number(before) != 0 {
        status[SEEN] = before[SEEN].clone();
    }
    // Conditions of one type are matched by their order.
    let mut known: HashMap<&str, VecDeque<&Value>> = HashMap::new();
    for condition in before["conditions"].as_array().into_iter().flatten() {
        let kind = condition["type"].as_str().unwrap_or_default();
        let same = known.entry(kind).or_default();
        same.push_back(condition);
    }
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        let kind = condition["type"].as_str().unwrap_or_default();
        let same = known.get_mut(kind);
        let Some(earlier) = same.and_then(VecDeque::pop_front) else {
            continue;
        };
        if number(condition) == 0 && number(earlier) != 0 {
            condition[SEEN] = earlier[SEEN].clone();
        }
    }
}

/// Default termination grace period in seconds.
const DEFAULT_GRACE_SECONDS: i64 = 30;

/// The grace period of a deletion: the requested one, else the pod's own; 0 if nothing runs.
pub(super) fn grace_period(pod: &Value, asked: Option<i64>) -> i64 {
    let unassigned = pod["spec"]["nodeName"]
        .as_str()
        .unwrap_or_default()
        .is_empty();
    let finished = pod["status"]["phase"]
        .as_str()
        .is_some_and(is_terminal_phase);
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

#[cfg(test)]
mod tests {
    use allot_model::features::Release;

    use super::*;

    #[test]
    fn resources_of_containers_are_reported_where_they_can_change() {
        let check = |minor: u8, policy: Value, kept: bool| {
            let container =
                json!({"name": "c", "resources": {}, "allocatedResources": {"cpu": "1"}});
            let mut pod = json!({"status": {"containerStatuses": [container]}});
            let old = json!({"spec": {"containers": [{"name": "c", "resizePolicy": policy}]}});
            drop_disabled(&Features::of(Release::new(minor)), &mut pod, &old);
            let left = pod["status"]["containerStatuses"][0].as_object();
            let left = left.expect("a container").len();
            assert_eq!(left, if kept { 3 } else { 1 }, "1.{minor}");
        };
        check(32, Value::Null, false);
        check(32, json!([]), false);
        check(32, json!([{"resourceName": "cpu"}]), true);
        check(33, Value::Null, true);
        check(36, Value::Null, true);
    }
}
