//! The checks of the pod security standards, in upstream's order and words, as each version has them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Level;
use crate::object::text;
use crate::validate::pod_annotations::APP_ARMOR_PREFIX;

/// A pod, or what a workload would make pods of.
#[derive(Clone, Copy)]
pub(super) struct Pod<'a> {
    pub(super) metadata: &'a Value,
    pub(super) spec: &'a Value,
}

/// What a check has against a pod.
pub(super) struct Finding {
    reason: &'static str,
    detail: String,
}

impl Finding {
    fn new(reason: &'static str, detail: String) -> Option<Finding> {
        Some(Finding { reason, detail })
    }
}

/// A check, told the minor version that the namespace asks for.
type Check = fn(Pod<'_>, u32) -> Option<Finding>;

/// From this minor version on a stricter check of the restricted level takes the place of one of the baseline.
type Replaced = Option<u32>;

/// The latest version in which a check has changed; later ones are the same.
const LAST: u32 = 35;

/// Those of both levels: the version that brought the check, and where the restricted level has its own.
const BASELINE: [(u32, Replaced, Check); 12] = [
    (0, None, app_armor),
    (0, Some(22), added_capabilities),
    (0, None, host_namespaces),
    (0, Some(0), host_paths),
    (0, None, host_ports),
    (34, None, host_probes),
    (0, None, privileged),
    (0, Some(35), proc_mount_outside_user_namespaces),
    (0, None, se_linux),
    (0, Some(19), seccomp),
    (0, None, sysctls),
    (0, None, host_process),
];

/// Those of the restricted level alone.
const RESTRICTED: [(u32, Check); 7] = [
    (8, privilege_escalation),
    (22, capabilities),
    (35, proc_mount),
    (0, volumes),
    (0, non_root),
    (23, user),
    (19, seccomp_set),
];

/// What of a pod a level does not allow in a version; without one in the latest.
pub(super) fn findings(level: Level, minor: Option<u32>, pod: Pod<'_>) -> Vec<Finding> {
    let minor = minor.unwrap_or(LAST).min(LAST);
    let restricted = level == Level::Restricted;
    let mut checks: Vec<Check> = Vec::new();
    if level >= Level::Baseline {
        let stays = |replaced: Replaced| !restricted || replaced.is_none_or(|from| minor < from);
        let own = BASELINE
            .iter()
            .filter(|(since, replaced, _)| *since <= minor && stays(*replaced));
        checks.extend(own.map(|(_, _, check)| *check));
    }
    if restricted {
        let own = RESTRICTED.iter().filter(|(since, _)| *since <= minor);
        checks.extend(own.map(|(_, check)| *check));
    }
    checks
        .into_iter()
        .filter_map(|check| check(pod, minor))
        .collect()
}

/// All findings in one line.
pub(super) fn details(findings: &[Finding]) -> String {
    let shown = |finding: &Finding| format!("{} ({})", finding.reason, finding.detail);
    findings.iter().map(shown).collect::<Vec<_>>().join(", ")
}

/// What the findings are about, in one line.
pub(super) fn reasons(findings: &[Finding]) -> String {
    let reasons: Vec<&str> = findings.iter().map(|finding| finding.reason).collect();
    reasons.join(", ")
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|key| items(&spec[key]))
}

fn plural<'a>(count: usize, one: &'a str, many: &'a str) -> &'a str {
    if count == 1 { one } else { many }
}

fn quoted<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    let quoted = names
        .into_iter()
        .map(|name| format!("\"{}\"", name.as_ref()));
    quoted.collect::<Vec<_>>().join(", ")
}

/// The names of the containers that a test holds for.
fn offenders(spec: &Value, mut test: impl FnMut(&Value) -> bool) -> Vec<&str> {
    containers(spec)
        .filter(|it| test(it))
        .map(|it| text(it, &["name"]))
        .collect()
}

/// `container "a"` or `containers "a", "b"`.
fn named(names: &[&str]) -> String {
    let word = plural(names.len(), "container", "containers");
    format!("{word} {}", quoted(names))
}

