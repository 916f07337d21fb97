//! What a user has probably mistyped: names of attributes and capacities that no device has.

use allot_apimachinery::suggest;

use crate::device::Device;
use crate::observer::Place;

/// The number of names that an error lists.
const SHOWN: usize = 8;
/// The error of a selector for a missing key.
const NO_SUCH_KEY: &str = "no such key: ";

/// For a selector that failed because a device lacks a name: the likely name, or the existing ones.
pub(super) fn unknown_key(error: &str, driver: &str, device: &Device) -> String {
    let Some((_, key)) = error.split_once(NO_SUCH_KEY) else {
        return String::new();
    };
    // Selectors write domain and identifier apart.
    let ids: Vec<&str> = device.names().map(identifier).collect();
    let hint = suggest::hint(key.trim(), ids.iter().copied());
    if !hint.is_empty() {
        return hint;
    }
    if ids.contains(&key.trim()) {
        let domains = device.names().filter(|name| identifier(name) == key.trim());
        let domains: Vec<&str> = domains.map(|name| domain(name, driver)).collect();
        return format!("; it is in the domain {}", domains.join(", "));
    }
    listed(device.names().map(|name| qualified(name, driver)).collect())
}

/// For a constraint on an attribute that none of the devices has.
pub(super) fn absent_attribute(attribute: &str, places: &[Place<'_>]) -> String {
    let names = places.iter().flat_map(|place| {
        let driver = &place.pool.info.driver;
        let names = place.device.names();
        names.map(|name| qualified(name, driver))
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    names.dedup();
    // A type that constraints cannot compare.
    if names.iter().any(|name| name == attribute) {
        return ", for which no device has a value that can be compared".to_owned();
    }
    let hint = suggest::hint(attribute, names.iter().map(String::as_str));
    format!(", which no device has{hint}")
}

fn identifier(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, id)| id)
}

fn domain<'a>(name: &'a str, driver: &'a str) -> &'a str {
    name.rsplit_once('/').map_or(driver, |(domain, _)| domain)
}

fn qualified(name: &str, driver: &str) -> String {
    format!("{}/{}", domain(name, driver), identifier(name))
}

fn listed(mut names: Vec<String>) -> String {
    if names.is_empty() {
        return "; it has no attributes".to_owned();
    }
    names.sort();
    let more = match names.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    names.truncate(SHOWN);
    format!("; it has {}{more}", names.join(", "))
}
