//! Remains of a node agent that has ended: running containers, and mounts.
//!
//! They are found without the agent and its files: container shims are found among the processes of the machine, by the
//! directory in their arguments, also if the directory was deleted. Each process is held by a file descriptor before it
//! is inspected, so that a later process with the same PID is never affected.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use crate::error::PathError;
use crate::processes::{self, ProcessHandle};
use crate::spec::{self, ContainerSpec, State};
use crate::{oci, rdt};

/// How long a killed process may take to end.
const KILLED: Duration = Duration::from_secs(10);

/// A running container without an agent.
#[derive(Debug)]
pub struct Remaining {
    directory: PathBuf,
    spec: Option<ContainerSpec>,
    /// The shim, and its forks that did not exec another program.
    helpers: Vec<ProcessHandle>,
}

impl Remaining {
    /// Namespace, pod and container, or its directory if those are not known.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.spec {
            Some(ContainerSpec { owner, .. }) => format!(
                "{}/{}/{}",
                owner.pod_namespace, owner.pod_name, owner.container
            ),
            None => self.directory.display().to_string(),
        }
    }
}

/// Containers that run with a directory below `directory`.
#[must_use]
pub fn find(directory: &Path) -> Vec<Remaining> {
    let resolved = directory.canonicalize().ok();
    let mut found = BTreeMap::<PathBuf, Vec<ProcessHandle>>::new();
    for pid in processes::all() {
        let Some(held) = ProcessHandle::open(pid) else {
            continue;
        };
        let Some(container) = container_of(pid) else {
            continue;
        };
        let same = is_of_a_container(&container, directory)
            || resolved.as_ref().is_some_and(|resolved| {
                container
                    .canonicalize()
                    .is_ok_and(|container| is_of_a_container(&container, resolved))
            });
        if same {
            found.entry(container).or_default().push(held);
        }
    }
    let remaining = found.into_iter().map(|(directory, helpers)| Remaining {
        spec: spec::read(&directory.join(spec::SPEC)).ok(),
        directory,
        helpers,
    });
    remaining.collect()
}

