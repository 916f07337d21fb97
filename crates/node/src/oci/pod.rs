//! The cgroup of a pod, which is above those of its containers: the limits for all of them together, and the share of the CPU
//! that the pod has among other pods.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::cgroup::{self, CPU_PERIOD, LimitFile, MEMORY, PERIOD, PIDS, QUOTA, ROOT, SHARES};
use super::{PARENT, limits};
use crate::error::{AtPath as _, PathError};
use crate::spec::staged::Hierarchy;
use crate::spec::{ContainerSpec, PodLimits};

/// Prefix of the names of the cgroups of pods, as a kubelet has it. IDs of containers have no such letters.
const PREFIX: &str = "pod";
/// Numbers from here on are the kernel's way to write that memory is not limited.
const UNLIMITED: u64 = 1 << 62;

/// The name of the cgroup of a pod; `None` for a UID that is not the name of a directory.
pub(crate) fn name(uid: &str) -> Option<String> {
    const LONGEST: usize = 128;
    let plain = |it: u8| it.is_ascii_alphanumeric() || it == b'-';
    let fits = !uid.is_empty() && uid.len() <= LONGEST && uid.bytes().all(plain);
    fits.then(|| format!("{PREFIX}{uid}"))
}

/// The path of the cgroup with this name.
pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(PARENT).join(name)
}

/// Which limits of a pod are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodChange {
    /// Those that become higher: before its containers get more.
    Raise,
    /// All: after its containers have less.
    All,
    /// All, for a container that is being created. What another container does not permit yet is left to the agent, which lowers
    /// it when that one has less.
    Begin,
}

/// Puts the limits of a pod in force for one of its containers that is being created.
///
/// # Errors
/// The file that cannot be written.
pub(crate) fn begin(spec: &ContainerSpec, hierarchy: Hierarchy) -> Result<(), PathError> {
    let Some(name) = &spec.pod_cgroup else {
        return Ok(());
    };
    let root = Path::new(ROOT);
    let path = path(name);
    let own = super::cgroups_path(spec);
    let controllers: &[&str] = match hierarchy {
        Hierarchy::None => return Ok(()),
        Hierarchy::V1 => &["cpu", "memory", "pids"],
        // libcontainer has created it.
        Hierarchy::V2 => &[],
    };
    for controller in controllers {
        let controller = root.join(controller);
        if controller.is_dir() {
            // With that of the container in it, that of the pod stays.
            create(&controller.join(own.strip_prefix("/").unwrap_or(&own)))?;
        }
    }
    change_below(root, &path, &spec.limits.pod, PodChange::Begin)
}

/// Creates the cgroup of a container below that of its pod. Another container of the pod that ends at that moment removes the
/// cgroup of the pod if it is empty: then both are created again.
fn create(directory: &Path) -> Result<(), PathError> {
    const ATTEMPTS: usize = 10;
    for _ in 1..ATTEMPTS {
        match fs::create_dir_all(directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            made => return made.at(directory),
        }
    }
    fs::create_dir_all(directory).at(directory)
}

/// Changes the limits of a pod. Nothing is changed of a pod that has no cgroup.
///
/// # Errors
/// The file that cannot be written.
pub(crate) fn change(uid: &str, limits: &PodLimits, which: PodChange) -> Result<(), PathError> {
    match name(uid) {
        Some(name) => change_below(Path::new(ROOT), &path(&name), limits, which),
        None => Ok(()),
    }
}

/// Bytes of memory that the containers of a pod use now; `None` if they are not counted.
pub(crate) fn used_memory(uid: &str) -> Option<u64> {
    let text = memory_file(uid, "memory.usage_in_bytes", "memory.current");
    text?.trim().parse().ok()
}

/// The limit of memory that is in force for the containers of a pod; `None` if there is none.
pub(crate) fn memory_limit(uid: &str) -> Option<i64> {
    number(&memory_file(uid, MEMORY.first, MEMORY.second)?)
}