/// `pod and containers "a", "b"`: who sets something that may not be; empty if nobody does.
fn setters(pod: bool, containers: &[&str]) -> String {
    match (pod, containers) {
        (false, []) => String::new(),
        (true, []) => "pod".to_owned(),
        (false, names) => named(names),
        (true, names) => format!("pod and {}", named(names)),
    }
}

fn of_pod<'a>(pod: Pod<'a>, key: &str) -> &'a Value {
    &pod.spec["securityContext"][key]
}

/// The pod says that it runs in a user namespace of its own.
fn has_user_namespace(pod: Pod<'_>) -> bool {
    pod.spec["hostUsers"] == false
}

fn is_windows(pod: Pod<'_>) -> bool {
    pod.spec["os"]["name"] == "windows"
}

fn app_armor(pod: Pod<'_>, _: u32) -> Option<Finding> {
    let mut values = BTreeSet::new();
    let mut refused = |profile: &Value| {
        let kind = profile["type"].as_str().unwrap_or_default();
        let refused = profile.is_object() && !matches!(kind, "RuntimeDefault" | "Localhost");
        if refused {
            values.insert(kind.to_owned());
        }
        refused
    };
    let of_whole = refused(of_pod(pod, "appArmorProfile"));
    let names = offenders(pod.spec, |it| {
        refused(&it["securityContext"]["appArmorProfile"])
    });
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
    let mut who = setters(of_whole, &names);
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

/// The capabilities that a container adds and may not, and the containers.
fn added<'a>(pod: Pod<'a>, allowed: &[&str]) -> (Vec<&'a str>, BTreeSet<String>) {
    let mut refused = BTreeSet::new();
    let names = offenders(pod.spec, |it| {
        let before = items(&it["securityContext"]["capabilities"]["add"])
            .iter()
            .filter_map(Value::as_str)
            .filter(|name| !allowed.contains(name));
        let found: Vec<String> = before.map(str::to_owned).collect();
        let any = !found.is_empty();
        refused.extend(found);
        any
    });
    (names, refused)
}

fn added_capabilities(pod: Pod<'_>, _: u32) -> Option<Finding> {
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
    let (names, refused) = added(pod, DEFAULT);
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} must not include {} in securityContext.capabilities.add",
        named(&names),
        quoted(refused)
    );
    Finding::new("non-default capabilities", detail)
}

fn capabilities(pod: Pod<'_>, minor: u32) -> Option<Finding> {
    if minor >= 25 && is_windows(pod) {
        return None;
    }
    let keeping = offenders(pod.spec, |it| {
        !items(&it["securityContext"]["capabilities"]["drop"])
            .iter()
            .any(|it| it == "ALL")
    });
    let (adding, refused) = added(pod, &["NET_BIND_SERVICE"]);
    let mut details = Vec::new();
    if !keeping.is_empty() {
        details.push(format!(
            "{} must set securityContext.capabilities.drop=[\"ALL\"]",
            named(&keeping)
        ));
    }
    if !adding.is_empty() {
        details.push(format!(
            "{} must not include {} in securityContext.capabilities.add",
            named(&adding),
            quoted(refused)
        ));
    }
    if details.is_empty() {
        return None;
    }
    Finding::new("unrestricted capabilities", details.join("; "))
}

fn host_namespaces(pod: Pod<'_>, _: u32) -> Option<Finding> {
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

fn host_paths(pod: Pod<'_>, _: u32) -> Option<Finding> {
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

fn host_ports(pod: Pod<'_>, _: u32) -> Option<Finding> {
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

fn host_probes(pod: Pod<'_>, _: u32) -> Option<Finding> {
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

fn privileged(pod: Pod<'_>, _: u32) -> Option<Finding> {
    let names = offenders(pod.spec, |it| it["securityContext"]["privileged"] == true);
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} must not set securityContext.privileged=true",
        named(&names)
    );
    Finding::new("privileged", detail)
}

fn proc_mount_outside_user_namespaces(pod: Pod<'_>, minor: u32) -> Option<Finding> {
    if minor >= 35 && has_user_namespace(pod) {
        return None;
    }
    proc_mount(pod, minor)
}

fn proc_mount(pod: Pod<'_>, _: u32) -> Option<Finding> {
    let mut kinds = BTreeSet::new();
    let names = offenders(pod.spec, |it| {
        let kind = it["securityContext"]["procMount"].as_str();
        let refused = kind.filter(|kind| *kind != "Default");
        kinds.extend(refused.map(str::to_owned));
        refused.is_some()
    });
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} must not set securityContext.procMount to {}",
        named(&names),
        quoted(kinds)
    );
    Finding::new("procMount", detail)
}

