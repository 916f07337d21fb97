//! Security contexts of pods and containers.

use std::collections::BTreeSet;

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::quote::go_json;
use serde_json::Value;

mod windows;

pub(super) use windows::{host_processes, windows};

use super::{between, list, one_of, text};

/// A user or group id.
fn id(value: &Value, path: &Path, errors: &mut ErrorList) {
    if let Some(id) = value.as_i64()
        && !(0..=i64::from(i32::MAX)).contains(&id)
    {
        errors.push(Error::invalid(path, id, between(0, i32::MAX.into())));
    }
}

const PROFILE_TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];

fn profile_type(found: &str, key: &str, path: &Path, errors: &mut ErrorList) {
    if found.is_empty() {
        let detail = format!("type is required when {key} is set");
        errors.push(Error::required(&path.child("type"), detail));
    } else if !PROFILE_TYPES.contains(&found) {
        let at = path.child("type");
        errors.push(Error::not_supported(&at, found, &PROFILE_TYPES));
    }
}

fn seccomp(context: &Value, path: &Path, errors: &mut ErrorList) {
    const KEY: &str = "seccompProfile";
    let (profile, path) = (&context[KEY], path.child(KEY));
    if !profile.is_object() {
        return;
    }
    let found = text(profile, "type");
    profile_type(found, KEY, &path, errors);
    let at = path.child("localhostProfile");
    let place = profile["localhostProfile"].as_str();
    match (found == "Localhost", place) {
        (true, None) => {
            let detail = "must be set when seccomp type is Localhost";
            errors.push(Error::required(&at, detail));
        }
        (true, Some(place)) => descending(place, &at, errors),
        (false, Some(place)) => {
            // Upstream shows the whole profile.
            let shown = format!(
                "{{\"Type\":{},\"LocalhostProfile\":{}}}",
                go_json(&profile["type"]),
                go_json(&place.into())
            );
            let detail = "can only be set when seccomp type is Localhost";
            errors.push(Error::invalid(&at, BadValue::raw(shown), detail));
        }
        (false, None) => {}
    }
}

/// A path that stays below its base.
pub(crate) fn descending(place: &str, path: &Path, errors: &mut ErrorList) {
    if place.starts_with('/') {
        errors.push(Error::invalid(path, place, "must be a relative path"));
    }
    without_steps_up(place, path, errors);
}

/// The path must not lead out of where it begins.
pub(crate) fn without_steps_up(place: &str, path: &Path, errors: &mut ErrorList) {
    if place.split('/').any(|part| part == "..") {
        errors.push(Error::invalid(path, place, "must not contain '..'"));
    }
}