/// The content of a file about the memory of a pod, by its names in the versions of cgroups.
fn memory_file(uid: &str, first: &str, second: &str) -> Option<String> {
    let path = path(&name(uid)?);
    let relative = path.strip_prefix("/").unwrap_or(&path);
    let root = Path::new(ROOT);
    let files = [
        root.join("memory").join(relative).join(first),
        root.join(relative).join(second),
    ];
    files.iter().find_map(|file| fs::read_to_string(file).ok())
}

/// Removes the cgroup of a pod whose containers have ended.
pub(crate) fn remove(uid: &str) {
    if let Some(name) = name(uid) {
        cgroup::remove(&path(&name));
    }
}

/// The cgroups with the ID of a container whose specification is gone, and with it the UID of its pod.
pub(super) fn find(id: &str) -> Vec<PathBuf> {
    let mut found = vec![Path::new(PARENT).join(id)];
    let root = Path::new(ROOT);
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let controllers = entries.map(|entry| entry.path());
    for controller in std::iter::once(root.to_owned()).chain(controllers) {
        let top = controller.join(PARENT.trim_start_matches('/'));
        for pod in fs::read_dir(top).into_iter().flatten().flatten() {
            let Some(name) = pod.file_name().to_str().map(str::to_owned) else {
                continue;
            };
            let path = path(&name).join(id);
            if name.starts_with(PREFIX) && pod.path().join(id).is_dir() && !found.contains(&path) {
                found.push(path);
            }
        }
    }
    found
}

fn change_below(
    root: &Path,
    path: &Path,
    limits: &PodLimits,
    which: PodChange,
) -> Result<(), PathError> {
    let relative = path.strip_prefix("/").unwrap_or(path);
    let set = |file: PathBuf, value: Option<i64>, text: &dyn Fn(i64) -> String, none: &str| {
        let text = value.map_or_else(|| none.to_owned(), text);
        set(&file, value, &text, which)
    };
    let plain = |value: i64| value.to_string();
    let shares = limits.cpu_shares.and_then(|it| i64::try_from(it).ok());
    if cgroup::is_second_version(root) {
        let file = |of: LimitFile| root.join(relative).join(of.second);
        set(file(PIDS), limits.pids, &plain, "max")?;
        set(file(MEMORY), limits.memory, &plain, "max")?;
        let weight = shares.map(|it| limits::weight(it.unsigned_abs()).cast_signed());
        set(file(SHARES), weight.or(Some(100)), &plain, "100")?;
        let quota = |quota: i64| format!("{quota} {CPU_PERIOD}");
        let none = format!("max {CPU_PERIOD}");
        return set(file(QUOTA), limits.cpu_quota, &quota, &none);
    }
    let file = |of: LimitFile| root.join(of.controller).join(relative).join(of.first);
    set(file(PIDS), limits.pids, &plain, "max")?;
    set(file(MEMORY), limits.memory, &plain, "-1")?;
    let shares = shares.or(Some(1024));
    set(file(SHARES), shares, &plain, "1024")?;
    if limits.cpu_quota.is_some() {
        let period = Some(CPU_PERIOD.cast_signed());
        set(file(PERIOD), period, &plain, "")?;
    }
    set(file(QUOTA), limits.cpu_quota, &plain, "-1")
}

/// Writes a limit, unless it is in force or is not to be changed now. Files that do not exist are of controllers that the kernel
/// does not have, or of a pod that has no cgroup.
fn set(file: &Path, value: Option<i64>, text: &str, which: PodChange) -> Result<(), PathError> {
    let Ok(before) = fs::read_to_string(file) else {
        return Ok(());
    };
    let before = number(&before);
    if before == value {
        return Ok(());
    }
    let higher = match (before, value) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(before), Some(value)) => value > before,
    };
    if which == PodChange::Raise && !higher {
        return Ok(());
    }
    match limits::write(file, text) {
        Err(_) if which == PodChange::Begin && !higher && before.is_some() => Ok(()),
        written => written,
    }
}

