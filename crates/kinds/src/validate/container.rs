//! Containers: names, images, ports, environment, mounts, probes.

use std::collections::BTreeSet;

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use allot_model::validate::pod as pod_claims;
use serde_json::Value;

use super::{list, one_of, resources, rule, security, text};

mod environment;
mod mounts;
mod probes;
mod restart;

pub(super) use environment::{pod_field, resource_field, volumes_of_files};

/// What containers refer to in their pod.
pub(crate) struct Pod<'a> {
    pub(super) volumes: &'a BTreeSet<String>,
    /// Names of the volumes with claims, which can be block devices.
    pub(super) claimed: &'a BTreeSet<String>,
    pub(super) claims: &'a BTreeSet<String>,
    pub(super) restart_policy: &'a str,
    pub(super) grace: Option<i64>,
    /// Whether the pod uses the host's user namespace.
    pub(super) host_users: bool,
}

/// Checks the containers of all three lists.
pub(crate) fn validate_all(
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
    let served = containers.iter().chain(list(spec, "initContainers"));
    let served: BTreeSet<&str> = served.map(|it| text(it, "name")).collect();
    for (key, items) in [
        ("containers", containers),
        ("initContainers", list(spec, "initContainers")),
        ("ephemeralContainers", list(spec, "ephemeralContainers")),
    ] {
        let at = path.child(key);
        for (index, container) in items.iter().enumerate() {
            let of = at.index(index);
            common(container, pod, &of, errors);
            match key {
                "initContainers" => restart::of_init(container, &of, errors),
                "ephemeralContainers" => padded_image(container, &of, errors),
                _ => {}
            }
            let name = text(container, "name");
            // Init containers without a name repeat only those of the other lists.
            if seen.contains(name) {
                errors.push(Error::duplicate(&of.child("name"), name));
            } else if !name.is_empty() || key != "initContainers" {
                seen.insert(name.to_owned());
            }
            match key {
                "containers" => {
                    hooks_and_probes(container, pod, &of, errors);
                    restart::rules(container, &of, errors);
                }
                "initContainers" => {
                    // One after the other, each is the first of its own list in upstream's messages.
                    host_ports(std::slice::from_ref(container), &at, errors);
                    if text(container, "restartPolicy") == "Always" {
                        hooks_and_probes(container, pod, &of, errors);
                    } else {
                        restart::only_for_sidecars(container, &of, errors);
                    }
                }
                _ => helper(container, &served, &of, errors),
            }
        }
        if key == "containers" {
            host_ports(items, &at, errors);
        }
    }
}

fn common(container: &Value, pod: &Pod<'_>, path: &Path, errors: &mut ErrorList) {
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
    ports(list(container, "ports"), &path.child("ports"), errors);
    environment::environment(list(container, "env"), &path.child("env"), errors);
    environment::environment_sources(list(container, "envFrom"), &path.child("envFrom"), errors);
    mounts::mounts(container, pod.volumes, &path.child("volumeMounts"), errors);
    mounts::devices(container, pod, &path.child("volumeDevices"), errors);
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
    resources::container(&container["resources"], &at, errors);
    errors.extend(pod_claims::container_claims(
        claims,
        pod.claims,
        &at.child("claims"),
    ));
    resize_policy(container, pod, &path.child("resizePolicy"), errors);
    security::container(
        &container["securityContext"],
        pod.host_users,
        &path.child("securityContext"),
        errors,
    );
}

fn hooks_and_probes(container: &Value, pod: &Pod<'_>, path: &Path, errors: &mut ErrorList) {
    for hook in ["postStart", "preStop"] {
        let action = &container["lifecycle"][hook];
        if action.is_object() {
            let at = path.child("lifecycle").child(hook);
            probes::handler(action, pod.grace, &at, errors);
        }
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if container[key].is_object() {
            probes::probe(&container[key], key, pod.grace, &path.child(key), errors);
        }
    }
}

/// An ephemeral container has one of the served containers of the pod as its target, and none of their fields.
fn helper(container: &Value, served: &BTreeSet<&str>, path: &Path, errors: &mut ErrorList) {
    const DETAIL: &str = "cannot be set for an Ephemeral Container";
    let target = text(container, "targetContainerName");
    if !target.is_empty() && !served.contains(target) {
        errors.push(Error::not_found(&path.child("targetContainerName"), target));
    }
    for key in [
        "ports",
        "resources",
        "resizePolicy",
        "restartPolicy",
        "restartPolicyRules",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
    ] {
        let absent = match &container[key] {
            Value::Array(items) => items.is_empty(),
            Value::Object(map) => map.is_empty(),
            value => value.is_null(),
        };
        if !absent {
            errors.push(Error::forbidden(&path.child(key), DETAIL));
        }
    }
    let mounts = path.child("volumeMounts");
    for (index, mount) in list(container, "volumeMounts").iter().enumerate() {
        for key in ["subPath", "subPathExpr"] {
            if !text(mount, key).is_empty() {
                errors.push(Error::forbidden(&mounts.index(index).child(key), DETAIL));
            }
        }
    }
}

/// Templates may name an image with spaces around it, as they always could.
pub(crate) fn padded_image(container: &Value, path: &Path, errors: &mut ErrorList) {
    let image = text(container, "image");
    if image.trim() != image {
        let detail = "must not have leading or trailing whitespace";
        errors.push(Error::invalid(&path.child("image"), image, detail));
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

fn ports(ports: &[Value], path: &Path, errors: &mut ErrorList) {
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
        one_of(
            text(port, "protocol"),
            &["SCTP", "TCP", "UDP"],
            true,
            &at.child("protocol"),
            errors,
        );
    }
}

/// With host network a port must equal its host port; templates may omit it, since pods get it by defaulting.
pub(crate) fn ports_of_host(spec: &Value, is_pod: bool, path: &Path, errors: &mut ErrorList) {
    for (index, container) in list(spec, "containers").iter().enumerate() {
        let at = path.child("containers").index(index).child("ports");
        for (index, port) in list(container, "ports").iter().enumerate() {
            let number = |key: &str| port[key].as_i64().unwrap_or_default();
            let host = number("hostPort");
            if (is_pod || host != 0) && host != number("containerPort") {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                let at = at.index(index).child("hostPort");
                errors.push(Error::invalid(&at, host, detail));
            }
        }
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
