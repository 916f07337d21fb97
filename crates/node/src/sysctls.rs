//! Kernel parameters that pods may set: those of namespaces, from the kubelet's list of safe ones and what the node's
//! administrator adds (`--allowed-unsafe-sysctls`).

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::api::core::v1::Pod;

/// Reason of a pod that was rejected because of its kernel parameters.
pub(crate) const FORBIDDEN: &str = "SysctlForbidden";

/// Longest name of a parameter, in bytes.
const LONGEST: usize = 253;

/// What a name has to look like, in errors.
const FORM: &str = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]";

/// Parameters of which each namespace has its own, and that influence no other pod, with the first version of Linux where
/// that is so.
const SAFE: [(&str, (u32, u32)); 12] = [
    ("kernel.shm_rmid_forced", (0, 0)),
    ("net.ipv4.ip_local_port_range", (0, 0)),
    ("net.ipv4.tcp_syncookies", (0, 0)),
    ("net.ipv4.ping_group_range", (0, 0)),
    ("net.ipv4.ip_unprivileged_port_start", (0, 0)),
    ("net.ipv4.ip_local_reserved_ports", (3, 16)),
    ("net.ipv4.tcp_keepalive_time", (4, 5)),
    ("net.ipv4.tcp_keepalive_intvl", (4, 5)),
    ("net.ipv4.tcp_keepalive_probes", (4, 5)),
    ("net.ipv4.tcp_fin_timeout", (4, 6)),
    ("net.ipv4.tcp_rmem", (4, 15)),
    ("net.ipv4.tcp_wmem", (4, 15)),
];

/// The namespace that a parameter belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Namespace {
    Ipc,
    Net,
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipc => "IPC",
            Self::Net => "Net",
        })
    }
}

impl Namespace {
    /// By the name of a parameter, or by what its name begins with; `None` for parameters of the whole machine.
    fn of(name: &str) -> Option<Self> {
        let ipc = ["kernel.shm", "kernel.msg", "fs.mqueue."];
        if ipc.iter().any(|prefix| name.starts_with(prefix)) || name == "kernel.sem" {
            Some(Self::Ipc)
        } else {
            name.starts_with("net.").then_some(Self::Net)
        }
    }
}

/// The parameters that pods of a node may set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sysctls {
    names: Vec<String>,
    prefixes: Vec<String>,
}

impl Default for Sysctls {
    /// The safe ones of this kernel.
    fn default() -> Self {
        let release = rustix::system::uname();
        Self::of_kernel(version(&release.release().to_string_lossy()))
    }
}

impl Sysctls {
    fn of_kernel(version: (u32, u32)) -> Self {
        let safe = SAFE.iter().filter(|(_, since)| *since <= version);
        Self {
            names: safe.map(|(name, _)| (*name).to_owned()).collect(),
            prefixes: Vec::new(),
        }
    }

    /// The safe ones, and further ones: names, or beginnings of names with `*` at the end.
    ///
    /// # Errors
    /// A name that is none, or a parameter of the whole machine.
    pub fn with_unsafe(patterns: &[String]) -> Result<Self, String> {
        let mut all = Self::default();
        for pattern in patterns {
            let (begin, is_prefix) = match pattern.strip_suffix('*') {
                Some(begin) => (begin, true),
                None => (pattern.as_str(), false),
            };
            if pattern.len() > LONGEST || !is_valid(begin, is_prefix) {
                return Err(format!(
                    "sysctl {pattern:?} must have at most {LONGEST} characters and match regex {FORM}"
                ));
            }
            let name = normalized(begin).into_owned();
            if Namespace::of(&name).is_none() {
                return Err(format!(
                    "the sysctls {name:?} are not known to be namespaced"
                ));
            }
            match is_prefix {
                true => all.prefixes.push(name),
                false => all.names.push(name),
            }
        }
        Ok(all)
    }

