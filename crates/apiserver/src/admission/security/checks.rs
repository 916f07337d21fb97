//! The checks of the pod security standards, in upstream's order and words, as each version has them.

use serde_json::Value;

use super::Level;
use crate::object::{items, text};

mod host;
mod profiles;
mod rights;

use host::{host_namespaces, host_paths, host_ports, host_probes, host_process, volumes};
use profiles::{app_armor, se_linux, seccomp, seccomp_set, sysctls};
use rights::{
    added_capabilities, capabilities, non_root, privilege_escalation, privileged, proc_mount,
    proc_mount_outside_user_namespaces, user,
};

/// A pod or pod template.
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

/// A check, with the minor version that the namespace sets.
type Check = fn(Pod<'_>, u32) -> Option<Finding>;

/// From this minor version on a stricter check of the restricted level takes the place of one of the baseline.
type Replaced = Option<u32>;

/// The latest version in which a check has changed; later ones are the same.
const LAST: u32 = 35;

/// Checks of both levels: the version that introduced the check, and whether the restricted level has its own.
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

/// Checks of the restricted level only.
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

/// `pod and containers "a", "b"`: where a forbidden field is set; empty if nowhere.
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

/// The pod has its own user namespace.
fn has_user_namespace(pod: Pod<'_>) -> bool {
    pod.spec["hostUsers"] == false
}

fn is_windows(pod: Pod<'_>) -> bool {
    pod.spec["os"]["name"] == "windows"
}
