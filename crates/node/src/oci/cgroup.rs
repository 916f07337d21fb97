//! Cgroups of containers, as far as libcontainer does not manage them.

use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup";

/// The directories of a cgroup in all hierarchies.
pub(super) fn directories(path: &Path) -> Vec<PathBuf> {
    let relative = path.strip_prefix("/").unwrap_or(path);
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

/// Kills the remaining processes of a cgroup.
pub(crate) fn kill(path: &Path) {
    /// Passes over the cgroup; processes forked meanwhile are found in the next one.
    const LOOKS: usize = 100;
    for _ in 0..LOOKS {
        let processes: Vec<i32> = directories(path)
            .iter()
            .filter_map(|directory| fs::read_to_string(directory.join("cgroup.procs")).ok())
            .flat_map(|text| {
                text.lines()
                    .filter_map(|it| it.parse().ok())
                    .collect::<Vec<_>>()
            })
            .collect();
        if processes.is_empty() {
            return;
        }
        for pid in processes
            .into_iter()
            .filter_map(rustix::process::Pid::from_raw)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// Removes a cgroup whose processes have ended. If it does not exist or cannot be removed, that is no error: nothing
/// runs in it.
pub(crate) fn remove(path: &Path) {
    for directory in directories(path) {
        let _ = fs::remove_dir(directory);
    }
}
