//! Services that change their type.

use serde_json::{Value, json};

use super::validation::{is_externally_accessible, needs_health_check};
use crate::object::items_mut;

fn kind(service: &Value) -> &str {
    service["spec"]["type"].as_str().unwrap_or("ClusterIP")
}

/// Removes fields that do not apply to the new type of a service, unless the update sets them; keeps the cluster IP.
pub(super) fn follow_type(service: &mut Value, old: &Value) {
    keep_address(service, old);
    let (now, before) = (kind(service).to_owned(), kind(old).to_owned());
    let exposed = |kind: &str| matches!(kind, "NodePort" | "LoadBalancer");
    let before_spec = &old["spec"];
    let (outside, checked) = (
        is_externally_accessible(&service["spec"]),
        needs_health_check(&service["spec"]),
    );
    let Some(Value::Object(spec)) = service.get_mut("spec") else {
        return;
    };
    let mut drop = |keys: &[&str]| {
        if keys
            .iter()
            .all(|key| spec.get(*key).unwrap_or(&Value::Null) == &before_spec[*key])
        {
            for key in keys {
                spec.remove(*key);
            }
        }
    };
    if now == "ExternalName" && before != "ExternalName" {
        drop(&["clusterIP", "clusterIPs"]);
        drop(&["ipFamilies"]);
        drop(&["ipFamilyPolicy"]);
        drop(&["internalTrafficPolicy"]);
    }
    if is_externally_accessible(before_spec) && !outside {
        drop(&["externalTrafficPolicy"]);
    }
    if needs_health_check(before_spec) && !checked {
        drop(&["healthCheckNodePort"]);
    }
    if before == "LoadBalancer" && now != "LoadBalancer" {
        drop(&["allocateLoadBalancerNodePorts"]);
        drop(&["loadBalancerClass"]);
    }
    if exposed(&before) && !exposed(&now) {
        let ports = |spec: &Value| -> Vec<Value> {
            let ports = spec["ports"].as_array().into_iter().flatten();
            ports.map(|port| port["nodePort"].clone()).collect()
        };
        if ports(&service["spec"]) == ports(before_spec) {
            for port in items_mut(service, &["spec", "ports"]) {
                if let Value::Object(port) = port {
                    port.remove("nodePort");
                }
            }
        }
    }
    if now != "LoadBalancer" {
        service["status"]["loadBalancer"] = json!({});
    }
}

/// Keeps `clusterIP` equal to the first of `clusterIPs`; an omitted address is unchanged.
fn keep_address(service: &mut Value, old: &Value) {
    let both_have = kind(service) != "ExternalName" && kind(old) != "ExternalName";
    let before = &old["spec"];
    let Some(Value::Object(spec)) = service.get_mut("spec") else {
        return;
    };
    let sent = spec.get("clusterIP").and_then(Value::as_str);
    let mut address = sent.unwrap_or_default().to_owned();
    let old_address = before["clusterIP"].as_str().unwrap_or_default();
    if both_have && address.is_empty() && !old_address.is_empty() {
        address = old_address.to_owned();
        spec.insert("clusterIP".to_owned(), old_address.into());
    }
    // A client that writes `clusterIP` only omits the list.
    let had_list = !is_empty(before.get("clusterIPs"));
    let omitted = had_list && is_empty(spec.get("clusterIPs"));
    if omitted && (both_have || address == old_address) {
        spec.insert("clusterIPs".to_owned(), before["clusterIPs"].clone());
    }
    let same_list = match had_list {
        true => spec.get("clusterIPs") == before.get("clusterIPs"),
        false => is_empty(spec.get("clusterIPs")),
    };
    if address != old_address && same_list {
        match address.is_empty() {
            true => spec.remove("clusterIPs"),
            false => spec.insert("clusterIPs".to_owned(), json!([address])),
        };
    }
}

fn is_empty(list: Option<&Value>) -> bool {
    let list = list.and_then(Value::as_array);
    list.is_none_or(|list| list.is_empty())
}
