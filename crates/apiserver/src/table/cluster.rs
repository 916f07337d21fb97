//! Rows of nodes, namespaces, services, events, storage, access and configuration.

use serde_json::{Value, json};

use super::format::{access_modes, label_selector, labels, list_with_more, number, or_none};
use super::{age, since};
use crate::object::{meta, string_map, strings, text};

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn name(object: &Value) -> Value {
    meta(object, "name").into()
}

pub(super) fn node(object: &Value) -> Vec<Value> {
    let ready = items(&object["status"]["conditions"])
        .iter()
        .find(|it| it["type"] == "Ready");
    let mut status = vec![match ready.map(|it| it["status"] == "True") {
        Some(true) => "Ready",
        Some(false) => "NotReady",
        None => "Unknown",
    }];
    if object["spec"]["unschedulable"] == true {
        status.push("SchedulingDisabled");
    }
    let mut roles: Vec<String> = string_map(&object["metadata"]["labels"])
        .into_iter()
        .filter_map(
            |(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                Some(role) => Some(role.to_owned()).filter(|role| !role.is_empty()),
                None if key == "kubernetes.io/role" && !value.is_empty() => Some(value),
                None => None,
            },
        )
        .collect();
    roles.sort();
    let address = |kind: &str| {
        let found = items(&object["status"]["addresses"])
            .iter()
            .find(|it| it["type"] == kind);
        or_none(
            found
                .and_then(|it| it["address"].as_str())
                .unwrap_or_default()
                .to_owned(),
        )
    };
    let info = |key: &str| {
        let value = text(object, &["status", "nodeInfo", key]);
        if value.is_empty() {
            "<unknown>".to_owned()
        } else {
            value.to_owned()
        }
    };
    let kernel = match (
        info("kernelVersion"),
        text(object, &["status", "nodeInfo", "architecture"]),
    ) {
        (kernel, "") => kernel,
        (kernel, architecture) => format!("{kernel} ({architecture})"),
    };
    vec![
        name(object),
        json!(status.join(",")),
        json!(or_none(roles.join(","))),
        age(object),
        json!(text(object, &["status", "nodeInfo", "kubeletVersion"])),
        json!(address("InternalIP")),
        json!(address("ExternalIP")),
        json!(info("osImage")),
        json!(kernel),
        json!(info("containerRuntimeVersion")),
    ]
}

pub(super) fn namespace(object: &Value) -> Vec<Value> {
    vec![
        name(object),
        json!(text(object, &["status", "phase"])),
        age(object),
    ]
}

pub(super) fn event(object: &Value) -> Vec<Value> {
    let involved = if object["regarding"].is_object() {
        &object["regarding"]
    } else {
        &object["involvedObject"]
    };
    let first = [
        text(object, &["firstTimestamp"]),
        text(object, &["eventTime"]),
    ];
    let first = first
        .into_iter()
        .find(|time| !time.is_empty())
        .unwrap_or_default();
    let last = match (
        text(object, &["series", "lastObservedTime"]),
        text(object, &["lastTimestamp"]),
    ) {
        ("", "") => first,
        ("", last) => last,
        (observed, _) => observed,
    };
    let count = object["series"]["count"]
        .as_i64()
        .or(object["count"].as_i64())
        .filter(|count| *count != 0)
        .unwrap_or(1);
    let component = [
        text(object, &["source", "component"]),
        text(object, &["reportingComponent"]),
    ];
    let component = component
        .into_iter()
        .find(|it| !it.is_empty())
        .unwrap_or_default();
    let host = [
        text(object, &["source", "host"]),
        text(object, &["reportingInstance"]),
    ];
    let host = host
        .into_iter()
        .find(|it| !it.is_empty())
        .unwrap_or_default();
    let source = [component, host]
        .into_iter()
        .filter(|it| !it.is_empty())
        .collect::<Vec<_>>()
        .join(", ");
    let target = text(involved, &["kind"]).to_lowercase();
    let target = match text(involved, &["name"]) {
        "" => target,
        name => format!("{target}/{name}"),
    };
    vec![
        json!(since(last)),
        json!(text(object, &["type"])),
        json!(text(object, &["reason"])),
        json!(target),
        json!(text(involved, &["fieldPath"])),
        json!(source),
        json!(text(object, &["message"]).trim()),
        json!(since(first)),
        json!(count),
        name(object),
    ]
}

