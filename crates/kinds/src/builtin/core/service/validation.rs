//! Validation of services.

use std::collections::BTreeSet;

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use super::families;
use crate::validate::{
    IMMUTABLE, ip, labels, list, network, one_of, one_of_set, rule, text, volume,
};

pub(super) fn validate(service: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&service["spec"], Path::new("spec"));
    let kind = text(spec, "type");
    let headless = text(spec, "clusterIP") == "None";
    let ports = list(spec, "ports");
    hints(service, errors);
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
            for key in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if !spec[key].is_null() {
                    let detail = "may not be set for ExternalName services";
                    errors.push(Error::forbidden(&path.child(key), detail));
                }
            }
            // A dot at the end says that the name is complete.
            let name = text(spec, "externalName");
            let name = name.strip_suffix('.').unwrap_or(name);
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
    if spec["sessionAffinity"] == "ClientIP"
        && let Some(seconds) = spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"].as_i64()
        && !(1..=86400).contains(&seconds)
    {
        let at = path
            .child("sessionAffinityConfig")
            .child("clientIP")
            .child("timeoutSeconds");
        let detail = "must be greater than 0 and less than 86400";
        errors.push(Error::invalid(&at, seconds, detail));
    }
    addresses(service, errors);
    for (index, address) in list(spec, "externalIPs").iter().enumerate() {
        let at = path.child("externalIPs").index(index);
        network::reachable_address(address.as_str().unwrap_or_default(), &at, errors);
    }
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    one_of(kind, &kinds, true, &path.child("type"), errors);
    by_type(service, kind, &path, errors);
}

/// The old and the new annotation about topology, if both are there, say the same.
fn hints(service: &Value, errors: &mut ErrorList) {
    const OLD: &str = "service.kubernetes.io/topology-aware-hints";
    const MODE: &str = "service.kubernetes.io/topology-mode";
    let annotations = &service["metadata"]["annotations"];
    if let (Some(old), Some(mode)) = (annotations.get(OLD), annotations.get(MODE))
        && old != mode
    {
        let at = Path::new("metadata").child("annotations").key(MODE);
        let detail = format!("must match annotations[{OLD}] when both are specified");
        errors.push(Error::invalid(&at, mode, detail));
    }
}

/// Fields that only some types of services have.
fn by_type(service: &Value, kind: &str, path: &Path, errors: &mut ErrorList) {
    let spec = &service["spec"];
    let balanced = kind == "LoadBalancer";
    if kind == "ClusterIP" {
        for (index, port) in list(spec, "ports").iter().enumerate() {
            if port["nodePort"].as_i64().unwrap_or_default() != 0 {
                let at = path.child("ports").index(index).child("nodePort");
                let detail = format!("may not be used when `type` is '{kind}'");
                errors.push(Error::forbidden(&at, detail));
            }
        }
    }
    repeated_ports(list(spec, "ports"), &path.child("ports"), errors);
    sources(service, balanced, path, errors);
    if spec["allocateLoadBalancerNodePorts"].is_boolean() && !balanced {
        let at = path.child("allocateLoadBalancerNodePorts");
        let detail = "may only be used when `type` is 'LoadBalancer'";
        errors.push(Error::forbidden(&at, detail));
    }
    class(spec, errors);
    let policy = text(spec, "externalTrafficPolicy");
    let at = path.child("externalTrafficPolicy");
    let outside = is_externally_accessible(spec);
    if !policy.is_empty() && !outside {
        let detail = "may only be set for externally-accessible services";
        errors.push(Error::invalid(&at, policy, detail));
    } else {
        one_of(policy, &["Cluster", "Local"], outside, &at, errors);
    }
    let check = spec["healthCheckNodePort"].as_i64().unwrap_or_default();
    let at = path.child("healthCheckNodePort");
    if needs_health_check(spec) && check == 0 {
        errors.push(Error::required(&at, ""));
    } else if needs_health_check(spec) {
        volume::port(check, &at, errors);
    } else if check != 0 {
        let detail =
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.push(Error::invalid(&at, check, detail));
    }
    let at = path.child("internalTrafficPolicy");
    let policy = &spec["internalTrafficPolicy"];
    one_of_set(policy, &["Cluster", "Local"], false, &at, errors);
    let at = path.child("trafficDistribution");
    let known = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    one_of(
        text(spec, "trafficDistribution"),
        &known,
        false,
        &at,
        errors,
    );
}

