//! Limits for the number of processes: of one container, and of all containers of a machine together. The agent and the host
//! keep the rest, however much the programs in containers fork.
//!
//! Where cgroups can be written they count processes. Where they cannot, the kernel counts those of each user
//! (`RLIMIT_NPROC`), which holds for every user but the machine's root.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{PARENT, cgroup};
use crate::error::{AtPath as _, PathError};
use crate::spec::ContainerSpec;
use crate::spec::staged::Hierarchy;

/// It has the same name in both versions of cgroups.
const FILE: &str = cgroup::PIDS.second;

/// The smallest number in files, of which some exist.
fn smallest(files: &[PathBuf]) -> Option<u64> {
    let texts = files.iter().filter_map(|it| fs::read_to_string(it).ok());
    texts.filter_map(|text| text.trim().parse().ok()).min()
}

/// How many processes there can be in what this process sees as the machine, which may be a container itself.
fn machine() -> Option<u64> {
    let root = Path::new(cgroup::ROOT);
    smallest(&[
        "/proc/sys/kernel/pid_max".into(),
        "/proc/sys/kernel/threads-max".into(),
        root.join(FILE),
        root.join("pids").join(FILE),
    ])
}

/// The limit of one container: half of all processes.
fn half(all: u64) -> u64 {
    (all / 2).max(1)
}

/// The limit of all containers together: three quarters of all processes.
fn most(all: u64) -> u64 {
    (all / 4 * 3).max(1)
}

/// Whether the kernel counts processes by cgroups.
fn has_pids_controller() -> bool {
    let root = Path::new(cgroup::ROOT);
    let second = fs::read_to_string(root.join("cgroup.controllers"));
    let listed = second.is_ok_and(|all| all.split_whitespace().any(|name| name == "pids"));
    listed || root.join("pids").is_dir()
}

/// How many processes the cgroup of a container may have; `None` where the kernel does not count them by cgroups.
pub(crate) fn container_limit() -> Option<i64> {
    let all = machine().filter(|_| has_pids_controller())?;
    i64::try_from(half(all)).ok()
}

/// Limits the processes of all containers together, in the cgroup above theirs. With the second version of cgroups the
/// file only exists when one of them has been created.
///
/// # Errors
/// The file that cannot be written.
pub(crate) fn limit_all_containers(hierarchy: Hierarchy) -> Result<(), PathError> {
    let root = Path::new(cgroup::ROOT);
    let controller = match hierarchy {
        Hierarchy::None => return Ok(()),
        Hierarchy::V1 => root.join("pids"),
        Hierarchy::V2 => root.to_owned(),
    };
    let Some(all) = machine().filter(|_| controller.is_dir()) else {
        return Ok(());
    };
    let directory = controller.join(PARENT.trim_start_matches('/'));
    let file = directory.join(FILE);
    fs::create_dir_all(&directory).at(&file)?;
    if !file.exists() {
        // The kernel does not count processes.
        return Ok(());
    }
    fs::write(&file, most(all).to_string()).at(&file)
}

/// Whether the kernel counts the processes of a container for its user, because it does not for its cgroup.
fn uses_rlimit(spec: &ContainerSpec) -> bool {
    !spec.cgroups || !has_pids_controller()
}

/// Whether the processes of a container are limited in its cgroup, or in the one that stands for it where there are none.
pub(super) fn has_cgroup_limit(spec: &ContainerSpec) -> bool {
    !spec.cgroups || has_pids_controller()
}

/// What the kernel permits this user, if that is less than the machine has.
fn user_limit() -> Option<u64> {
    let all = machine()?;
    Some(
        getrlimit(Resource::Nproc)
            .current
            .map_or(all, |it| it.min(all)),
    )
}

/// Decides how many processes the user of a container may have in it, if cgroups do not count them.
pub(crate) fn decide(spec: &mut ContainerSpec) {
    if uses_rlimit(spec)
        && let Some(all) = user_limit()
    {
        let half = i64::try_from(half(all)).unwrap_or(i64::MAX);
        let pids = &mut spec.limits.pids;
        *pids = Some(pids.map_or(half, |named| named.min(half)));
    }
}

/// What [`decide`] has decided. Before Linux 5.14 the kernel counts all processes of the user, later those in the same user
/// namespace.
pub(super) fn user_rlimit(spec: &ContainerSpec) -> Option<i64> {
    spec.limits.pids.filter(|_| uses_rlimit(spec))
}

/// Limits the processes of this user, for this process and its children, to the sum that all containers may have.
/// A user namespace that is created afterwards keeps the limit for all processes in it, and other processes of the user do
/// not have it.
pub(crate) fn limit_user() {
    let Some(all) = user_limit() else { return };
    let most = most(all);
    let maximum = getrlimit(Resource::Nproc).maximum;
    let limit = Rlimit {
        current: Some(most),
        maximum: Some(maximum.map_or(most, |maximum| maximum.min(most))),
    };
    // To lower a limit takes no privilege, and the kernel has no other reason to refuse it. Only a hard limit of 0 would have to
    // be raised, to the least limit of 1: it stays, and is stricter. Pods have no influence on these numbers.
    let _ = setrlimit(Resource::Nproc, limit);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn something_is_left() {
        for all in [1, 2, 3, 4, 40, 32_768, 4_194_304] {
            assert!(half(all) >= 1 && most(all) >= 1);
            assert!(
                all < 4 || (most(all) < all && half(all) < most(all)),
                "{all}"
            );
        }
    }

    #[test]
    fn the_smallest_number_counts() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let files = [
            file("a", "32768\n"),
            file("b", "max\n"),
            file("c", "4194304\n"),
            directory.path().join("missing"),
        ];
        assert_eq!(smallest(&files), Some(32_768));
        assert_eq!(smallest(&files[1..2]), None);
    }
}
