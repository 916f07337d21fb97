//! Validation of endpoint slices.

use std::collections::BTreeSet;
use std::net::IpAddr;

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use crate::validate::network::{PROTOCOLS, reachable_address};
use crate::validate::{IMMUTABLE, ip, labels, list, one_of, rule, text};

/// Most ports and endpoints of a slice, addresses and labels of an endpoint, and hints of either kind.
const MAX_PORTS: usize = 20_000;
const MAX_ENDPOINTS: usize = 1000;
const MAX_ADDRESSES: usize = 100;
const MAX_LABELS: usize = 16;
const MAX_HINTS: usize = 8;

/// Checks a slice of endpoints.
pub(super) fn validate(object: &Value, errors: &mut ErrorList) {
    let kind = text(object, "addressType");
    let at = Path::new("addressType");
    one_of(kind, &["FQDN", "IPv4", "IPv6"], true, &at, errors);
    ports(list(object, "ports"), &Path::new("ports"), errors);
    endpoints(object, kind, errors);
}

/// Checks a change of a slice of endpoints. Endpoints that stay may be as they were allowed to be in the past.
pub(super) fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    let before = errors.len();
    validate(object, errors);
    if object["endpoints"] == old["endpoints"] {
        let mut index = 0;
        errors.retain(|error| {
            index += 1;
            index <= before || !error.field.starts_with("endpoints")
        });
    }
    if object["addressType"] != old["addressType"] {
        let (at, found) = (Path::new("addressType"), &object["addressType"]);
        errors.push(Error::invalid(&at, found, IMMUTABLE));
    }
}

fn ports(ports: &[Value], path: &Path, errors: &mut ErrorList) {
    if ports.len() > MAX_PORTS {
        return errors.push(Error::too_many(path, ports.len(), MAX_PORTS));
    }
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let (name, at) = (text(port, "name"), path.child("name"));
        if !name.is_empty() {
            rule(names::dns1123_label(name), name, &at, errors);
        }
        if !seen.insert(name) {
            errors.push(Error::duplicate(&at, name));
        }
        let at = path.child("protocol");
        match port["protocol"].as_str() {
            None => errors.push(Error::required(&at, "")),
            Some(found) if !PROTOCOLS.contains(&found) => {
                errors.push(Error::not_supported(&at, found, &PROTOCOLS));
            }
            Some(_) => {}
        }
        if let Some(protocol) = port["appProtocol"].as_str() {
            let at = path.child("appProtocol");
            rule(names::qualified_name(protocol), protocol, &at, errors);
        }
    }
}

fn endpoints(object: &Value, kind: &str, errors: &mut ErrorList) {
    let (endpoints, path) = (list(object, "endpoints"), Path::new("endpoints"));
    if endpoints.len() > MAX_ENDPOINTS {
        return errors.push(Error::too_many(&path, endpoints.len(), MAX_ENDPOINTS));
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let path = path.index(index);
        let at = path.child("addresses");
        let addresses = list(endpoint, "addresses");
        if addresses.is_empty() {
            errors.push(Error::required(&at, "must contain at least 1 address"));
        } else if addresses.len() > MAX_ADDRESSES {
            errors.push(Error::too_many(&at, addresses.len(), MAX_ADDRESSES));
        }
        for (place, found) in addresses.iter().enumerate() {
            address(kind, found.as_str().unwrap_or_default(), &at, place, errors);
        }
        if let Some(node) = endpoint["nodeName"].as_str() {
            let at = path.child("nodeName");
            rule(names::dns1123_subdomain(node), node, &at, errors);
        }
        let (topology, at) = (
            &endpoint["deprecatedTopology"],
            path.child("deprecatedTopology"),
        );
        let count = topology.as_object().map_or(0, serde_json::Map::len);
        if count > MAX_LABELS {
            errors.push(Error::too_many(&at, count, MAX_LABELS));
        }
        labels(topology, &at, errors);
        if let Some(host) = endpoint["hostname"].as_str() {
            let at = path.child("hostname");
            rule(names::dns1123_label(host), host, &at, errors);
        }
        hints(&endpoint["hints"], &path.child("hints"), errors);
    }
}

/// Checks an address; those of unknown kinds are not judged.
fn address(kind: &str, found: &str, path: &Path, place: usize, errors: &mut ErrorList) {
    let at = path.index(place);
    let wanted = match kind {
        "IPv4" | "IPv6" => kind,
        "FQDN" => return errors.extend(domain(found, &at)),
        _ => return,
    };
    let parsed = match (ip::address_text(found), found.parse::<IpAddr>()) {
        (None, Ok(parsed)) => parsed,
        (why, _) => {
            let why = why.unwrap_or(ip::IP_TEXT);
            return errors.push(Error::invalid(&at, found, why));
        }
    };
    if kind == "IPv6" && parsed.to_string() != found {
        let detail = format!("must be in canonical form (\"{parsed}\")");
        return errors.push(Error::invalid(&at, found, detail));
    }
    if parsed.is_ipv4() != (kind == "IPv4") {
        // Upstream names the list here.
        errors.push(Error::invalid(
            path,
            found,
            format!("must be an {wanted} address"),
        ));
    }
    reachable_address(found, &at, errors);
}

/// The error of a name that is not fully qualified.
fn domain(name: &str, at: &Path) -> Option<Error> {
    if name.is_empty() {
        return Some(Error::required(at, ""));
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let wrong = names::dns1123_subdomain(name);
    if !wrong.is_empty() {
        return Some(Error::invalid(at, name, wrong.join(",")));
    }
    if !name.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        return Some(Error::invalid(at, name, detail));
    }
    name.split('.').find_map(|label| {
        let wrong = names::dns1123_label(label);
        (!wrong.is_empty()).then(|| Error::invalid(at, label, wrong.join(",")))
    })
}

/// The rule for the names of one kind of hints.
type NameRule = fn(&str) -> Vec<String>;

fn hints(hints: &Value, path: &Path, errors: &mut ErrorList) {
    let kinds: [(&str, NameRule); 2] = [
        ("forZones", names::label_value),
        ("forNodes", names::dns1123_subdomain),
    ];
    for (key, valid) in kinds {
        let (all, at) = (list(hints, key), path.child(key));
        if all.len() > MAX_HINTS {
            return errors.push(Error::too_many(&at, all.len(), MAX_HINTS));
        }
        let mut seen = BTreeSet::new();
        for (index, hint) in all.iter().enumerate() {
            let (name, at) = (text(hint, "name"), at.index(index).child("name"));
            if !seen.insert(name) {
                errors.push(Error::duplicate(&at, name));
            }
            rule(valid(name), name, &at, errors);
        }
    }
}
