//! The OCI runtime specification of a container: the one place that decides what a container sees and may do.
//!
//! The shim creates it from the agent's description of the container ([`ContainerSpec`]) and the staged files
//! ([`Staged`]); libcontainer carries it out.

use std::path::{Path, PathBuf};

use allot_cdi::HOOK_NAMES;
use oci_spec::runtime::{Process, Spec};
use serde_json::{Value, json};

use crate::hooks::{self, START};
use crate::rdt;
use crate::spec::staged::{Account, Hierarchy, Staged};
use crate::spec::{self, ContainerSpec, Isolation};

pub(crate) mod capabilities;
pub(crate) mod cgroup;
mod devices;
pub(crate) mod limits;
pub(crate) mod measure;
mod mounts;
mod paths;
pub(crate) mod pids;
pub(crate) mod pod;
pub(crate) use mounts::is_proc;
pub(crate) use paths::leads_up;
pub(crate) mod seccomp;
#[cfg(test)]
mod tests;

/// Why there is no OCI specification for a container.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A path that nothing may be mounted on.
    #[error("{}: cannot be mounted on", .0.display())]
    Target(PathBuf),
    /// The path of a device node that would be in a volume, or outside of the container.
    #[error("{0}: cannot be a device of the container")]
    Device(String),
    /// A CDI hook for a point in the life of a container that does not exist.
    #[error("unknown CDI hook {0:?}")]
    Hook(String),
    /// The specification does not have the form that libcontainer reads.
    #[error("OCI specification: {0}")]
    Specification(#[source] serde_json::Error),
    /// The process does not have the form that libcontainer reads.
    #[error("OCI process: {0}")]
    Process(#[source] serde_json::Error),
}

/// What new files of a container are not given, whatever mask the agent has: runc's.
pub(crate) const UMASK: u32 = 0o022;

/// Parent of the containers' cgroups in every hierarchy.
const PARENT: &str = "/allot";

/// Parts of `/proc` and `/sys` that expose or change machine-wide state: containerd's lists.
pub(crate) const MASKED: [&str; 12] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];
pub(crate) const READ_ONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// The cgroup of a container, relative to the root of every hierarchy.
pub(crate) fn cgroups_path(spec: &ContainerSpec) -> PathBuf {
    let parent = spec.pod_cgroup.as_deref().map(pod::path);
    parent.unwrap_or_else(|| PARENT.into()).join(&spec.id)
}

/// [`cgroups_path`] by the container's directory, whose name is the ID. If the specification in it is gone, there may be several.
pub(crate) fn cgroups_of(directory: &Path) -> Vec<PathBuf> {
    let Some(id) = directory.file_name().and_then(|name| name.to_str()) else {
        return Vec::new();
    };
    match spec::read::<ContainerSpec>(&directory.join(spec::SPEC)) {
        Ok(mut spec) => {
            id.clone_into(&mut spec.id);
            vec![cgroups_path(&spec)]
        }
        Err(_) => pod::find(id),
    }
}

/// The specification of a container.
///
/// # Errors
/// The container's settings cannot be expressed.
pub(crate) fn build(
    spec: &ContainerSpec,
    staged: &Staged,
    account: &Account,
) -> Result<Spec, Error> {
    let security = &spec.security;
    let mut linux = json!({
        "namespaces": namespaces(spec, staged),
        "cgroupsPath": cgroup::of_processes(&cgroups_path(spec), staged.cgroups),
        "resources": resources(spec, staged),
        "sysctl": security.sysctls,
    });
    if spec.isolation == Isolation::Namespaces {
        linux["devices"] = devices::nodes(spec, staged)?;
    }
    if !security.unmasked && !security.privileged {
        linux["maskedPaths"] = json!(MASKED);
        linux["readonlyPaths"] = json!(READ_ONLY);
    }
    if staged.cgroups == Hierarchy::V1 && !security.privileged {
        // The directories inside are mounted read-only already; this is the one that holds them.
        let paths = linux["readonlyPaths"].as_array().cloned();
        let mut paths = paths.unwrap_or_default();
        paths.push(json!("/sys/fs/cgroup"));
        linux["readonlyPaths"] = json!(paths);
    }
    if let Some(settings) = rdt::oci(spec) {
        linux["intelRdt"] = settings;
    }
    for (name, value) in &spec.adjusted.linux {
        linux[name] = value.clone();
    }
    let whole = json!({
        "ociVersion": "1.2.0",
        "annotations": spec.adjusted.annotations,
        "root": {"path": staged.root, "readonly": security.read_only_root},
        "hostname": spec.hostname,
        "process": process(spec, account, &spec.args, spec.tty),
        "mounts": mounts::all(spec, staged)?,
        "hooks": hooks(spec)?,
        "linux": linux,
    });
    serde_json::from_value(whole).map_err(Error::Specification)
}

