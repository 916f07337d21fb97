//! The driver's process: started in a separate process group, killed with all its children, with the tail of its
//! output.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::command::Filled;

/// Limit of kept output, in bytes.
const KEPT: usize = 256 * 1024;
/// How long the kernel may take to end a killed process. One that hangs in a system call stays.
const REAP: Duration = Duration::from_secs(10);
/// Every process of a run has this variable, so that none is missed at the end.
const MARKER: &str = "ALLOT_CONFORMANCE_RUN";

/// The end of what the driver wrote, over restarts.
#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<Content>);

#[derive(Debug, Default)]
struct Content {
    bytes: VecDeque<u8>,
    /// Bytes that are no longer kept.
    dropped: u64,
}

impl Log {
    pub(crate) fn add(&self, bytes: &[u8]) {
        let mut content = self.0.lock();
        content.bytes.extend(bytes);
        let excess = content.bytes.len().saturating_sub(KEPT);
        content.bytes.drain(..excess);
        content.dropped += excess as u64;
    }

    /// The place to give to [`Log::since`] later.
    pub(crate) fn position(&self) -> u64 {
        let content = self.0.lock();
        content.dropped + content.bytes.len() as u64
    }

    /// Output after a position, as far as it is kept.
    pub(crate) fn since(&self, position: u64) -> String {
        let content = self.0.lock();
        let skip = usize::try_from(position.saturating_sub(content.dropped)).unwrap_or(usize::MAX);
        let bytes: Vec<u8> = content.bytes.iter().skip(skip).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The last lines.
    pub(crate) fn tail(&self, lines: usize) -> String {
        let text = self.since(0);
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}

/// What the driver's processes use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) descriptors: usize,
    pub(crate) memory: u64,
    pub(crate) processes: usize,
}

#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    group: Option<Pid>,
    run: String,
}

impl Process {
    /// Starts the command; its output is appended to `log`.
    pub(crate) fn spawn(command: &Filled, log: &Arc<Log>) -> io::Result<Self> {
        let run = uuid::Uuid::new_v4().to_string();
        let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "no program");
        let (program, arguments) = command.words.split_first().ok_or_else(invalid)?;
        let mut child = Command::new(program)
            .args(arguments)
            .envs(command.env.iter().map(|(name, value)| (name, value)))
            .env(MARKER, &run)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(output) = child.stdout.take() {
            tokio::spawn(copy(output, Arc::clone(log)));
        }
        if let Some(output) = child.stderr.take() {
            tokio::spawn(copy(output, Arc::clone(log)));
        }
        Ok(Self { child, group, run })
    }

    /// The exit status of the process; `None` while it runs.
    pub(crate) fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// SIGKILL to the whole group; returns when all of it has ended.
    pub(crate) async fn kill(&mut self) {
        self.signal(Signal::KILL);
        let _ = tokio::time::timeout(REAP, self.child.wait()).await;
        let deadline = Instant::now() + REAP;
        while !self.members().is_empty() && Instant::now() < deadline {
            self.signal(Signal::KILL);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// SIGTERM; its exit status if it ends in time.
    pub(crate) async fn terminate(&mut self, patience: Duration) -> Option<ExitStatus> {
        self.signal(Signal::TERM);
        let ended = tokio::time::timeout(patience, self.child.wait()).await;
        ended.ok()?.ok()
    }

    /// SIGSTOP, and SIGCONT after a while.
    pub(crate) async fn pause(&self, time: Duration) {
        self.signal(Signal::STOP);
        tokio::time::sleep(time).await;
        self.signal(Signal::CONT);
    }

    /// Waits for its end.
    pub(crate) async fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        tokio::time::timeout(patience, self.child.wait())
            .await
            .ok()?
            .ok()
    }

    fn signal(&self, signal: Signal) {
        // Before any of them ends: a child without the variable is found by its parent.
        let members = if signal == Signal::KILL {
            self.members()
        } else {
            Vec::new()
        };
        if let Some(group) = self.group {
            // It may have ended already.
            let _ = rustix::process::kill_process_group(group, signal);
        }
        for pid in members {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Processes that descend from the command, also those that left its group or cleared their environment.
    fn members(&self) -> Vec<Pid> {
        let marker = format!("{MARKER}={}", self.run);
        let is_ours = |directory: &Path| {
            let environment = std::fs::read(directory.join("environ")).unwrap_or_default();
            let mut variables = environment.split(|byte| *byte == 0);
            variables.any(|variable| variable == marker.as_bytes())
        };
        let (mut found, mut parents) = (BTreeSet::new(), BTreeMap::new());
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|pid| pid.parse::<i32>().ok())
            else {
                continue;
            };
            if is_ours(&entry.path()) {
                found.insert(pid);
            }
            if let Some(parent) = parent(pid) {
                parents.insert(pid, parent);
            }
        }
        loop {
            let children = parents.iter().filter(|(_, parent)| found.contains(*parent));
            let more: Vec<i32> = children
                .map(|(pid, _)| *pid)
                .filter(|pid| !found.contains(pid))
                .collect();
            if more.is_empty() {
                return found.into_iter().filter_map(Pid::from_raw).collect();
            }
            found.extend(more);
        }
    }

    pub(crate) fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for pid in self.members() {
            let directory = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
            let descriptors = std::fs::read_dir(directory.join("fd"));
            usage.descriptors += descriptors.map_or(0, |entries| entries.flatten().count());
            let status = std::fs::read_to_string(directory.join("status")).unwrap_or_default();
            let resident = status.lines().find_map(|line| {
                let kilobytes = line.strip_prefix("VmRSS:")?.split_whitespace().next()?;
                kilobytes.parse::<u64>().ok()
            });
            usage.memory += resident.unwrap_or(0) * 1024;
            usage.processes += 1;
        }
        usage
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// The parent of a process that has not ended.
fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program can have any characters.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.next()?.parse().ok(),
    }
}

