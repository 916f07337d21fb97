//! Profiles of the kernel's security modules, and its settings.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    Finding, Pod, containers, is_windows, named, of_pod, offenders, plural, quoted, setters,
};
use crate::object::{items, text};
use crate::validate::pod_annotations::{APP_ARMOR_PREFIX, SECCOMP, SECCOMP_PREFIX};

/// Where a profile is set that is neither the runtime's nor one of the node, and the types of the
/// profiles.
fn of_other_types(pod: Pod<'_>, field: &str) -> (String, BTreeSet<String>) {
    let mut kinds = BTreeSet::new();
    let mut refused = |profile: &Value| {
        let kind = text(profile, &["type"]);
        let refused = profile.is_object() && !matches!(kind, "RuntimeDefault" | "Localhost");
        if refused {
            kinds.insert(kind.to_owned());
        }
        refused
    };
    let of_whole = refused(of_pod(pod, field));
    let names = offenders(pod.spec, |it| refused(&it["securityContext"][field]));
    (setters(of_whole, &names), kinds)
}

pub(super) fn app_armor(pod: Pod<'_>, _: u32) -> Option<Finding> {
    let (mut who, values) = of_other_types(pod, "appArmorProfile");
    let allowed = |value: &str| {
        value.is_empty() || value == "runtime/default" || value.starts_with("localhost/")
    };
    let mut annotations: Vec<String> = pod.metadata["annotations"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key, value.as_str()?)))
        .filter(|(key, value)| key.starts_with(APP_ARMOR_PREFIX) && !allowed(value))
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect();
    annotations.sort_unstable();
    if !annotations.is_empty() {
        let and = if who.is_empty() { "" } else { " and " };
        who = format!(
            "{who}{and}{}",
            plural(annotations.len(), "annotation", "annotations")
        );
    }
    if who.is_empty() {
        return None;
    }
    let values: Vec<String> = values.into_iter().chain(annotations).collect();
    let reason = plural(
        values.len(),
        "forbidden AppArmor profile",
        "forbidden AppArmor profiles",
    );
    Finding::new(
        reason,
        format!(
            "{who} must not set AppArmor profile type to {}",
            quoted(values)
        ),
    )
}

pub(super) fn se_linux(pod: Pod<'_>, minor: u32) -> Option<Finding> {
    let allowed = |kind: &str| match kind {
        "" | "container_t" | "container_init_t" | "container_kvm_t" => true,
        "container_engine_t" => minor >= 31,
        _ => false,
    };
    let (mut kinds, mut user, mut role) = (BTreeSet::new(), false, false);
    let mut refused = |options: &Value| {
        let kind = text(options, &["type"]);
        if !allowed(kind) {
            kinds.insert(kind.to_owned());
        }
        let (sets_user, sets_role) = (
            !text(options, &["user"]).is_empty(),
            !text(options, &["role"]).is_empty(),
        );
        user |= sets_user;
        role |= sets_role;
        !allowed(kind) || sets_user || sets_role
    };
    let of_whole = refused(of_pod(pod, "seLinuxOptions"));
    let names = offenders(pod.spec, |it| {
        refused(&it["securityContext"]["seLinuxOptions"])
    });
    let who = setters(of_whole, &names);
    if who.is_empty() {
        return None;
    }
    let mut what = Vec::new();
    if !kinds.is_empty() {
        let word = plural(kinds.len(), "type", "types");
        what.push(format!("{word} {}", quoted(kinds)));
    }
    if user {
        what.push("user may not be set".to_owned());
    }
    if role {
        what.push("role may not be set".to_owned());
    }
    let detail = format!(
        "{who} set forbidden securityContext.seLinuxOptions: {}",
        what.join("; ")
    );
    Finding::new("seLinuxOptions", detail)
}

/// Profiles were annotations before 1.19.
fn old_seccomp(pod: Pod<'_>) -> Option<Finding> {
    let allowed = |value: &str| {
        matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/")
    };
    let of_containers = containers(pod.spec).map(|it| {
        let name = text(it, &["name"]);
        format!("{SECCOMP_PREFIX}{name}")
    });
    let keys = std::iter::once(SECCOMP.to_owned());
    let refused: BTreeSet<String> = keys
        .chain(of_containers)
        .filter_map(|key| {
            let value = pod.metadata["annotations"][&key].as_str()?;
            (!allowed(value)).then(|| format!("{key}={value:?}"))
        })
        .collect();
    if refused.is_empty() {
        return None;
    }
    let word = plural(refused.len(), "annotation", "annotations");
    let refused: Vec<String> = refused.into_iter().collect();
    Finding::new(
        "seccompProfile",
        format!("forbidden {word} {}", refused.join(", ")),
    )
}

pub(super) fn seccomp(pod: Pod<'_>, minor: u32) -> Option<Finding> {
    if minor < 19 {
        return old_seccomp(pod);
    }
    let (who, kinds) = of_other_types(pod, "seccompProfile");
    if who.is_empty() {
        return None;
    }
    let detail = format!(
        "{who} must not set securityContext.seccompProfile.type to {}",
        quoted(kinds)
    );
    Finding::new("seccompProfile", detail)
}

pub(super) fn seccomp_set(pod: Pod<'_>, minor: u32) -> Option<Finding> {
    if minor >= 25 && is_windows(pod) {
        return None;
    }
    let wrong = seccomp(pod, minor);
    if wrong.is_some() || of_pod(pod, "seccompProfile").is_object() {
        return wrong;
    }
    let names = offenders(pod.spec, |it| {
        !it["securityContext"]["seccompProfile"].is_object()
    });
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
        named(&names)
    );
    Finding::new("seccompProfile", detail)
}

pub(super) fn sysctls(pod: Pod<'_>, minor: u32) -> Option<Finding> {
    const ALLOWED: [(u32, &str); 12] = [
        (0, "kernel.shm_rmid_forced"),
        (0, "net.ipv4.ip_local_port_range"),
        (0, "net.ipv4.tcp_syncookies"),
        (0, "net.ipv4.ping_group_range"),
        (0, "net.ipv4.ip_unprivileged_port_start"),
        (27, "net.ipv4.ip_local_reserved_ports"),
        (29, "net.ipv4.tcp_keepalive_time"),
        (29, "net.ipv4.tcp_fin_timeout"),
        (29, "net.ipv4.tcp_keepalive_intvl"),
        (29, "net.ipv4.tcp_keepalive_probes"),
        (32, "net.ipv4.tcp_rmem"),
        (32, "net.ipv4.tcp_wmem"),
    ];
    let allowed = |name: &str| {
        ALLOWED
            .iter()
            .any(|(since, known)| *since <= minor && *known == name)
    };
    let names: Vec<&str> = items(of_pod(pod, "sysctls"))
        .iter()
        .map(|it| text(it, &["name"]))
        .filter(|name| !allowed(name))
        .collect();
    if names.is_empty() {
        return None;
    }
    Finding::new("forbidden sysctls", names.join(", "))
}
