//! Which capabilities a container has.

use k8s_openapi::api::core::v1::Capabilities;

/// Capabilities of a container without settings: containerd's set without `CAP_MKNOD`, because devices come from
/// drivers alone, and without `CAP_NET_RAW`, because the network is the host's and raw sockets would see its traffic.
const DEFAULT: [&str; 12] = [
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];

/// All that Linux has.
const ALL: [&str; 41] = [
    "CAP_AUDIT_CONTROL",
    "CAP_AUDIT_READ",
    "CAP_AUDIT_WRITE",
    "CAP_BLOCK_SUSPEND",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_KILL",
    "CAP_LEASE",
    "CAP_LINUX_IMMUTABLE",
    "CAP_MAC_ADMIN",
    "CAP_MAC_OVERRIDE",
    "CAP_MKNOD",
    "CAP_NET_ADMIN",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_RAW",
    "CAP_PERFMON",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_CHROOT",
    "CAP_SYS_MODULE",
    "CAP_SYS_NICE",
    "CAP_SYS_PACCT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
];

/// A capability that a container cannot have.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CapabilityError {
    /// Linux has none of this name.
    #[error("unknown capability {0:?}")]
    Unknown(String),
    /// The agent cannot pass it on.
    #[error("{0} is not possible: the node agent does not have it itself")]
    NotHeld(String),
}

/// The capabilities of a container that adds some to the default set and drops others; one that is both dropped and
/// added is added, as in containerd.
///
/// # Errors
/// A name that Linux does not have.
pub(crate) fn of(
    asked: Option<&Capabilities>,
    privileged: bool,
) -> Result<Vec<String>, CapabilityError> {
    if privileged {
        return Ok(ALL.map(str::to_owned).to_vec());
    }
    let list = |names: Option<&Vec<String>>| -> Result<Vec<String>, CapabilityError> {
        names.into_iter().flatten().map(|name| full(name)).collect()
    };
    let add = list(asked.and_then(|asked| asked.add.as_ref()))?;
    let drop = list(asked.and_then(|asked| asked.drop.as_ref()))?;
    let has = |list: &[String], name: &str| list.iter().any(|it| it == name);
    let kept = |name: &&str| {
        let given = DEFAULT.contains(name) && !has(&drop, "CAP_ALL");
        let all = has(&add, "CAP_ALL");
        has(&add, name) || ((given || all) && !has(&drop, name))
    };
    Ok(ALL
        .iter()
        .filter(|name| kept(name))
        .map(|name| (*name).to_owned())
        .collect())
}

/// The Linux name; `CAP_ALL` means all.
fn full(name: &str) -> Result<String, CapabilityError> {
    let upper = name.to_uppercase();
    let full = match upper.starts_with("CAP_") {
        true => upper,
        false => format!("CAP_{upper}"),
    };
    match full.as_str() {
        "CAP_ALL" => Ok(full),
        known if ALL.contains(&known) => Ok(full),
        _ => Err(CapabilityError::Unknown(name.to_owned())),
    }
}

/// The capabilities that the agent can pass on: in a container, or on a restricted machine, root does not have all.
pub(crate) fn of_the_agent() -> Vec<String> {
    let bounding = caps::read(None, caps::CapSet::Bounding).unwrap_or_default();
    bounding.iter().map(ToString::to_string).collect()
}

/// Takes out what the agent does not have itself and so cannot give; returns what that is.
///
/// # Errors
/// The container names one of them explicitly.
pub(crate) fn restrict(
    capabilities: &mut Vec<String>,
    asked: Option<&Capabilities>,
    agents: &[String],
) -> Result<Vec<String>, CapabilityError> {
    let (kept, missing): (Vec<String>, Vec<String>) = std::mem::take(capabilities)
        .into_iter()
        .partition(|name| agents.contains(name));
    *capabilities = kept;
    let added = asked.and_then(|asked| asked.add.as_ref());
    for name in added.into_iter().flatten() {
        let name = full(name)?;
        if missing.contains(&name) {
            return Err(CapabilityError::NotHeld(name));
        }
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(add: &[&str], drop: &[&str], has: &[&str], has_not: &[&str]) {
        let names = |list: &[&str]| Some(list.iter().map(|it| (*it).to_owned()).collect());
        let asked = Capabilities {
            add: names(add),
            drop: names(drop),
        };
        let all = of(Some(&asked), false).unwrap();
        for name in has {
            assert!(all.iter().any(|it| it == name), "{name} in {all:?}");
        }
        for name in has_not {
            assert!(!all.iter().any(|it| it == name), "{name} in {all:?}");
        }
    }

    #[test]
    fn capabilities_are_added_and_dropped() {
        check(
            &[],
            &[],
            &["CAP_CHOWN"],
            &["CAP_MKNOD", "CAP_NET_RAW", "CAP_SYS_ADMIN"],
        );
        check(&[], &["ALL"], &[], &["CAP_CHOWN", "CAP_KILL"]);
        check(
            &["NET_BIND_SERVICE"],
            &["all"],
            &["CAP_NET_BIND_SERVICE"],
            &["CAP_CHOWN"],
        );
        check(
            &["CAP_SYS_TIME"],
            &["kill"],
            &["CAP_SYS_TIME", "CAP_CHOWN"],
            &["CAP_KILL"],
        );
        check(&["ALL"], &["SYS_ADMIN"], &["CAP_BPF"], &["CAP_SYS_ADMIN"]);
        assert_eq!(of(None, true).unwrap().len(), ALL.len());
        let unknown = Capabilities {
            add: Some(vec!["FLY".into()]),
            drop: None,
        };
        assert_eq!(
            of(Some(&unknown), false).unwrap_err().to_string(),
            "unknown capability \"FLY\""
        );
    }

    /// A privileged container did not start on machines whose root lacks a capability.
    #[test]
    fn regression_what_the_agent_does_not_have_is_not_given() {
        let mut agents = of(None, true).unwrap();
        agents.retain(|name| name != "CAP_SYS_RESOURCE");
        let mut privileged = of(None, true).unwrap();
        let missing = restrict(&mut privileged, None, &agents).unwrap();
        assert_eq!(missing, ["CAP_SYS_RESOURCE"]);
        assert_eq!(privileged, agents);
        let asked = |name: &str| {
            let asked = Capabilities {
                add: Some(vec![name.into()]),
                drop: None,
            };
            restrict(&mut of(Some(&asked), false).unwrap(), Some(&asked), &agents)
        };
        assert_eq!(asked("ALL").unwrap(), ["CAP_SYS_RESOURCE"]);
        assert_eq!(asked("SYS_ADMIN").unwrap(), Vec::<String>::new());
        assert_eq!(
            asked("sys_resource").unwrap_err(),
            CapabilityError::NotHeld("CAP_SYS_RESOURCE".to_owned())
        );
    }
}
