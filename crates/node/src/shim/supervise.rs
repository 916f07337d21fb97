//! The shim itself: starts the container and sees it through.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, WaitOptions, WaitStatus};

use super::attach::Attached;
use super::init::{self, Streams};
use super::log::Lines;
use super::spec::{self, Answer, ContainerSpec, Exit, Isolation, State};
use super::sys::{self, Fork};
use super::{rootfs, terminal};

/// Namespaces of a container.
fn flags(isolation: Isolation) -> i32 {
    let own = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    match isolation {
        Isolation::Namespaces => own,
        Isolation::UserNamespace => own | libc::CLONE_NEWUSER,
        Isolation::None => 0,
    }
}

/// Runs the container in `directory`; returns the exit code of the shim.
pub(super) fn run(directory: &Path) -> i32 {
    match start(directory) {
        Ok((container, state)) => {
            answer(&Answer::Started(state));
            let code = container.supervise();
            let exit = Exit {
                code,
                finished: Timestamp::now(),
            };
            match spec::write(&directory.join(spec::EXIT), &exit) {
                Ok(()) => 0,
                Err(error) => {
                    eprintln!("{error}");
                    1
                }
            }
        }
        Err(error) => {
            answer(&Answer::Failed(error));
            1
        }
    }
}

/// Tells the agent, and lets go of it: standard output is its pipe.
fn answer(answer: &Answer) {
    let mut line = serde_json::to_string(answer).unwrap_or_default();
    line.push('\n');
    // If the agent is gone by now, the next one reads state.json.
    let _ = std::io::stdout().write_all(line.as_bytes());
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stdin(&null);
    }
}

struct Container {
    pid: Pid,
    log: File,
    /// Output with the lines in the making; a terminal has one stream only.
    streams: Vec<(OwnedFd, Lines)>,
    attached: Attached,
}

/// A pair of pipe ends that no other program inherits.
fn pipe() -> Result<(OwnedFd, OwnedFd), String> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|error| format!("pipe: {error}"))
}

fn start(directory: &Path) -> Result<(Container, State), String> {
    let spec: ContainerSpec = spec::read(&directory.join(spec::SPEC))?;
    if spec.args.is_empty() {
        return Err("no command specified".into());
    }
    // A session of its own: signals from the agent's terminal are not for containers.
    let _ = rustix::process::setsid();
    // Orphans of a container without a PID namespace come here and are not left to the host.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    if let Some(parent) = spec.log.parent() {
        std::fs::create_dir_all(parent)
            .map_err(|error| format!("{}: {error}", parent.display()))?;
    }
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&spec.log)
        .map_err(|error| format!("{}: {error}", spec.log.display()))?;

    let (go, going) = pipe()?;
    let (failure, failing) = pipe()?;
    let (inside, outside) = stdio(&spec)?;
    let mut attached = Attached::new(directory);
    let pid = match sys::fork(flags(spec.isolation)) {
        Ok(Fork::Child) => {
            drop(going);
            drop(failure);
            drop((outside, attached, log));
            let setup = init::Setup {
                spec: &spec,
                directory,
                go,
                failing,
                stdio: inside,
            };
            init::main(setup)
        }
        Ok(Fork::Parent(pid)) => pid,
        Err(error) => return Err(format!("clone: {error}")),
    };
    drop((go, failing, inside));
    if spec.isolation == Isolation::UserNamespace {
        map_ids(pid, spec.user, spec.group)?;
    }
    drop(going);
    let mut problem = String::new();
    File::from(failure)
        .read_to_string(&mut problem)
        .map_err(|error| error.to_string())?;
    if !problem.is_empty() {
        let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
        return Err(problem);
    }
    let Output { input, streams } = outside.open(&spec)?;
    if let Some(input) = input {
        attached = attached.with_input(input, spec.tty, spec.stdin_once);
    }
    let raw = pid.as_raw_nonzero().get();
    let shim = rustix::process::getpid().as_raw_nonzero().get();
    let state = State {
        pid: raw,
        // A program may have ended already; nobody will look for its start time then.
        pid_start: spec::start_time(raw).unwrap_or_default(),
        shim,
        shim_start: spec::start_time(shim).unwrap_or_default(),
        started: Timestamp::now(),
    };
    spec::write(&directory.join(spec::STATE), &state)?;
    let container = Container {
        pid,
        log,
        streams,
        attached,
    };
    Ok((container, state))
}

/// Maps the agent's user and group to those of the container, root if it names none. Mapping a single id needs no
/// helper program and no entry in /etc/subuid.
fn map_ids(pid: Pid, user: Option<u32>, group: Option<u32>) -> Result<(), String> {
    let pid = pid.as_raw_nonzero();
    let put = |file: &str, text: &str| {
        std::fs::write(format!("/proc/{pid}/{file}"), text)
            .map_err(|error| format!("/proc/{pid}/{file}: {error}"))
    };
    put("setgroups", "deny")?;
    put(
        "uid_map",
        &format!(
            "{} {} 1\n",
            user.unwrap_or(0),
            rustix::process::geteuid().as_raw()
        ),
    )?;
    put(
        "gid_map",
        &format!(
            "{} {} 1\n",
            group.unwrap_or(0),
            rustix::process::getegid().as_raw()
        ),
    )
}

/// The shim's ends of the program's streams.
struct Output {
    /// Where input is written, if there is any.
    input: Option<OwnedFd>,
    /// Where outputs are read.
    streams: Vec<(OwnedFd, Lines)>,
}

/// What the shim keeps of the program's streams until the program runs.
enum Outside {
    Pipes(Output),
    /// Where the master of its terminal comes from.
    Terminal(OwnedFd),
}

