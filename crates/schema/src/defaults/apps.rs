//! Workload kinds.

use serde_json::{Value, json};

use super::{Object, child, is_zero, set, set_absent, text};

fn spec(map: &mut Object) -> Option<&mut Object> {
    child(map, "spec")
}

pub(super) fn deployment(map: &mut Object) {
    let Some(spec) = spec(map) else { return };
    set(spec, "replicas", 1);
    if let Some(strategy) = child(spec, "strategy") {
        set(strategy, "type", "RollingUpdate");
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = child(strategy, "rollingUpdate")
        {
            set_absent(rolling, "maxUnavailable", "25%");
            set_absent(rolling, "maxSurge", "25%");
        }
    }
    set(spec, "revisionHistoryLimit", 10);
    set(spec, "progressDeadlineSeconds", 600);
}

pub(super) fn daemon_set(map: &mut Object) {
    let Some(spec) = spec(map) else { return };
    if let Some(strategy) = child(spec, "updateStrategy") {
        set(strategy, "type", "RollingUpdate");
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = child(strategy, "rollingUpdate")
        {
            set_absent(rolling, "maxUnavailable", 1);
            set_absent(rolling, "maxSurge", 0);
        }
    }
    set(spec, "revisionHistoryLimit", 10);
}

pub(super) fn stateful_set(map: &mut Object) {
    let Some(spec) = spec(map) else { return };
    set(spec, "podManagementPolicy", "OrderedReady");
    if let Some(strategy) = child(spec, "updateStrategy") {
        let open = text(strategy, "type").is_empty();
        set(strategy, "type", "RollingUpdate");
        if open && let Some(rolling) = child(strategy, "rollingUpdate") {
            set(rolling, "partition", 0);
        }
        if text(strategy, "type") == "RollingUpdate"
            && let Some(Value::Object(rolling)) = strategy.get_mut("rollingUpdate")
        {
            set(rolling, "partition", 0);
        }
    }
    if let Some(policy) = child(spec, "persistentVolumeClaimRetentionPolicy") {
        set(policy, "whenDeleted", "Retain");
        set(policy, "whenScaled", "Retain");
    }
    set(spec, "replicas", 1);
    set(spec, "revisionHistoryLimit", 10);
    for claim in spec
        .get_mut("volumeClaimTemplates")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        // Templates are served as separate objects, of this kind whatever the client names.
        if let Value::Object(claim) = claim {
            claim.insert("apiVersion".to_owned(), "v1".into());
            claim.insert("kind".to_owned(), "PersistentVolumeClaim".into());
        }
    }
}

pub(super) fn replica_set(map: &mut Object) {
    if let Some(spec) = spec(map) {
        set(spec, "replicas", 1);
    }
}

pub(super) fn job(map: &mut Object) {
    let labels = map
        .get("spec")
        .and_then(|s| s.pointer("/template/metadata/labels"))
        .cloned();
    if let Some(labels) = labels.filter(|labels| !is_zero(labels))
        && let Some(meta) = child(map, "metadata")
        && meta.get("labels").is_none_or(is_zero)
    {
        meta.insert("labels".to_owned(), labels);
    }
    let Some(spec) = spec(map) else { return };
    let absent = |spec: &Object, key: &str| spec.get(key).is_none_or(Value::is_null);
    if absent(spec, "completions") && absent(spec, "parallelism") {
        set(spec, "completions", 1);
    }
    set(spec, "parallelism", 1);
    let limit = if absent(spec, "backoffLimitPerIndex") {
        6
    } else {
        i32::MAX
    };
    set(spec, "backoffLimit", limit);
    set_absent(spec, "completionMode", "NonIndexed");
    set(spec, "suspend", false);
    let with_policy = spec
        .get("podFailurePolicy")
        .is_some_and(|policy| !policy.is_null());
    set_absent(
        spec,
        "podReplacementPolicy",
        if with_policy {
            "Failed"
        } else {
            "TerminatingOrFailed"
        },
    );
    set(spec, "manualSelector", false);
}

pub(super) fn cron_job(map: &mut Object) {
    set(map, "concurrencyPolicy", "Allow");
    set(map, "suspend", false);
    set(map, "successfulJobsHistoryLimit", 3);
    set(map, "failedJobsHistoryLimit", 1);
}

pub(super) fn autoscaler(map: &mut Object) {
    set(map, "minReplicas", 1);
    if map.get("metrics").is_none_or(is_zero) {
        map.insert(
            "metrics".to_owned(),
            json!([{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":80}}}]),
        );
    }
    let Some(Value::Object(behavior)) = map.get_mut("behavior") else {
        return;
    };
    if let Some(up) = child(behavior, "scaleUp") {
        set_absent(up, "selectPolicy", "Max");
        set(up, "stabilizationWindowSeconds", 0);
        let policies = json!([{"type":"Pods","value":4,"periodSeconds":15},{"type":"Percent","value":100,"periodSeconds":15}]);
        set_absent(up, "policies", policies);
    }
    if let Some(down) = child(behavior, "scaleDown") {
        set_absent(down, "selectPolicy", "Max");
        let policies = json!([{"type":"Percent","value":100,"periodSeconds":15}]);
        set_absent(down, "policies", policies);
    }
}
