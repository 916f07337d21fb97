//! The process that runs a container's program: the init of a container, or a plain process without isolation.

use std::os::fd::OwnedFd;

use rustix::process::{Pid, WaitOptions};

use super::program::{self, ExecError};
use super::report;
use super::spec::ContainerSpec;
use super::supervise::code;
use super::sys::{self, Fork};
use crate::oci::{UMASK, pids, seccomp};

/// Why a process does not become a program without isolation.
#[derive(Debug, thiserror::Error)]
pub(super) enum BecomeError {
    /// Its standard streams cannot be set.
    #[error("standard streams: {0}")]
    Streams(#[from] rustix::io::Errno),
    /// There is no such working directory.
    #[error("chdir to cwd ({cwd:?}) set in config.json failed: {source}")]
    WorkingDirectory { cwd: String, source: std::io::Error },
    /// It may not run as the user.
    #[error("user {user:?}: {source}")]
    User {
        user: Option<u32>,
        source: std::io::Error,
    },
    /// The filter that keeps it from keyrings cannot be compiled or installed.
    #[error("filter of keyrings: {0}")]
    KeyringFilter(String),
    /// It cannot be executed.
    #[error(transparent)]
    Exec(#[from] ExecError),
}

/// Runs a program without any isolation, as a child of this process. `failing` receives the text of an error; a
/// successful exec closes it.
pub(super) fn plain(spec: &ContainerSpec, stdio: [OwnedFd; 3], failing: OwnedFd) -> ! {
    sys::die_with_parent();
    sys::block_signals();
    let program = match sys::fork(0) {
        Ok(Fork::Parent(pid)) => pid,
        Ok(Fork::Child) => {
            sys::die_with_parent();
            report::send(failing, &start(spec, stdio));
            std::process::exit(127)
        }
        Err(error) => {
            report::send(failing, &format_args!("fork: {error}"));
            std::process::exit(1)
        }
    };
    drop((failing, stdio));
    let code = watch(program);
    // Without a PID namespace the rest of the process group would remain.
    let _ = rustix::process::kill_process_group(program, rustix::process::Signal::KILL);
    std::process::exit(code)
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
fn start(spec: &ContainerSpec, stdio: [OwnedFd; 3]) -> BecomeError {
    let [input, output, errors] = stdio;
    let result = rustix::stdio::dup2_stdin(&input)
        .and_then(|()| rustix::stdio::dup2_stdout(&output))
        .and_then(|()| rustix::stdio::dup2_stderr(&errors));
    if let Err(error) = result {
        return error.into();
    }
    drop((input, output, errors));
    become_program(spec, &spec.args, spec.tty)
}

/// The last steps without isolation, the same for a container's program and for later ones.
pub(super) fn become_program(spec: &ContainerSpec, args: &[String], tty: bool) -> BecomeError {
    let _ = rustix::process::setsid();
    if tty {
        let _ = rustix::process::ioctl_tiocsctty(rustix::stdio::stdin());
    }
    let cwd = spec.cwd.as_deref().unwrap_or("/");
    if let Err(source) = std::env::set_current_dir(cwd) {
        let cwd = cwd.to_owned();
        return BecomeError::WorkingDirectory { cwd, source };
    }
    let security = &spec.security;
    if let Err(source) = sys::become_user(security.user, security.group, &security.groups) {
        let user = security.user;
        return BecomeError::User { user, source };
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(UMASK));
    // All of the user's processes are counted, not those of the container alone.
    pids::limit_user();
    if security.no_new_privileges || security.no_keyrings {
        sys::no_new_privileges();
    }
    if security.no_keyrings {
        // Without privileges a filter can only be installed by a process that cannot get any.
        let filter = match seccomp::without_keyrings() {
            Ok(filter) => filter,
            Err(problem) => return BecomeError::KeyringFilter(problem),
        };
        if let Err(problem) = sys::install(&filter) {
            return BecomeError::KeyringFilter(problem.to_string());
        }
    }
    program::exec(args, &spec.env).into()
}
