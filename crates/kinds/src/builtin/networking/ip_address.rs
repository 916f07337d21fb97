//! IP addresses that services use.

use std::net::IpAddr;

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::{Value, json};

use super::{DEPRECATED, NETWORKING, SINCE, VERSIONS};
use crate::object;
use crate::registry::{Builtin, Rules};
use crate::table::age;
use crate::table::format::name;
use crate::validate::{IMMUTABLE, internal, ip, rule, text};

pub(super) static IP_ADDRESS: Builtin = Builtin {
    kind: "IPAddress",
    plural: "ipaddresses",
    short: &["ip"],
    namespaced: false,
    versions: VERSIONS,
    since: SINCE,
    deprecated: DEPRECATED,
    rules: Rules {
        name: ip_name,
        validate,
        validate_update: Some(validate_update),
        validates_metadata_again: false,
        table: Some(("Name|ParentRef", row)),
        ..NETWORKING.rules
    },
    ..NETWORKING
};

/// The error of an IPAddress's name, which must be the address.
fn ip_name(name: &str) -> Vec<String> {
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
fn validate(object: &Value, errors: &mut ErrorList) {
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
fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    let (now, before) = (&object["spec"]["parentRef"], &old["spec"]["parentRef"]);
    if now != before {
        let at = Path::new("spec").child("parentRef");
        let kind = ("networking.k8s.io", "v1", "IPAddress");
        let shown = internal::shown(kind, &["spec", "parentRef"], now);
        errors.push(Error::invalid(&at, shown, IMMUTABLE));
    }
}

fn row(object: &Value) -> Vec<Value> {
    let parent = &object["spec"]["parentRef"];
    let parts = [
        object::text(parent, &["resource"]),
        object::text(parent, &["group"]),
    ]
    .into_iter()
    .filter(|it| !it.is_empty());
    let place = [
        object::text(parent, &["namespace"]),
        object::text(parent, &["name"]),
    ]
    .into_iter()
    .filter(|it| !it.is_empty());
    let reference = [
        parts.collect::<Vec<_>>().join("."),
        place.collect::<Vec<_>>().join("/"),
    ]
    .join("/");
    let reference = match parent.is_object() {
        true => reference,
        false => "<none>".to_owned(),
    };
    vec![name(object), json!(reference), age(object)]
}
