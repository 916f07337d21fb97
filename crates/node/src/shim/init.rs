//! The process that runs a container's program: the init of a container, or a plain process without isolation.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, WaitOptions};

use super::program;
use super::spec::ContainerSpec;
use super::supervise::code;
use super::sys::{self, Fork};
use crate::oci::{pids, seccomp};

/// Runs a program without any isolation, as a child of this process. `failing` receives the text of an error; a
/// successful exec closes it.
pub(super) fn plain(spec: &ContainerSpec, stdio: [OwnedFd; 3], failing: OwnedFd) -> ! {
    sys::die_with_parent();
    let mut failing = File::from(failing);
    sys::block_signals();
    let program = match sys::fork(0) {
        Ok(Fork::Parent(pid)) => pid,
        Ok(Fork::Child) => {
            sys::die_with_parent();
            let problem = start(spec, stdio);
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
fn start(spec: &ContainerSpec, stdio: [OwnedFd; 3]) -> String {
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

/// The last steps without isolation, the same for a container's program and for later ones.
pub(super) fn become_program(spec: &ContainerSpec, args: &[String], tty: bool) -> String {
    let _ = rustix::process::setsid();
    if tty {
        let _ = rustix::process::ioctl_tiocsctty(rustix::stdio::stdin());
    }
    let cwd = spec.cwd.as_deref().unwrap_or("/");
    if let Err(error) = std::env::set_current_dir(cwd) {
        return format!("chdir to cwd ({cwd:?}) set in config.json failed: {error}");
    }
    let security = &spec.security;
    if let Err(error) = sys::become_user(security.user, security.group, &security.groups) {
        return format!("user {:?}: {error}", security.user);
    }
    // All of the user's processes are counted, not those of the container alone.
    pids::limit_the_user();
    if security.no_new_privileges || security.no_keyrings {
        sys::no_new_privileges();
    }
    if security.no_keyrings {
        // Without privileges a filter can only be installed by a process that cannot get any.
        let filter = seccomp::without_keyrings();
        let install = |filter| sys::install(&filter).map_err(|error| error.to_string());
        if let Err(problem) = filter.and_then(install) {
            return format!("filter of keyrings: {problem}");
        }
    }
    program::exec(args, &spec.env)
}
