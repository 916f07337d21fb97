//! Inside of the container: the init process and the program.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, WaitOptions};

use super::spec::{ContainerSpec, Isolation};
use super::supervise::code;
use super::sys::{self, Fork};
use super::{rootfs, terminal};

/// What the init is given by the shim.
pub(super) struct Setup<'a> {
    pub(super) spec: &'a ContainerSpec,
    pub(super) directory: &'a Path,
    /// Ends when the shim has mapped the user ids.
    pub(super) go: OwnedFd,
    /// For the text of what went wrong; closed by a successful exec.
    pub(super) failing: OwnedFd,
    pub(super) stdio: Streams,
}

/// What becomes the program's input, output and errors.
pub(super) enum Streams {
    Pipes([OwnedFd; 3]),
    /// A terminal is made inside, so that it has a name there.
    Terminal {
        /// Where its master goes.
        socket: OwnedFd,
        /// Master and slave of one of the host, if the container has no terminals of its own.
        host: (OwnedFd, OwnedFd),
    },
}

/// The init process.
pub(super) fn main(setup: Setup<'_>) -> ! {
    let Setup {
        spec,
        directory,
        go,
        failing,
        stdio,
    } = setup;
    sys::die_with_parent();
    let _ = File::from(go).read(&mut [0]);
    let mut failing = File::from(failing);
    if spec.isolation != Isolation::None
        && let Err(problem) = rootfs::enter(spec, directory)
    {
        let _ = failing.write_all(problem.as_bytes());
        std::process::exit(1);
    }
    let stdio = match stdio {
        Streams::Pipes(pipes) => pipes,
        Streams::Terminal { socket, host } => match own_terminal(spec, host, &socket) {
            Ok(slaves) => slaves,
            Err(error) => {
                let _ = failing.write_all(format!("terminal: {error}").as_bytes());
                std::process::exit(1);
            }
        },
    };
    sys::block_signals();
    let program = match sys::fork(0) {
        Ok(Fork::Parent(pid)) => pid,
        Ok(Fork::Child) => {
            sys::die_with_parent();
            let problem = exec(spec, stdio);
            let _ = failing.write_all(problem.as_bytes());
            std::process::exit(127)
        }
        Err(error) => {
            let _ = failing.write_all(format!("fork: {error}").as_bytes());
            std::process::exit(1)
        }
    };
    drop((failing, stdio));
    let code = watch(program);
    if spec.isolation == Isolation::None {
        // Without a PID namespace the rest of the process group would stay behind.
        let _ = rustix::process::kill_process_group(program, rustix::process::Signal::KILL);
    }
    std::process::exit(code)
}

/// A terminal of the container, or else one of the host: its slave three times.
fn own_terminal(
    spec: &ContainerSpec,
    host: (OwnedFd, OwnedFd),
    socket: &OwnedFd,
) -> io::Result<[OwnedFd; 3]> {
    let own = match spec.isolation {
        Isolation::None => None,
        Isolation::Namespaces | Isolation::UserNamespace => {
            terminal::open(Path::new(terminal::OWN)).ok()
        }
    };
    let (master, slave) = own.unwrap_or(host);
    // The user may open it by its name. In a user namespace it is the only user there is.
    if spec.user.is_some() {
        let user = spec.user.map(rustix::process::Uid::from_raw);
        let _ = rustix::fs::fchown(&slave, user, None);
    }
    terminal::send(socket, &master)?;
    Ok([slave.try_clone()?, slave.try_clone()?, slave])
}

/// Forwards signals and collects orphans until the program ends; returns its exit code.
pub(super) fn watch(program: Pid) -> i32 {
    loop {
        match sys::next_signal() {
            libc::SIGCHLD => {
                while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
                    if pid == program {
                        return code(status);
                    }
                }
            }
            signal => sys::kill(program, signal),
        }
    }
}

/// Becomes the program; returns only what went wrong.
fn exec(spec: &ContainerSpec, stdio: [OwnedFd; 3]) -> String {
    let [input, output, errors] = stdio;
    let result = rustix::stdio::dup2_stdin(&input)
        .and_then(|()| rustix::stdio::dup2_stdout(&output))
        .and_then(|()| rustix::stdio::dup2_stderr(&errors));
    if let Err(error) = result {
        return format!("standard streams: {error}");
    }
    drop((input, output, errors));
    become_program(spec, &spec.args, spec.tty)
}

/// The last steps, the same for a container's program and for later ones.
pub(super) fn become_program(spec: &ContainerSpec, args: &[String], tty: bool) -> String {
    let _ = rustix::process::setsid();
    if tty {
        let _ = rustix::process::ioctl_tiocsctty(rustix::stdio::stdin());
    }
    let Some((program, rest)) = args.split_first() else {
        return "no command specified".into();
    };
    let cwd = spec.cwd.as_deref().unwrap_or("/");
    if let Err(error) = std::env::set_current_dir(cwd) {
        return format!("chdir to cwd ({cwd:?}) set in config.json failed: {error}");
    }
    if !spec.privileged && spec.isolation == Isolation::Namespaces {
        sys::drop_capabilities();
    }
    if spec.isolation != Isolation::UserNamespace
        && let Err(error) = sys::become_user(spec.user, spec.group, &spec.groups)
    {
        return format!("user {:?}, group {:?}: {error}", spec.user, spec.group);
    }
    let env = spec
        .env
        .iter()
        .filter_map(|variable| variable.split_once('='));
    sys::reset_signals();
    // Command::exec looks the program up in the PATH of this environment.
    let error = Command::new(program)
        .args(rest)
        .env_clear()
        .envs(env)
        .exec();
    match error.kind() {
        std::io::ErrorKind::NotFound if !program.contains('/') => {
            format!("exec: {program:?}: executable file not found in $PATH")
        }
        _ => format!("exec: {program:?}: {error}"),
    }
}