pub(super) fn secret(object: &Value) -> Vec<Value> {
    let count = object["data"].as_object().map_or(0, serde_json::Map::len);
    vec![
        name(object),
        json!(text(object, &["type"])),
        json!(count),
        age(object),
    ]
}

pub(super) fn config_map(object: &Value) -> Vec<Value> {
    let count = ["data", "binaryData"]
        .iter()
        .map(|key| object[*key].as_object().map_or(0, serde_json::Map::len))
        .sum::<usize>();
    vec![name(object), json!(count), age(object)]
}

pub(super) fn service_account(object: &Value) -> Vec<Value> {
    vec![name(object), age(object)]
}

pub(super) fn service(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let kind = text(spec, &["type"]);
    let external_ips = strings(&spec["externalIPs"]);
    let balancer: Vec<String> = items(&object["status"]["loadBalancer"]["ingress"])
        .iter()
        .filter_map(|it| {
            it["ip"]
                .as_str()
                .or(it["hostname"].as_str())
                .map(str::to_owned)
        })
        .collect();
    let external = match kind {
        "LoadBalancer" if balancer.is_empty() && external_ips.is_empty() => "<pending>".to_owned(),
        "LoadBalancer" => [balancer, external_ips].concat().join(","),
        "ExternalName" => text(spec, &["externalName"]).to_owned(),
        _ => or_none(external_ips.join(",")),
    };
    let ports: Vec<String> = items(&spec["ports"])
        .iter()
        .map(|port| {
            let protocol = port["protocol"].as_str().unwrap_or("TCP");
            match port["nodePort"].as_i64().filter(|it| *it != 0) {
                Some(node) => format!("{}:{node}/{protocol}", number(&port["port"])),
                None => format!("{}/{protocol}", number(&port["port"])),
            }
        })
        .collect();
    vec![
        name(object),
        json!(kind),
        json!(or_none(text(spec, &["clusterIP"]).to_owned())),
        json!(external),
        json!(or_none(ports.join(","))),
        age(object),
        json!(labels(&spec["selector"])),
    ]
}

pub(super) fn endpoints(object: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    for subset in items(&object["subsets"]) {
        for address in items(&subset["addresses"]) {
            let ip = address["ip"].as_str().unwrap_or_default();
            match items(&subset["ports"]) {
                [] => all.push(ip.to_owned()),
                ports => all.extend(
                    ports
                        .iter()
                        .map(|port| format!("{ip}:{}", number(&port["port"]))),
                ),
            }
        }
    }
    vec![name(object), json!(list_with_more(&all, 3)), age(object)]
}

pub(super) fn endpoint_slice(object: &Value) -> Vec<Value> {
    let ports: Vec<String> = items(&object["ports"])
        .iter()
        .map(|port| {
            port["port"]
                .as_i64()
                .map_or("*".to_owned(), |port| port.to_string())
        })
        .collect();
    let addresses: Vec<String> = items(&object["endpoints"])
        .iter()
        .flat_map(|endpoint| strings(&endpoint["addresses"]))
        .collect();
    let ports = if ports.is_empty() {
        "<unset>".to_owned()
    } else {
        list_with_more(&ports, 3)
    };
    let addresses = if addresses.is_empty() {
        "<unset>".to_owned()
    } else {
        list_with_more(&addresses, 3)
    };
    vec![
        name(object),
        json!(text(object, &["addressType"])),
        json!(ports),
        json!(addresses),
        age(object),
    ]
}

