//! Core, networking, storage, access and flow control kinds.

use base64::Engine as _;
use serde_json::{Value, json};

use super::{Object, child, is_zero, set, set_absent, text};

/// Clear text in `stringData` is written into `data`.
pub(super) fn secret(map: &mut Object) {
    set(map, "type", "Opaque");
    let Some(Value::Object(clear)) = map.remove("stringData") else {
        return;
    };
    if clear.is_empty() {
        return;
    }
    let Some(data) = child(map, "data") else {
        return;
    };
    for (key, value) in clear {
        if let Value::String(value) = value {
            data.insert(
                key,
                base64::engine::general_purpose::STANDARD
                    .encode(value)
                    .into(),
            );
        }
    }
}

/// The label by which namespaces are selected by name.
pub(super) fn namespace(map: &mut Object) {
    if let Some(status) = child(map, "status") {
        set(status, "phase", "Active");
    }
    let Some(meta) = child(map, "metadata") else {
        return;
    };
    let name = text(meta, "name").to_owned();
    if name.is_empty() {
        return;
    }
    if let Some(labels) = child(meta, "labels") {
        labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
    }
}

/// The old field of one range and the list of all say the same.
fn pod_ranges(map: &mut Object) {
    let Some(Value::Object(spec)) = map.get_mut("spec") else {
        return;
    };
    let one = text(spec, "podCIDR").to_owned();
    let first = spec
        .get("podCIDRs")
        .and_then(|all| all.get(0))
        .and_then(Value::as_str)
        .map(str::to_owned);
    match first {
        // Where both are given and differ, the old field is meant.
        Some(first) if !one.is_empty() && first != one => {
            spec.insert("podCIDRs".to_owned(), json!([one]));
        }
        None if !one.is_empty() => {
            spec.insert("podCIDRs".to_owned(), json!([one]));
        }
        Some(first) if one.is_empty() => {
            spec.insert("podCIDR".to_owned(), first.into());
        }
        _ => {}
    }
}

pub(super) fn node(map: &mut Object) {
    pod_ranges(map);
    let Some(Value::Object(status)) = map.get_mut("status") else {
        return;
    };
    if status.get("allocatable").is_none_or(is_zero)
        && let Some(capacity) = status
            .get("capacity")
            .filter(|capacity| !is_zero(capacity))
            .cloned()
    {
        status.insert("allocatable".to_owned(), capacity);
    }
}

pub(super) fn replication_controller(map: &mut Object) {
    let labels = map
        .get("spec")
        .and_then(|spec| spec.pointer("/template/metadata/labels"))
        .filter(|labels| !is_zero(labels))
        .cloned();
    if let Some(labels) = labels {
        if let Some(Value::Object(spec)) = map.get_mut("spec")
            && spec.get("selector").is_none_or(is_zero)
        {
            spec.insert("selector".to_owned(), labels.clone());
        }
        if let Some(meta) = child(map, "metadata")
            && meta.get("labels").is_none_or(is_zero)
        {
            meta.insert("labels".to_owned(), labels);
        }
    }
    if let Some(Value::Object(spec)) = map.get_mut("spec") {
        set(spec, "replicas", 1);
    }
}

pub(super) fn service(map: &mut Object) {
    let Some(spec) = child(map, "spec") else {
        return;
    };
    set(spec, "sessionAffinity", "None");
    match text(spec, "sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP"
            if spec
                .get("sessionAffinityConfig")
                .and_then(|c| c.pointer("/clientIP/timeoutSeconds"))
                .is_none_or(Value::is_null) =>
        {
            spec.insert(
                "sessionAffinityConfig".to_owned(),
                json!({"clientIP":{"timeoutSeconds":10800}}),
            );
        }
        _ => {}
    }
    set(spec, "type", "ClusterIP");
    for port in spec
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let Value::Object(port) = port else { continue };
        set(port, "protocol", "TCP");
        if port.get("targetPort").is_none_or(is_zero)
            && let Some(number) = port.get("port").cloned()
        {
            port.insert("targetPort".to_owned(), number);
        }
    }
    let kind = text(spec, "type").to_owned();
    let external = spec.get("externalIPs").and_then(Value::as_array);
    let has_external = external.is_some_and(|addresses| !addresses.is_empty());
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") || kind == "ClusterIP" && has_external {
        set(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        set_absent(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind != "LoadBalancer" {
        return;
    }
    set(spec, "allocateLoadBalancerNodePorts", true);
    let ingress = map
        .get_mut("status")
        .and_then(|status| status.pointer_mut("/loadBalancer/ingress"));
    for ingress in ingress.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::Object(ingress) = ingress
            && !text(ingress, "ip").is_empty()
        {
            set_absent(ingress, "ipMode", "VIP");
        }
    }
}

pub(super) fn limit_range_item(map: &mut Object) {
    if text(map, "type") != "Container" {
        return;
    }
    let part = |map: &Object, key: &str| {
        map.get(key)
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default()
    };
    let mut default = part(map, "default");
    for (name, amount) in part(map, "max") {
        default.entry(name).or_insert(amount);
    }
    // The limit comes before the minimum.
    let mut request = part(map, "defaultRequest");
    for (name, amount) in default
        .iter()
        .map(|(n, a)| (n.clone(), a.clone()))
        .chain(part(map, "min"))
    {
        request.entry(name).or_insert(amount);
    }
    map.insert("default".to_owned(), Value::Object(default));
    map.insert("defaultRequest".to_owned(), Value::Object(request));
}

pub(super) fn network_policy(map: &mut Object) {
    if map.get("policyTypes").is_none_or(is_zero) {
        let both = map.get("egress").is_some_and(|egress| !is_zero(egress));
        map.insert(
            "policyTypes".to_owned(),
            if both {
                json!(["Ingress", "Egress"])
            } else {
                json!(["Ingress"])
            },
        );
    }
}

pub(super) fn subject(map: &mut Object) {
    if matches!(text(map, "kind"), "User" | "Group") {
        set(map, "apiGroup", "rbac.authorization.k8s.io");
    }
}

pub(super) fn csi_driver(map: &mut Object) {
    set(map, "attachRequired", true);
    set(map, "podInfoOnMount", false);
    set(map, "storageCapacity", false);
    set_absent(map, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    set(map, "requiresRepublish", false);
    set(map, "seLinuxMount", false);
    if map.get("volumeLifecycleModes").is_none_or(is_zero) {
        map.insert("volumeLifecycleModes".to_owned(), json!(["Persistent"]));
    }
}

pub(super) fn limited_level(map: &mut Object) {
    set(map, "nominalConcurrencyShares", 30);
    set(map, "lendablePercent", 0);
    if let Some(Value::Object(response)) = map.get_mut("limitResponse")
        && let Some(Value::Object(queuing)) = response.get_mut("queuing")
    {
        for (key, value) in [("handSize", 8), ("queueLengthLimit", 50), ("queues", 64)] {
            if queuing.get(key).is_none_or(is_zero) {
                queuing.insert(key.to_owned(), value.into());
            }
        }
    }
}
