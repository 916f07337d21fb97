//! Cache and memory bandwidth of containers (Intel RDT), by the groups of the file system resctrl.
//!
//! libcontainer creates the group of a container, writes its schemata and puts the program there. Here it is checked that
//! the machine can do so, and the groups are removed: libcontainer knows no container by the ID that names its group.

use std::io;
use std::path::Path;

use allot_cdi::IntelRdt;
use serde_json::{Value, json};

use crate::error::{AtPath as _, PathError};
use crate::spec::{ContainerSpec, Isolation};

/// Where resctrl is mounted.
pub(crate) const RESCTRL: &str = "/sys/fs/resctrl";
/// Directories of resctrl that are no groups.
const OTHERS: [&str; 3] = ["info", "mon_data", "mon_groups"];
/// Longest name of a file.
const LONGEST: usize = 255;

/// Why a container does not get what its devices demand.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum Unavailable {
    /// The machine has no RDT, or it is not enabled.
    #[error("Intel RDT is not enabled on this node: resctrl is not mounted at {0}")]
    NotMounted(String),
    /// Groups are the machine's.
    #[error("Intel RDT settings need an agent that runs as root")]
    NotRoot,
    /// The name of no group.
    #[error("Intel RDT: {0:?} is not a valid closID")]
    Name(String),
    /// The group of the monitoring data would be that of several containers.
    #[error("Intel RDT: monitoring with a closID is not supported on this node")]
    Monitoring,
}

/// Checks that the settings of a container can be applied on this machine.
///
/// # Errors
/// Why they cannot.
pub(crate) fn check(wanted: &IntelRdt, isolation: Isolation) -> Result<(), Unavailable> {
    check_at(Path::new(RESCTRL), wanted, isolation)
}

fn check_at(resctrl: &Path, wanted: &IntelRdt, isolation: Isolation) -> Result<(), Unavailable> {
    is_mounted(resctrl)?;
    if isolation != Isolation::Namespaces {
        return Err(Unavailable::NotRoot);
    }
    check_group(wanted)?;
    match group(wanted).is_some() && is_monitored(wanted) {
        true => Err(Unavailable::Monitoring),
        false => Ok(()),
    }
}

/// Checks that the settings name a group or none. The root group has no name: it is that of all other processes.
///
/// # Errors
/// The name is that of no group.
pub(crate) fn check_group(wanted: &IntelRdt) -> Result<(), Unavailable> {
    match group(wanted) {
        Some(name) if !is_group(name) => Err(Unavailable::Name(name.to_owned())),
        _ => Ok(()),
    }
}

/// Checks that the file system is mounted at a path.
///
/// # Errors
/// It is not.
pub(crate) fn is_mounted(resctrl: &Path) -> Result<(), Unavailable> {
    match resctrl.join("schemata").exists() {
        true => Ok(()),
        false => Err(Unavailable::NotMounted(resctrl.display().to_string())),
    }
}

/// Whether the name leads to a group.
fn is_group(name: &str) -> bool {
    let forbidden = |c| matches!(c, '/' | '\n' | '\0');
    !matches!(name, "" | "." | "..")
        && !OTHERS.contains(&name)
        && name.len() <= LONGEST
        && !name.contains(forbidden)
}

/// The group that the settings name; otherwise the container has its own.
pub(crate) fn group(wanted: &IntelRdt) -> Option<&str> {
    wanted.clos_id.as_deref().filter(|name| !name.is_empty())
}

fn is_monitored(wanted: &IntelRdt) -> bool {
    let settings = [
        wanted.enable_monitoring,
        wanted.enable_cmt,
        wanted.enable_mbm,
    ];
    settings.contains(&Some(true))
}

fn has_schemata(wanted: &IntelRdt) -> bool {
    let schemas = [&wanted.l3_cache_schema, &wanted.mem_bw_schema];
    !wanted.schemata.is_empty() || schemas.into_iter().any(Option::is_some)
}

/// The settings in the form of the OCI specification.
pub(crate) fn oci(spec: &ContainerSpec) -> Option<Value> {
    let wanted = spec.intel_rdt.as_ref()?;
    let mut value = json!({
        "closID": group(wanted).unwrap_or(&spec.id),
        "enableMonitoring": is_monitored(wanted),
    });
    if let Some(schema) = &wanted.l3_cache_schema {
        value["l3CacheSchema"] = json!(schema);
    }
    if let Some(schema) = &wanted.mem_bw_schema {
        value["memBwSchema"] = json!(schema);
    }
    if !wanted.schemata.is_empty() {
        value["schemata"] = json!(wanted.schemata);
    }
    Some(value)
}

/// Creates the group of a container that has its own one without schemata: libcontainer takes it for one of the machine.
///
/// # Errors
/// Those of the file system; the machine has a limited number of groups.
pub(crate) fn prepare(spec: &ContainerSpec) -> Result<(), PathError> {
    prepare_at(Path::new(RESCTRL), spec)
}

fn prepare_at(resctrl: &Path, spec: &ContainerSpec) -> Result<(), PathError> {
    match &spec.intel_rdt {
        Some(wanted) if group(wanted).is_none() && !has_schemata(wanted) => {
            let path = resctrl.join(&spec.id);
            std::fs::create_dir(&path).at(&path)
        }
        _ => Ok(()),
    }
}

/// Removes the group that a container had for itself, by the container's directory, whose name is its ID. A group that its devices
/// named stays: it may be that of others.
///
/// # Errors
/// Those of the file system.
pub(crate) fn remove(container: &Path) -> Result<(), PathError> {
    remove_at(Path::new(RESCTRL), container)
}

