//! Endpoints.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::{Value, json};

use crate::object::items;
use crate::registry::{BASE, Builtin, Rules};
use crate::table::age;
use crate::table::format::{SHOWN_ENDPOINTS, name, number, or_none};
use crate::validate::ip::{address_text, address_warning, sloppy};
use crate::validate::network::{PROTOCOLS, reachable};
use crate::validate::{list, one_of, rule, text, volume};

pub(super) static ENDPOINTS: Builtin = Builtin {
    kind: "Endpoints",
    plural: "endpoints",
    short: &["ep"],
    deprecated: &[("v1", "v1.33", "", "discovery.k8s.io/v1 EndpointSlice")],
    rules: Rules {
        storage_prefix: "services/endpoints",
        create_on_update: true,
        validate,
        warnings,
        table: Some(("Name|Endpoints|Age", row)),
        ..Rules::DEFAULT
    },
    ..BASE
};

/// Checks endpoints of the core group.
fn validate(object: &Value, errors: &mut ErrorList) {
    for (index, subset) in list(object, "subsets").iter().enumerate() {
        let path = Path::new("subsets").index(index);
        let all = ["addresses", "notReadyAddresses"];
        if all.iter().all(|key| list(subset, key).is_empty()) {
            let detail = "must specify `addresses` or `notReadyAddresses`";
            errors.push(Error::required(&path, detail));
        }
        for key in all {
            for (place, address) in list(subset, key).iter().enumerate() {
                let at = path.child(key).index(place);
                let (found, of) = (text(address, "ip"), at.child("ip"));
                if let Some(why) = address_text(found) {
                    errors.push(Error::invalid(&of, found, why));
                }
                let host = text(address, "hostname");
                if !host.is_empty() {
                    let at = at.child("hostname");
                    rule(names::dns1123_label(host), host, &at, errors);
                }
                if let Some(node) = address["nodeName"].as_str() {
                    let at = at.child("nodeName");
                    rule(names::dns1123_subdomain(node), node, &at, errors);
                }
                // Upstream reports a malformed one in two ways, and reads as old clients write.
                match sloppy(found) {
                    None => errors.push(Error::invalid(&of, found, "must be a valid IP address")),
                    Some(address) => reachable(address.to_canonical(), found, &of, errors),
                }
            }
        }
        let ports = list(subset, "ports");
        for (place, port) in ports.iter().enumerate() {
            let at = path.child("ports").index(place);
            let name = text(port, "name");
            if name.is_empty() {
                if ports.len() > 1 {
                    errors.push(Error::required(&at.child("name"), ""));
                }
            } else {
                rule(names::dns1123_label(name), name, &at.child("name"), errors);
            }
            let number = port["port"].as_i64().unwrap_or_default();
            volume::port(number, &at.child("port"), errors);
            let protocol = text(port, "protocol");
            one_of(protocol, &PROTOCOLS, true, &at.child("protocol"), errors);
            if let Some(name) = port["appProtocol"].as_str() {
                let at = at.child("appProtocol");
                rule(names::qualified_name(name), name, &at, errors);
            }
        }
    }
}

/// About the addresses of pods behind a service.
fn warnings(object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for (index, subset) in list(object, "subsets").iter().enumerate() {
        for key in ["addresses", "notReadyAddresses"] {
            for (place, address) in list(subset, key).iter().enumerate() {
                let path = format!("subsets[{index}].{key}[{place}].ip");
                found.extend(address_warning(&path, text(address, "ip")));
            }
        }
    }
    found
}

fn row(object: &Value) -> Vec<Value> {
    let mut shown = Vec::new();
    let mut count = 0;
    for subset in items(&object["subsets"]) {
        let addresses = items(&subset["addresses"]).iter();
        let addresses = addresses.map(|address| address["ip"].as_str().unwrap_or_default());
        let ports = items(&subset["ports"]);
        // The product of addresses and ports can exceed any list, so they are only counted.
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
        let cell = |object: Value| row(&object)[1].as_str().unwrap().to_owned();
        let addresses: Vec<Value> = (0..30_000).map(|_| json!({"ip": "10.0.0.1"})).collect();
        let ports: Vec<Value> = (1..30_001).map(|port| json!({"port": port})).collect();
        let subset = json!({"addresses": addresses, "ports": ports});
        assert_eq!(
            cell(json!({"subsets": [{"addresses": [{"ip": "10.0.0.7"}]}, subset, subset]})),
            "10.0.0.7,10.0.0.1:1,10.0.0.1:1 + 1799999998 more..."
        );
        let few = json!([{"addresses": [{"ip": "a"}, {"ip": "b"}], "ports": [{"port": 1}]}]);
        assert_eq!(cell(json!({"subsets": few})), "a:1,b:1");
        assert_eq!(cell(json!({})), "<none>");
    }
}
