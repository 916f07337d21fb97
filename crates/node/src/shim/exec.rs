//! A further program in a running container.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::process::Pid;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::spec::{self, ContainerSpec, ExecSpec, Isolation, State};
use super::sys::{self, Fork};
use super::{create, init};
use crate::oci;

/// Exit code for a program that could not be started, as in shells.
const NOT_STARTED: i32 = 126;

/// Runs the program with the standard streams of this process; returns its exit code.
pub(super) fn run(file: &Path) -> i32 {
    match start(file) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            if error.contains("not found") || error.contains("no such file") {
                127
            } else {
                NOT_STARTED
            }
        }
    }
}

fn start(file: &Path) -> Result<i32, String> {
    let exec: ExecSpec = spec::read(file)?;
    let _ = std::fs::remove_file(file);
    let mut spec: ContainerSpec = spec::read(&exec.directory.join(spec::SPEC))?;
    let state: State = spec::read(&exec.directory.join(spec::STATE))?;
    let gone = || spec::start_time(state.pid) != Some(state.pid_start);
    if gone() {
        return Err("container not running".into());
    }
    spec.security.no_keyrings = !sys::leave_keyring();
    oci::pids::decide(&mut spec);
    // Before there is a child: it may end at once.
    sys::block_signals();
    let program = if spec.isolation == Isolation::None {
        plain(&spec, &exec)?
    } else {
        // The container was created in the shim's namespaces: its root directory and cgroups are
        // only visible there.
        join(spec.isolation, state.shim)?;
        create::further(&spec, &exec.directory, &exec.args, exec.tty)?
    };
    Ok(init::watch(program))
}

fn plain(spec: &ContainerSpec, exec: &ExecSpec) -> Result<Pid, String> {
    match sys::fork(0).map_err(|error| format!("fork: {error}"))? {
        Fork::Parent(program) => Ok(program),
        Fork::Child => {
            sys::die_with_parent();
            let problem = init::become_program(spec, &exec.args, exec.tty);
            eprintln!("{problem}");
            std::process::exit(if problem.contains("not found") {
                127
            } else {
                NOT_STARTED
            })
        }
    }
}

/// Enters the namespaces of the container's helper.
fn join(isolation: Isolation, helper: i32) -> Result<(), String> {
    use LinkNameSpaceType as Kind;
    let mut kinds = vec![];
    if isolation == Isolation::UserNamespace {
        // First: it gives the right to enter the other.
        kinds.push(("user", Kind::User));
    }
    kinds.push(("mnt", Kind::Mount));
    // All are opened before the first is entered.
    let mut files = Vec::new();
    for (name, kind) in kinds {
        let path = format!("/proc/{helper}/ns/{name}");
        files.push((
            File::open(&path).map_err(|error| format!("{path}: {error}"))?,
            kind,
            path,
        ));
    }
    for (file, kind, path) in files {
        move_into_link_name_space(file.as_fd(), Some(kind))
            .map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(())
}
