//! Containers: names, images, ports, environment, mounts, probes.

use std::collections::{BTreeMap, BTreeSet};

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use allot_model::validate::pod as pod_claims;
use serde_json::Value;

use super::{list, not_negative, one_of, resources, rule, security, text};

/// What containers refer to in their pod.
pub(super) struct Pod<'a> {
    pub(super) volumes: &'a BTreeSet<String>,
    pub(super) claims: &'a BTreeSet<String>,
    pub(super) host_network: bool,
    pub(super) restart_policy: &'a str,
}

/// Checks the containers of all three lists.
pub(super) fn validate_all(
    spec: &Value,
    pod: &Pod<'_>,
    path: &Path,
    seen: &mut BTreeSet<String>,
    errors: &mut ErrorList,
) {
    let containers = list(spec, "containers");
    if containers.is_empty() {
        errors.push(Error::required(&path.child("containers"), ""));
    }
    for (key, items) in [
        ("containers", containers),
        ("initContainers", list(spec, "initContainers")),
        ("ephemeralContainers", list(spec, "ephemeralContainers")),
    ] {
        let at = path.child(key);
        for (index, container) in items.iter().enumerate() {
            validate(container, key, pod, &at.index(index), errors);
            let name = text(container, "name");
            if !name.is_empty() && !seen.insert(name.to_owned()) {
                errors.push(Error::duplicate(&at.index(index).child("name"), name));
            }
        }
        if key == "containers" {
            host_ports(items, &at, errors);
        }
    }
}

fn validate(
    container: &Value,
    list_name: &str,
    pod: &Pod<'_>,
    path: &Path,
    errors: &mut ErrorList,
) {
    let name = text(container, "name");
    if name.is_empty() {
        errors.push(Error::required(&path.child("name"), ""));
    } else {
        rule(
            names::dns1123_label(name),
            name,
            &path.child("name"),
            errors,
        );
    }
    let image = text(container, "image");
    if image.is_empty() {
        errors.push(Error::required(&path.child("image"), ""));
    } else if image.trim() != image {
        let detail = "must not have leading or trailing whitespace";
        errors.push(Error::invalid(&path.child("image"), image, detail));
    }
    let policies = ["File", "FallbackToLogsOnError"];
    let at = path.child("terminationMessagePolicy");
    one_of(
        text(container, "terminationMessagePolicy"),
        &policies,
        true,
        &at,
        errors,
    );
    ports(
        list(container, "ports"),
        pod.host_network,
        &path.child("ports"),
        errors,
    );
    environment(list(container, "env"), &path.child("env"), errors);
    environment_sources(list(container, "envFrom"), &path.child("envFrom"), errors);
    mounts(
        list(container, "volumeMounts"),
        pod.volumes,
        &path.child("volumeMounts"),
        errors,
    );
    let policies = ["Always", "IfNotPresent", "Never"];
    one_of(
        text(container, "imagePullPolicy"),
        &policies,
        true,
        &path.child("imagePullPolicy"),
        errors,
    );
    let at = path.child("resources");
    let claims = list(&container["resources"], "claims");
    errors.extend(pod_claims::container_claims(
        claims,
        pod.claims,
        &at.child("claims"),
    ));
    resources::container(&container["resources"], &at, errors);
    security::container(
        &container["securityContext"],
        &path.child("securityContext"),
        errors,
    );
    resize_policy(container, pod, &path.child("resizePolicy"), errors);
    let policies = ["Always", "Never", "OnFailure"];
    let at = path.child("restartPolicy");
    one_of(
        text(container, "restartPolicy"),
        &policies,
        false,
        &at,
        errors,
    );
    let with_probes = list_name == "containers" || text(container, "restartPolicy") == "Always";
    if list_name == "ephemeralContainers" {
        for key in ["ports", "resources", "resizePolicy", "restartPolicy"] {
            let absent = match &container[key] {
                Value::Array(items) => items.is_empty(),
                Value::Object(map) => map.is_empty(),
                value => value.is_null(),
            };
            if !absent {
                let detail = "cannot be set for an Ephemeral Container";
                errors.push(Error::forbidden(&path.child(key), detail));
            }
        }
    }
    for key in [
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
    ] {
        if !container[key].is_object() {
            continue;
        }
        let at = path.child(key);
        match (list_name, with_probes, key) {
            ("ephemeralContainers", _, _) => {
                errors.push(Error::forbidden(
                    &at,
                    "cannot be set for an Ephemeral Container",
                ));
            }
            (_, false, "lifecycle") => {
                errors.push(Error::forbidden(
                    &at,
                    "may not be set for init containers without restartPolicy=Always",
                ));
            }
            (_, false, _) => {
                errors.push(Error::forbidden(
                    &at,
                    "may not be set for init containers without restartPolicy=Always",
                ));
            }
            (_, true, "lifecycle") => {
                for hook in ["postStart", "preStop"] {
                    if container[key][hook].is_object() {
                        handler(&container[key][hook], &at.child(hook), errors);
                    }
                }
            }
            (_, true, key) => probe(&container[key], key, &at, errors),
        }
    }
}

