//! Cgroups of containers, as far as libcontainer does not manage them.

use std::fs;
use std::io::Write;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use super::measure::Table;
use crate::error::{AtPath as _, PathError};
use crate::processes::{self, ProcessHandle};
use crate::spec::Limits;
use crate::spec::staged::Hierarchy;

/// Where the kernel's cgroups are.
pub(crate) const ROOT: &str = "/sys/fs/cgroup";

/// Microseconds in which processor time is counted.
pub(crate) const CPU_PERIOD: u64 = 100_000;

/// How long the kernel may take to release a cgroup whose processes have ended.
const BUSY: Duration = Duration::from_secs(1);

/// Processes that are held at the same time: each takes a descriptor.
const HELD: usize = 256;

/// Cgroups below that of a container, which are looked at: its processes can make more of them.
const MOST_BELOW: usize = 10_000;

/// Name of the cgroup of a container's processes below that of the container, in the first version of cgroups. A process that
/// makes a user namespace can mount what its cgroup namespace shows, and lift the limits there: in the second version the
/// kernel refuses that (`nsdelegate`), here the limits of the cgroup above stay.
pub(super) const INNER: &str = "processes";

/// The file of a limit in each version of cgroups.
#[derive(Debug, Clone, Copy)]
pub(super) struct LimitFile {
    /// The controller of the first version, a directory above all of its cgroups.
    pub(super) controller: &'static str,
    pub(super) first: &'static str,
    pub(super) second: &'static str,
}

impl LimitFile {
    const fn new(controller: &'static str, first: &'static str, second: &'static str) -> Self {
        Self {
            controller,
            first,
            second,
        }
    }
}

/// Bytes.
pub(super) const MEMORY: LimitFile =
    LimitFile::new("memory", "memory.limit_in_bytes", "memory.max");
/// Shares, or the weight that stands for them.
pub(super) const SHARES: LimitFile = LimitFile::new("cpu", "cpu.shares", "cpu.weight");
/// Microseconds in each [`CPU_PERIOD`], which the second version has in the same file.
pub(super) const QUOTA: LimitFile = LimitFile::new("cpu", "cpu.cfs_quota_us", "cpu.max");
/// That period.
pub(super) const PERIOD: LimitFile = LimitFile::new("cpu", "cpu.cfs_period_us", "cpu.max");
/// Processes and threads.
pub(super) const PIDS: LimitFile = LimitFile::new("pids", "pids.max", "pids.max");

/// Whether the cgroups below a directory are of the second version.
pub(crate) fn is_second_version(root: &Path) -> bool {
    root.join("cgroup.controllers").exists()
}

/// The cgroup of the processes of a container.
pub(crate) fn of_processes(container: &Path, hierarchy: Hierarchy) -> PathBuf {
    match hierarchy {
        Hierarchy::V1 => container.join(INNER),
        Hierarchy::V2 | Hierarchy::None => container.to_owned(),
    }
}

/// Puts the limits of a container in force for its own cgroup, in the first version of cgroups. Those of the cgroup of its
/// processes are libcontainer's.
///
/// # Errors
/// The file that cannot be written.
pub(crate) fn limit(container: &Path, limits: &Limits) -> Result<(), PathError> {
    let text = |value: &dyn std::fmt::Display| value.to_string();
    // The processors are not limited here but in the cgroup below: they are a choice, and no protection of others.
    let period = limits.cpu_quota.map(|_| CPU_PERIOD);
    let period = limits.cpu_period.or(period);
    let single = [
        (SHARES, limits.cpu_shares.map(|it| text(&it))),
        (PERIOD, period.map(|it| text(&it))),
        (QUOTA, limits.cpu_quota.map(|it| text(&it))),
        (MEMORY, limits.memory.map(|it| text(&it))),
        (PIDS, limits.pids.map(|it| text(&it))),
    ];
    let single = single.into_iter().filter_map(|(file, value)| {
        let name = file.first.to_owned();
        value.map(|value| (file.controller, name, value))
    });
    let huge = limits.huge_pages.iter().map(|(size, limit)| {
        let name = format!("hugetlb.{size}.limit_in_bytes");
        ("hugetlb", name, text(limit))
    });
    for (controller, file, value) in single.chain(huge) {
        let controller = Path::new(ROOT).join(controller);
        // libcontainer reports a missing one.
        if controller.is_dir() {
            let directory = controller.join(container.strip_prefix("/").unwrap_or(container));
            let file = directory.join(file);
            fs::create_dir_all(&directory)
                .and_then(|()| fs::write(&file, value))
                .at(&file)?;
        }
    }
    Ok(())
}

