//! The spec of pods and pod templates.

use std::collections::BTreeSet;

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use allot_model::validate::{meta as meta_rules, pod as pod_claims};
use serde_json::Value;

use super::{
    container, ip, labels, list, one_of, pod_annotations, resources, rule, scheduling, security,
    text, volume,
};

/// What a spec is part of.
pub(crate) enum Holder<'a> {
    /// A pod, with the object before an update.
    Pod(Option<&'a Value>),
    Template,
}

/// Checks a pod template.
pub(crate) fn template(template: &Value, path: &Path, errors: &mut ErrorList) {
    // The rest of a template's metadata is not used, and not validated; upstream's paths lack it.
    let (metadata, at) = (&template["metadata"], path.child("annotations"));
    errors.extend(meta_rules::labels(metadata, &path.child("labels")));
    errors.extend(meta_rules::annotations(metadata, &at));
    pod_annotations::check(metadata, None, &template["spec"], &at, errors);
    let at = path.child("spec");
    let of = Holder::Template;
    spec(&template["spec"], &template["metadata"], of, &at, errors);
    pod_annotations::check_match(template, &at, errors);
    if !list(&template["spec"], "ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        errors.push(Error::forbidden(&at.child("ephemeralContainers"), detail));
    }
}

/// Checks the spec of a pod, or of a template; `old` is the pod before a change.
pub(crate) fn spec(
    spec: &Value,
    metadata: &Value,
    of: Holder<'_>,
    path: &Path,
    errors: &mut ErrorList,
) {
    let (of_pod, old) = match of {
        Holder::Pod(old) => (true, old),
        Holder::Template => (false, None),
    };
    containers(spec, metadata, of_pod, path, errors);
    if spec["hostNetwork"] == true {
        container::ports_of_host(spec, of_pod, path, errors);
    }
    one_of(
        text(spec, "restartPolicy"),
        &["Always", "OnFailure", "Never"],
        true,
        &path.child("restartPolicy"),
        errors,
    );
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    one_of(
        text(spec, "dnsPolicy"),
        &policies,
        true,
        &path.child("dnsPolicy"),
        errors,
    );
    labels(&spec["nodeSelector"], &path.child("nodeSelector"), errors);
    security::pod(spec, path, errors);
    let before = old.map(|old| &old["spec"]["affinity"]);
    scheduling::affinity(&spec["affinity"], before, &path.child("affinity"), errors);
    dns_config(spec, path, errors);
    for (index, gate) in list(spec, "readinessGates").iter().enumerate() {
        let name = text(gate, "conditionType");
        let at = path
            .child("readinessGates")
            .index(index)
            .child("conditionType");
        rule(names::qualified_name(name), name, &at, errors);
    }
    scheduling_gates(spec, path, errors);
    let at = path.child("topologySpreadConstraints");
    scheduling::spread_constraints(list(spec, "topologySpreadConstraints"), &at, errors);
    security::host_processes(spec, path, errors);
    security::host_users(spec, path, errors);
    names_and_policies(spec, path, errors);
}

/// Volumes, claims, containers and resources, which refer to each other.
fn containers(spec: &Value, metadata: &Value, of_pod: bool, path: &Path, errors: &mut ErrorList) {
    let name = of_pod.then(|| text(metadata, "name"));
    let volumes = volume::validate(list(spec, "volumes"), name, &path.child("volumes"), errors);
    let claimed: BTreeSet<String> = list(spec, "volumes")
        .iter()
        .filter(|volume| {
            ["persistentVolumeClaim", "ephemeral"]
                .iter()
                .any(|kind| volume[*kind].is_object())
        })
        .map(|volume| text(volume, "name").to_owned())
        .collect();
    let claims = pod_claims::claim_names(spec);
    errors.extend(pod_claims::resource_claims(metadata, spec, path));
    let context = container::Pod {
        volumes: &volumes,
        claimed: &claimed,
        claims: &claims,
        restart_policy: text(spec, "restartPolicy"),
        grace: spec["terminationGracePeriodSeconds"].as_i64(),
        host_users: spec["hostUsers"] != false,
    };
    let mut seen = BTreeSet::new();
    container::validate_all(spec, &context, path, &mut seen, errors);
    if spec["resources"].is_object() {
        let at = path.child("resources");
        if spec["os"]["name"] == "windows" {
            errors.push(Error::forbidden(&at, "may not be set for a windows pod"));
        } else {
            resources::pod_level(&spec["resources"], &at, errors);
            let used = list(&spec["resources"], "claims");
            let at_claims = at.child("claims");
            errors.extend(pod_claims::container_claims(used, &claims, &at_claims));
            resources::pod_and_containers(spec, &at, errors);
        }
    }
}