/// Checks an AppArmor profile.
pub fn app_armor(profile: &Value, path: &Path, errors: &mut ErrorList) {
    const LONGEST: usize = 4095;
    if !profile.is_object() {
        return;
    }
    let at = path.child("localhostProfile");
    let place = profile["localhostProfile"].as_str();
    match (text(profile, "type"), place) {
        ("Localhost", place) => {
            let place = place.unwrap_or_default();
            if place.trim() != place {
                errors.push(Error::invalid(
                    &at,
                    place,
                    "must not be padded with whitespace",
                ));
            } else if place.is_empty() {
                let detail = "must be set when AppArmor type is Localhost";
                errors.push(Error::required(&at, detail));
            }
            if place.len() > LONGEST {
                errors.push(Error::too_long(&at, LONGEST));
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(place)) => {
            let detail = "can only be set when AppArmor type is Localhost";
            errors.push(Error::invalid(&at, place, detail));
        }
        (found, _) => profile_type(found, "appArmorProfile", path, errors),
    }
}

/// Checks the security context of a container.
pub(crate) fn container(context: &Value, host_users: bool, path: &Path, errors: &mut ErrorList) {
    for key in ["runAsUser", "runAsGroup"] {
        id(&context[key], &path.child(key), errors);
    }
    if let Some(mount) = context["procMount"].as_str() {
        let (known, at) = (["Default", "Unmasked"], path.child("procMount"));
        if !known.contains(&mount) {
            errors.push(Error::not_supported(&at, mount, &known));
        }
        if host_users && mount == "Unmasked" {
            let detail = "`hostUsers` must be false to use `Unmasked`";
            errors.push(Error::invalid(&at, mount, detail));
        }
    }
    seccomp(context, path, errors);
    if context["allowPrivilegeEscalation"] == false {
        escalation(context, path, errors);
    }
    windows::options(context, path, errors);
    app_armor(
        &context["appArmorProfile"],
        &path.child("appArmorProfile"),
        errors,
    );
}

/// Rejects privileges that contradict `allowPrivilegeEscalation: false`.
fn escalation(context: &Value, path: &Path, errors: &mut ErrorList) {
    let shown = shown(context);
    if context["privileged"] == true {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        errors.push(Error::invalid(path, shown.clone(), detail));
    }
    for capability in list(&context["capabilities"], "add") {
        if capability == "CAP_SYS_ADMIN" {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.push(Error::invalid(path, shown.clone(), detail));
        }
    }
}

/// A security context as upstream shows it in an error: with Go's field names.
fn shown(context: &Value) -> BadValue {
    const FIELDS: [&str; 12] = [
        "capabilities",
        "privileged",
        "seLinuxOptions",
        "windowsOptions",
        "runAsUser",
        "runAsGroup",
        "runAsNonRoot",
        "readOnlyRootFilesystem",
        "allowPrivilegeEscalation",
        "procMount",
        "seccompProfile",
        "appArmorProfile",
    ];
    let shown = FIELDS.map(|field| {
        let name = match field {
            "seLinuxOptions" => "SELinuxOptions".to_owned(),
            other => other[..1].to_ascii_uppercase() + &other[1..],
        };
        let value = match (field, &context[field]) {
            ("capabilities", Value::Object(sets)) => {
                let part = |key: &str| go_json(sets.get(key).unwrap_or(&Value::Null));
                format!("{{\"Add\":{},\"Drop\":{}}}", part("add"), part("drop"))
            }
            (_, value) => go_json(value),
        };
        format!("\"{name}\":{value}")
    });
    BadValue::raw(format!("{{{}}}", shown.join(",")))
}

/// Checks the security context of a pod.
pub(crate) fn pod(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let (context, at) = (&spec["securityContext"], path.child("securityContext"));
    for key in ["fsGroup", "runAsUser", "runAsGroup"] {
        id(&context[key], &at.child(key), errors);
    }
    for (index, group) in list(context, "supplementalGroups").iter().enumerate() {
        id(group, &at.child("supplementalGroups").index(index), errors);
    }
    if spec["shareProcessNamespace"] == true && spec["hostPID"] == true {
        let at = at.child("shareProcessNamespace");
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.push(Error::invalid(&at, true, detail));
    }
    sysctls(spec, &at.child("sysctls"), errors);
    let known = ["OnRootMismatch", "Always"];
    let change = text(context, "fsGroupChangePolicy");
    one_of(
        change,
        &known,
        false,
        &at.child("fsGroupChangePolicy"),
        errors,
    );
    seccomp(context, &at, errors);
    windows::options(context, &at, errors);
    app_armor(
        &context["appArmorProfile"],
        &at.child("appArmorProfile"),
        errors,
    );
    let policies: [(&str, &[&str]); 2] = [
        ("supplementalGroupsPolicy", &["Merge", "Strict"]),
        // The other value belongs to a feature that is off.
        ("seLinuxChangePolicy", &["Recursive"]),
    ];
    for (key, known) in policies {
        if let Some(found) = context[key].as_str().filter(|it| !known.contains(it)) {
            errors.push(Error::not_supported(&at.child(key), found, known));
        }
    }
}

/// Validates what a pod with its own user namespace may share with the host.
pub(crate) fn host_users(spec: &Value, path: &Path, errors: &mut ErrorList) {
    if spec["hostUsers"] == false {
        for key in ["hostNetwork", "hostPID", "hostIPC"] {
            if spec[key] == true {
                let detail = "when `hostUsers` is false";
                // Upstream's paths have Go's names here, except for the first.
                let shown = match key {
                    "hostNetwork" => key.to_owned(),
                    _ => format!("H{}", &key[1..]),
                };
                errors.push(Error::forbidden(&path.child(&shown), detail));
            }
        }
    }
}

const SYSCTL: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

fn sysctls(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    let found = list(&spec["securityContext"], "sysctls");
    for (index, sysctl) in found.iter().enumerate() {
        let at = path.index(index).child("name");
        let name = text(sysctl, "name");
        let segment = |part: &str| {
            let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
            part.bytes().all(|b| inner(b) || matches!(b, b'-' | b'_'))
                && part.bytes().next().is_some_and(inner)
                && part.bytes().last().is_some_and(inner)
        };
        if name.is_empty() {
            errors.push(Error::required(&at, ""));
        } else if name.len() > 253 || !name.split(['.', '/']).all(segment) {
            let detail = format!("must have at most 253 characters and match regex {SYSCTL}");
            errors.push(Error::invalid(&at, name, detail));
        } else if seen.contains(name) {
            errors.push(Error::duplicate(&at, name));
        }
        if let Some(shared) = namespace(name).filter(|shared| spec[*shared] == true) {
            let detail = format!("may not be specified when '{shared}' is true");
            errors.push(Error::invalid(&at, name, detail));
        }
        seen.insert(name);
    }
}

/// The namespace that makes a sysctl local to a pod.
fn namespace(sysctl: &str) -> Option<&'static str> {
    const OF_MEMORY: [&str; 10] = [
        "kernel.sem",
        "kernel.shmall",
        "kernel.shmmax",
        "kernel.shmmni",
        "kernel.shm_rmid_forced",
        "kernel.shm",
        "kernel.msgmax",
        "kernel.msgmnb",
        "kernel.msgmni",
        "kernel.msg",
    ];
    // The first separator decides which of the two it is; the other one is part of a name then.
    let slashes = sysctl
        .find(['.', '/'])
        .is_some_and(|at| sysctl[at..].starts_with('/'));
    let swapped = |c: char| match c {
        '/' => '.',
        '.' => '/',
        other => other,
    };
    let name: String = match slashes {
        true => sysctl.chars().map(swapped).collect(),
        false => sysctl.to_owned(),
    };
    if name.starts_with("net.") {
        Some("hostNetwork")
    } else if OF_MEMORY.contains(&name.as_str()) || name.starts_with("fs.mqueue.") {
        Some("hostIPC")
    } else {
        None
    }
}

fn containers<'a>(spec: &'a Value, path: &'a Path) -> impl Iterator<Item = (&'a Value, Path)> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(move |key| {
            let all = list(spec, key).iter().enumerate();
            all.map(move |(index, it)| (it, path.child(key).index(index)))
        })
}

/// Validates fields that a pod for Linux must not have.
pub(crate) fn linux(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let mut check = |holder: &Value, path: &Path| {
        if holder["securityContext"]["windowsOptions"].is_object() {
            let at = path.child("securityContext").child("windowsOptions");
            let detail = "windows options cannot be set for a linux pod";
            errors.push(Error::forbidden(&at, detail));
        }
    };
    check(spec, path);
    containers(spec, path).for_each(|(container, at)| check(container, &at));
}