/// The directories of a container's cgroup in all hierarchies. Where its processes have one of their own, that comes first.
pub(super) fn directories(path: &Path) -> Vec<PathBuf> {
    let relative = path.strip_prefix("/").unwrap_or(path);
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    // The one above is of all containers, and others are not of containers.
    if relative.components().count() < 2 || !relative.components().all(plain) {
        return Vec::new();
    }
    let root = Path::new(ROOT);
    let mut all = vec![root.join(relative)];
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let directory = entry.path().join(relative);
            all.extend([directory.join(INNER), directory]);
        }
    }
    all.retain(|directory| directory.join("cgroup.procs").exists());
    all
}

/// The directories of a container's cgroup, and of those that its processes have made below it; those below others come first.
fn tree(path: &Path) -> Vec<PathBuf> {
    let (mut open, mut all) = (directories(path), Vec::new());
    open.retain(|directory| !directory.ends_with(INNER));
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            }
        }
        all.push(directory);
        if all.len() + open.len() > MOST_BELOW {
            break;
        }
    }
    all.reverse();
    all
}

/// How many processes the kernel has killed because the memory limit was reached.
pub(crate) fn oom_kills(path: &Path) -> u64 {
    let relative = path.strip_prefix("/").unwrap_or(path);
    let root = Path::new(ROOT);
    let first = root.join("memory").join(relative);
    let files = [
        first.join(INNER).join("memory.oom_control"),
        first.join("memory.oom_control"),
        root.join(relative).join("memory.events"),
    ];
    let tables = files
        .iter()
        .map(|file| Table(fs::read_to_string(file).ok()));
    let kills = tables.filter_map(|table| table.get("oom_kill"));
    kills.max().unwrap_or(0)
}

/// Kills the remaining processes of a cgroup, and waits until they have ended. Processes that fork as fast as they can are
/// kept from that first: one by one they would not be caught.
pub(crate) fn kill(path: &Path) {
    let all = directories(path);
    for directory in &all {
        // Each exists in some hierarchies and versions of the kernel only.
        for (file, content) in [(PIDS.second, "0"), ("cgroup.kill", "1")] {
            let file = fs::OpenOptions::new()
                .write(true)
                .open(directory.join(file));
            let _ = file.and_then(|mut file| file.write_all(content.as_bytes()));
        }
    }
    if !processes::kill_all(|| members(&tree(path))) {
        eprintln!("{}: processes do not end", path.display());
    }
}

/// Processes that cgroups have now, at most [`HELD`].
fn members(directories: &[PathBuf]) -> Vec<ProcessHandle> {
    let texts = directories
        .iter()
        .filter_map(|directory| fs::read_to_string(directory.join("cgroup.procs")).ok());
    let mut members: Vec<i32> = texts
        .flat_map(|text| {
            let numbers = text.lines().filter_map(|it| it.parse().ok());
            numbers.collect::<Vec<i32>>()
        })
        .collect();
    members.sort_unstable();
    members.dedup();
    let members = members.into_iter().take(HELD);
    members.filter_map(ProcessHandle::open).collect()
}

/// Removes the cgroup of a container that has ended, and that of its pod if no other container is in it.
pub(crate) fn remove_with_pod(container: &Path) {
    remove(container);
    // The cgroup of all containers is the parent of containers of an earlier release. It has no [`directories`], and stays.
    for directory in container.parent().map(directories).unwrap_or_default() {
        // One that has others below it, or that another process has removed, stays as it is.
        let _ = fs::remove_dir(directory);
    }
}

/// Removes a cgroup whose processes have ended, with those that they have made below it. If it does not exist or cannot be
/// removed, that is no error: nothing runs in it.
pub(crate) fn remove(path: &Path) {
    let deadline = Instant::now() + BUSY;
    for directory in tree(path) {
        while let Err(error) = fs::remove_dir(&directory)
            && error.kind() == std::io::ErrorKind::ResourceBusy
            && Instant::now() < deadline
        {
            // There is no event to wait for: the processes have ended already, and `cgroup.events` exists in the second
            // version of cgroups only.
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