/// The limit in a file; `None` if there is none.
fn number(text: &str) -> Option<i64> {
    let first = text.split_whitespace().next()?;
    let number = first.parse::<i64>().ok()?;
    Some(number).filter(|it| *it >= 0 && it.unsigned_abs() < UNLIMITED)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cgroup file system of a test: these files, with these contents.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(path, text).expect("a file");
        }
        root
    }

    fn check(root: &tempfile::TempDir, limits: &PodLimits, which: PodChange, expected: &[&str]) {
        let files = match root.path().join("cgroup.controllers").exists() {
            true => ["pids.max", "memory.max", "cpu.weight", "cpu.max"]
                .map(|it| format!("allot/podu/{it}")),
            false => [
                "pids/allot/podu/pids.max",
                "memory/allot/podu/memory.limit_in_bytes",
                "cpu/allot/podu/cpu.shares",
                "cpu/allot/podu/cpu.cfs_quota_us",
            ]
            .map(str::to_owned),
        };
        change_below(root.path(), &path("podu"), limits, which).expect("changed");
        let found = files.map(|it| fs::read_to_string(root.path().join(it)).expect("a file"));
        assert_eq!(found, expected, "{which:?}");
    }

    fn limits(pids: i64, memory: i64, shares: u64, quota: i64) -> PodLimits {
        PodLimits {
            pids: Some(pids),
            memory: Some(memory),
            cpu_shares: Some(shares),
            cpu_quota: Some(quota),
        }
    }

    #[test]
    fn limits_of_pods_are_changed_in_the_first_version() {
        let root = tree(&[
            ("pids/allot/podu/pids.max", "max\n"),
            (
                "memory/allot/podu/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            ("cpu/allot/podu/cpu.shares", "1024\n"),
            ("cpu/allot/podu/cpu.cfs_period_us", "100000\n"),
            ("cpu/allot/podu/cpu.cfs_quota_us", "-1\n"),
        ]);
        let first = limits(100, 1 << 20, 512, 50_000);
        check(
            &root,
            &first,
            PodChange::Begin,
            &["100", "1048576", "512", "50000"],
        );
        let second = limits(50, 2 << 20, 2048, 20_000);
        check(
            &root,
            &second,
            PodChange::Raise,
            &["100", "2097152", "2048", "50000"],
        );
        check(
            &root,
            &second,
            PodChange::All,
            &["50", "2097152", "2048", "20000"],
        );
        let none = PodLimits::default();
        check(&root, &none, PodChange::All, &["max", "-1", "1024", "-1"]);
    }

    #[test]
    fn limits_of_pods_are_changed_in_the_second_version() {
        let root = tree(&[
            ("cgroup.controllers", "cpu memory pids"),
            ("allot/podu/pids.max", "max\n"),
            ("allot/podu/memory.max", "max\n"),
            ("allot/podu/cpu.weight", "100\n"),
            ("allot/podu/cpu.max", "max 100000\n"),
        ]);
        let first = limits(100, 1 << 20, 2, 50_000);
        check(
            &root,
            &first,
            PodChange::Begin,
            &["100", "1048576", "1", "50000 100000"],
        );
        let none = PodLimits::default();
        check(
            &root,
            &none,
            PodChange::All,
            &["max", "max", "100", "max 100000"],
        );
    }

    #[test]
    fn pods_without_a_cgroup_have_no_limits() {
        let root = tree(&[("memory/other", "")]);
        let limits = limits(100, 1 << 20, 512, 50_000);
        change_below(root.path(), &path("podu"), &limits, PodChange::All).expect("nothing");
        assert!(!root.path().join("memory/allot").exists());
    }

    /// The attack: the UID of a static pod is from its manifest or from a hash; neither leads to another directory.
    #[test]
    fn names_are_those_of_one_directory() {
        assert_eq!(name("0a1b-2c").as_deref(), Some("pod0a1b-2c"));
        for uid in ["", "..", "a/b", "a b", "a.b", "ä", "a".repeat(129).as_str()] {
            assert_eq!(name(uid), None, "{uid}");
        }
    }
}
