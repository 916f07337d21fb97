//! Pod security standards: what the labels of a namespace demand of its pods.

use serde_json::Value;

use super::{Attributes, Operation, forbidden, stored};
use crate::error::Result;
use crate::object::text;
use crate::server::{Core, Warnings};
use crate::validate::pod_annotations::APP_ARMOR_PREFIX;

const PREFIX: &str = "pod-security.kubernetes.io/";

/// How strict a namespace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    fn of(namespace: &Value, mode: &str) -> (Level, String) {
        let labels = &namespace["metadata"]["labels"];
        let level = match labels[format!("{PREFIX}{mode}")].as_str() {
            Some("baseline") => Level::Baseline,
            Some("restricted") => Level::Restricted,
            _ => Level::Privileged,
        };
        let version = labels[format!("{PREFIX}{mode}-version")]
            .as_str()
            .unwrap_or("latest");
        (level, version.to_owned())
    }

    fn name(self) -> &'static str {
        match self {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        }
    }
}

/// Refuses or warns about a pod, or the pods that a workload would make.
pub(super) async fn check(
    core: &Core,
    attributes: &Attributes<'_>,
    object: &Value,
    warnings: &Warnings,
) -> Result<()> {
    if !matches!(attributes.operation, Operation::Create | Operation::Update)
        || attributes.namespace.is_empty()
    {
        return Ok(());
    }
    let resource = attributes.resource;
    let pod = resource.is("", "pods");
    let (spec, metadata) = match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") if matches!(attributes.subresource, "" | "ephemeralcontainers") => {
            (&object["spec"], &object["metadata"])
        }
        ("", "replicationcontrollers")
        | ("apps", "daemonsets" | "deployments" | "replicasets" | "statefulsets")
        | ("batch", "jobs")
            if attributes.subresource.is_empty() =>
        {
            (
                &object["spec"]["template"]["spec"],
                &object["spec"]["template"]["metadata"],
            )
        }
        ("batch", "cronjobs") if attributes.subresource.is_empty() => {
            let template = &object["spec"]["jobTemplate"]["spec"]["template"];
            (&template["spec"], &template["metadata"])
        }
        _ => return Ok(()),
    };
    if attributes.operation == Operation::Update
        && pod
        && attributes.old.is_some_and(|old| old["spec"] == *spec)
    {
        return Ok(());
    }
    let Some(namespace) = stored(core, "namespaces", attributes.namespace).await? else {
        return Ok(());
    };
    if pod {
        let (level, version) = Level::of(&namespace, "enforce");
        let violations = violations(level, spec, metadata);
        if !violations.is_empty() {
            let why = format!(
                "violates PodSecurity \"{}:{version}\": {}",
                level.name(),
                violations.join(", ")
            );
            return Err(forbidden(attributes, &why));
        }
    }
    let (level, version) = Level::of(&namespace, "warn");
    let found = violations(level, spec, metadata);
    if !found.is_empty() {
        warnings.add(format!(
            "would violate PodSecurity \"{}:{version}\": {}",
            level.name(),
            found.join(", ")
        ));
    }
    Ok(())
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn containers(spec: &Value) -> Vec<&Value> {
    ["initContainers", "containers", "ephemeralContainers"]
        .iter()
        .flat_map(|key| items(&spec[*key]))
        .collect()
}

fn plural<'a>(count: usize, one: &'a str, many: &'a str) -> &'a str {
    if count == 1 { one } else { many }
}