fn se_linux(pod: Pod<'_>, minor: u32) -> Option<Finding> {
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
        format!("container.seccomp.security.alpha.kubernetes.io/{name}")
    });
    let keys = std::iter::once("seccomp.security.alpha.kubernetes.io/pod".to_owned());
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

fn seccomp(pod: Pod<'_>, minor: u32) -> Option<Finding> {
    if minor < 19 {
        return old_seccomp(pod);
    }
    let mut kinds = BTreeSet::new();
    let mut refused = |profile: &Value| {
        let kind = text(profile, &["type"]);
        let refused = profile.is_object() && !matches!(kind, "RuntimeDefault" | "Localhost");
        if refused {
            kinds.insert(kind.to_owned());
        }
        refused
    };
    let of_whole = refused(of_pod(pod, "seccompProfile"));
    let names = offenders(pod.spec, |it| {
        refused(&it["securityContext"]["seccompProfile"])
    });
    let who = setters(of_whole, &names);
    if who.is_empty() {
        return None;
    }
    let detail = format!(
        "{who} must not set securityContext.seccompProfile.type to {}",
        quoted(kinds)
    );
    Finding::new("seccompProfile", detail)
}

fn seccomp_set(pod: Pod<'_>, minor: u32) -> Option<Finding> {
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

fn sysctls(pod: Pod<'_>, minor: u32) -> Option<Finding> {
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

fn host_process(pod: Pod<'_>, _: u32) -> Option<Finding> {
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

fn privilege_escalation(pod: Pod<'_>, minor: u32) -> Option<Finding> {
    if minor >= 25 && is_windows(pod) {
        return None;
    }
    let names = offenders(pod.spec, |it| {
        it["securityContext"]["allowPrivilegeEscalation"] != false
    });
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} must set securityContext.allowPrivilegeEscalation=false",
        named(&names)
    );
    Finding::new("allowPrivilegeEscalation != false", detail)
}

fn volumes(pod: Pod<'_>, _: u32) -> Option<Finding> {
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

fn non_root(pod: Pod<'_>, minor: u32) -> Option<Finding> {
    const REASON: &str = "runAsNonRoot != true";
    if minor >= 35 && has_user_namespace(pod) {
        return None;
    }
    let says = |it: &Value| it["securityContext"]["runAsNonRoot"].as_bool();
    let whole = of_pod(pod, "runAsNonRoot").as_bool();
    let explicit = offenders(pod.spec, |it| says(it) == Some(false));
    let who = setters(whole == Some(false), &explicit);
    if !who.is_empty() {
        let detail = format!("{who} must not set securityContext.runAsNonRoot=false");
        return Finding::new(REASON, detail);
    }
    let silent = offenders(pod.spec, |it| says(it).is_none() && whole != Some(true));
    if silent.is_empty() {
        return None;
    }
    let detail = format!(
        "pod or {} must set securityContext.runAsNonRoot=true",
        named(&silent)
    );
    Finding::new(REASON, detail)
}

fn user(pod: Pod<'_>, minor: u32) -> Option<Finding> {
    if minor >= 35 && has_user_namespace(pod) {
        return None;
    }
    let names = offenders(pod.spec, |it| it["securityContext"]["runAsUser"] == 0);
    let who = setters(*of_pod(pod, "runAsUser") == 0, &names);
    if who.is_empty() {
        return None;
    }
    Finding::new("runAsUser=0", format!("{who} must not set runAsUser=0"))
}