/// Whether an agent has the directory of a container at a path, below the directory of a node or of a cluster. Any process can
/// have arguments like those of a helper, and programs in containers write to volumes, which are there as well: a specification
/// in one of them would have other processes of the machine killed.
fn is_of_a_container(path: &Path, directory: &Path) -> bool {
    let Ok(below) = path.strip_prefix(directory) else {
        return false;
    };
    let names = below.components().map(|part| match part {
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    let names: Option<Vec<&str>> = names.collect();
    matches!(
        names.as_deref(),
        Some(["containers", _] | ["nodes", _, "containers", _])
    )
}

/// The container's directory in the arguments of a helper: `PROGRAM node-shim run DIRECTORY`.
fn container_of(pid: i32) -> Option<PathBuf> {
    // A process that has ended and was not waited for has no arguments any longer.
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let line = line.strip_suffix(b"\0")?;
    let arguments: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    match arguments.as_slice() {
        [.., b"node-shim", b"run", directory] => {
            let directory = Path::new(std::ffi::OsStr::from_bytes(directory));
            directory.is_absolute().then(|| directory.to_owned())
        }
        _ => None,
    }
}

/// Ends containers: politely, and after `grace` by force. Returns what could not be ended, with the reason.
pub fn end(containers: Vec<Remaining>, grace: Duration) -> Vec<String> {
    // Before any process ends: orphaned descendants cannot be found any longer.
    let families: Vec<Vec<ProcessHandle>> = containers.iter().map(family).collect();
    if !grace.is_zero() {
        containers.iter().for_each(ask);
        let helpers = containers.iter().flat_map(|it| &it.helpers);
        processes::wait(helpers, grace);
    }
    let mut failed = Vec::new();
    for (container, family) in containers.iter().zip(&families) {
        if let Err(error) = kill(container, family) {
            failed.push(format!("{}: {error}", container.name()));
        }
    }
    failed
}

/// Asks the container's program to terminate. One whose files were deleted cannot be found, and is killed later.
fn ask(container: &Remaining) {
    let Ok(state) = spec::read::<State>(&container.directory.join(spec::STATE)) else {
        return;
    };
    // Alive first: what has the start time then is the container's own.
    let init = ProcessHandle::open(state.pid);
    if let Some(init) = init.filter(|_| spec::start_time(state.pid) == Some(state.pid_start)) {
        let _ = init.signal(Signal::TERM);
    }
}

/// All descendants of a container's shims. The shim is their subreaper, so all of the container's processes are
/// included.
fn family(container: &Remaining) -> Vec<ProcessHandle> {
    let helpers = container.helpers.iter().map(ProcessHandle::pid);
    processes::descendants(helpers.collect())
}

/// Why a container was not ended, or not removed entirely.
#[derive(Debug, thiserror::Error)]
enum KillError {
    /// A process cannot be signalled.
    #[error(transparent)]
    Signal(#[from] rustix::io::Errno),
    /// The kernel does not end a process, as one that waits for a device.
    #[error("it was killed and does not end")]
    StillRunning,
    /// It has ended, and its group of Intel RDT stays: a machine has few of them.
    #[error("it was ended, but its resctrl group was not removed: {0}")]
    Group(#[from] PathError),
}

fn kill(container: &Remaining, family: &[ProcessHandle]) -> Result<(), KillError> {
    for held in family {
        held.signal(Signal::KILL)?;
    }
    // Processes that were forked meanwhile. What does not end then ends with the cgroup, or not at all.
    processes::kill_all(|| self::family(container));
    // Now the helper writes down how its container ended, and ends.
    if !processes::wait(container.helpers.iter(), Duration::from_secs(1)) {
        for helper in &container.helpers {
            helper.signal(Signal::KILL)?;
        }
    }
    let ended = processes::wait(container.helpers.iter(), KILLED);
    for cgroup in oci::cgroups_of(&container.directory) {
        oci::cgroup::kill(&cgroup);
        oci::cgroup::remove_with_pod(&cgroup);
    }
    let removed = rdt::remove(&container.directory);
    match ended {
        true => Ok(removed?),
        false => Err(KillError::StillRunning),
    }
}

/// Unmounts the mounts below a directory in this process's mount namespace. Returns the mount points, and the failures
/// with their reasons.
pub fn unmount(directory: &Path) -> (Vec<PathBuf>, Vec<String>) {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    // Later mounts lie on earlier ones.
    for point in mount_points(&table).into_iter().rev() {
        if !point.starts_with(directory) || point == directory {
            continue;
        }
        match rustix::mount::unmount(&point, rustix::mount::UnmountFlags::DETACH) {
            Ok(()) => done.push(point),
            Err(error) => failed.push(format!("{}: {error}", point.display())),
        }
    }
    (done, failed)
}

/// Takes the networks of pods away that agents with directories below `directory/nodes` have left. Their containers have ended.
/// Returns how many, and the failures with their reasons.
pub fn leave_networks(directory: &Path) -> (usize, Vec<String>) {
    let nodes = std::fs::read_dir(directory.join("nodes"));
    let nodes: Vec<PathBuf> = nodes
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|root| root.join(crate::pods::NETWORK_RECORDS).is_dir())
        .collect();
    if nodes.is_empty() {
        return (0, Vec::new());
    }
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = match runtime.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return (0, vec![error.to_string()]),
    };
    runtime.block_on(async {
        let (mut done, mut failed) = (0, Vec::new());
        for root in nodes {
            let (left, more) = crate::pods::leave_networks(&root).await;
            done += left;
            failed.extend(more);
        }
        (done, failed)
    })
}

/// The mount points of a mount table; blanks are written in octal there.
fn mount_points(table: &[u8]) -> Vec<PathBuf> {
    let lines = table.split(|byte| *byte == b'\n');
    let points = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    points
        .map(|point| {
            let mut path = Vec::with_capacity(point.len());
            let mut rest = point;
            while let [first, tail @ ..] = rest {
                let octal = tail
                    .get(..3)
                    .filter(|_| *first == b'\\')
                    .and_then(|digits| std::str::from_utf8(digits).ok())
                    .and_then(|digits| u8::from_str_radix(digits, 8).ok());
                path.push(octal.unwrap_or(*first));
                rest = &tail[if octal.is_some() { 3 } else { 0 }..];
            }
            PathBuf::from(std::ffi::OsStr::from_bytes(&path))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_with_blanks_are_read() {
        let table =
            b"22 1 0:21 / /proc rw - proc proc rw\n30 22 0:5 / /a\\040b\\134c rw - tmpfs t rw\n";
        let points = [PathBuf::from("/proc"), PathBuf::from("/a b\\c")];
        assert_eq!(mount_points(table), points);
        assert_eq!(mount_points(b"\nshort line\n").len(), 0);
    }

    #[test]
    fn this_process_is_not_a_container() {
        let pid = std::process::id() as i32;
        assert_eq!(container_of(pid), None);
    }

    /// The attack: a program in a container had arguments like those of a helper, with a path to a specification of its own, and
    /// `allot down` killed the cgroup of the machine that was named there.
    #[test]
    fn containers_do_not_name_what_is_ended() {
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path().canonicalize().expect("a path");
        let volume = "nodes/n/pods/u/volumes/v";
        for path in [
            "nodes/n/containers/own",
            "nodes/n/containers/below/containers/c",
        ] {
            std::fs::create_dir_all(root.join(path)).expect("a directory");
        }
        std::fs::create_dir_all(root.join(volume).join("containers/c")).expect("a directory");
        let mut processes = Vec::new();
        let outside = format!("{volume}/../../../../../../..");
        for path in [
            "nodes/n/containers/own",
            "nodes/n/containers/gone",
            "nodes/n/containers/below/containers/c",
            "nodes/n/containers/..",
            "nodes/../containers/c",
            volume,
            &format!("{volume}/containers/c"),
            &outside,
            &format!("{outside}/proc/self/root/containers/c"),
        ] {
            // The shell continues as the program that reads, with the arguments of a helper.
            let process = std::process::Command::new("sh")
                .args(["-c", "read line; true", "node-shim", "run"])
                .arg(root.join(path))
                .stdin(std::process::Stdio::piped())
                .spawn();
            processes.push(process.expect("a process"));
        }
        let found = find(&root);
        let found: Vec<_> = found.iter().map(|it| it.directory.clone()).collect();
        for mut process in processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        let expected = ["gone", "own"].map(|name| root.join("nodes/n/containers").join(name));
        assert_eq!(found, expected);
    }
}
