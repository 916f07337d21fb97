//! Validation of ingresses.

use std::net::IpAddr;

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::{Value, json};

use crate::empties;
use crate::validate::{ip, kind_and_name, list, rule, text, volume};

/// Validates a new ingress: the field with its class must not differ from the deprecated annotation.
pub(super) fn validate_create(object: &Value, errors: &mut ErrorList) {
    const OLD: &str = "kubernetes.io/ingress.class";
    validate(object, errors);
    let old = object["metadata"]["annotations"][OLD].as_str();
    if let (Some(old), Some(class)) = (old, object["spec"]["ingressClassName"].as_str())
        && old != class
    {
        let at = Path::new("annotations").child(OLD);
        let detail = "must match `ingressClassName` when both are specified";
        errors.push(Error::invalid(&at, old, detail));
    }
}

/// Checks an ingress.
pub(super) fn validate(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let rules = list(spec, "rules");
    if rules.is_empty() && !spec["defaultBackend"].is_object() {
        let detail = "either `defaultBackend` or `rules` must be specified";
        let shown = match empties::has(&path.child("rules")) {
            true => json!([]),
            false => spec["rules"].clone(),
        };
        errors.push(Error::invalid(&path, &shown, detail));
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
        }
        if !host.is_empty() {
            rule(host_texts(host), host, &at.child("host"), errors);
        }
        if item["http"].is_object() {
            ingress_paths(&item["http"], &at.child("http").child("paths"), errors);
        }
    }
    for (index, item) in list(spec, "tls").iter().enumerate() {
        let at = path.child("tls").index(index);
        for (place, host) in list(item, "hosts").iter().enumerate() {
            let host = host.as_str().unwrap_or_default();
            rule(
                host_texts(host),
                host,
                &at.child("hosts").index(place),
                errors,
            );
        }
        let secret = text(item, "secretName");
        if !secret.is_empty() {
            let at = at.child("secretName");
            rule(names::dns1123_subdomain(secret), secret, &at, errors);
        }
    }
    if let Some(class) = spec["ingressClassName"].as_str() {
        let at = path.child("ingressClassName");
        rule(names::dns1123_subdomain(class), class, &at, errors);
    }
}

/// The errors of a host name, or of a wildcard host name.
fn host_texts(host: &str) -> Vec<String> {
    if !host.contains('*') {
        return names::dns1123_subdomain(host);
    }
    let rest = host.strip_prefix("*.").unwrap_or_default();
    if names::is_subdomain(rest) {
        return Vec::new();
    }
    let text = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of \
                lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character";
    let pattern = r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
    vec![names::regex_error(text, pattern, &["*.example.com"])]
}

/// Validates the load balancer status of an ingress.
pub(super) fn validate_status(object: &Value, errors: &mut ErrorList) {
    let path = Path::new("status").child("loadBalancer").child("ingress");
    let places = list(&object["status"]["loadBalancer"], "ingress");
    for (index, place) in places.iter().enumerate() {
        let at = path.index(index);
        let (address, host) = (text(place, "ip"), text(place, "hostname"));
        if !address.is_empty() {
            ip::address(address, &at.child("ip"), errors);
        }
        let at = at.child("hostname");
        if !host.is_empty() {
            rule(names::dns1123_subdomain(host), host, &at, errors);
        }
        if host.parse::<IpAddr>().is_ok() {
            let detail = "must be a DNS name, not an IP address";
            errors.push(Error::invalid(&at, host, detail));
        }
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
            None => {
                let detail = "pathType must be specified";
                errors.push(Error::required(&at.child("pathType"), detail));
                continue;
            }
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
            errors.push(Error::invalid(path, "", detail));
            return;
        }
        (false, true) => {
            reference(resource, &path.child("resource"), errors);
            return;
        }
        (true, false) => {}
    }
    let at = path.child("service");
    let name = text(service, "name");
    if name.is_empty() {
        errors.push(Error::required(&at.child("name"), ""));
    } else {
        rule(names::dns1123_label(name), name, &at.child("name"), errors);
    }
    let port = &service["port"];
    let at = at.child("port");
    let number = port["number"].as_i64().unwrap_or_default();
    match (text(port, "name"), number) {
        ("", 0) => errors.push(Error::required(path, "port name or number is required")),
        ("", number) => volume::port(number, &at.child("number"), errors),
        (name, 0) => rule(names::port_name(name), name, &at.child("name"), errors),
        _ => {
            let detail = "cannot set both port name & port number";
            errors.push(Error::invalid(path, "", detail));
        }
    }
}

/// Validates a backend that is an object, by kind and name.
pub(in crate::builtin::networking) fn reference(
    reference: &Value,
    path: &Path,
    errors: &mut ErrorList,
) {
    if let Some(group) = reference["apiGroup"].as_str() {
        rule(
            names::dns1123_subdomain(group),
            group,
            &path.child("apiGroup"),
            errors,
        );
    }
    kind_and_name(reference, path, errors);
}