/// The class of a load balancer.
fn class(spec: &Value, errors: &mut ErrorList) {
    let at = Path::new("spec").child("loadBalancerClass");
    if let Some(class) = spec["loadBalancerClass"].as_str() {
        if text(spec, "type") == "LoadBalancer" {
            rule(names::qualified_name(class), class, &at, errors);
        } else {
            let detail = "may only be used when `type` is 'LoadBalancer'";
            errors.push(Error::forbidden(&at, detail));
        }
    }
}

/// Whether traffic from outside of the cluster can reach the service, as upstream's `ExternallyAccessible`.
pub(super) fn is_externally_accessible(spec: &Value) -> bool {
    match text(spec, "type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !list(spec, "externalIPs").is_empty(),
        _ => false,
    }
}

/// Whether the load balancer checks which nodes have endpoints of the service, as upstream's `NeedsHealthCheck`.
pub(super) fn needs_health_check(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

/// From where the load balancer accepts traffic: a field, or the annotation that it replaced.
fn sources(service: &Value, balanced: bool, path: &Path, errors: &mut ErrorList) {
    const OLD: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
    let detail = "may only be used when `type` is 'LoadBalancer'";
    let ranges = list(&service["spec"], "loadBalancerSourceRanges");
    if !ranges.is_empty() {
        // The name of this field in errors begins with a capital letter.
        let at = path.child("LoadBalancerSourceRanges");
        if !balanced {
            errors.push(Error::forbidden(&at, detail));
        }
        for (index, range) in ranges.iter().enumerate() {
            let range = range.as_str().unwrap_or_default().trim();
            ip::range(range, &at.index(index), errors);
        }
        return;
    }
    let Some(old) = service["metadata"]["annotations"][OLD].as_str() else {
        return;
    };
    let at = Path::new("metadata").child("annotations").key(OLD);
    if !balanced {
        errors.push(Error::forbidden(&at, detail));
    }
    if !old.trim().is_empty() {
        let ranges = old.trim().split(',').map(str::trim);
        ranges.for_each(|range| ip::range(range, &at, errors));
    }
}

/// Ports differ in number or protocol, on the service and on nodes.
fn repeated_ports(ports: &[Value], path: &Path, errors: &mut ErrorList) {
    let number = |port: &Value, key: &str| port[key].as_i64().unwrap_or_default();
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let node_port = number(port, "nodePort");
        if node_port != 0 && !seen.insert((node_port, text(port, "protocol"))) {
            let at = path.index(index).child("nodePort");
            errors.push(Error::duplicate(&at, node_port));
        }
    }
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let (number, protocol) = (number(port, "port"), text(port, "protocol"));
        if !seen.insert((number, protocol)) {
            // Upstream prints only the fields of a port that must be unique.
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{number},\"TargetPort\":0,\"NodePort\":0}}",
                Value::from(protocol)
            );
            errors.push(Error::duplicate(&path.index(index), BadValue::raw(shown)));
        }
    }
}

/// What addresses and families have to do with each other.
pub(super) fn addresses(service: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&service["spec"], Path::new("spec"));
    if text(spec, "type") == "ExternalName" {
        return;
    }
    let (first, all) = (text(spec, "clusterIP"), list(spec, "clusterIPs"));
    let at = path.child("clusterIPs");
    match all.first() {
        None if !first.is_empty() => errors.push(Error::required(&at, "")),
        Some(_) if first.is_empty() => {
            let detail = "must be empty when `clusterIP` is not specified";
            errors.push(Error::invalid(&at, &spec["clusterIPs"], detail));
        }
        Some(address) if address != first => {
            let detail = "first value must match `clusterIP`";
            errors.push(Error::invalid(&at, &spec["clusterIPs"], detail));
        }
        _ => {}
    }
    let families = list(spec, "ipFamilies");
    let mut seen = BTreeSet::new();
    for (index, family) in families.iter().enumerate() {
        let (at, family) = (
            path.child("ipFamilies").index(index),
            family.as_str().unwrap_or_default(),
        );
        let known = ["IPv4", "IPv6"];
        if !known.contains(&family) {
            errors.push(Error::not_supported(&at, family, &known));
        }
        if !seen.insert(family) {
            errors.push(Error::duplicate(&at, family));
        }
    }
    let known = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    let policy = &spec["ipFamilyPolicy"];
    one_of_set(policy, &known, false, &path.child("ipFamilyPolicy"), errors);
    let before = errors.len();
    for (index, address) in all.iter().enumerate() {
        let address = address.as_str().unwrap_or_default();
        if index == 0 && address == "None" {
            if all.len() > 1 {
                let detail = "'None' must be the first and only value";
                errors.push(Error::invalid(&at, &spec["clusterIPs"], detail));
            }
        } else {
            ip::address(address, &at.index(index), errors);
        }
    }
    let invalid = errors.len() > before;
    if all.len() > 2 {
        let detail = "may only hold up to 2 values";
        errors.push(Error::invalid(&at, &spec["clusterIPs"], detail));
    }
    if invalid {
        return;
    }
    let six = |address: &Value| {
        let ip = address.as_str().and_then(ip::sloppy);
        ip.is_some_and(|ip| ip.to_canonical().is_ipv6())
    };
    if all.len() > 1 && (all.iter().all(six) || !all.iter().any(six)) {
        let detail = "may specify no more than one IP for each IP family";
        errors.push(Error::invalid(&at, &spec["clusterIPs"], detail));
    }
    for (index, (address, family)) in all.iter().zip(families).enumerate() {
        if address != "None" && six(address) != (family == "IPv6") {
            let detail = format!(
                "expected an {} value as indicated by `ipFamilies[{index}]`",
                family.as_str().unwrap_or_default()
            );
            errors.push(Error::invalid(&at.index(index), address, detail));
        }
    }
}