    /// Why a pod is not admitted: the kubelet's message.
    pub(crate) fn refusal(&self, pod: &Pod) -> Option<String> {
        let spec = pod.spec.as_ref()?;
        let own_network = spec.host_network != Some(true);
        let host_ipc = spec.host_ipc == Some(true);
        let all = spec.security_context.as_ref()?.sysctls.as_ref()?;
        all.iter().find_map(|sysctl| {
            let name = normalized(&sysctl.name);
            let known = self.names.iter().any(|it| *it == name)
                || self.prefixes.iter().any(|it| name.starts_with(it));
            let refused = match known {
                true => of_the_pod(&sysctl.name, own_network, host_ipc).err(),
                false => Some(SysctlError::NotAllowed(name.into_owned())),
            };
            refused.map(|error| error.to_string())
        })
    }
}

/// A kernel parameter that a pod may not set; the texts are the kubelet's.
#[derive(Debug, thiserror::Error)]
pub enum SysctlError {
    /// It is not one of a namespace, or not on the node's list.
    #[error("forbidden sysctl: {0:?} not allowlisted")]
    NotAllowed(String),
    /// It is one of the IPC namespace, which is the host's.
    #[error("forbidden sysctl: {0:?} not allowed with host {namespace} enabled", namespace = Namespace::Ipc)]
    HostIpc(String),
    /// It is one of the network namespace, which is the host's.
    #[error("forbidden sysctl: {0:?} not allowed with host {namespace} enabled", namespace = Namespace::Net)]
    HostNetwork(String),
}

/// Checks that a parameter is that of a namespace which the pod does not share with the host, whatever a node permits. Returns
/// its name with dots.
///
/// # Errors
/// It is that of the host.
pub(crate) fn of_the_pod(
    name: &str,
    own_network: bool,
    host_ipc: bool,
) -> Result<String, SysctlError> {
    let dotted = normalized(name).into_owned();
    match Namespace::of(&dotted).filter(|_| is_valid(name, false)) {
        None => Err(SysctlError::NotAllowed(dotted)),
        Some(Namespace::Ipc) if host_ipc => Err(SysctlError::HostIpc(dotted)),
        Some(Namespace::Net) if !own_network => Err(SysctlError::HostNetwork(dotted)),
        Some(_) => Ok(dotted),
    }
}

/// Whether all parts of a name are names themselves; the last part of a beginning of names need not be complete.
fn is_valid(name: &str, is_prefix: bool) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
    let outer = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let whole =
        |part: &str| part.starts_with(outer) && part.ends_with(outer) && part.chars().all(inner);
    let (above, last) = match name.rfind(['.', '/']) {
        Some(at) => (Some(&name[..at]), &name[at + 1..]),
        None => (None, name),
    };
    let begun =
        |part: &str| part.is_empty() || (part.starts_with(outer) && part.chars().all(inner));
    let is_last = if is_prefix { begun(last) } else { whole(last) };
    is_last && above.is_none_or(|above| above.split(['.', '/']).all(whole)) && name.len() <= LONGEST
}

/// A name with dots: as with sysctl(8), the first separator is the one of the whole name, and the other one is a part of names.
fn normalized(name: &str) -> Cow<'_, str> {
    match name.find(['.', '/']) {
        Some(at) if name[at..].starts_with('/') => {
            let swap = |c| match c {
                '.' => '/',
                '/' => '.',
                other => other,
            };
            name.chars().map(swap).collect::<String>().into()
        }
        _ => name.into(),
    }
}