fn quoted(names: &[&str]) -> String {
    names
        .iter()
        .map(|name| format!("{name:?}"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// `container "a"` or `containers "a", "b"` for those that a test holds for.
fn offenders(spec: &Value, test: impl Fn(&Value) -> bool) -> Option<String> {
    let names: Vec<&str> = containers(spec)
        .into_iter()
        .filter(|it| test(it))
        .map(|it| text(it, &["name"]))
        .collect();
    if names.is_empty() {
        return None;
    }
    Some(format!(
        "{} {}",
        plural(names.len(), "container", "containers"),
        quoted(&names)
    ))
}

/// What of a pod a level does not allow, in upstream's words and order.
fn violations(level: Level, spec: &Value, metadata: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if level >= Level::Restricted {
        restricted_first(spec, &mut found);
    }
    if level >= Level::Baseline {
        baseline(spec, metadata, &mut found);
    }
    if level >= Level::Restricted {
        restricted(spec, &mut found);
    }
    found
}

fn baseline(spec: &Value, metadata: &Value, found: &mut Vec<String>) {
    let hosts: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .iter()
        .filter(|key| spec[**key] == true)
        .map(|key| format!("{key}=true"))
        .collect();
    if !hosts.is_empty() {
        found.push(format!("host namespaces ({})", hosts.join(", ")));
    }
    if let Some(who) = offenders(spec, |it| it["securityContext"]["privileged"] == true) {
        found.push(format!(
            "privileged ({who} must not set securityContext.privileged=true)"
        ));
    }
    let added = |allowed: &'static [&'static str]| {
        move |container: &Value| {
            items(&container["securityContext"]["capabilities"]["add"])
                .iter()
                .any(|it| !it.as_str().is_some_and(|name| allowed.contains(&name)))
        }
    };
    const DEFAULT: &[&str] = &[
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ];
    if let Some(who) = offenders(spec, added(DEFAULT)) {
        let mut names: Vec<&str> = containers(spec)
            .into_iter()
            .flat_map(|it| items(&it["securityContext"]["capabilities"]["add"]))
            .filter_map(Value::as_str)
            .filter(|name| !DEFAULT.contains(name))
            .collect();
        names.sort_unstable();
        names.dedup();
        found.push(format!(
            "non-default capabilities ({who} must not include {} in securityContext.capabilities.add)",
            quoted(&names)
        ));
    }
    let volumes: Vec<&str> = items(&spec["volumes"])
        .iter()
        .filter(|volume| volume["hostPath"].is_object())
        .map(|volume| text(volume, &["name"]))
        .collect();
    if !volumes.is_empty() {
        found.push(format!(
            "hostPath volumes ({} {})",
            plural(volumes.len(), "volume", "volumes"),
            quoted(&volumes)
        ));
    }
    let host_port = |container: &Value| {
        items(&container["ports"])
            .iter()
            .any(|port| port["hostPort"].as_i64().unwrap_or(0) != 0)
    };
    if let Some(who) = offenders(spec, host_port) {
        let mut ports: Vec<i64> = containers(spec)
            .into_iter()
            .flat_map(|it| items(&it["ports"]))
            .filter_map(|port| port["hostPort"].as_i64().filter(|port| *port != 0))
            .collect();
        ports.sort_unstable();
        ports.dedup();
        let shown = ports
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ");
        found.push(format!(
            "hostPort ({who} {} {} {shown})",
            plural(1, "uses", "use"),
            plural(ports.len(), "hostPort", "hostPorts")
        ));
    }
    if let Some(who) = offenders(spec, |it| {
        it["securityContext"]["procMount"]
            .as_str()
            .is_some_and(|it| it != "Default")
    }) {
        found.push(format!(
            "procMount ({who} must not set securityContext.procMount=\"Unmasked\")"
        ));
    }
    let unconfined = |value: &Value| value["seccompProfile"]["type"] == "Unconfined";
    if unconfined(&spec["securityContext"]) {
        found.push("seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\")".to_owned());
    } else if let Some(who) = offenders(spec, |it| unconfined(&it["securityContext"])) {
        found.push(format!("seccompProfile ({who} must not set securityContext.seccompProfile.type to \"Unconfined\")"));
    }
    const SYSCTLS: &[&str] = &[
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_wmem",
    ];
    let sysctls: Vec<&str> = items(&spec["securityContext"]["sysctls"])
        .iter()
        .filter_map(|it| it["name"].as_str())
        .filter(|name| !SYSCTLS.contains(name))
        .collect();
    if !sysctls.is_empty() {
        found.push(format!("forbidden sysctls ({})", sysctls.join(", ")));
    }
    let profile = metadata["annotations"]
        .as_object()
        .into_iter()
        .flatten()
        .find(|(key, value)| key.starts_with(APP_ARMOR_PREFIX) && *value == "unconfined");
    if let Some((key, _)) = profile {
        found.push(format!("forbidden AppArmor profile ({key}=\"unconfined\")"));
    }
}

/// Upstream lists this one before the checks that baseline has too.
fn restricted_first(spec: &Value, found: &mut Vec<String>) {
    if let Some(who) = offenders(spec, |it| {
        it["securityContext"]["allowPrivilegeEscalation"] != false
    }) {
        found.push(format!(
            "allowPrivilegeEscalation != false ({who} must set securityContext.allowPrivilegeEscalation=false)"
        ));
    }
}

fn restricted(spec: &Value, found: &mut Vec<String>) {
    let keeps = |container: &Value| {
        !items(&container["securityContext"]["capabilities"]["drop"])
            .iter()
            .any(|it| it == "ALL")
    };
    if let Some(who) = offenders(spec, keeps) {
        found.push(format!(
            "unrestricted capabilities ({who} must set securityContext.capabilities.drop=[\"ALL\"])"
        ));
    }
    const VOLUMES: &[&str] = &[
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ];
    let mut kinds = Vec::new();
    let bad: Vec<&str> = items(&spec["volumes"])
        .iter()
        .filter(|volume| {
            let kind = volume
                .as_object()
                .into_iter()
                .flatten()
                .map(|(key, _)| key.as_str())
                .find(|key| *key != "name");
            let refused = kind.is_some_and(|kind| !VOLUMES.contains(&kind));
            if let (true, Some(kind)) = (refused, kind) {
                kinds.push(kind);
            }
            refused
        })
        .map(|volume| text(volume, &["name"]))
        .collect();
    if !bad.is_empty() {
        kinds.sort_unstable();
        kinds.dedup();
        found.push(format!(
            "restricted volume types ({} {} {} restricted volume {} {})",
            plural(bad.len(), "volume", "volumes"),
            quoted(&bad),
            plural(bad.len(), "uses", "use"),
            plural(kinds.len(), "type", "types"),
            quoted(&kinds)
        ));
    }
    let pod_non_root = spec["securityContext"]["runAsNonRoot"] == true;
    let may_be_root =
        |container: &Value| match container["securityContext"]["runAsNonRoot"].as_bool() {
            Some(non_root) => !non_root,
            None => !pod_non_root,
        };
    if let Some(who) = offenders(spec, may_be_root) {
        found.push(format!(
            "runAsNonRoot != true (pod or {who} must set securityContext.runAsNonRoot=true)"
        ));
    }
    if spec["securityContext"]["runAsUser"] == 0 {
        found.push("runAsUser=0 (pod must not set runAsUser=0)".to_owned());
    } else if let Some(who) = offenders(spec, |it| it["securityContext"]["runAsUser"] == 0) {
        found.push(format!("runAsUser=0 ({who} must not set runAsUser=0)"));
    }
    let fine = |value: &Value| {
        matches!(
            value["seccompProfile"]["type"].as_str(),
            Some("RuntimeDefault" | "Localhost")
        )
    };
    if !fine(&spec["securityContext"])
        && let Some(who) = offenders(spec, |it| !fine(&it["securityContext"]))
    {
        found.push(format!(
            "seccompProfile (pod or {who} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")"
        ));
    }
}
