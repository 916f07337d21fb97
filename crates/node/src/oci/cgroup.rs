//! Cgroups of containers, as far as libcontainer does not manage them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::processes::{self, ProcessHandle};

const ROOT: &str = "/sys/fs/cgroup";

/// How long the kernel may take to let go of a cgroup whose processes have ended.
const BUSY: Duration = Duration::from_secs(1);

/// Processes that are held at the same time: each takes a descriptor.
const HELD: usize = 256;

/// The directories of a cgroup in all hierarchies.
pub(super) fn directories(path: &Path) -> Vec<PathBuf> {
    let relative = path.strip_prefix("/").unwrap_or(path);
    // The one above is of all containers.
    if relative.components().count() < 2 {
        return Vec::new();
    }
    let root = Path::new(ROOT);
    let mut all = vec![root.join(relative)];
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            all.push(entry.path().join(relative));
        }
    }
    all.retain(|directory| directory.join("cgroup.procs").exists());
    all
}

/// How many processes the kernel has killed because the memory limit was reached.
pub(crate) fn oom_kills(path: &Path) -> u64 {
    let relative = path.strip_prefix("/").unwrap_or(path);
    let root = Path::new(ROOT);
    let files = [
        root.join("memory")
            .join(relative)
            .join("memory.oom_control"),
        root.join(relative).join("memory.events"),
    ];
    let texts = files
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok());
    texts
        .filter_map(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
            line?.trim().parse::<u64>().ok()
        })
        .max()
        .unwrap_or(0)
}

/// Kills the remaining processes of a cgroup, and waits until they have ended. Processes that fork as fast as they can are
/// kept from that first: one by one they would not be caught.
pub(crate) fn kill(path: &Path) {
    let all = directories(path);
    for directory in &all {
        // Each exists in some hierarchies and versions of the kernel only.
        for (file, content) in [("pids.max", "0"), ("cgroup.kill", "1")] {
            let file = fs::OpenOptions::new()
                .write(true)
                .open(directory.join(file));
            let _ = file.and_then(|mut file| file.write_all(content.as_bytes()));
        }
    }
    if !processes::kill_all(|| members(&all)) {
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

/// Removes a cgroup whose processes have ended. If it does not exist or cannot be removed, that is no error: nothing
/// runs in it.
pub(crate) fn remove(path: &Path) {
    let deadline = Instant::now() + BUSY;
    for directory in directories(path) {
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