async fn copy(mut output: impl AsyncRead + Unpin, log: Arc<Log>) {
    let mut buffer = [0; 4096];
    loop {
        match output.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => log.add(&buffer[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Filled {
        let words = ["sh", "-c", script].map(str::to_owned).to_vec();
        Filled {
            env: Vec::new(),
            words,
        }
    }

    /// A child in a separate session leaves the group, but not the run.
    #[tokio::test]
    async fn children_end_with_the_driver() {
        let log = Arc::new(Log::default());
        let script = "setsid sh -c 'echo child; sleep 1000' & echo parent; sleep 1000";
        let mut process = Process::spawn(&shell(script), &log).unwrap();
        let deadline = Instant::now() + Duration::from_secs(120);
        while !(log.tail(9).contains("child") && log.tail(9).contains("parent")) {
            assert!(Instant::now() < deadline, "{}", log.tail(9));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(process.usage().processes >= 2);
        process.kill().await;
        assert!(process.members().is_empty());
    }

    /// A child with an empty environment in a session of its own went on after the run.
    #[tokio::test]
    async fn regression_children_without_the_environment_end_with_the_driver() {
        let log = Arc::new(Log::default());
        let script = "env -i setsid sh -c 'echo $$; sleep 1000; true' & wait";
        let mut process = Process::spawn(&shell(script), &log).unwrap();
        let deadline = Instant::now() + Duration::from_secs(120);
        let child: i32 = loop {
            if let Ok(pid) = log.tail(1).parse() {
                break pid;
            }
            assert!(Instant::now() < deadline, "{}", log.tail(9));
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        assert!(process.members().contains(&Pid::from_raw(child).unwrap()));
        process.kill().await;
        while parent(child).is_some() {
            assert!(Instant::now() < deadline, "it goes on");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[test]
    fn output_is_bounded() {
        let log = Log::default();
        log.add(b"first\n");
        let position = log.position();
        for _ in 0..KEPT {
            log.add(b"x\n");
        }
        log.add(b"last\n");
        assert_eq!(log.tail(1), "last");
        assert_eq!(log.since(position).len(), KEPT);
    }
}
