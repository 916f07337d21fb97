//! Endpoints, ingresses and network policies.

use std::collections::BTreeSet;
use std::net::IpAddr;

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use super::{label_selector, list, one_of, rule, text, volume};

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
/// What is wrong with a text that is no range of addresses.
pub(super) const CIDR_TEXT: &str =
    "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// A range of addresses.
pub(super) fn is_cidr(text: &str) -> bool {
    text.split_once('/').is_some_and(|(address, length)| {
        let most = match address.parse::<IpAddr>() {
            Ok(IpAddr::V4(_)) => 32,
            Ok(IpAddr::V6(_)) => 128,
            Err(_) => return false,
        };
        length.parse::<u8>().is_ok_and(|length| length <= most)
    })
}

/// An address that traffic from elsewhere can reach.
pub(super) fn reachable_address(text: &str, path: &Path, errors: &mut ErrorList) {
    let Ok(address) = text.parse::<IpAddr>() else {
        errors.push(Error::invalid(path, text, super::pod::IP_TEXT));
        return;
    };
    let mut refuse = |detail: String| errors.push(Error::invalid(path, text, detail));
    let (local, local_group) = match address {
        IpAddr::V4(it) => (it.is_link_local(), it.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(it) => (
            it.is_unicast_link_local(),
            it.segments()[0] & 0xff0f == 0xff02,
        ),
    };
    if address.is_unspecified() {
        refuse(format!("may not be unspecified ({text})"));
    }
    if address.is_loopback() {
        refuse("may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned());
    }
    if local {
        refuse("may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned());
    }
    if local_group {
        refuse("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned());
    }
}

/// Checks endpoints of the core group.
pub(super) fn endpoints(object: &Value, errors: &mut ErrorList) {
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
                reachable_address(text(address, "ip"), &at.child("ip"), errors);
                let host = text(address, "hostname");
                if !host.is_empty() {
                    rule(
                        names::dns1123_label(host),
                        host,
                        &at.child("hostname"),
                        errors,
                    );
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
        }
    }
}

/// Checks a slice of endpoints.
pub(super) fn endpoint_slice(object: &Value, errors: &mut ErrorList) {
    let kind = text(object, "addressType");
    for (index, endpoint) in list(object, "endpoints").iter().enumerate() {
        let path = Path::new("endpoints").index(index);
        let at = path.child("addresses");
        let addresses = list(endpoint, "addresses");
        if addresses.is_empty() {
            errors.push(Error::required(&at, "must contain at least 1 address"));
        } else if addresses.len() > 100 {
            errors.push(Error::too_many(&at, addresses.len(), 100));
        }
        for (place, address) in addresses.iter().enumerate() {
            let (address, at) = (address.as_str().unwrap_or_default(), at.index(place));
            let wrong = match (kind, address.parse::<IpAddr>()) {
                ("IPv4", Ok(IpAddr::V4(_))) | ("IPv6", Ok(IpAddr::V6(_))) => {
                    reachable_address(address, &at, errors);
                    continue;
                }
                ("IPv4", _) => "must be a valid IPv4 address",
                ("IPv6", _) => "must be a valid IPv6 address",
                _ => {
                    rule(names::dns1123_subdomain(address), address, &at, errors);
                    continue;
                }
            };
            errors.push(Error::invalid(&at, address, wrong));
        }
        let host = text(endpoint, "hostname");
        if !host.is_empty() {
            rule(
                names::dns1123_label(host),
                host,
                &path.child("hostname"),
                errors,
            );
        }
    }
    let mut seen = BTreeSet::new();
    for (index, port) in list(object, "ports").iter().enumerate() {
        let path = Path::new("ports").index(index);
        let name = text(port, "name");
        if !name.is_empty() {
            rule(
                names::dns1123_label(name),
                name,
                &path.child("name"),
                errors,
            );
        }
        if !seen.insert(name) {
            errors.push(Error::duplicate(&path.child("name"), name));
        }
        let protocol = text(port, "protocol");
        one_of(protocol, &PROTOCOLS, true, &path.child("protocol"), errors);
    }
    let at = Path::new("addressType");
    one_of(kind, &["FQDN", "IPv4", "IPv6"], true, &at, errors);
}

/// Checks a change of a slice of endpoints.
pub(super) fn endpoint_slice_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    endpoint_slice(object, errors);
    if object["addressType"] != old["addressType"] {
        errors.push(Error::invalid(
            &Path::new("addressType"),
            &object["addressType"],
            "field is immutable",
        ));
    }
}

/// Checks an ingress.
pub(super) fn ingress(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let rules = list(spec, "rules");
    if rules.is_empty() && !spec["defaultBackend"].is_object() {
        let detail = "either `defaultBackend` or `rules` must be specified";
        errors.push(Error::invalid(&path, &spec["rules"], detail));
    }
    if spec["defaultBackend"].is_object() {
        backend(
            &spec["defaultBackend"],
            &path.child("defaultBackend"),
            errors,
        );
    }
    for (index, item) in rules.iter().enumerate() {
        let at = path.child("rules").index(index);
        let host = text(item, "host");
        if host.parse::<IpAddr>().is_ok() {
            let detail = "must be a DNS name, not an IP address";
            errors.push(Error::invalid(&at.child("host"), host, detail));
        } else if let Some(rest) = host.strip_prefix("*.") {
            rule(
                names::dns1123_subdomain(rest),
                host,
                &at.child("host"),
                errors,
            );
        } else if !host.is_empty() {
            rule(
                names::dns1123_subdomain(host),
                host,
                &at.child("host"),
                errors,
            );
        }
        if item["http"].is_object() {
            ingress_paths(&item["http"], &at.child("http").child("paths"), errors);
        }
    }
    if let Some(class) = spec["ingressClassName"].as_str() {
        let at = path.child("ingressClassName");
        rule(names::dns1123_subdomain(class), class, &at, errors);
    }
}

fn ingress_paths(http: &Value, path: &Path, errors: &mut ErrorList) {
    let paths = list(http, "paths");
    if paths.is_empty() {
        errors.push(Error::required(path, ""));
    }
    for (index, item) in paths.iter().enumerate() {
        let at = path.index(index);
        let shown = text(item, "path");
        match item["pathType"].as_str() {
            None => errors.push(Error::required(
                &at.child("pathType"),
                "pathType must be specified",
            )),
            Some("Exact" | "Prefix") => {
                if !shown.starts_with('/') {
                    let detail = "must be an absolute path";
                    errors.push(Error::invalid(&at.child("path"), shown, detail));
                }
                for wrong in ["//", "/./", "/../", "%2f", "%2F"] {
                    if shown.contains(wrong) {
                        let detail = format!("must not contain '{wrong}'");
                        errors.push(Error::invalid(&at.child("path"), shown, detail));
                    }
                }
                for wrong in ["/..", "/."] {
                    if shown.ends_with(wrong) {
                        let detail = format!("cannot end with '{wrong}'");
                        errors.push(Error::invalid(&at.child("path"), shown, detail));
                    }
                }
            }
            Some("ImplementationSpecific") => {
                if !shown.is_empty() && !shown.starts_with('/') {
                    let detail = "must be an absolute path";
                    errors.push(Error::invalid(&at.child("path"), shown, detail));
                }
            }
            Some(other) => {
                let known = ["Exact", "ImplementationSpecific", "Prefix"];
                errors.push(Error::not_supported(&at.child("pathType"), other, &known));
            }
        }
        backend(&item["backend"], &at.child("backend"), errors);
    }
}

fn backend(backend: &Value, path: &Path, errors: &mut ErrorList) {
    let (service, resource) = (&backend["service"], &backend["resource"]);
    match (service.is_object(), resource.is_object()) {
        (true, true) => {
            let detail = "cannot set both resource and service backends";
            errors.push(Error::invalid(path, "", detail));
            return;
        }
        (false, false) => {
            let detail = "resource or service backend is required";
            errors.push(Error::required(path, detail));
            return;
        }
        (false, true) => return,
        (true, false) => {}
    }
    let at = path.child("service");
    let name = text(service, "name");
    if name.is_empty() {
        errors.push(Error::required(&at.child("name"), ""));
    } else {
        rule(names::dns1035_label(name), name, &at.child("name"), errors);
    }
    let port = &service["port"];
    let at = at.child("port");
    let number = port["number"].as_i64().unwrap_or_default();
    match (text(port, "name"), number) {
        ("", 0) => errors.push(Error::required(&at, "port name or number is required")),
        ("", number) => volume::port(number, &at.child("number"), errors),
        (name, 0) => rule(names::port_name(name), name, &at.child("name"), errors),
        _ => {
            let detail = "cannot set both port name & port number";
            errors.push(Error::invalid(&at, "", detail));
        }
    }
}

/// Checks a class of ingresses.
pub(super) fn ingress_class(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let controller = text(spec, "controller");
    let at = path.child("controller");
    if controller.is_empty() {
        errors.push(Error::required(&at, ""));
    } else if !controller.contains('/') {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        errors.push(Error::invalid(&at, controller, detail));
    }
}

/// Checks a network policy.
pub(super) fn policy(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    label_selector(&spec["podSelector"], &path.child("podSelector"), errors);
    for (direction, side) in [("ingress", "from"), ("egress", "to")] {
        for (index, item) in list(spec, direction).iter().enumerate() {
            let at = path.child(direction).index(index);
            for (place, port) in list(item, "ports").iter().enumerate() {
                policy_port(port, &at.child("ports").index(place), errors);
            }
            for (place, peer) in list(item, side).iter().enumerate() {
                policy_peer(peer, &at.child(side).index(place), errors);
            }
        }
    }
    let kinds = list(spec, "policyTypes");
    let at = path.child("policyTypes");
    if kinds.len() > 2 {
        let detail = "may not specify more than two policyTypes";
        errors.push(Error::invalid(&at, &spec["policyTypes"], detail));
        return;
    }
    for (index, kind) in kinds.iter().enumerate() {
        let kind = kind.as_str().unwrap_or_default();
        if !matches!(kind, "Ingress" | "Egress") {
            let known = ["Ingress", "Egress"];
            errors.push(Error::not_supported(&at.index(index), kind, &known));
        }
    }
}

fn policy_port(port: &Value, path: &Path, errors: &mut ErrorList) {
    let protocol = text(port, "protocol");
    let known = ["TCP", "UDP", "SCTP"];
    one_of(protocol, &known, false, &path.child("protocol"), errors);
    let end = port["endPort"].as_i64();
    match &port["port"] {
        Value::Null => {
            if end.is_some() {
                let detail = "must be specified when `endPort` is specified";
                errors.push(Error::required(&path.child("port"), detail));
            }
        }
        Value::String(name) => {
            if let Some(end) = end {
                let detail = "cannot be specified when `port` is a string";
                errors.push(Error::invalid(&path.child("endPort"), end, detail));
            }
            rule(names::port_name(name), name, &path.child("port"), errors);
        }
        number => {
            let number = number.as_i64().unwrap_or_default();
            volume::port(number, &path.child("port"), errors);
            if let Some(end) = end {
                if end < number {
                    let detail = "must be greater than or equal to `port`";
                    errors.push(Error::invalid(&path.child("endPort"), end, detail));
                }
                volume::port(end, &path.child("endPort"), errors);
            }
        }
    }
}

fn policy_peer(peer: &Value, path: &Path, errors: &mut ErrorList) {
    let mut count = 0;
    for key in ["podSelector", "namespaceSelector"] {
        if peer[key].is_object() {
            count += 1;
            label_selector(&peer[key], &path.child(key), errors);
        }
    }
    let block = &peer["ipBlock"];
    if block.is_object() {
        let at = path.child("ipBlock");
        let range = text(block, "cidr");
        if range.is_empty() {
            errors.push(Error::required(&at.child("cidr"), ""));
        } else if !is_cidr(range) {
            errors.push(Error::invalid(&at.child("cidr"), range, CIDR_TEXT));
        }
        for (index, except) in list(block, "except").iter().enumerate() {
            let except = except.as_str().unwrap_or_default();
            if !is_cidr(except) {
                let at = at.child("except").index(index);
                errors.push(Error::invalid(&at, except, CIDR_TEXT));
            }
        }
        if count > 0 {
            let detail = "may not specify both ipBlock and another peer";
            errors.push(Error::forbidden(path, detail));
        }
        count += 1;
    }
    if count == 0 {
        errors.push(Error::required(path, "must specify a peer"));
    }
}
