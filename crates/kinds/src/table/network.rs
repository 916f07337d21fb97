//! Rows of services, endpoints, ingresses and addresses.

use serde_json::{Value, json};

use super::age;
use crate::object::{items, strings, text};
use crate::table::format::{SHOWN_ENDPOINTS, labels, name, number, or_none};

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

pub(crate) fn endpoints(object: &Value) -> Vec<Value> {
    let mut shown = Vec::new();
    let mut count = 0;
    for subset in items(&object["subsets"]) {
        let addresses = items(&subset["addresses"]).iter();
        let addresses = addresses.map(|address| address["ip"].as_str().unwrap_or_default());
        let ports = items(&subset["ports"]);
        // Each address has each port: more than could be listed.
        count += addresses.len() * ports.len().max(1);
        let left = SHOWN_ENDPOINTS - shown.len();
        match ports {
            [] => shown.extend(addresses.take(left).map(str::to_owned)),
            ports => {
                let all = ports.iter().flat_map(|port| {
                    let port = number(&port["port"]);
                    addresses.clone().map(move |ip| format!("{ip}:{port}"))
                });
                shown.extend(all.take(left));
            }
        }
    }
    let more = match count - shown.len() {
        0 => String::new(),
        more => format!(" + {more} more..."),
    };
    let shown = or_none(shown.join(",")) + &more;
    vec![name(object), json!(shown), age(object)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every address has every port: a body of 2 MB was a list of billions of texts for `kubectl get endpoints`.
    #[test]
    fn regression_endpoints_are_counted_and_not_listed() {
        let row = |object: Value| endpoints(&object)[1].as_str().unwrap().to_owned();
        let addresses: Vec<Value> = (0..30_000).map(|_| json!({"ip": "10.0.0.1"})).collect();
        let ports: Vec<Value> = (1..30_001).map(|port| json!({"port": port})).collect();
        let subset = json!({"addresses": addresses, "ports": ports});
        assert_eq!(
            row(json!({"subsets": [{"addresses": [{"ip": "10.0.0.7"}]}, subset, subset]})),
            "10.0.0.7,10.0.0.1:1,10.0.0.1:1 + 1799999998 more..."
        );
        let few = json!([{"addresses": [{"ip": "a"}, {"ip": "b"}], "ports": [{"port": 1}]}]);
        assert_eq!(row(json!({"subsets": few})), "a:1,b:1");
        assert_eq!(row(json!({})), "<none>");
    }
}