/// Validates the load balancer status of a service.
pub(super) fn validate_status(service: &Value, errors: &mut ErrorList) {
    let path = Path::new("status").child("loadBalancer").child("ingress");
    let ingress = list(&service["status"]["loadBalancer"], "ingress");
    if !ingress.is_empty() && text(&service["spec"], "type") != "LoadBalancer" {
        let detail = "may only be used when `spec.type` is 'LoadBalancer'";
        errors.push(Error::forbidden(&path, detail));
        return;
    }
    for (index, item) in ingress.iter().enumerate() {
        let at = path.index(index);
        let (address, host) = (text(item, "ip"), text(item, "hostname"));
        if !address.is_empty() {
            ip::address(address, &at.child("ip"), errors);
        }
        let (mode, of_mode) = (item["ipMode"].as_str(), at.child("ipMode"));
        match mode {
            None if !address.is_empty() => {
                errors.push(Error::required(
                    &of_mode,
                    "must be specified when `ip` is set",
                ));
            }
            None => {}
            Some(_) if address.is_empty() => {
                let detail = "may not be specified when `ip` is not set";
                errors.push(Error::forbidden(&of_mode, detail));
            }
            Some(mode) if !["Proxy", "VIP"].contains(&mode) => {
                errors.push(Error::not_supported(&of_mode, mode, &["Proxy", "VIP"]));
            }
            Some(_) => {}
        }
        if !host.is_empty() {
            let at = at.child("hostname");
            rule(names::dns1123_subdomain(host), host, &at, errors);
            if ip::is_address(host) {
                let detail = "must be a DNS name, not an IP address";
                errors.push(Error::invalid(&at, host, detail));
            }
        }
    }
}

fn check_ports(ports: &[Value], headless: bool, path: &Path, errors: &mut ErrorList) {
    let mut seen_names = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        if errors.is_full() {
            return;
        }
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
        if let Value::String(name) = &port["targetPort"] {
            rule(
                names::port_name(name),
                name,
                &at.child("targetPort"),
                errors,
            );
        } else {
            let target = port["targetPort"].as_i64().unwrap_or_default();
            if !headless || target != 0 {
                volume::port(target, &at.child("targetPort"), errors);
            }
        }
        if let Some(name) = port["appProtocol"].as_str() {
            rule(
                names::qualified_name(name),
                name,
                &at.child("appProtocol"),
                errors,
            );
        }
    }
}

/// Checks a change of a service.
pub(super) fn validate_update(service: &Value, old: &Value, errors: &mut ErrorList) {
    let (spec, before) = (&service["spec"], &old["spec"]);
    families::validate_change(spec, before, errors);
    let balanced = |spec: &Value| text(spec, "type") == "LoadBalancer";
    let key = "loadBalancerClass";
    if balanced(spec) && balanced(before) && spec[key] != before[key] {
        let at = Path::new("spec").child(key);
        errors.push(Error::invalid(&at, &spec[key], "may not change once set"));
    }
    class(spec, errors);
    let key = "healthCheckNodePort";
    if needs_health_check(spec) && needs_health_check(before) && spec[key] != before[key] {
        let at = Path::new("spec").child(key);
        errors.push(Error::forbidden(&at, IMMUTABLE));
    }
    validate(service, errors);
}