/// Upstream reports all of them at the list.
fn resize_policy(container: &Value, pod: &Pod<'_>, path: &Path, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    for (index, item) in list(container, "resizePolicy").iter().enumerate() {
        let (name, policy) = (text(item, "resourceName"), text(item, "restartPolicy"));
        if !seen.insert(name) {
            errors.push(Error::duplicate(&path.index(index), name));
        }
        one_of(name, &["cpu", "memory"], true, path, errors);
        let policies = ["NotRequired", "RestartContainer"];
        one_of(policy, &policies, true, path, errors);
        if pod.restart_policy == "Never" && policy != "NotRequired" {
            let detail = "must be 'NotRequired' when `restartPolicy` is 'Never'";
            errors.push(Error::invalid(path, policy, detail));
        }
    }
}

fn ports(ports: &[Value], host_network: bool, path: &Path, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let at = path.index(index);
        let name = text(port, "name");
        if !name.is_empty() {
            let texts = names::port_name(name);
            if texts.is_empty() && !seen.insert(name) {
                errors.push(Error::duplicate(&at.child("name"), name));
            }
            rule(texts, name, &at.child("name"), errors);
        }
        let number = port["containerPort"].as_i64().unwrap_or_default();
        if number == 0 {
            errors.push(Error::required(&at.child("containerPort"), ""));
        } else {
            for text in names::port_number(number) {
                errors.push(Error::invalid(&at.child("containerPort"), number, text));
            }
        }
        let host = port["hostPort"].as_i64().unwrap_or_default();
        if host != 0 {
            for text in names::port_number(host) {
                errors.push(Error::invalid(&at.child("hostPort"), host, text));
            }
        }
        if host_network && host != number {
            let detail = "must match `containerPort` when `hostNetwork` is true";
            errors.push(Error::invalid(&at.child("hostPort"), host, detail));
        }
        one_of(
            text(port, "protocol"),
            &["SCTP", "TCP", "UDP"],
            true,
            &at.child("protocol"),
            errors,
        );
    }
}

/// No two containers of a pod take the same port of the host.
fn host_ports(containers: &[Value], path: &Path, errors: &mut ErrorList) {
    let mut taken = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        for (place, port) in list(container, "ports").iter().enumerate() {
            let number = port["hostPort"].as_i64().unwrap_or_default();
            let key = format!(
                "{}/{}/{number}",
                text(port, "protocol"),
                text(port, "hostIP")
            );
            if number != 0 && !taken.insert(key.clone()) {
                let at = path
                    .index(index)
                    .child("ports")
                    .index(place)
                    .child("hostPort");
                errors.push(Error::duplicate(&at, key));
            }
        }
    }
}