fn remove_at(resctrl: &Path, container: &Path) -> Result<(), PathError> {
    let id = container.file_name().and_then(|id| id.to_str());
    let Some(id) = id.filter(|id| is_group(id)) else {
        return Ok(());
    };
    let path = resctrl.join(id);
    // First: where sysfs is mounted read-only, the kernel refuses to remove what does not exist with another error.
    if matches!(path.symlink_metadata(), Err(error) if error.kind() == io::ErrorKind::NotFound) {
        return Ok(());
    }
    match std::fs::remove_dir(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.at(&path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(wanted: IntelRdt) -> ContainerSpec {
        ContainerSpec {
            id: "c1".to_owned(),
            intel_rdt: Some(wanted),
            ..ContainerSpec::default()
        }
    }

    fn of_group(name: &str) -> IntelRdt {
        IntelRdt {
            clos_id: Some(name.to_owned()),
            ..IntelRdt::default()
        }
    }

    #[test]
    fn settings_that_cannot_be_applied_are_refused() {
        let resctrl = tempfile::tempdir().expect("a directory");
        let check = |wanted: &IntelRdt, isolation| check_at(resctrl.path(), wanted, isolation);
        let at = resctrl.path().display().to_string();
        assert_eq!(
            check(&of_group("gold"), Isolation::Namespaces),
            Err(Unavailable::NotMounted(at))
        );
        std::fs::write(resctrl.path().join("schemata"), "").expect("a file");
        for isolation in [Isolation::UserNamespace, Isolation::None] {
            let refused = check(&of_group("gold"), isolation);
            assert_eq!(refused, Err(Unavailable::NotRoot));
        }
        for name in [
            "/",
            "..",
            ".",
            "a/b",
            "../x",
            "a\0",
            "a\nb",
            "info",
            "mon_data",
            "mon_groups",
            &"x".repeat(256),
        ] {
            let refused = check(&of_group(name), Isolation::Namespaces);
            assert_eq!(refused, Err(Unavailable::Name(name.to_owned())));
        }
        for (name, monitored, expected) in [
            ("gold", false, Ok(())),
            ("", true, Ok(())),
            ("gold", true, Err(Unavailable::Monitoring)),
        ] {
            let wanted = IntelRdt {
                enable_monitoring: Some(monitored),
                ..of_group(name)
            };
            assert_eq!(check(&wanted, Isolation::Namespaces), expected, "{name:?}");
        }
    }

    #[test]
    fn containers_have_the_named_group_or_their_own() {
        let check = |wanted: IntelRdt, expected: Value| {
            let value = oci(&spec(wanted)).expect("settings");
            assert_eq!(value, expected);
            let read: Result<oci_spec::runtime::LinuxIntelRdt, _> = serde_json::from_value(value);
            read.expect("libcontainer reads it");
        };
        check(
            of_group("gold"),
            json!({"closID": "gold", "enableMonitoring": false}),
        );
        check(
            IntelRdt {
                l3_cache_schema: Some("L3:0=f".to_owned()),
                mem_bw_schema: Some("MB:0=20".to_owned()),
                enable_cmt: Some(true),
                ..IntelRdt::default()
            },
            json!({"closID": "c1", "enableMonitoring": true, "l3CacheSchema": "L3:0=f",
                "memBwSchema": "MB:0=20"}),
        );
        check(
            IntelRdt {
                schemata: vec!["L2:0=f".to_owned()],
                ..IntelRdt::default()
            },
            json!({"closID": "c1", "enableMonitoring": false, "schemata": ["L2:0=f"]}),
        );
        assert_eq!(oci(&ContainerSpec::default()), None);
    }

    #[test]
    fn groups_of_one_container_are_made_and_removed() {
        let resctrl = tempfile::tempdir().expect("a directory");
        let is_there = |name: &str| resctrl.path().join(name).exists();
        let prepare = |wanted| prepare_at(resctrl.path(), &spec(wanted));
        prepare(of_group("gold")).expect("nothing to do");
        let with_schema = IntelRdt {
            mem_bw_schema: Some("MB:0=20".to_owned()),
            ..IntelRdt::default()
        };
        prepare(with_schema).expect("nothing to do");
        assert!(!is_there("c1") && !is_there("gold"));
        prepare(IntelRdt::default()).expect("a group");
        assert!(is_there("c1"));
        for container in ["/containers/c1", "/containers/c1", "/containers/..", "/"] {
            remove_at(resctrl.path(), Path::new(container)).expect("removed");
        }
        assert!(!is_there("c1") && resctrl.path().exists());
    }

    /// A machine without resctrl whose `/sys` cannot be written: each container that ended was a warning.
    #[test]
    fn regression_a_group_that_does_not_exist_is_no_error_on_a_read_only_file_system() {
        use rustix::mount::{
            MountFlags, MountPropagationFlags, mount_bind, mount_change, mount_remount,
        };
        use rustix::thread::{UnshareFlags, unshare_unsafe};
        let checked = std::thread::spawn(|| {
            let resctrl = tempfile::tempdir().expect("a directory");
            let path = resctrl.path();
            // SAFETY: the flags concern the mounts and the directory of this thread alone, and no memory or descriptors.
            let own = unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) };
            let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
            let mounted = own
                .and_then(|()| mount_change("/", private))
                .and_then(|()| mount_bind(path, path))
                .and_then(|()| mount_remount(path, MountFlags::BIND | MountFlags::RDONLY, ""));
            if let Err(error) = mounted {
                eprintln!("skipped: mounts are not permitted here: {error}");
                return;
            }
            remove_at(path, Path::new("/containers/c1")).expect("nothing to remove");
            let _ = rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH);
        });
        checked.join().expect("checked");
    }
}