fn subjects(object: &Value) -> [String; 3] {
    let of = |kind: &str| {
        items(&object["subjects"])
            .iter()
            .filter(|it| it["kind"] == kind)
            .map(|it| match it["namespace"].as_str() {
                Some(namespace) if kind == "ServiceAccount" => {
                    format!("{namespace}/{}", it["name"].as_str().unwrap_or_default())
                }
                _ => it["name"].as_str().unwrap_or_default().to_owned(),
            })
            .collect::<Vec<_>>()
            .join(", ")
    };
    [of("User"), of("Group"), of("ServiceAccount")]
}

pub(super) fn role_binding(object: &Value) -> Vec<Value> {
    let role = format!(
        "{}/{}",
        text(object, &["roleRef", "kind"]),
        text(object, &["roleRef", "name"])
    );
    let [users, groups, accounts] = subjects(object);
    vec![
        name(object),
        json!(role),
        age(object),
        json!(users),
        json!(groups),
        json!(accounts),
    ]
}

pub(super) fn lease(object: &Value) -> Vec<Value> {
    vec![
        name(object),
        json!(text(object, &["spec", "holderIdentity"])),
        age(object),
    ]
}

pub(super) fn priority_class(object: &Value) -> Vec<Value> {
    vec![
        name(object),
        number(&object["value"]),
        json!(object["globalDefault"].as_bool().unwrap_or(false)),
        age(object),
        json!(text(object, &["preemptionPolicy"])),
    ]
}

pub(super) fn quota(object: &Value) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, hard) in string_map(&object["status"]["hard"]) {
        let used = object["status"]["used"][&resource]
            .as_str()
            .unwrap_or("0")
            .to_owned();
        let shown = format!("{resource}: {used}/{hard}");
        if resource.starts_with("limits.") {
            limits.push(shown)
        } else {
            requests.push(shown)
        }
    }
    vec![
        name(object),
        json!(requests.join(", ")),
        json!(limits.join(", ")),
        age(object),
    ]
}

pub(super) fn storage_class(object: &Value) -> Vec<Value> {
    let default =
        object["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] == "true";
    let title = if default {
        format!("{} (default)", meta(object, "name"))
    } else {
        meta(object, "name").to_owned()
    };
    vec![
        json!(title),
        json!(text(object, &["provisioner"])),
        json!(object["reclaimPolicy"].as_str().unwrap_or("Delete")),
        json!(object["volumeBindingMode"].as_str().unwrap_or("<unset>")),
        json!(object["allowVolumeExpansion"].as_bool().unwrap_or(false)),
        age(object),
    ]
}

pub(super) fn volume(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let claim = match &spec["claimRef"] {
        Value::Null => String::new(),
        claim => format!("{}/{}", text(claim, &["namespace"]), text(claim, &["name"])),
    };
    let phase = if object["metadata"]["deletionTimestamp"].is_string() {
        "Terminating"
    } else {
        text(object, &["status", "phase"])
    };
    vec![
        name(object),
        json!(text(spec, &["capacity", "storage"])),
        json!(access_modes(&spec["accessModes"])),
        json!(text(spec, &["persistentVolumeReclaimPolicy"])),
        json!(phase),
        json!(claim),
        json!(text(spec, &["storageClassName"])),
        json!(
            spec["volumeAttributesClassName"]
                .as_str()
                .unwrap_or("<unset>")
        ),
        json!(text(object, &["status", "reason"])),
        age(object),
        json!(spec["volumeMode"].as_str().unwrap_or("<unset>")),
    ]
}

pub(super) fn volume_claim(object: &Value) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let phase = if object["metadata"]["deletionTimestamp"].is_string() {
        "Terminating"
    } else {
        text(status, &["phase"])
    };
    let bound = !text(spec, &["volumeName"]).is_empty();
    let (capacity, modes) = if bound {
        (
            text(status, &["capacity", "storage"]).to_owned(),
            access_modes(&status["accessModes"]),
        )
    } else {
        (String::new(), String::new())
    };
    vec![
        name(object),
        json!(phase),
        json!(text(spec, &["volumeName"])),
        json!(capacity),
        json!(modes),
        json!(text(spec, &["storageClassName"])),
        json!(
            spec["volumeAttributesClassName"]
                .as_str()
                .unwrap_or("<unset>")
        ),
        age(object),
        json!(spec["volumeMode"].as_str().unwrap_or("<unset>")),
    ]
}