/// The process of a container, or a further one in it.
pub(crate) fn process(
    spec: &ContainerSpec,
    account: &Account,
    args: &[String],
    terminal: bool,
) -> Value {
    let security = &spec.security;
    // Given up as soon as the filter is installed.
    let capabilities = capability_sets(spec, seccomp::needs_privileges(security));
    let mut process = json!({
        "terminal": terminal,
        "user": {"uid": account.user, "gid": account.group, "umask": UMASK},
        "args": args,
        "env": environment(spec, account),
        "cwd": spec.cwd.as_deref().filter(|it| !it.is_empty()).unwrap_or("/"),
        "capabilities": capabilities,
        "noNewPrivileges": security.no_new_privileges,
    });
    // A user namespace with one id has no other groups.
    if spec.isolation == Isolation::Namespaces && !account.groups.is_empty() {
        process["user"]["additionalGids"] = json!(account.groups);
    }
    let mut limits = spec.adjusted.rlimits.clone();
    if let Some(most) = pids::user_rlimit(spec) {
        // That of the agent protects the machine.
        limits.retain(|limit| limit["type"] != "RLIMIT_NPROC");
        limits.push(json!({"type": "RLIMIT_NPROC", "soft": most, "hard": most}));
    }
    if !limits.is_empty() {
        process["rlimits"] = json!(limits);
    }
    if let Some(profile) = &security.confinement.apparmor {
        process["apparmorProfile"] = json!(profile);
    }
    if let Some(label) = &security.confinement.selinux {
        process["selinuxLabel"] = json!(label);
    }
    for (name, value) in &spec.adjusted.process {
        process[name] = value.clone();
    }
    process
}

/// As [`process`], in libcontainer's type. `enters`: the process has to enter the PID namespace of the container, with
/// privileges that it gives up then; its AppArmor profile is set there.
///
/// # Errors
/// It cannot be expressed.
pub(crate) fn further_process(
    spec: &ContainerSpec,
    account: &Account,
    args: &[String],
    enters: bool,
) -> Result<Process, Error> {
    let mut process = process(spec, account, args, false);
    if enters {
        process["capabilities"] = capability_sets(spec, true);
        process["apparmorProfile"] = Value::Null;
    }
    serde_json::from_value(process).map_err(Error::Process)
}

/// The capabilities of a process, with those for its confinement if it has to have them for that.
fn capability_sets(spec: &ContainerSpec, privileges: bool) -> Value {
    let mut all = spec.security.capabilities.clone();
    for capability in seccomp::PRIVILEGES {
        if privileges && !all.iter().any(|it| it == capability) {
            all.push(capability.to_owned());
        }
    }
    json!({"bounding": all, "effective": all, "permitted": all})
}

/// The variables, and `HOME` if it is not set or empty, as in runc. It must never be empty: libcontainer would look it up by the C
/// library, which loads libraries of the image for that, into a process that is not confined yet.
fn environment(spec: &ContainerSpec, account: &Account) -> Vec<String> {
    let mut env = spec.env.clone();
    env.retain(|variable| !matches!(variable.as_str(), "HOME" | "HOME="));
    if !env.iter().any(|variable| variable.starts_with("HOME=")) {
        let home = Some(account.home.as_str()).filter(|home| !home.is_empty());
        env.push(format!("HOME={}", home.unwrap_or("/")));
    }
    env
}

fn namespaces(spec: &ContainerSpec, staged: &Staged) -> Value {
    let mut kinds = vec!["mount", "uts"];
    if !spec.security.host_pid {
        kinds.push("pid");
    }
    if !spec.security.host_ipc {
        kinds.push("ipc");
    }
    if staged.cgroups != Hierarchy::None {
        kinds.push("cgroup");
    }
    let made = kinds.iter().map(|kind| json!({"type": kind}));
    let joined = spec.network.iter();
    let joined = joined.map(|path| json!({"type": "network", "path": path}));
    made.chain(joined).collect()
}

fn resources(spec: &ContainerSpec, staged: &Staged) -> Value {
    if staged.cgroups == Hierarchy::None {
        return json!({});
    }
    let limits = &spec.limits;
    let mut resources = json!({"devices": devices::rules(spec, staged)});
    let mut cpu = json!({});
    if let Some(shares) = limits.cpu_shares {
        cpu["shares"] = json!(shares);
    }
    if let Some(quota) = limits.cpu_quota {
        cpu["quota"] = json!(quota);
        cpu["period"] = json!(cgroup::CPU_PERIOD);
    }
    if let Some(period) = limits.cpu_period {
        cpu["period"] = json!(period);
    }
    if let Some(cpus) = &limits.cpus {
        cpu["cpus"] = json!(cpus);
    }
    if let Some(mems) = &limits.mems {
        cpu["mems"] = json!(mems);
    }
    if cpu != json!({}) {
        resources["cpu"] = cpu;
    }
    if let Some(memory) = limits.memory {
        resources["memory"] = json!({"limit": memory});
    }
    // Without a controller for them they are limited for the user of the container.
    if let Some(pids) = limits.pids.filter(|_| pids::has_cgroup_limit(spec)) {
        resources["pids"] = json!({"limit": pids});
    }
    if !limits.unified.is_empty() {
        resources["unified"] = json!(limits.unified);
    }
    if !limits.huge_pages.is_empty() {
        let pages = limits.huge_pages.iter();
        resources["hugepageLimits"] = pages
            .map(|(size, limit)| json!({"pageSize": size, "limit": limit}))
            .collect();
    }
    resources
}

/// Hooks by the point in a container's life at which they run, without those that the shim runs itself.
fn hooks(spec: &ContainerSpec) -> Result<Value, Error> {
    let mut all = Value::Null;
    for hook in &spec.hooks {
        let Some(point) = HOOK_NAMES.iter().find(|point| **point == hook.hook_name) else {
            return Err(Error::Hook(hook.hook_name.clone()));
        };
        if *point == START {
            continue;
        }
        let mut entry = json!({"path": hook.path, "args": hook.args, "env": hook.env});
        entry["timeout"] = json!(hooks::timeout(hook));
        match all[*point].as_array_mut() {
            Some(entries) => entries.push(entry),
            None => all[*point] = json!([entry]),
        }
    }
    Ok(all)
}
