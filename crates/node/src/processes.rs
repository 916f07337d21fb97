//! Processes of the machine, held by descriptors: a signal never reaches a later process with the same PID.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// How long killed processes may take to end.
const KILLED: Duration = Duration::from_secs(10);

/// A process that is held by a descriptor: signals reach only this process.
#[derive(Debug)]
pub(crate) struct ProcessHandle {
    pid: i32,
    fd: OwnedFd,
}

impl ProcessHandle {
    pub(crate) fn open(pid: i32) -> Option<Self> {
        let fd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        Some(Self { pid, fd })
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether all of its threads have. The state in `/proc` is that of the first one.
    fn has_ended(&self) -> bool {
        wait(std::iter::once(self), Duration::ZERO)
    }

    pub(crate) fn signal(&self, signal: Signal) -> rustix::io::Result<()> {
        match pidfd_send_signal(&self.fd, signal) {
            // It has ended.
            Err(rustix::io::Errno::SRCH) => Ok(()),
            other => other,
        }
    }
}

/// The number of processes and threads of the machine.
pub(crate) fn count() -> Option<u64> {
    counted(&std::fs::read_to_string("/proc/loadavg").ok()?)
}

/// The fourth field is the number of running ones and of all, with a slash between them.
fn counted(load: &str) -> Option<u64> {
    let field = load.split_whitespace().nth(3)?;
    field.split_once('/')?.1.parse().ok()
}

/// The PIDs of all processes that can be seen.
pub(crate) fn all() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in parentheses and may contain anything.
    let rest = stat.get(stat.rfind(')')? + 2..)?;
    rest.split(' ').nth(1)?.parse().ok()
}

/// All descendants of processes that run, nearest first.
pub(crate) fn descendants(of: Vec<i32>) -> Vec<ProcessHandle> {
    let mut children = HashMap::<i32, Vec<i32>>::new();
    for pid in all() {
        if let Some(parent) = parent(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut open = of;
    let mut found = Vec::new();
    while let Some(pid) = open.pop() {
        for child in children.remove(&pid).unwrap_or_default() {
            // Held, and then still the child of that parent: no later process with the same PID.
            let held = ProcessHandle::open(child).filter(|_| parent(child) == Some(pid));
            found.extend(held.filter(|held| !held.has_ended()));
            open.push(child);
        }
    }
    found
}

/// Kills processes, and waits for their end.
fn kill(processes: &[ProcessHandle], deadline: Instant) {
    for process in processes {
        // One that may not be killed is waited for until the deadline.
        let _ = process.signal(Signal::KILL);
    }
    wait(
        processes.iter(),
        deadline.saturating_duration_since(Instant::now()),
    );
}

/// Kills the processes that `find` returns, and waits for their end, until it returns none. Returns whether none is left.
pub(crate) fn kill_all(find: impl Fn() -> Vec<ProcessHandle>) -> bool {
    let deadline = Instant::now() + KILLED;
    loop {
        let left = find();
        if left.is_empty() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        kill(&left, deadline);
    }
}

/// Kills the descendants of this process, which is their subreaper: they stay its descendants when their parents end. Returns
/// whether none is left.
pub(crate) fn kill_descendants() -> bool {
    let own = std::process::id() as i32;
    kill_all(|| descendants(vec![own]))
}

/// Waits until all have ended; false when some have not at the end of that time.
pub(crate) fn wait<'a>(
    processes: impl Iterator<Item = &'a ProcessHandle>,
    limit: Duration,
) -> bool {
    let deadline = Instant::now() + limit;
    let mut open: Vec<&ProcessHandle> = processes.collect();
    while !open.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut watched: Vec<PollFd<'_>> = open
            .iter()
            .map(|held| PollFd::new(&held.fd, PollFlags::IN))
            .collect();
        match poll(&mut watched, Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) => {}
            // After the deadline, the next one does not wait.
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return false,
        }
        let over: Vec<bool> = watched.iter().map(|it| !it.revents().is_empty()).collect();
        let mut over = over.into_iter();
        open.retain(|_| !over.next().unwrap_or(false));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_the_machine_are_counted() {
        assert_eq!(counted("0.1 0.2 0.3 2/345 678\n"), Some(345));
        assert!(count().is_some_and(|it| it > 0));
    }

    #[test]
    fn children_are_found_until_they_have_ended() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .expect("a process");
        let pid = child.id() as i32;
        let own = std::process::id() as i32;
        let found = |pid: i32| {
            descendants(vec![own])
                .into_iter()
                .find(|it| it.pid() == pid)
        };
        let held = found(pid).expect("the child");
        kill(&[held], Instant::now() + Duration::from_secs(60));
        // It was not waited for.
        assert!(found(pid).is_none());
        child.wait().expect("an end");
    }
}
