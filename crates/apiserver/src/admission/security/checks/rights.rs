//! The privileges and users of a pod's processes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    Finding, Pod, has_user_namespace, is_windows, named, of_pod, offenders, quoted, setters,
};
use crate::object::items;

/// The violation by the capabilities that containers add.
fn added(pod: Pod<'_>, allowed: &[&str]) -> Option<String> {
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
    (!names.is_empty()).then(|| {
        format!(
            "{} must not include {} in securityContext.capabilities.add",
            named(&names),
            quoted(refused)
        )
    })
}

pub(super) fn added_capabilities(pod: Pod<'_>, _: u32) -> Option<Finding> {
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
    Finding::new("non-default capabilities", added(pod, DEFAULT)?)
}

pub(super) fn capabilities(pod: Pod<'_>, minor: u32) -> Option<Finding> {
    if minor >= 25 && is_windows(pod) {
        return None;
    }
    let keeping = offenders(pod.spec, |it| {
        !items(&it["securityContext"]["capabilities"]["drop"])
            .iter()
            .any(|it| it == "ALL")
    });
    let mut details = Vec::new();
    if !keeping.is_empty() {
        details.push(format!(
            "{} must set securityContext.capabilities.drop=[\"ALL\"]",
            named(&keeping)
        ));
    }
    details.extend(added(pod, &["NET_BIND_SERVICE"]));
    if details.is_empty() {
        return None;
    }
    Finding::new("unrestricted capabilities", details.join("; "))
}

pub(super) fn privileged(pod: Pod<'_>, _: u32) -> Option<Finding> {
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

pub(super) fn proc_mount_outside_user_namespaces(pod: Pod<'_>, minor: u32) -> Option<Finding> {
    if minor >= 35 && has_user_namespace(pod) {
        return None;
    }
    proc_mount(pod, minor)
}

pub(super) fn proc_mount(pod: Pod<'_>, _: u32) -> Option<Finding> {
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

pub(super) fn privilege_escalation(pod: Pod<'_>, minor: u32) -> Option<Finding> {
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

pub(super) fn non_root(pod: Pod<'_>, minor: u32) -> Option<Finding> {
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

pub(super) fn user(pod: Pod<'_>, minor: u32) -> Option<Finding> {
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
