//! A further program in a running container.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::process::Pid;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::create::CreateError;
use super::further;
use super::init::{self, BecomeError};
use super::program::ExecError;
use super::report::ReportError;
use super::spec::{self, ContainerSpec, ExecSpec, Isolation, State};
use super::sys::{self, Fork};
use crate::error::{AtPath as _, PathError};
use crate::oci;

/// Exit code for a program that could not be started, as in shells.
const NOT_STARTED: i32 = 126;
/// Exit code for a program that does not exist.
const NOT_FOUND: i32 = 127;

/// Why a further program was not started.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// A file of the container, or a namespace of its shim.
    #[error(transparent)]
    File(#[from] PathError),
    /// The container's program has ended.
    #[error("container not running")]
    NotRunning,
    /// There is no process for a program without isolation.
    #[error("fork: {0}")]
    Fork(#[source] std::io::Error),
    /// There is no program in the container.
    #[error(transparent)]
    Create(#[from] CreateError),
}

impl Error {
    /// As in shells.
    fn exit_code(&self) -> i32 {
        match self {
            Self::Create(CreateError::Report(ReportError::Child(text)))
                if text.contains("not found") || text.contains("no such file") =>
            {
                NOT_FOUND
            }
            _ => NOT_STARTED,
        }
    }
}

/// Runs the program with the standard streams of this process; returns its exit code.
pub(super) fn run(file: &Path) -> i32 {
    match start(file) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            error.exit_code()
        }
    }
}

fn start(file: &Path) -> Result<i32, Error> {
    let exec: ExecSpec = spec::read(file)?;
    let _ = std::fs::remove_file(file);
    let mut spec: ContainerSpec = spec::read(&exec.directory.join(spec::SPEC))?;
    let state: State = spec::read(&exec.directory.join(spec::STATE))?;
    let gone = || spec::start_time(state.pid) != Some(state.pid_start);
    if gone() {
        return Err(Error::NotRunning);
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
        let processes = match spec.security.host_pid {
            true => None,
            false => {
                let path = PathBuf::from(format!("/proc/{}/ns/pid", state.pid));
                Some(File::open(&path).at(&path)?)
            }
        };
        // It has not been the namespace of another process by now.
        if gone() {
            return Err(Error::NotRunning);
        }
        let processes = processes.as_ref();
        further::start(&spec, &exec.directory, processes, &exec.args, exec.tty)?
    };
    Ok(init::watch(program))
}

fn plain(spec: &ContainerSpec, exec: &ExecSpec) -> Result<Pid, Error> {
    match sys::fork(0).map_err(Error::Fork)? {
        Fork::Parent(program) => Ok(program),
        Fork::Child => {
            sys::die_with_parent();
            let problem = init::become_program(spec, &exec.args, exec.tty);
            eprintln!("{problem}");
            std::process::exit(match problem {
                BecomeError::Exec(ExecError::NotInPath(_)) => NOT_FOUND,
                _ => NOT_STARTED,
            })
        }
    }
}

/// Enters the namespaces of the container's helper.
fn join(isolation: Isolation, helper: i32) -> Result<(), PathError> {
    use LinkNameSpaceType as Kind;
    let mut kinds = vec![];
    if isolation == Isolation::UserNamespace {
        // Entered first, because it gives the capability that the mount namespace requires.
        kinds.push(("user", Kind::User));
    }
    kinds.push(("mnt", Kind::Mount));
    // All are opened before the first is entered.
    let mut files = Vec::new();
    for (name, kind) in kinds {
        let path = PathBuf::from(format!("/proc/{helper}/ns/{name}"));
        files.push((File::open(&path).at(&path)?, kind, path));
    }
    for (file, kind, path) in files {
        move_into_link_name_space(file.as_fd(), Some(kind)).at(&path)?;
    }
    Ok(())
}
