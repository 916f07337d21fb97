//! The shim itself: starts the container and sees it through.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, WaitOptions, WaitStatus};

use super::attach::Attached;
use super::create::{self, CreateError, RunningContainer};
use super::log::{Lines, Log};
use super::program::Role;
use super::report::{self, ReportError};
use super::spec::{self, Answer, ContainerSpec, Exit, Isolation, State, User};
use super::sys::{self, Fork, PipeError};
use super::{init, terminal};
use crate::error::{AtPath as _, PathError};
use crate::oci;

/// Why the shim did not start its container.
#[derive(Debug, thiserror::Error)]
enum StartError {
    /// The specification has no arguments.
    #[error("no command specified")]
    NoCommand,
    /// A file of the container, its log among them.
    #[error(transparent)]
    File(#[from] PathError),
    /// The streams of the program.
    #[error(transparent)]
    Pipe(#[from] PipeError),
    /// The terminal of the program.
    #[error("terminal: {0}")]
    Terminal(#[source] std::io::Error),
    /// There is no process for a program without isolation.
    #[error("clone: {0}")]
    Clone(#[source] std::io::Error),
    /// The process without isolation did not become the program.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// There is no container.
    #[error(transparent)]
    Create(#[from] CreateError),
}

/// Runs the container in `directory`; returns the exit code of the shim.
pub(super) fn run(directory: &Path) -> i32 {
    match start(directory) {
        Ok((container, state)) => {
            answer(&Answer::Started(state));
            let exit = container.supervise();
            match spec::fill(&directory.join(spec::EXIT), &exit) {
                Ok(()) => 0,
                Err(error) => {
                    eprintln!("{error}");
                    1
                }
            }
        }
        Err(error) => {
            answer(&Answer::Failed(error.to_string()));
            1
        }
    }
}

/// Answers the agent, and closes standard output, which is its pipe.
fn answer(answer: &Answer) {
    let mut line = serde_json::to_string(answer).unwrap_or_default();
    line.push('\n');
    // If the agent has ended by now, the next one reads state.json.
    let _ = std::io::stdout().write_all(line.as_bytes());
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stdin(&null);
    }
}

struct Container {
    spec: ContainerSpec,
    pid: Pid,
    /// The container of libcontainer; `None` for a plain process.
    made: Option<RunningContainer>,
    log: Log,
    /// Outputs with their incomplete lines; a terminal has one stream only.
    streams: Vec<(OwnedFd, Lines)>,
    attached: Attached,
    /// The container's directory, to see when it is removed.
    directory: Option<OwnedFd>,
}

/// How often the container's directory is checked. It is not watched: inotify instances are limited per user
/// (`fs.inotify.max_user_instances`), and there is a shim for every container.
const LOOK: Duration = Duration::from_secs(5);

/// More than a pipe holds, also one that a program has enlarged as far as it may (`/proc/sys/fs/pipe-max-size`).
const MOST_IN_PIPE: usize = 2 << 20;

fn start(directory: &Path) -> Result<(Container, State), StartError> {
    let mut spec: ContainerSpec = spec::read(&directory.join(spec::SPEC))?;
    if spec.args.is_empty() {
        return Err(StartError::NoCommand);
    }
    // A new session: signals from the agent's terminal are not for containers.
    let _ = rustix::process::setsid();
    spec.security.no_keyrings = !sys::leave_keyring();
    oci::pids::decide(&mut spec);
    // Orphans of a container without a PID namespace are reparented to this process and not to the host's init.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let log = Log::open(&spec.log).at(&spec.log)?;
    // How a container ends is known also when its own log fills the disk.
    spec::reserve(&directory.join(spec::EXIT))?;
    let mut attached = Attached::new(directory);
    let (inside, outside) = stdio(&spec)?;
    let (pid, made, master) = match spec.isolation {
        Isolation::None => {
            let (pid, master) = plain(&spec, inside)?;
            (pid, None, master)
        }
        Isolation::Namespaces | Isolation::UserNamespace => {
            let mut made = create::create(&spec, directory, inside, Role::Init)?;
            let master = made.terminal.take();
            (made.pid, Some(made), master)
        }
    };
    let Output { input, streams } = match master {
        Some(master) => Output::of_terminal(master, spec.stdin)?,
        None => outside,
    };
    if let Some(input) = input {
        attached = attached.with_input(input, spec.tty, spec.stdin_once);
    }
    let account = made.as_ref().map(|made| &made.account);
    let user = account.map(|account| User {
        id: account.user,
        group: account.group,
        others: account.groups.clone(),
    });
    let raw = pid.as_raw_nonzero().get();
    let shim = rustix::process::getpid().as_raw_nonzero().get();
    let state = State {
        pid: raw,
        // A program may have ended already; its start time is not needed then.
        pid_start: spec::start_time(raw).unwrap_or_default(),
        shim,
        shim_start: spec::start_time(shim).unwrap_or_default(),
        started: Timestamp::now(),
        user,
    };
    spec::write(&directory.join(spec::STATE), &state)?;
    let container = Container {
        spec,
        pid,
        made,
        log,
        streams,
        attached,
        directory: File::open(directory).map(OwnedFd::from).ok(),
    };
    Ok((container, state))
}

/// Starts a program without any isolation; also returns the master of its terminal, if it has one.
fn plain(
    spec: &ContainerSpec,
    stdio: Option<[OwnedFd; 3]>,
) -> Result<(Pid, Option<OwnedFd>), StartError> {
    let (stdio, master) = match stdio {
        Some(stdio) => (stdio, None),
        None => {
            let (master, slave) =
                terminal::open(Path::new(terminal::HOST)).map_err(StartError::Terminal)?;
            let copy = || slave.try_clone().map_err(StartError::Terminal);
            ([copy()?, copy()?, copy()?], Some(master))
        }
    };
    let (failure, failing) = sys::pipe()?;
    let pid = match sys::fork(0) {
        Ok(Fork::Child) => {
            drop((failure, master));
            init::plain(spec, stdio, failing)
        }
        Ok(Fork::Parent(pid)) => pid,
        Err(error) => return Err(StartError::Clone(error)),
    };
    drop((failing, stdio));
    if let Err(problem) = report::wait(failure) {
        let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
        return Err(problem.into());
    }
    Ok((pid, master))
}

/// The shim's ends of the program's streams.
struct Output {
    /// Where input is written, if there is any.
    input: Option<OwnedFd>,
    /// The outputs to read.
    streams: Vec<(OwnedFd, Lines)>,
}

impl Output {
    fn of_terminal(master: OwnedFd, stdin: bool) -> Result<Self, StartError> {
        let input = stdin.then(|| master.try_clone()).transpose();
        Ok(Self {
            input: input.map_err(StartError::Terminal)?,
            streams: vec![(master, Lines::new("stdout"))],
        })
    }
}

/// Both sides of the program's streams; none yet for a terminal.
fn stdio(spec: &ContainerSpec) -> Result<(Option<[OwnedFd; 3]>, Output), StartError> {
    if spec.tty {
        let nothing = Output {
            input: None,
            streams: Vec::new(),
        };
        return Ok((None, nothing));
    }
    let (reader, input) = if spec.stdin {
        let (reader, writer) = sys::pipe()?;
        (reader, Some(writer))
    } else {
        let null = File::open("/dev/null").at(Path::new("/dev/null"))?;
        (OwnedFd::from(null), None)
    };
    let (out, output) = sys::pipe()?;
    let (err, errors) = sys::pipe()?;
    for reader in [&out, &err] {
        // Root of a container can open its own output, and take what this process has seen to be there.
        rustix::io::ioctl_fionbio(reader, true).map_err(PipeError::from)?;
    }
    let outside = Output {
        input,
        streams: vec![(out, Lines::new("stdout")), (err, Lines::new("stderr"))],
    };
    Ok((Some([reader, output, errors]), outside))
}

impl Container {
    /// Copies output until the program has ended and all is read; returns how it ended.
    fn supervise(mut self) -> Exit {
        if let Ok(ended) = rustix::process::pidfd_open(self.pid, PidfdFlags::empty()) {
            self.copy_until(&ended);
        }
        let code = self.wait();
        let made = self.made.as_ref();
        let oom_killed = code != 0 && made.is_some_and(|made| made.oom_killed(&self.spec));
        if let Some(made) = self.made.take() {
            made.clean_up(&self.spec);
        }
        Exit {
            code,
            finished: Timestamp::now(),
            oom_killed,
        }
    }

    fn copy_until(&mut self, ended: &OwnedFd) {
        let mut buffer = vec![0u8; 32 * 1024];
        let mut looked = Instant::now();
        loop {
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.end_if_removed();
                self.attached.rested();
            }
            let mut watched: Vec<PollFd<'_>> = self
                .streams
                .iter()
                .map(|(fd, _)| PollFd::new(fd, PollFlags::IN))
                .collect();
            watched.push(PollFd::new(ended, PollFlags::IN));
            self.attached.watch(&mut watched);
            let timeout = rustix::event::Timespec {
                tv_sec: LOOK.as_secs() as i64,
                tv_nsec: 0,
            };
            let polled = poll(&mut watched, Some(&timeout));
            if !matches!(polled, Ok(1..)) {
                continue;
            }
            let events: Vec<PollFlags> = watched.iter().map(PollFd::revents).collect();
            let over = !events[self.streams.len()].is_empty();
            self.attached.work(&events[self.streams.len() + 1..]);
            let mut at = 0;
            self.streams.retain_mut(|(fd, lines)| {
                let ready = !events[at].is_empty();
                at += 1;
                let attached = &mut self.attached;
                !ready || copy(fd.as_fd(), lines, &mut self.log, attached, &mut buffer).is_some()
            });
            if over {
                break;
            }
        }
        create::end_others(&self.spec);
        // Output from before the end; a process that escaped may hold the pipe open, or write to it, indefinitely.
        for (fd, lines) in &mut self.streams {
            let attached = &mut self.attached;
            let mut left = MOST_IN_PIPE;
            while left > 0 && readable(fd) {
                match copy(fd.as_fd(), lines, &mut self.log, attached, &mut buffer) {
                    Some(bytes) => left = left.saturating_sub(bytes.max(1)),
                    None => break,
                }
            }
            let _ = lines.finish(&mut self.log);
        }
    }

    /// Without its directory no agent can find the container again: it ends.
    fn end_if_removed(&self) {
        let Some(directory) = &self.directory else {
            return;
        };
        let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let path = std::fs::read_link(link).unwrap_or_default();
        if path.as_os_str().as_encoded_bytes().ends_with(b" (deleted)") {
            sys::kill(self.pid, libc::SIGKILL);
        }
    }

    fn wait(&self) -> i32 {
        loop {
            match rustix::process::waitpid(Some(self.pid), WaitOptions::empty()) {
                Ok(Some((_, status))) => return code(status),
                Ok(None) | Err(rustix::io::Errno::INTR) => {}
                // Cannot happen to our own child; 255 is what containerd reports for an unknown status.
                Err(_) => return 255,
            }
        }
    }
}

/// Exit code in the way of shells and container runtimes.
pub(super) fn code(status: WaitStatus) -> i32 {
    status
        .exit_status()
        .or_else(|| status.terminating_signal().map(|signal| 128 + signal))
        .unwrap_or(255)
}

fn readable(fd: &OwnedFd) -> bool {
    let mut watched = [PollFd::new(fd, PollFlags::IN)];
    let now = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    matches!(poll(&mut watched, Some(&now)), Ok(n) if n > 0)
}

/// Copies the bytes that can be read without waiting, and returns their number; `None` at the end of the stream (for a terminal that is an error, EIO).
fn copy(
    fd: BorrowedFd<'_>,
    lines: &mut Lines,
    log: &mut Log,
    attached: &mut Attached,
    buffer: &mut [u8],
) -> Option<usize> {
    match rustix::io::read(fd, &mut *buffer) {
        Ok(0) => {}
        Ok(n) => {
            attached.show(lines.channel(), &buffer[..n]);
            if let Err(error) = lines.push(log, &buffer[..n]) {
                // The container continues; a full disk must not stop it.
                eprintln!("log: {error}");
            }
            return Some(n);
        }
        Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => return Some(0),
        Err(_) => {}
    }
    let _ = lines.finish(log);
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The attack: a container reads its own output, so that nothing is left for the shim, and gives the other end to a container that
    /// stays. The shim waited for that one, and its own container never ended.
    #[test]
    fn regression_output_that_another_process_has_read_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = Log::open(&directory.path().join("logs/0.log")).unwrap();
        let mut attached = Attached::new(directory.path());
        let (inside, outside) = stdio(&ContainerSpec::default()).unwrap();
        let [_, output, errors] = inside.unwrap();
        for ((reader, mut lines), writer) in outside.streams.into_iter().zip([output, errors]) {
            rustix::io::write(&writer, b"word").unwrap();
            assert!(readable(&reader));
            let thief = format!("/proc/self/fd/{}", reader.as_raw_fd());
            let thief = File::open(thief).unwrap();
            assert_eq!(rustix::io::read(&thief, &mut [0; 10]).unwrap(), 4);
            let copied = copy(
                reader.as_fd(),
                &mut lines,
                &mut log,
                &mut attached,
                &mut [0; 10],
            );
            assert_eq!(copied, Some(0));
        }
    }
}