pub(super) fn csr(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let (mut approved, mut denied, mut failed) = (false, false, false);
    for condition in items(&object["status"]["conditions"]) {
        match condition["type"].as_str() {
            Some("Approved") => approved = true,
            Some("Denied") => denied = true,
            Some("Failed") => failed = true,
            _ => {}
        }
    }
    let mut state = vec![if denied {
        "Denied"
    } else if approved {
        "Approved"
    } else {
        "Pending"
    }];
    if failed {
        state.push("Failed");
    }
    if !text(object, &["status", "certificate"]).is_empty() {
        state.push("Issued");
    }
    let duration = spec["expirationSeconds"]
        .as_i64()
        .map_or("<none>".to_owned(), allot_model::table::human_duration);
    vec![
        name(object),
        age(object),
        json!(or_none(text(spec, &["signerName"]).to_owned())),
        json!(text(spec, &["username"])),
        json!(duration),
        json!(state.join(",")),
    ]
}

pub(super) fn ingress(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let mut hosts: Vec<String> = items(&spec["rules"])
        .iter()
        .filter_map(|rule| {
            rule["host"]
                .as_str()
                .filter(|host| !host.is_empty())
                .map(str::to_owned)
        })
        .collect();
    if hosts.is_empty() {
        hosts.push("*".to_owned());
    }
    let addresses: Vec<&str> = items(&object["status"]["loadBalancer"]["ingress"])
        .iter()
        .filter_map(|it| it["ip"].as_str().or(it["hostname"].as_str()))
        .collect();
    let ports = if items(&spec["tls"]).is_empty() {
        "80"
    } else {
        "80, 443"
    };
    vec![
        name(object),
        json!(spec["ingressClassName"].as_str().unwrap_or("<none>")),
        json!(list_with_more(&hosts, 3)),
        json!(addresses.join(",")),
        json!(ports),
        age(object),
    ]
}

pub(super) fn ingress_class(object: &Value) -> Vec<Value> {
    let parameters = match &object["spec"]["parameters"] {
        Value::Null => "<none>".to_owned(),
        value => {
            let kind = match value["apiGroup"].as_str() {
                Some(group) => format!("{}.{group}", text(value, &["kind"])),
                None => text(value, &["kind"]).to_owned(),
            };
            format!("{kind}/{}", text(value, &["name"]))
        }
    };
    vec![
        name(object),
        json!(text(object, &["spec", "controller"])),
        json!(parameters),
        age(object),
    ]
}

pub(super) fn network_policy(object: &Value) -> Vec<Value> {
    vec![
        name(object),
        json!(label_selector(&object["spec"]["podSelector"])),
        age(object),
    ]
}

pub(super) fn runtime_class(object: &Value) -> Vec<Value> {
    vec![name(object), json!(text(object, &["handler"])), age(object)]
}

pub(super) fn volume_attachment(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    vec![
        name(object),
        json!(text(spec, &["attacher"])),
        json!(text(spec, &["source", "persistentVolumeName"])),
        json!(text(spec, &["nodeName"])),
        json!(object["status"]["attached"].as_bool().unwrap_or(false)),
        age(object),
    ]
}

pub(super) fn volume_attributes_class(object: &Value) -> Vec<Value> {
    vec![
        name(object),
        json!(text(object, &["driverName"])),
        age(object),
    ]
}

pub(super) fn csi_node(object: &Value) -> Vec<Value> {
    vec![
        name(object),
        json!(items(&object["spec"]["drivers"]).len()),
        age(object),
    ]
}