impl Outside {
    fn open(self, spec: &ContainerSpec) -> Result<Output, String> {
        let socket = match self {
            Self::Pipes(output) => return Ok(output),
            Self::Terminal(socket) => socket,
        };
        let failed = |error: std::io::Error| format!("terminal: {error}");
        let master = terminal::receive(&socket).map_err(failed)?;
        let input = spec.stdin.then(|| master.try_clone()).transpose();
        Ok(Output {
            input: input.map_err(failed)?,
            streams: vec![(master, Lines::new("stdout"))],
        })
    }
}

/// Both sides of the program's streams.
fn stdio(spec: &ContainerSpec) -> Result<(Streams, Outside), String> {
    if spec.tty {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let (inside, outside) = socketpair(family, kind, SocketFlags::CLOEXEC, None)
            .map_err(|error| format!("socket: {error}"))?;
        let host = terminal::open(Path::new(terminal::HOST))
            .map_err(|error| format!("terminal: {error}"))?;
        let inside = Streams::Terminal {
            socket: inside,
            host,
        };
        return Ok((inside, Outside::Terminal(outside)));
    }
    let (reader, input) = if spec.stdin {
        let (reader, writer) = pipe()?;
        (reader, Some(writer))
    } else {
        let null = File::open("/dev/null").map_err(|error| format!("/dev/null: {error}"))?;
        (OwnedFd::from(null), None)
    };
    let (out, output) = pipe()?;
    let (err, errors) = pipe()?;
    let outside = Output {
        input,
        streams: vec![(out, Lines::new("stdout")), (err, Lines::new("stderr"))],
    };
    let inside = Streams::Pipes([reader, output, errors]);
    Ok((inside, Outside::Pipes(outside)))
}

impl Container {
    /// Copies output until the program has ended and all is read; returns its exit code.
    fn supervise(mut self) -> i32 {
        let ended = match rustix::process::pidfd_open(self.pid, PidfdFlags::empty()) {
            Ok(ended) => ended,
            Err(_) => return self.wait(),
        };
        let mut buffer = vec![0u8; 32 * 1024];
        loop {
            let mut watched: Vec<PollFd<'_>> = self
                .streams
                .iter()
                .map(|(fd, _)| PollFd::new(fd, PollFlags::IN))
                .collect();
            watched.push(PollFd::new(&ended, PollFlags::IN));
            self.attached.watch(&mut watched);
            if poll(&mut watched, None).is_err() {
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
                !ready || copy(fd.as_fd(), lines, &mut self.log, attached, &mut buffer)
            });
            if over {
                break;
            }
        }
        // Output that was written before the end; a process that escaped may hold the pipe open for ever.
        for (fd, lines) in &mut self.streams {
            let attached = &mut self.attached;
            while readable(fd) && copy(fd.as_fd(), lines, &mut self.log, attached, &mut buffer) {}
            let _ = lines.finish(&mut self.log);
        }
        self.wait()
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

/// Copies what there is; false at the end of the stream (for a terminal that is an error, EIO).
fn copy(
    fd: BorrowedFd<'_>,
    lines: &mut Lines,
    log: &mut File,
    attached: &mut Attached,
    buffer: &mut [u8],
) -> bool {
    match rustix::io::read(fd, &mut *buffer) {
        Ok(0) => {}
        Ok(n) => {
            attached.show(lines.channel(), &buffer[..n]);
            if let Err(error) = lines.push(log, &buffer[..n]) {
                // The container goes on; a full disk must not stop it.
                eprintln!("log: {error}");
            }
            return true;
        }
        Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => return true,
        Err(_) => {}
    }
    let _ = lines.finish(log);
    false
}

/// Finds out which isolation works here, using `directory` for the attempt; prints it as JSON with the reasons why
/// better ones do not.
pub(super) fn probe(directory: &Path) -> i32 {
    let mut reasons = Vec::new();
    let candidates = if rustix::process::geteuid().is_root() {
        vec![Isolation::Namespaces, Isolation::UserNamespace]
    } else {
        vec![Isolation::UserNamespace]
    };
    for isolation in candidates {
        match attempt(directory, isolation) {
            Ok(()) => return print(isolation, &reasons),
            Err(reason) => reasons.push(reason),
        }
    }
    print(Isolation::None, &reasons)
}

fn print(isolation: Isolation, reasons: &[String]) -> i32 {
    println!(
        "{}",
        serde_json::json!({"isolation": isolation, "reasons": reasons})
    );
    0
}

fn attempt(directory: &Path, isolation: Isolation) -> Result<(), String> {
    let (go, going) = pipe()?;
    let (failure, failing) = pipe()?;
    let pid = match sys::fork(flags(isolation)).map_err(|error| format!("clone: {error}"))? {
        Fork::Child => {
            drop((going, failure));
            let _ = File::from(go).read(&mut [0]);
            let spec = ContainerSpec {
                isolation,
                hostname: "probe".into(),
                ..ContainerSpec::default()
            };
            if let Err(problem) = rootfs::enter(&spec, directory) {
                let _ = File::from(failing).write_all(problem.as_bytes());
            }
            std::process::exit(0)
        }
        Fork::Parent(pid) => pid,
    };
    drop((go, failing));
    let mapped = if isolation == Isolation::UserNamespace {
        map_ids(pid, None, None)
    } else {
        Ok(())
    };
    drop(going);
    let mut problem = String::new();
    let read = File::from(failure).read_to_string(&mut problem);
    let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
    mapped?;
    read.map_err(|error| error.to_string())?;
    if problem.is_empty() {
        Ok(())
    } else {
        Err(problem)
    }
}
