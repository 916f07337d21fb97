//! The record of a running `allot up`, for `allot status`, `logs` and `down`.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use allot_node::shim::spec::start_time;
use anyhow::Context as _;
use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// Name of the record in a cluster's directory.
const FILE: &str = "cluster.json";

/// Longest record; a longer file is ignored.
const LONGEST: u64 = 1 << 20;

/// A cluster that runs, or ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its directory.
    pub data_dir: PathBuf,
    /// The directory is deleted with the cluster.
    pub temporary: bool,
    /// The process that runs it.
    pub process: Process,
    /// Version of the program.
    pub version: String,
    /// URL of the API server.
    pub server: String,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// The kubeconfig that its context was merged into.
    pub merged_into: Option<PathBuf>,
    /// How many nodes it has.
    pub nodes: usize,
    /// Its log file, unless it logs to standard error.
    pub log: Option<PathBuf>,
    /// The link to its dashboard, if it serves one: as secret as the kubeconfig.
    #[serde(default)]
    pub dashboard: Option<String>,
    /// When it was started.
    pub started: Timestamp,
    /// It was ready for pods.
    pub ready: bool,
}

/// A process as this machine will never have it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The PID, which another process can get after a reboot or when this one has ended.
    pub pid: i32,
    /// Its start time in clock ticks after boot.
    pub(super) start: u64,
    /// Which boot that was.
    boot: String,
}

impl Process {
    /// The running process, with the start time by which it is recognized after its PID is used again.
    #[must_use]
    pub fn current() -> Self {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        Self {
            pid,
            start: start_time(pid).unwrap_or_default(),
            boot: boot(),
        }
    }

    /// Holds the process, if it is still the one.
    #[must_use]
    pub fn open(&self) -> Option<ProcessHandle> {
        let pid = Pid::from_raw(self.pid)?;
        // The descriptor is opened first: a process whose start time matches after that cannot be replaced by another one.
        let fd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let same = start_time(self.pid) == Some(self.start) && boot() == self.boot;
        same.then_some(ProcessHandle { pid, fd })
    }
}

fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// A process that is held by a descriptor: signals reach only this process.
#[derive(Debug)]
pub struct ProcessHandle {
    pid: Pid,
    fd: OwnedFd,
}

impl ProcessHandle {
    /// The process ID; it stays reserved as long as the handle exists.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Sends a signal; a process that has ended needs none.
    ///
    /// # Errors
    /// The process is another user's.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        match pidfd_send_signal(&self.fd, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(std::io::Error::from(error))
                .with_context(|| format!("cannot end process {}", self.pid())),
        }
    }

    /// Waits for its end; returns false if it has not ended within `limit`.
    #[must_use]
    pub fn ended_within(&self, limit: Duration) -> bool {
        let timeout = Timespec {
            tv_sec: limit.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        };
        let mut watched = [PollFd::new(&self.fd, PollFlags::IN)];
        matches!(poll(&mut watched, Some(&timeout)), Ok(1..))
    }
}

impl Record {
    /// The record in a cluster's directory. `None` without one, or for one about another directory.
    #[must_use]
    pub fn of(directory: &Path) -> Option<Self> {
        let path = directory.join(FILE);
        let record = Self::read(&path)?;
        let same = |a: &Path, b: &Path| a == b || a.canonicalize().ok() == b.canonicalize().ok();
        same(&record.data_dir, directory).then_some(record)
    }

    /// Reads a record. It is believed only about processes of the user that wrote it: another one could name a process
    /// that root would end.
    pub(super) fn read(path: &Path) -> Option<Self> {
        // Owner and content of one descriptor: the file at the path may be exchanged. `NONBLOCK` avoids waiting for a
        // pipe.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
        let about = file.metadata().ok()?;
        if !about.is_file() || about.len() > LONGEST {
            return None;
        }
        let mut text = Vec::new();
        file.take(LONGEST).read_to_end(&mut text).ok()?;
        let record: Self = serde_json::from_slice(&text).ok()?;
        let process = std::fs::metadata(format!("/proc/{}", record.process.pid)).ok();
        let others = process.is_some_and(|process| process.uid() != about.uid());
        (!others).then_some(record)
    }

    /// The record of the cluster in a directory: the one in it, or else the first of `records` about it.
    #[must_use]
    pub fn known(directory: &Path, records: &[Self]) -> Option<Self> {
        let of = || records.iter().find(|it| it.data_dir == directory).cloned();
        Self::of(directory).or_else(of)
    }