fn environment(variables: &[Value], path: &Path, errors: &mut ErrorList) {
    for (index, variable) in variables.iter().enumerate() {
        let at = path.index(index);
        let name = text(variable, "name");
        if name.is_empty() {
            errors.push(Error::required(&at.child("name"), ""));
        } else {
            rule(names::env_var_name(name), name, &at.child("name"), errors);
        }
        let source = &variable["valueFrom"];
        if source.is_object() {
            environment_source(
                source,
                !text(variable, "value").is_empty(),
                &at.child("valueFrom"),
                errors,
            );
        }
    }
}

fn environment_source(source: &Value, with_value: bool, path: &Path, errors: &mut ErrorList) {
    const FIELDS: [&str; 10] = [
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
        "",
    ];
    let kinds = [
        "fieldRef",
        "resourceFieldRef",
        "configMapKeyRef",
        "secretKeyRef",
        "fileKeyRef",
    ];
    let set: Vec<&str> = kinds
        .into_iter()
        .filter(|kind| source[*kind].is_object())
        .collect();
    if let Some(field) = source["fieldRef"].as_object() {
        let at = path.child("fieldRef").child("fieldPath");
        let name = field
            .get("fieldPath")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let subscript =
            name.starts_with("metadata.labels['") || name.starts_with("metadata.annotations['");
        if name.is_empty() {
            errors.push(Error::required(&at, ""));
        } else if !subscript && !FIELDS.contains(&name) {
            errors.push(Error::not_supported(&at, name, &FIELDS[..FIELDS.len() - 1]));
        }
    }
    if source["resourceFieldRef"].is_object() {
        resource_field(
            &source["resourceFieldRef"],
            false,
            &path.child("resourceFieldRef"),
            errors,
        );
    }
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        if source[kind].is_object() {
            let key = text(&source[kind], "key");
            if key.is_empty() {
                errors.push(Error::required(&path.child(kind).child("key"), ""));
            } else {
                rule(
                    names::config_map_key(key),
                    key,
                    &path.child(kind).child("key"),
                    errors,
                );
            }
        }
    }
    if set.is_empty() {
        let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.push(Error::invalid(path, "", detail));
    } else if with_value {
        errors.push(Error::invalid(
            path,
            "",
            "may not be specified when `value` is not empty",
        ));
    } else if set.len() > 1 {
        errors.push(Error::invalid(
            path,
            "",
            "may not have more than one field specified at a time",
        ));
    }
}

/// A reference to a request or limit of a container; files must name the container.
pub(super) fn resource_field(field: &Value, of_file: bool, path: &Path, errors: &mut ErrorList) {
    const KNOWN: [&str; 6] = [
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
    ];
    let name = text(field, "resource");
    if of_file && text(field, "containerName").is_empty() {
        errors.push(Error::required(&path.child("containerName"), ""));
    } else if name.is_empty() {
        errors.push(Error::required(&path.child("resource"), ""));
    } else if !KNOWN.contains(&name)
        && !name.starts_with("limits.hugepages-")
        && !name.starts_with("requests.hugepages-")
    {
        errors.push(Error::not_supported(&path.child("resource"), name, &KNOWN));
    }
}

fn environment_sources(sources: &[Value], path: &Path, errors: &mut ErrorList) {
    for (index, source) in sources.iter().enumerate() {
        let at = path.index(index);
        let prefix = text(source, "prefix");
        if !prefix.is_empty() {
            rule(
                names::env_var_name(prefix),
                prefix,
                &at.child("prefix"),
                errors,
            );
        }
        let set: Vec<&str> = ["configMapRef", "secretRef"]
            .into_iter()
            .filter(|kind| source[*kind].is_object())
            .collect();
        for kind in &set {
            if text(&source[*kind], "name").is_empty() {
                errors.push(Error::required(&at.child(kind).child("name"), ""));
            }
        }
        match set.len() {
            0 => errors.push(Error::invalid(
                &at,
                "",
                "must specify one of: `configMapRef` or `secretRef`",
            )),
            1 => {}
            _ => errors.push(Error::invalid(
                &at,
                "",
                "may not have more than one field specified at a time",
            )),
        }
    }
}

