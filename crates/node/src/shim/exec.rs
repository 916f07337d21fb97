//! A further program in a running container.

use std::fs::File;
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::os::fd::AsFd;

use super::init;
use super::spec::{self, ContainerSpec, ExecSpec, Isolation, State};
use super::sys::{self, Fork};

/// Exit code for a program that could not be started, as in shells.
const NOT_STARTED: i32 = 126;

/// Runs the program with the standard streams of this process; returns its exit code.
pub(super) fn run(file: &Path) -> i32 {
    match start(file) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            NOT_STARTED
        }
    }
}

fn start(file: &Path) -> Result<i32, String> {
    let exec: ExecSpec = spec::read(file)?;
    let _ = std::fs::remove_file(file);
    let spec: ContainerSpec = spec::read(&exec.directory.join(spec::SPEC))?;
    let state: State = spec::read(&exec.directory.join(spec::STATE))?;
    if spec::start_time(state.pid) != Some(state.pid_start) {
        return Err("container not running".into());
    }
    enter(spec.isolation, state.pid)?;
    sys::block_signals();
    match sys::fork(0).map_err(|error| format!("fork: {error}"))? {
        Fork::Parent(program) => Ok(init::watch(program)),
        Fork::Child => {
            sys::die_with_parent();
            let problem = init::become_program(&spec, &exec.args, exec.tty);
            eprintln!("{problem}");
            std::process::exit(if problem.contains("not found") {
                127
            } else {
                NOT_STARTED
            })
        }
    }
}

fn enter(isolation: Isolation, pid: i32) -> Result<(), String> {
    use LinkNameSpaceType as Kind;
    let mut kinds = vec![];
    match isolation {
        Isolation::None => return Ok(()),
        // The user namespace first: it gives the right to enter the others.
        Isolation::UserNamespace => kinds.push(("user", Kind::User)),
        Isolation::Namespaces => {}
    }
    kinds.extend([
        ("ipc", Kind::InterProcessCommunication),
        ("uts", Kind::HostNameAndNISDomainName),
    ]);
    kinds.extend([("pid", Kind::ProcessID), ("mnt", Kind::Mount)]);
    // All are opened before the first is entered: /proc is another one afterwards.
    let mut files = Vec::new();
    for (name, kind) in kinds {
        let path = format!("/proc/{pid}/ns/{name}");
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
