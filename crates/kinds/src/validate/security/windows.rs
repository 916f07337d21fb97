//! Pods for Windows.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use super::super::rule;
use super::containers;

const LONGEST_SPEC_KIB: usize = 64;
const LONGEST_DOMAIN: usize = 256;
const LONGEST_USER: usize = 104;

/// Validates the Windows options of a security context.
pub(crate) fn options(context: &Value, path: &Path, errors: &mut ErrorList) {
    let (options, path) = (&context["windowsOptions"], path.child("windowsOptions"));
    if let Some(name) = options["gmsaCredentialSpecName"].as_str() {
        let at = path.child("gmsaCredentialSpecName");
        rule(names::dns1123_subdomain(name), name, &at, errors);
    }
    if let Some(spec) = options["gmsaCredentialSpec"].as_str() {
        let at = path.child("gmsaCredentialSpec");
        if spec.is_empty() {
            let detail = "gmsaCredentialSpec cannot be an empty string";
            errors.push(Error::invalid(&at, spec, detail));
        } else if spec.len() > LONGEST_SPEC_KIB << 10 {
            let detail = format!("gmsaCredentialSpec size must be under {LONGEST_SPEC_KIB} KiB");
            errors.push(Error::invalid(&at, spec, detail));
        }
    }
    if let Some(user) = options["runAsUserName"].as_str() {
        let at = path.child("runAsUserName");
        for detail in user_name(user) {
            errors.push(Error::invalid(&at, user, detail));
        }
    }
}

fn user_name(name: &str) -> Vec<String> {
    let says = |what: &str| vec![format!("runAsUserName {what}")];
    if name.is_empty() {
        return says("cannot be an empty string");
    }
    if name.chars().any(char::is_control) {
        return says("cannot contain control characters");
    }
    let (domain, user) = match name.split_once('\\') {
        Some((_, rest)) if rest.contains('\\') => {
            return says("cannot contain more than one backslash");
        }
        Some((domain, user)) => (Some(domain), user),
        None => (None, name),
    };
    let mut found = Vec::new();
    if let Some(domain) = domain {
        if domain.len() >= LONGEST_DOMAIN {
            let detail = format!("Domain length must be under {LONGEST_DOMAIN} characters");
            found.push(format!("runAsUserName's {detail}"));
        }
        if !is_net_bios(domain) && !is_dns(domain) {
            let detail = "runAsUserName's Domain doesn't match the NetBios nor the DNS format";
            found.push(detail.to_owned());
        }
    }
    if user.is_empty() {
        found.push("runAsUserName's User cannot be empty".to_owned());
    } else if user.len() > LONGEST_USER {
        let detail = format!("User length must not be longer than {LONGEST_USER} characters");
        found.push(format!("runAsUserName's {detail}"));
    }
    if !user.is_empty() && user.bytes().all(|b| matches!(b, b'.' | b' ')) {
        found.push("runAsUserName's User cannot contain only periods or spaces".to_owned());
    }
    if user.contains(|c| "\"/\\:;|=,+*?<>@[]".contains(c)) {
        let detail = "User cannot contain the following characters: \"/\\:;|=,+*?<>@[]";
        found.push(format!("runAsUserName's {detail}"));
    }
    found
}

fn is_net_bios(domain: &str) -> bool {
    let known = |c: char| !"\\/:*?\"<>|.".contains(c) || c == '.';
    (1..=15).contains(&domain.len()) && !domain.starts_with('.') && domain.chars().all(known)
}

/// Labels of letters, digits and dashes; the first may not be a number.
fn is_dns(domain: &str) -> bool {
    let known = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    let label = |part: &str| {
        !part.is_empty()
            && part.len() <= 64
            && part.bytes().all(known)
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    domain.split('.').all(label)
}

/// Containers that run as processes of the host do so all together, in the network of the host.
pub(in crate::validate) fn host_processes(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let of = |holder: &Value| holder["securityContext"]["windowsOptions"]["hostProcess"].as_bool();
    let of_pod = of(spec);
    let (mut all, mut with) = (0, 0);
    for (container, at) in containers(spec, path) {
        let own = of(container);
        if let (Some(of_pod), Some(own)) = (of_pod, own)
            && of_pod != own
        {
            let at = at.child("securityContext").child("windowsOptions");
            let detail = format!(
                "pod hostProcess value must be identical if both are specified, was {of_pod}"
            );
            errors.push(Error::invalid(&at.child("hostProcess"), own, detail));
        }
        all += 1;
        with += usize::from(own.or(of_pod).unwrap_or_default());
    }
    if with == 0 {
        return;
    }
    if with != all {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.push(Error::invalid(path, "", detail));
    }
    if spec["hostNetwork"] != true {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.push(Error::invalid(&path.child("hostNetwork"), false, detail));
    }
}

/// Validates fields that a pod for Windows must not have.
pub(in crate::validate) fn windows(spec: &Value, path: &Path, errors: &mut ErrorList) {
    /// The position of the field in the pod's context, and whether the zero value counts.
    const OF_PODS: [(&str, bool, bool); 15] = [
        ("appArmorProfile", true, true),
        ("seLinuxOptions", true, true),
        ("hostUsers", false, true),
        ("hostPID", false, false),
        ("hostIPC", false, false),
        ("seccompProfile", true, true),
        ("fsGroup", true, true),
        ("fsGroupChangePolicy", true, true),
        ("sysctls", true, false),
        ("shareProcessNamespace", false, true),
        ("runAsUser", true, true),
        ("runAsGroup", true, true),
        ("supplementalGroups", true, true),
        ("supplementalGroupsPolicy", true, true),
        ("seLinuxChangePolicy", true, true),
    ];
    const OF_CONTAINERS: [&str; 10] = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    const DETAIL: &str = "cannot be set for a windows pod";
    for (key, in_context, zero) in OF_PODS {
        let (holder, at) = match in_context {
            true => (&spec["securityContext"], path.child("securityContext")),
            false => (spec, path.clone()),
        };
        let is_set = match &holder[key] {
            Value::Null => false,
            Value::Bool(false) => zero,
            Value::Array(items) => zero || !items.is_empty(),
            _ => true,
        };
        if is_set {
            errors.push(Error::forbidden(&at.child(key), DETAIL));
        }
    }
    for (container, at) in containers(spec, path) {
        let (context, at) = (&container["securityContext"], at.child("securityContext"));
        for key in OF_CONTAINERS {
            if !context[key].is_null() {
                errors.push(Error::forbidden(&at.child(key), DETAIL));
            }
        }
    }
}
