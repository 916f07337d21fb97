//! Services.

use std::collections::BTreeSet;

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use super::{labels, list, one_of, rule, text, volume};

pub(super) fn validate(service: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&service["spec"], Path::new("spec"));
    let kind = text(spec, "type");
    let headless = text(spec, "clusterIP") == "None";
    let ports = list(spec, "ports");
    if ports.is_empty() && !headless && kind != "ExternalName" {
        errors.push(Error::required(&path.child("ports"), ""));
    }
    match kind {
        "LoadBalancer" | "NodePort" if headless => {
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.push(Error::invalid(
                &path.child("clusterIPs").index(0),
                "None",
                detail,
            ));
        }
        "ExternalName" => {
            let name = text(spec, "externalName").trim_end_matches('.');
            if name.is_empty() {
                errors.push(Error::required(&path.child("externalName"), ""));
            } else {
                rule(
                    names::dns1123_subdomain(name),
                    name,
                    &path.child("externalName"),
                    errors,
                );
            }
        }
        _ => {}
    }
    check_ports(ports, headless, &path.child("ports"), errors);
    labels(&spec["selector"], &path.child("selector"), errors);
    one_of(
        text(spec, "sessionAffinity"),
        &["ClientIP", "None"],
        true,
        &path.child("sessionAffinity"),
        errors,
    );
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    one_of(kind, &kinds, true, &path.child("type"), errors);
    for (index, address) in list(spec, "externalIPs").iter().enumerate() {
        let address = address.as_str().unwrap_or_default();
        if address.parse::<std::net::IpAddr>().is_err() {
            errors.push(Error::invalid(
                &path.child("externalIPs").index(index),
                address,
                super::pod::IP_TEXT,
            ));
        }
    }
}

fn check_ports(ports: &[Value], headless: bool, path: &Path, errors: &mut ErrorList) {
    let mut seen_names = BTreeSet::new();
    let mut seen_ports = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let at = path.index(index);
        let name = text(port, "name");
        if ports.len() > 1 && name.is_empty() {
            errors.push(Error::required(&at.child("name"), ""));
        } else if !name.is_empty() {
            rule(names::dns1123_label(name), name, &at.child("name"), errors);
            if !seen_names.insert(name) {
                errors.push(Error::duplicate(&at.child("name"), name));
            }
        }
        let number = port["port"].as_i64().unwrap_or_default();
        volume::port(number, &at.child("port"), errors);
        let protocol = text(port, "protocol");
        one_of(
            protocol,
            &["SCTP", "TCP", "UDP"],
            true,
            &at.child("protocol"),
            errors,
        );
        if !headless || number != 0 {
            match &port["targetPort"] {
                Value::String(name) => rule(
                    names::port_name(name),
                    name,
                    &at.child("targetPort"),
                    errors,
                ),
                target => volume::port(
                    target.as_i64().unwrap_or_default(),
                    &at.child("targetPort"),
                    errors,
                ),
            }
        }
        if !seen_ports.insert((number, protocol)) {
            let shown = serde_json::json!({"protocol": protocol, "port": number});
            errors.push(Error::duplicate(&at, &shown));
        }
    }
}

pub(super) fn validate_update(service: &Value, old: &Value, errors: &mut ErrorList) {
    let (spec, before) = (&service["spec"], &old["spec"]);
    let addressed = |spec: &Value| text(spec, "type") != "ExternalName";
    let address = text(before, "clusterIP");
    if addressed(spec)
        && addressed(before)
        && !address.is_empty()
        && text(spec, "clusterIP") != address
    {
        let at = Path::new("spec").child("clusterIPs").index(0);
        errors.push(Error::invalid(
            &at,
            &spec["clusterIPs"],
            "may not change once set",
        ));
    }
    validate(service, errors);
}
