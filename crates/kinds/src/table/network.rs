//! Rows of services, endpoints, ingresses and addresses.

use serde_json::{Value, json};

use super::age;
use crate::object::{items, strings, text};
use crate::table::format::{labels, name, number, or_none};

pub(crate) fn service(object: &Value) -> Vec<Value> {
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