/// From the host name on: fields that are checked each by itself. Upstream's order of errors is kept.
fn names_and_policies(spec: &Value, path: &Path, errors: &mut ErrorList) {
    host_name(spec, path, errors);
    named(
        spec,
        "serviceAccountName",
        names::dns1123_subdomain,
        path,
        errors,
    );
    named(spec, "nodeName", names::dns1123_subdomain, path, errors);
    if let Some(seconds) = spec["activeDeadlineSeconds"].as_i64()
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let detail = super::between(1, i32::MAX.into());
        errors.push(Error::invalid(
            &path.child("activeDeadlineSeconds"),
            seconds,
            detail,
        ));
    }
    named(spec, "hostname", names::dns1123_label, path, errors);
    named(spec, "subdomain", names::dns1123_label, path, errors);
    scheduling::tolerations(
        list(spec, "tolerations"),
        &path.child("tolerations"),
        errors,
    );
    host_aliases(spec, path, errors);
    named(
        spec,
        "priorityClassName",
        names::dns1123_subdomain,
        path,
        errors,
    );
    named(
        spec,
        "runtimeClassName",
        names::dns1123_subdomain,
        path,
        errors,
    );
    let policies = ["PreemptLowerPriority", "Never"];
    one_of(
        text(spec, "preemptionPolicy"),
        &policies,
        false,
        &path.child("preemptionPolicy"),
        errors,
    );
    if spec["overhead"].is_object() {
        resources::quantities(&spec["overhead"], &path.child("overhead"), errors);
    }
    if spec["os"].is_object() {
        system(spec, path, errors);
    }
    container::volumes_of_files(spec, path, errors);
}

/// Checks the name that a pod sees as that of its host.
fn host_name(spec: &Value, path: &Path, errors: &mut ErrorList) {
    const LONGEST: usize = 64;
    let Some(name) = spec["hostnameOverride"].as_str() else {
        return;
    };
    let at = path.child("hostnameOverride");
    for key in ["setHostnameAsFQDN", "hostNetwork"] {
        if spec[key] == true {
            let detail = format!("may not be specified when {key} is true");
            errors.push(Error::forbidden(&at, detail));
        }
    }
    if name.len() > LONGEST {
        errors.push(Error::too_long(&at, LONGEST));
    }
    rule(names::dns1123_subdomain(name), name, &at, errors);
}

/// What an operating system does not have.
fn system(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let at = path.child("os");
    match text(&spec["os"], "name") {
        "" => errors.push(Error::required(&at.child("name"), "")),
        "linux" => security::linux(spec, path, errors),
        "windows" => security::windows(spec, path, errors),
        other => errors.push(Error::not_supported(&at, other, &["linux", "windows"])),
    }
}

fn named(
    spec: &Value,
    key: &str,
    check: fn(&str) -> Vec<String>,
    path: &Path,
    errors: &mut ErrorList,
) {
    let name = text(spec, key);
    if !name.is_empty() {
        rule(check(name), name, &path.child(key), errors);
    }
}

fn dns_config(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let (config, at) = (&spec["dnsConfig"], path.child("dnsConfig"));
    if text(spec, "dnsPolicy") == "None" {
        if !config.is_object() {
            let detail = "must provide `dnsConfig` when `dnsPolicy` is None";
            errors.push(Error::required(&at, detail));
            return;
        }
        if list(config, "nameservers").is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.push(Error::required(&at.child("nameservers"), detail));
            return;
        }
    }
    let servers = list(config, "nameservers");
    if servers.len() > 3 {
        let detail = "must not have more than 3 nameservers";
        errors.push(Error::invalid(
            &at.child("nameservers"),
            &config["nameservers"],
            detail,
        ));
    }
    for (index, server) in servers.iter().enumerate() {
        let server = server.as_str().unwrap_or_default();
        ip::address(server, &at.child("nameservers").index(index), errors);
    }
    searches(config, &at.child("searches"), errors);
    for (index, option) in list(config, "options").iter().enumerate() {
        if text(option, "name").is_empty() {
            errors.push(Error::required(
                &at.child("options").index(index),
                "must not be empty",
            ));
        }
    }
}

fn searches(config: &Value, path: &Path, errors: &mut ErrorList) {
    const MOST: usize = 32;
    const LONGEST: usize = 2048;
    let found: Vec<&str> = list(config, "searches")
        .iter()
        .map(|it| it.as_str().unwrap_or_default())
        .collect();
    if found.len() > MOST {
        let detail = format!("must not have more than {MOST} search paths");
        errors.push(Error::invalid(path, &config["searches"], detail));
    }
    if found.join(" ").len() > LONGEST {
        let detail = format!(
            "must not have more than {LONGEST} characters (including spaces) in the search list"
        );
        errors.push(Error::invalid(path, &config["searches"], detail));
    }
    for (index, search) in found.into_iter().enumerate().filter(|(_, it)| *it != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        let texts = names::dns1123_subdomain_with_underscore(search);
        rule(texts, search, &path.index(index), errors);
    }
}

fn host_aliases(spec: &Value, path: &Path, errors: &mut ErrorList) {
    for (index, alias) in list(spec, "hostAliases").iter().enumerate() {
        let at = path.child("hostAliases").index(index);
        ip::address(text(alias, "ip"), &at.child("ip"), errors);
        for (place, name) in list(alias, "hostnames").iter().enumerate() {
            let name = name.as_str().unwrap_or_default();
            rule(
                names::dns1123_subdomain(name),
                name,
                &at.child("hostnames").index(place),
                errors,
            );
        }
    }
}

fn scheduling_gates(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    for (index, gate) in list(spec, "schedulingGates").iter().enumerate() {
        let at = path.child("schedulingGates").index(index);
        let name = text(gate, "name");
        rule(names::qualified_name(name), name, &at, errors);
        if !seen.insert(name) {
            errors.push(Error::duplicate(&at, name));
        }
    }
}