/// Major and minor number of a release of Linux; of one that cannot be read, the oldest.
fn version(release: &str) -> (u32, u32) {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || parts.next().and_then(|part| part.parse().ok()).unwrap_or(0);
    (next(), next())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn with(patterns: &[&str]) -> Result<Sysctls, String> {
        let patterns: Vec<String> = patterns.iter().map(|it| (*it).to_owned()).collect();
        Sysctls::with_unsafe(&patterns)
    }

    #[track_caller]
    fn check(sysctls: &Sysctls, name: &str, more: Value, expected: Option<&str>) {
        let mut spec = json!({"containers": [], "securityContext": {"sysctls": [
            {"name": "kernel.shm_rmid_forced", "value": "1"}, {"name": name, "value": "1"}]}});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        let pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        assert_eq!(sysctls.refusal(&pod).as_deref(), expected, "{name}");
    }

    #[test]
    fn safe_parameters_of_own_namespaces_are_permitted() {
        let safe = Sysctls::of_kernel((4, 6));
        let none = || json!({});
        check(&safe, "net.ipv4.tcp_syncookies", none(), None);
        check(&safe, "net/ipv4/tcp_fin_timeout", none(), None);
        let host = json!({"hostNetwork": true});
        let expected =
            "forbidden sysctl: \"net.ipv4.tcp_syncookies\" not allowed with host Net enabled";
        check(&safe, "net.ipv4.tcp_syncookies", host, Some(expected));
        let host = json!({"hostIPC": true});
        let expected =
            "forbidden sysctl: \"kernel.shm_rmid_forced\" not allowed with host IPC enabled";
        check(&safe, "kernel.shm_rmid_forced", host, Some(expected));
        // Of a later kernel, of the machine, of a namespace but not safe.
        for name in [
            "net.ipv4.tcp_rmem",
            "kernel.panic",
            "kernel.shmmax",
            "fs.mqueue.msg_max",
            "net.core.somaxconn",
        ] {
            let expected = format!("forbidden sysctl: {name:?} not allowlisted");
            check(&safe, name, json!({}), Some(&expected));
        }
        check(
            &Sysctls::of_kernel((4, 15)),
            "net.ipv4.tcp_rmem",
            json!({}),
            None,
        );
    }

    #[test]
    fn an_administrator_permits_further_parameters_of_namespaces() {
        let more = with(&["kernel.msg*", "net/core/somaxconn", "net.ipv6.*"]).unwrap();
        for name in [
            "kernel.msgmax",
            "net.core.somaxconn",
            "net.ipv6.conf.all.forwarding",
        ] {
            check(&more, name, json!({}), None);
        }
        check(
            &more,
            "net.core.somaxconn2",
            json!({}),
            Some("forbidden sysctl: \"net.core.somaxconn2\" not allowlisted"),
        );
        let expected = "forbidden sysctl: \"net.core.somaxconn\" not allowed with host Net enabled";
        check(
            &more,
            "net.core.somaxconn",
            json!({"hostNetwork": true}),
            Some(expected),
        );
        for pattern in ["kernel.panic", "kernel.*", "*", "vm.overcommit_memory"] {
            let error = with(&[pattern]).unwrap_err();
            assert!(error.ends_with("are not known to be namespaced"), "{error}");
        }
        for pattern in [
            "", "Net.*", "net.*.x", "net..x", "net.../x", "/net.x", "net.-x", "net.x\n",
        ] {
            let error = with(&[pattern]).unwrap_err();
            assert!(
                error.contains("must have at most 253 characters"),
                "{pattern}: {error}"
            );
        }
    }

    /// The attack: what an administrator permits by a beginning leads to a parameter of the machine.
    #[test]
    fn names_lead_nowhere_else() {
        let all = with(&["net.*"]).unwrap();
        for name in [
            "net./../kernel/core_pattern",
            "net.ipv4/../../kernel.panic",
            "net.",
            "net..",
            "net.\u{e9}",
        ] {
            assert!(of_the_pod(name, true, false).is_err(), "{name}");
            let pod = json!({"metadata": {}, "spec": {"containers": [],
                "securityContext": {"sysctls": [{"name": name, "value": "1"}]}}});
            assert!(
                all.refusal(&serde_json::from_value(pod).unwrap()).is_some(),
                "{name}"
            );
        }
        assert_eq!(
            of_the_pod("net/ipv4/tcp_rmem", true, false).unwrap(),
            "net.ipv4.tcp_rmem"
        );
    }

    #[test]
    fn versions_are_read() {
        for (release, expected) in [
            ("6.18.44-fc", (6, 18)),
            ("5.4", (5, 4)),
            ("4", (4, 0)),
            ("x", (0, 0)),
        ] {
            assert_eq!(version(release), expected);
        }
    }
}
