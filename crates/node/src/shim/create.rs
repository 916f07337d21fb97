//! Containers by libcontainer.

use std::error::Error;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use libcontainer::container::Container;
use libcontainer::container::builder::ContainerBuilder;
use libcontainer::error::LibcontainerError;
use libcontainer::process::container_main_process::ProcessError;
use libcontainer::syscall::syscall::SyscallType;
use oci_spec::runtime::Spec;
use rustix::process::Pid;

use super::program::{ConfineError, Program, Role};
use super::report::{self, ReportError};
use super::said::Said;
use super::spec::staged::{Account, Hierarchy, Staged};
use super::spec::{self, ContainerSpec, Isolation};
use super::stage::{self, StageError};
use super::sys::{self, PipeError};
use super::{devices, terminal};
use crate::error::{AtPath as _, PathError};
use crate::{oci, processes, rdt};

/// Name of the container in the directory that is its own.
pub(super) const NAME: &str = "c";

/// Why there is no container, or no further program in one.
#[derive(Debug, thiserror::Error)]
pub(super) enum CreateError {
    /// Its files, mounts or account cannot be prepared.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// Its settings have no OCI specification.
    #[error(transparent)]
    Oci(#[from] oci::Error),
    /// A file for libcontainer cannot be written.
    #[error(transparent)]
    File(#[from] PathError),
    /// A pipe cannot be created.
    #[error(transparent)]
    Pipe(#[from] PipeError),
    /// Its program cannot be confined.
    #[error(transparent)]
    Confine(#[from] ConfineError),
    /// libcontainer failed.
    #[error("{}", chain(.0))]
    Library(#[from] LibcontainerError),
    /// libcontainer ran a hook, which printed this and failed.
    #[error("{}: {said}", chain(&**.error))]
    Hook {
        error: Box<LibcontainerError>,
        said: String,
    },
    /// It has no terminal.
    #[error("terminal: {0}")]
    Terminal(#[source] std::io::Error),
    /// libcontainer reports no process of the container.
    #[error("the container has no process")]
    NoContainerProcess,
    /// libcontainer reports no process of the further program.
    #[error("the program has no process")]
    NoProgramProcess,
    /// Its process did not become the program.
    #[error(transparent)]
    Report(#[from] ReportError),
}

/// A container that runs.
pub(super) struct RunningContainer {
    pub(super) pid: Pid,
    pub(super) account: Account,
    /// The other side of its terminal, if it has one.
    pub(super) terminal: Option<OwnedFd>,
    container: Container,
}

/// Directory of libcontainer's state.
pub(super) fn state(directory: &Path) -> PathBuf {
    directory.join("oci")
}

/// Directory with the specification for libcontainer.
pub(super) fn bundle(directory: &Path) -> PathBuf {
    directory.join("bundle")
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// Creates the container of a directory and starts its program with standard streams, or with a terminal without them.
/// Afterwards the process has left the host's mount namespace.
///
/// # Errors
/// Why there is no container.
pub(super) fn create(
    spec: &ContainerSpec,
    directory: &Path,
    stdio: Option<[OwnedFd; 3]>,
    role: Role,
) -> Result<RunningContainer, CreateError> {
    let made = attempt(spec, directory, stdio, role);
    if made.is_err() {
        if spec.cgroups {
            oci::cgroup::remove_with_pod(&oci::cgroups_path(spec));
        }
        forget_rdt(spec);
    }
    made
}

fn attempt(
    spec: &ContainerSpec,
    directory: &Path,
    stdio: Option<[OwnedFd; 3]>,
    role: Role,
) -> Result<RunningContainer, CreateError> {
    stage::enter(spec)?;
    let staged = stage::prepare(spec, directory)?;
    let account = stage::account(spec, &staged.root)?;
    stage::working_directory(spec, &staged);
    let oci = oci::build(spec, &staged, &account)?;
    let bundle = bundle(directory);
    std::fs::create_dir_all(&bundle).at(&bundle)?;
    rdt::prepare(spec)?;
    spec::write(&bundle.join("config.json"), &oci)?;

    let said = Said::from_here();
    let (failure, failing) = sys::pipe()?;
    let program = Program::new(spec, &bundle, role, spec.tty, failing.as_raw_fd())?;
    let console = spec.tty.then(|| console(directory)).transpose()?;
    let mut builder = ContainerBuilder::new(NAME.to_owned(), SyscallType::default())
        .with_executor(program)
        .with_root_path(state(directory))?;
    if let Some((_, path)) = &console {
        builder = builder.with_console_socket(Some(path));
    }
    if let Some([input, output, errors]) = stdio {
        builder = builder
            .with_stdin(input)
            .with_stdout(output)
            .with_stderr(errors);
    }
    let built = builder
        .as_init(&bundle)
        .with_systemd(false)
        .with_detach(true)
        .build();
    let started = match built {
        Err(error) => Err(CreateError::from(error)),
        // No code of the image has run yet.
        Ok(mut container) => {
            limit_devices(spec, &staged, &oci);
            let limited = match staged.cgroups {
                Hierarchy::V2 => oci::pids::limit_all_containers(Hierarchy::V2)
                    .and_then(|()| oci::pod::begin(spec, Hierarchy::V2)),
                Hierarchy::V1 | Hierarchy::None => Ok(()),
            };
            let started = limited.map_err(CreateError::from);
            let started = started.and_then(|()| Ok(container.start()?));
            started.map(|()| container)
        }
    };
    drop(failing);
    let container = started.map_err(|error| with_reason(error, &said))?;
    let reported = report::wait(failure);
    // libcontainer has made this process non-dumpable; other processes of its user must be able to open its namespaces.
    sys::set_dumpable();
    let pid = container
        .pid()
        .and_then(|pid| Pid::from_raw(pid.as_raw()))
        .ok_or(CreateError::NoContainerProcess)?;
    let user = rustix::process::Uid::from_raw(account.user);
    let made = RunningContainer {
        pid,
        account,
        terminal: None,
        container,
    };
    if let Err(problem) = reported {
        let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
        made.clean_up(spec);
        return Err(problem.into());
    }
    let terminal = match console {
        Some((listener, path)) => {
            let master = listener
                .accept()
                .and_then(|(stream, _)| terminal::receive(&stream.into()));
            let _ = std::fs::remove_file(path);
            let master = master.map_err(CreateError::Terminal)?;
            // The user may open it by its name.
            if let Ok(slave) = terminal::slave(&master) {
                let _ = rustix::fs::fchown(&slave, Some(user), None);
            }
            Some(master)
        }
        None => None,
    };
    Ok(RunningContainer { terminal, ..made })
}

/// Adds the output of a hook that failed: libcontainer's error has its exit code only.
fn with_reason(error: CreateError, said: &Said) -> CreateError {
    match error {
        CreateError::Library(error) if is_of_hook(&error) => match said.last() {
            said if said.is_empty() => CreateError::Library(error),
            said => CreateError::Hook {
                error: Box::new(error),
                said,
            },
        },
        other => other,
    }
}

fn is_of_hook(error: &LibcontainerError) -> bool {
    match error {
        LibcontainerError::Hook(_) | LibcontainerError::MainProcess(ProcessError::Hooks(_)) => true,
        // The same inside of an error that does not show its cause, and those of hooks in the namespaces of the container, whose
        // process tells its error as text.
        LibcontainerError::CreateContainerError(_)
        | LibcontainerError::MainProcess(ProcessError::Channel(_)) => {
            let text = chain(error);
            ["failed hooks", "failed to run hooks"]
                .iter()
                .any(|it| text.contains(it))
        }
        _ => false,
    }
}

impl RunningContainer {
    /// Whether the kernel killed one of its processes because of its memory limit.
    pub(super) fn oom_killed(&self, spec: &ContainerSpec) -> bool {
        spec.cgroups && oci::cgroup::oom_kills(&oci::cgroups_path(spec)) > 0
    }

    /// Removes libcontainer's state outside of this process's mounts, and runs the poststop hooks.
    pub(super) fn clean_up(mut self, spec: &ContainerSpec) {
        end_others(spec);
        if spec.cgroups {
            // Also what its processes have made below: libcontainer would fail, and not run the hooks.
            oci::cgroup::remove_with_pod(&oci::cgroups_path(spec));
        } else {
            stage::forget_cgroups(spec);
        }
        if let Err(error) = self.container.delete(true) {
            eprintln!("clean up: {}", chain(&error));
        }
        forget_rdt(spec);
    }
}

fn forget_rdt(spec: &ContainerSpec) {
    if spec.intel_rdt.is_some()
        && let Err(error) = rdt::remove(Path::new(&spec.id))
    {
        eprintln!("clean up: {error}");
    }
}

/// Kills what remains when the program of a container has ended: without its own PID namespace that can be any process.
pub(super) fn end_others(spec: &ContainerSpec) {
    if spec.cgroups {
        oci::cgroup::kill(&oci::cgroups_path(spec));
    }
    let shared = spec.security.host_pid || spec.isolation == Isolation::None;
    if shared && !processes::kill_descendants() {
        eprintln!("processes of the container do not end");
    }
}

/// Enforces the device rules that libcontainer does not handle.
fn limit_devices(spec: &ContainerSpec, staged: &Staged, oci: &Spec) {
    if staged.cgroups != Hierarchy::V2 || spec.security.privileged {
        return;
    }
    let resources = oci.linux().as_ref().and_then(|it| it.resources().as_ref());
    let rules = resources.and_then(|resources| resources.devices().clone());
    let path = oci::cgroups_path(spec);
    let path = Path::new("/sys/fs/cgroup").join(path.strip_prefix("/").unwrap_or(&path));
    if let Err(problem) = devices::enforce(&rules.unwrap_or_default(), &path) {
        // The device nodes do not exist either; a kernel without such programs has one layer of protection less.
        eprintln!("{problem}");
    }
}

/// A socket for the terminal, addressed through its directory: paths of containers are longer than a socket path may
/// be.
fn console(directory: &Path) -> Result<(UnixListener, PathBuf), CreateError> {
    let path = directory.join("console.sock");
    let open = File::open(directory).and_then(|directory| {
        let name = format!("/proc/self/fd/{}/console.sock", directory.as_raw_fd());
        UnixListener::bind(name)
    });
    open.map(|listener| (listener, path))
        .map_err(CreateError::Terminal)
}
