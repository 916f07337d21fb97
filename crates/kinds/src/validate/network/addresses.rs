//! Addresses of services, and the ranges that they are taken from.

use std::net::IpAddr;

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use super::super::{IMMUTABLE, internal, ip, list, rule, text};

/// The error of an IPAddress's name, which must be the address.
pub fn ip_name(name: &str) -> Vec<String> {
    if let Some(why) = ip::address_text(name) {
        return vec![why.to_owned()];
    }
    match name.parse::<IpAddr>() {
        Ok(address) if address.to_string() != name => {
            vec![format!("must be in canonical form (\"{address}\")")]
        }
        _ => Vec::new(),
    }
}

/// Validates an IPAddress.
pub(crate) fn address(object: &Value, errors: &mut ErrorList) {
    let (parent, path) = (
        &object["spec"]["parentRef"],
        Path::new("spec").child("parentRef"),
    );
    if !parent.is_object() {
        errors.push(Error::required(&path, ""));
        return;
    }
    let group = text(parent, "group");
    if !group.is_empty() {
        rule(
            names::dns1123_subdomain(group),
            group,
            &path.child("group"),
            errors,
        );
    }
    for (key, required) in [("resource", true), ("name", true), ("namespace", false)] {
        let (value, at) = (text(parent, key), path.child(key));
        if !value.is_empty() {
            rule(names::path_segment_name(value), value, &at, errors);
        } else if required {
            errors.push(Error::required(&at, ""));
        }
    }
}

/// Validates an update of an IPAddress.
pub(crate) fn address_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    let (now, before) = (&object["spec"]["parentRef"], &old["spec"]["parentRef"]);
    if now != before {
        let at = Path::new("spec").child("parentRef");
        let kind = ("networking.k8s.io", "v1", "IPAddress");
        let shown = internal::shown(kind, &["spec", "parentRef"], now);
        errors.push(Error::invalid(&at, shown, IMMUTABLE));
    }
}

/// Checks the ranges of services.
pub(crate) fn range(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec").child("cidrs"));
    let ranges = list(spec, "cidrs");
    if ranges.is_empty() {
        errors.push(Error::required(&path, "at least one CIDR required"));
        return;
    }
    if ranges.len() > 2 {
        let shown = internal::shown(("networking.k8s.io", "v1", "ServiceCIDR"), &["spec"], spec);
        errors.push(Error::invalid(&path, shown, "may only hold up to 2 values"));
        return;
    }
    for (index, range) in ranges.iter().enumerate() {
        let range = range.as_str().unwrap_or_default();
        if let Some(detail) = range_text(range) {
            errors.push(Error::invalid(&path.index(index), range, detail));
        }
    }
    let families: Vec<bool> = ranges
        .iter()
        .filter_map(Value::as_str)
        .filter(|range| ip::range_text(range) != Some(ip::CIDR_TEXT))
        .map(|range| range.contains(':'))
        .collect();
    if families.len() == 2 && families[0] == families[1] {
        let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.push(Error::invalid(&path, &spec["cidrs"], detail));
    }
}

fn range_text(range: &str) -> Option<String> {
    if let Some(why) = ip::range_text(range) {
        return Some(why.to_owned());
    }
    let (address, length) = ip::sloppy_range(range)?;
    let canonical = format!("{address}/{length}");
    (canonical != range).then(|| format!("must be in canonical form (\"{canonical}\")"))
}

/// Validates an update of a ServiceCIDR: a second family may be added.
pub(crate) fn range_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    let path = Path::new("spec").child("cidrs");
    let (now, before) = (list(&object["spec"], "cidrs"), list(&old["spec"], "cidrs"));
    let mut fixed = |index: usize| {
        if now[index] != before[index] {
            errors.push(Error::invalid(&path.index(index), &now[index], IMMUTABLE));
        }
    };
    match (before.len(), now.len()) {
        (had, has) if had == has => (0..had).for_each(fixed),
        (1, 2) => {
            fixed(0);
            range(object, errors);
        }
        _ => {
            let ranges = &object["spec"]["cidrs"];
            errors.push(Error::invalid(&path, ranges, IMMUTABLE));
        }
    }
}