fn mounts(mounts: &[Value], volumes: &BTreeSet<String>, path: &Path, errors: &mut ErrorList) {
    let mut points: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, mount) in mounts.iter().enumerate() {
        let at = path.index(index);
        let name = text(mount, "name");
        if name.is_empty() {
            errors.push(Error::required(&at.child("name"), ""));
        } else if !volumes.contains(name) {
            errors.push(Error::not_found(&at.child("name"), name));
        }
        let point = text(mount, "mountPath");
        if point.is_empty() {
            errors.push(Error::required(&at.child("mountPath"), ""));
        }
        if points.insert(point, index).is_some() {
            errors.push(Error::invalid(
                &at.child("mountPath"),
                point,
                "must be unique",
            ));
        }
        for key in ["subPath", "subPathExpr"] {
            let sub = text(mount, key);
            if sub.starts_with('/') {
                errors.push(Error::invalid(
                    &at.child(key),
                    sub,
                    "must be a relative path",
                ));
            }
            if sub.split('/').any(|part| part == "..") {
                errors.push(Error::invalid(&at.child(key), sub, "must not contain '..'"));
            }
        }
        if !text(mount, "subPath").is_empty() && !text(mount, "subPathExpr").is_empty() {
            let detail = "subPathExpr and subPath are mutually exclusive";
            errors.push(Error::invalid(
                &at.child("subPathExpr"),
                text(mount, "subPathExpr"),
                detail,
            ));
        }
        let modes = ["Bidirectional", "HostToContainer", "None"];
        one_of(
            text(mount, "mountPropagation"),
            &modes,
            false,
            &at.child("mountPropagation"),
            errors,
        );
    }
}

fn probe(probe: &Value, key: &str, path: &Path, errors: &mut ErrorList) {
    handler(probe, path, errors);
    for number in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        not_negative(&probe[number], &path.child(number), errors);
    }
    let successes = probe["successThreshold"].as_i64().unwrap_or(1);
    if key != "readinessProbe" && successes != 1 {
        errors.push(Error::invalid(
            &path.child("successThreshold"),
            successes,
            "must be 1",
        ));
    }
    if let Some(seconds) = probe["terminationGracePeriodSeconds"].as_i64() {
        if key == "readinessProbe" {
            let detail = "must not be set for readinessProbes";
            errors.push(Error::invalid(
                &path.child("terminationGracePeriodSeconds"),
                seconds,
                detail,
            ));
        } else if seconds <= 0 {
            let detail = "must be greater than 0";
            errors.push(Error::invalid(
                &path.child("terminationGracePeriodSeconds"),
                seconds,
                detail,
            ));
        }
    }
}

fn handler(handler: &Value, path: &Path, errors: &mut ErrorList) {
    let mut count = 0;
    for kind in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let action = &handler[kind];
        if !action.is_object() {
            continue;
        }
        let at = path.child(kind);
        if count > 0 {
            errors.push(Error::forbidden(
                &at,
                "may not specify more than 1 handler type",
            ));
            continue;
        }
        count += 1;
        match kind {
            "exec" if list(action, "command").is_empty() => {
                errors.push(Error::required(&at.child("command"), ""))
            }
            "httpGet" => {
                if text(action, "path").is_empty() {
                    errors.push(Error::required(&at.child("path"), ""));
                }
                handler_port(&action["port"], &at.child("port"), errors);
                one_of(
                    text(action, "scheme"),
                    &["HTTP", "HTTPS"],
                    true,
                    &at.child("scheme"),
                    errors,
                );
            }
            "tcpSocket" | "grpc" => handler_port(&action["port"], &at.child("port"), errors),
            _ => {}
        }
    }
    if count == 0 {
        errors.push(Error::required(path, "must specify a handler type"));
    }
}

fn handler_port(port: &Value, path: &Path, errors: &mut ErrorList) {
    match port {
        Value::String(name) => rule(names::port_name(name), name, path, errors),
        port => {
            let number = port.as_i64().unwrap_or_default();
            for text in names::port_number(number) {
                errors.push(Error::invalid(path, number, text));
            }
        }
    }
}