pub(super) fn csi_driver(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let flag = |key: &str, default: bool| json!(spec[key].as_bool().unwrap_or(default));
    let tokens: Vec<&str> = items(&spec["tokenRequests"])
        .iter()
        .filter_map(|it| it["audience"].as_str())
        .collect();
    let tokens = if spec["tokenRequests"].is_null() {
        "<unset>".to_owned()
    } else {
        tokens.join(",")
    };
    vec![
        name(object),
        flag("attachRequired", true),
        flag("podInfoOnMount", false),
        flag("storageCapacity", false),
        json!(tokens),
        flag("requiresRepublish", false),
        json!(or_none(strings(&spec["volumeLifecycleModes"]).join(","))),
        age(object),
    ]
}

pub(super) fn webhooks(object: &Value) -> Vec<Value> {
    vec![
        name(object),
        json!(items(&object["webhooks"]).len()),
        age(object),
    ]
}

pub(super) fn admission_policy(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let count = items(&spec["validations"]).len() + items(&spec["mutations"]).len();
    let kind = match &spec["paramKind"] {
        Value::Null => "<unset>".to_owned(),
        kind => format!("{}/{}", text(kind, &["apiVersion"]), text(kind, &["kind"])),
    };
    vec![name(object), json!(count), json!(kind), age(object)]
}

pub(super) fn admission_binding(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let reference = match &spec["paramRef"] {
        Value::Null => "<unset>".to_owned(),
        value => match (text(value, &["namespace"]), text(value, &["name"])) {
            ("", name) => name.to_owned(),
            (namespace, name) => format!("{namespace}/{name}"),
        },
    };
    vec![
        name(object),
        json!(text(spec, &["policyName"])),
        json!(reference),
        age(object),
    ]
}

pub(super) fn flow_schema(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    vec![
        name(object),
        json!(text(spec, &["priorityLevelConfiguration", "name"])),
        number(&spec["matchingPrecedence"]),
        json!(
            spec["distinguisherMethod"]["type"]
                .as_str()
                .unwrap_or("<none>")
        ),
        age(object),
        json!("?"),
    ]
}

pub(super) fn priority_level(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let limited = &spec["limited"];
    let queuing = &limited["limitResponse"]["queuing"];
    let shown = |value: &Value| {
        value
            .as_i64()
            .map_or("<none>".to_owned(), |value| value.to_string())
    };
    vec![
        name(object),
        json!(text(spec, &["type"])),
        json!(shown(&limited["nominalConcurrencyShares"])),
        json!(shown(&queuing["queues"])),
        json!(shown(&queuing["handSize"])),
        json!(shown(&queuing["queueLengthLimit"])),
        age(object),
    ]
}

pub(super) fn service_cidr(object: &Value) -> Vec<Value> {
    vec![
        name(object),
        json!(strings(&object["spec"]["cidrs"]).join(",")),
        age(object),
    ]
}

pub(super) fn ip_address(object: &Value) -> Vec<Value> {
    let parent = &object["spec"]["parentRef"];
    let parts = [text(parent, &["resource"]), text(parent, &["group"])]
        .into_iter()
        .filter(|it| !it.is_empty());
    let place = [text(parent, &["namespace"]), text(parent, &["name"])]
        .into_iter()
        .filter(|it| !it.is_empty());
    let reference = [
        parts.collect::<Vec<_>>().join("."),
        place.collect::<Vec<_>>().join("/"),
    ]
    .join("/");
    vec![name(object), json!(reference), age(object)]
}

pub(super) fn api_service(object: &Value) -> Vec<Value> {
    let service = match &object["spec"]["service"] {
        Value::Null => "Local".to_owned(),
        service => format!(
            "{}/{}",
            text(service, &["namespace"]),
            text(service, &["name"])
        ),
    };
    let available = items(&object["status"]["conditions"])
        .iter()
        .find(|it| it["type"] == "Available");
    let available = available.map_or("Unknown", |it| it["status"].as_str().unwrap_or("Unknown"));
    vec![name(object), json!(service), json!(available), age(object)]
}
