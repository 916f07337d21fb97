//! Addresses and ranges that are right but should be written in another way.

use serde_json::Value;

use crate::validate::ip::{address_warning, range_warnings};

fn items(list: &Value) -> impl Iterator<Item = (usize, &Value)> {
    list.as_array().into_iter().flatten().enumerate()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// About a list of addresses.
pub(crate) fn list(path: &str, addresses: &Value) -> Vec<String> {
    let about = |(index, it)| address_warning(&format!("{path}[{index}]"), text(it));
    items(addresses).filter_map(about).collect()
}

/// About a list of objects with an address in one of their fields.
pub(crate) fn of_field(path: &str, holders: &Value, key: &str) -> Vec<String> {
    let about = |(index, it): (usize, &Value)| {
        address_warning(&format!("{path}[{index}].{key}"), text(&it[key]))
    };
    items(holders).filter_map(about).collect()
}

/// About the addresses of a load balancer in a status. Upstream does not name the field.
pub(crate) fn balancer(object: &Value) -> Vec<String> {
    let about = |(index, it): (usize, &Value)| {
        let path = format!("status.loadBalancer.ingress[{index}]");
        address_warning(&path, text(&it["ip"]))
    };
    items(&object["status"]["loadBalancer"]["ingress"])
        .filter_map(about)
        .collect()
}

/// About a list of ranges.
pub(crate) fn ranges(path: &str, ranges: &Value) -> Vec<String> {
    let about = |(index, it)| range_warnings(&format!("{path}[{index}]"), text(it).trim());
    items(ranges).flat_map(about).collect()
}

/// Warnings about the addresses in a pod.
pub(crate) fn pod(spec: &Value, path: &str) -> Vec<String> {
    let servers = format!("{path}spec.dnsConfig.nameservers");
    let mut found = list(&servers, &spec["dnsConfig"]["nameservers"]);
    for (index, alias) in items(&spec["hostAliases"]) {
        let path = format!("{path}spec.hostAliases[{index}].ip");
        found.extend(address_warning(&path, text(&alias["ip"])));
    }
    found
}
