//! What a pod takes of its node: namespaces, paths, ports, volumes.

use std::collections::BTreeSet;

use super::{Finding, Pod, named, of_pod, offenders, plural, quoted, setters};
use crate::object::{items, text};

pub(super) fn host_namespaces(pod: Pod<'_>, _: u32) -> Option<Finding> {
    let hosts: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .iter()
        .filter(|key| pod.spec[**key] == true)
        .map(|key| format!("{key}=true"))
        .collect();
    if hosts.is_empty() {
        return None;
    }
    Finding::new("host namespaces", hosts.join(", "))
}

pub(super) fn host_paths(pod: Pod<'_>, _: u32) -> Option<Finding> {
    let names: Vec<&str> = items(&pod.spec["volumes"])
        .iter()
        .filter(|volume| volume["hostPath"].is_object())
        .map(|volume| text(volume, &["name"]))
        .collect();
    if names.is_empty() {
        return None;
    }
    let word = plural(names.len(), "volume", "volumes");
    Finding::new("hostPath volumes", format!("{word} {}", quoted(names)))
}

pub(super) fn host_ports(pod: Pod<'_>, _: u32) -> Option<Finding> {
    let mut ports = BTreeSet::new();
    let names = offenders(pod.spec, |it| {
        let of_host = items(&it["ports"])
            .iter()
            .filter_map(|port| port["hostPort"].as_i64().filter(|port| *port != 0));
        let found: Vec<String> = of_host.map(|port| port.to_string()).collect();
        let any = !found.is_empty();
        ports.extend(found);
        any
    });
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {} {}",
        named(&names),
        plural(names.len(), "uses", "use"),
        plural(ports.len(), "hostPort", "hostPorts"),
        ports.into_iter().collect::<Vec<_>>().join(", ")
    );
    Finding::new("hostPort", detail)
}

pub(super) fn host_probes(pod: Pod<'_>, _: u32) -> Option<Finding> {
    let mut hosts = BTreeSet::new();
    let names = offenders(pod.spec, |it| {
        let probes = ["livenessProbe", "readinessProbe", "startupProbe"].map(|key| &it[key]);
        let hooks = ["postStart", "preStop"].map(|key| &it["lifecycle"][key]);
        let found: Vec<String> = probes
            .into_iter()
            .chain(hooks)
            .flat_map(|handler| ["httpGet", "tcpSocket"].map(|key| &handler[key]["host"]))
            .filter_map(|host| host.as_str().filter(|host| !host.is_empty()))
            .map(str::to_owned)
            .collect();
        let any = !found.is_empty();
        hosts.extend(found);
        any
    });
    if names.is_empty() {
        return None;
    }
    let names: Vec<&str> = BTreeSet::from_iter(names).into_iter().collect();
    let detail = format!(
        "{} {} {} {}",
        named(&names),
        plural(names.len(), "uses", "use"),
        plural(
            hosts.len(),
            "probe or lifecycle host",
            "probe or lifecycle hosts"
        ),
        quoted(hosts)
    );
    Finding::new("probe or lifecycle host", detail)
}

pub(super) fn host_process(pod: Pod<'_>, _: u32) -> Option<Finding> {
    let of_whole = of_pod(pod, "windowsOptions")["hostProcess"] == true;
    let names = offenders(pod.spec, |it| {
        it["securityContext"]["windowsOptions"]["hostProcess"] == true
    });
    let who = setters(of_whole, &names);
    if who.is_empty() {
        return None;
    }
    let detail = format!("{who} must not set securityContext.windowsOptions.hostProcess=true");
    Finding::new("hostProcess", detail)
}

pub(super) fn volumes(pod: Pod<'_>, _: u32) -> Option<Finding> {
    const ALLOWED: [&str; 9] = [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ];
    let (mut names, mut kinds) = (Vec::new(), BTreeSet::new());
    for volume in items(&pod.spec["volumes"]) {
        let mut sources = volume
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(key, value)| *key != "name" && value.is_object())
            .map(|(key, _)| key.as_str());
        if ALLOWED.iter().any(|kind| volume[kind].is_object()) {
            continue;
        }
        names.push(text(volume, &["name"]));
        kinds.insert(sources.next().unwrap_or("unknown"));
    }
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {} {} {}",
        plural(names.len(), "volume", "volumes"),
        quoted(&names),
        plural(names.len(), "uses", "use"),
        plural(
            kinds.len(),
            "restricted volume type",
            "restricted volume types"
        ),
        quoted(kinds)
    );
    Finding::new("restricted volume types", detail)
}
