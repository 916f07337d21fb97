//! Network policies.

use std::net::IpAddr;

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::{Value, json};

use super::NETWORKING;
use crate::registry::{Builtin, Generation, Rules};
use crate::table::age;
use crate::table::format::{self, name};
use crate::validate::ip::{self, range_warnings};
use crate::validate::{label_selector, list, one_of_set, rule, text, volume};
use crate::warnings::addresses;

pub(super) static NETWORK_POLICY: Builtin = Builtin {
    kind: "NetworkPolicy",
    plural: "networkpolicies",
    short: &["netpol"],
    rules: Rules {
        generation: Generation::FromCreate,
        validate,
        validates_metadata_again: false,
        warnings: |policy| warnings(&policy["spec"]),
        table: Some(("Name|Pod-Selector|Age", row)),
        ..NETWORKING.rules
    },
    ..NETWORKING
};

/// Checks a network policy.
fn validate(object: &Value, errors: &mut ErrorList) {
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
    let protocol = &port["protocol"];
    let known = ["TCP", "UDP", "SCTP"];
    one_of_set(protocol, &known, false, &path.child("protocol"), errors);
    let end = port["endPort"].as_i64();
    match &port["port"] {
        Value::Null => {
            if end.is_some() {
                let detail = "may not be specified when `port` is not specified";
                errors.push(Error::invalid(
                    &path.child("endPort"),
                    &port["endPort"],
                    detail,
                ));
            }
        }
        Value::String(name) => {
            if let Some(end) = end {
                let detail = "may not be specified when `port` is non-numeric";
                errors.push(Error::invalid(&path.child("endPort"), end, detail));
            }
            rule(names::port_name(name), name, &path.child("port"), errors);
        }
        number => {
            let number = number.as_i64().unwrap_or_default();
            volume::port(number, &path.child("port"), errors);
            if let Some(end) = end {
                if end < number {
                    // Upstream shows the first port.
                    let detail = "must be greater than or equal to `port`";
                    errors.push(Error::invalid(&path.child("endPort"), number, detail));
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
        } else {
            ip::range(range, &at.child("cidr"), errors);
        }
        let excepted = match ip::range_text(range) {
            Some(ip::CIDR_TEXT) => &[],
            _ => list(block, "except"),
        };
        for (index, except) in excepted.iter().enumerate() {
            let except = except.as_str().unwrap_or_default();
            let at = at.child("except").index(index);
            let wrong = ip::range_text(except);
            ip::range(except, &at, errors);
            if wrong != Some(ip::CIDR_TEXT) && !is_part(except, range) {
                let detail = "must be a strict subset of `cidr`";
                errors.push(Error::invalid(&at, except, detail));
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

/// A range is inside of another, and smaller.
fn is_part(inner: &str, outer: &str) -> bool {
    let read = |range: &str| {
        let (address, length) = ip::sloppy_range(range)?;
        Some(match address {
            IpAddr::V4(it) => (true, u128::from(it.to_bits()) << 96, length),
            IpAddr::V6(it) => (false, it.to_bits(), length),
        })
    };
    let (Some(inner), Some(outer)) = (read(inner), read(outer)) else {
        return false;
    };
    let mask = u128::MAX.checked_shl(128 - outer.2).unwrap_or(0);
    inner.0 == outer.0 && inner.2 > outer.2 && inner.1 & mask == outer.1 & mask
}

/// About the ranges that a network policy names.
fn warnings(spec: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (index, rule) in list(spec, direction).iter().enumerate() {
            for (place, peer) in list(rule, peers).iter().enumerate() {
                let path = format!("spec.{direction}[{index}].{peers}[{place}].ipBlock");
                let block = &peer["ipBlock"];
                found.extend(range_warnings(&format!("{path}.cidr"), text(block, "cidr")));
                found.extend(addresses::ranges(
                    &format!("{path}.except"),
                    &block["except"],
                ));
            }
        }
    }
    found
}

fn row(object: &Value) -> Vec<Value> {
    vec![
        name(object),
        json!(format::label_selector(&object["spec"]["podSelector"])),
        age(object),
    ]
}