    /// The process that runs the cluster, if it does.
    #[must_use]
    pub fn alive(&self) -> Option<ProcessHandle> {
        self.process.open()
    }

    /// Writes the record into the cluster's directory and into the registry.
    ///
    /// # Errors
    /// It cannot be written into the directory. Without a registry only `--all` does not find the cluster.
    pub fn write(&self) -> anyhow::Result<()> {
        let path = self.data_dir.join(FILE);
        self.write_to(&path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        if let Err(error) = super::registry::add(self) {
            tracing::debug!("the registry of clusters: {error:#}");
        }
        Ok(())
    }

    /// Replaces the file as a whole; only the user may read it.
    pub(super) fn write_to(&self, path: &Path) -> anyhow::Result<()> {
        let directory = path.parent().context("no directory")?;
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.persist(path)?;
        Ok(())
    }

    /// Removes the record, unless another process has written one in the meantime.
    pub fn forget(&self) {
        let current = Self::of(&self.data_dir);
        if current.is_some_and(|current| current.process == self.process) {
            let _ = std::fs::remove_file(self.data_dir.join(FILE));
        }
        super::registry::remove(self);
    }
}

/// A process that holds the lock of a data directory. It may be `allot up` that is still starting, or another command.
/// This reads the kernel's table and does not try the lock: a server that starts at that moment would find it taken.
#[must_use]
pub fn holder(directory: &Path) -> Option<i32> {
    let path = directory.join("lock");
    let inode = std::fs::metadata(&path).ok()?.ino();
    let pid = std::fs::read_to_string(&path).ok()?.trim().parse().ok()?;
    let table = std::fs::read_to_string("/proc/locks").ok()?;
    let held = table.lines().any(|line| locks(line, pid, inode));
    held.then_some(pid)
}

/// Whether a line such as `1: FLOCK  ADVISORY  WRITE 714 00:2b:1234 0 EOF` is about this process and file.
fn locks(line: &str, pid: i32, inode: u64) -> bool {
    let fields: Vec<&str> = line.split_whitespace().collect();
    match fields.as_slice() {
        [_, "FLOCK", _, "WRITE", holder, file, ..] => {
            holder.parse() == Ok(pid) && file.rsplit(':').next().map(str::parse) == Some(Ok(inode))
        }
        _ => false,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A record of a process.
    pub fn record(directory: &Path, process: Process) -> Record {
        Record {
            name: None,
            data_dir: directory.to_owned(),
            temporary: false,
            process,
            version: "0".into(),
            server: "https://127.0.0.1:1".into(),
            kubeconfig: directory.join("kubeconfig"),
            merged_into: None,
            nodes: 1,
            log: None,
            dashboard: None,
            started: Timestamp::UNIX_EPOCH,
            ready: true,
        }
    }

    #[test]
    fn a_process_is_only_itself() {
        let this = Process::current();
        let alive = this.open().expect("this process");
        assert_eq!(alive.pid(), this.pid);
        assert!(!alive.ended_within(Duration::ZERO));
        let another = Process {
            start: this.start + 1,
            ..this.clone()
        };
        assert!(
            another.open().is_none(),
            "a later process with the same PID"
        );
        let another = Process {
            boot: "another".into(),
            ..this
        };
        assert!(another.open().is_none(), "a process of an earlier boot");
    }

    #[test]
    fn a_lock_is_found_in_the_kernel_s_table() {
        let line = "3: FLOCK  ADVISORY  WRITE 714 00:2b:1234 0 EOF";
        assert!(locks(line, 714, 1234));
        assert!(!locks(line, 715, 1234));
        assert!(!locks(line, 714, 34));
        assert!(!locks(
            "3: -> FLOCK ADVISORY WRITE 714 00:2b:1234 0 EOF",
            714,
            1234
        ));
        assert!(!locks("", 0, 0));
    }

    #[test]
    fn a_record_is_about_its_own_directory() {
        let directory = tempfile::tempdir().expect("directory");
        let other = tempfile::tempdir().expect("directory");
        let record = record(directory.path(), Process::current());
        assert_eq!(Record::of(directory.path()), None);
        record
            .write_to(&directory.path().join(FILE))
            .expect("written");
        assert_eq!(Record::of(directory.path()), Some(record.clone()));
        record.write_to(&other.path().join(FILE)).expect("written");
        assert_eq!(Record::of(other.path()), None);
        std::fs::write(other.path().join(FILE), "{").expect("written");
        assert_eq!(Record::of(other.path()), None);
    }
}
