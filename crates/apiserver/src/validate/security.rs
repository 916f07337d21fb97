//! Security contexts of pods and containers.

use std::collections::BTreeSet;

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::quote::go_json;
use serde_json::Value;

use super::{between, list, one_of, text};

/// A user or group id.
fn id(value: &Value, path: &Path, errors: &mut ErrorList) {
    if let Some(id) = value.as_i64()
        && !(0..=i64::from(i32::MAX)).contains(&id)
    {
        errors.push(Error::invalid(path, id, between(0, i32::MAX.into())));
    }
}

fn profile(profile: &Value, kind: &str, path: &Path, errors: &mut ErrorList) {
    if !profile.is_object() {
        return;
    }
    let known = ["Localhost", "RuntimeDefault", "Unconfined"];
    let (found, at) = (text(profile, "type"), path.child("type"));
    if found.is_empty() {
        let detail = format!("type is required when {kind}Profile is set");
        errors.push(Error::required(&at, detail));
    } else if !known.contains(&found) {
        errors.push(Error::not_supported(&at, found, &known));
    }
    let at = path.child("localhostProfile");
    let place = &profile["localhostProfile"];
    let words = if kind == "seccomp" {
        "seccomp"
    } else {
        "AppArmor"
    };
    match (found == "Localhost", place.as_str()) {
        (true, None) => {
            let detail = format!("must be set when {words} type is Localhost");
            errors.push(Error::required(&at, detail));
        }
        (true, Some(place)) if place.starts_with('/') => {
            errors.push(Error::invalid(&at, place, "must be a relative path"));
        }
        (true, Some(place)) if place.split('/').any(|part| part == "..") => {
            errors.push(Error::invalid(&at, place, "must not contain '..'"));
        }
        (false, Some(place)) => {
            let detail = format!("can only be set when {words} type is Localhost");
            errors.push(Error::invalid(&at, place, detail));
        }
        _ => {}
    }
}

/// Checks the security context of a container.
pub(super) fn container(context: &Value, path: &Path, errors: &mut ErrorList) {
    for key in ["runAsUser", "runAsGroup"] {
        id(&context[key], &path.child(key), errors);
    }
    let known = ["Default", "Unmasked"];
    let mount = text(context, "procMount");
    one_of(mount, &known, false, &path.child("procMount"), errors);
    profile(
        &context["seccompProfile"],
        "seccomp",
        &path.child("seccompProfile"),
        errors,
    );
    profile(
        &context["appArmorProfile"],
        "appArmor",
        &path.child("appArmorProfile"),
        errors,
    );
    if context["allowPrivilegeEscalation"] != false {
        return;
    }
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

/// A context as upstream shows it in an error: with the names of its fields in Go.
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
pub(super) fn pod(spec: &Value, path: &Path, errors: &mut ErrorList) {
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
    sysctls(context, &at.child("sysctls"), errors);
    let known = ["OnRootMismatch", "Always"];
    let change = text(context, "fsGroupChangePolicy");
    one_of(
        change,
        &known,
        false,
        &at.child("fsGroupChangePolicy"),
        errors,
    );
    profile(
        &context["seccompProfile"],
        "seccomp",
        &at.child("seccompProfile"),
        errors,
    );
    profile(
        &context["appArmorProfile"],
        "appArmor",
        &at.child("appArmorProfile"),
        errors,
    );
    if spec["hostUsers"] == false {
        for key in ["hostNetwork", "hostPID", "hostIPC"] {
            if spec[key] == true {
                let detail = "when `hostUsers` is false";
                errors.push(Error::forbidden(&path.child(key), detail));
            }
        }
    }
}

const SYSCTL: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

fn sysctls(context: &Value, path: &Path, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    for (index, sysctl) in list(context, "sysctls").iter().enumerate() {
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
        } else if !seen.insert(name.replace('/', ".")) {
            errors.push(Error::duplicate(&at, name));
        }
    }
}
