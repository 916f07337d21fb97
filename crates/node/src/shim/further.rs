//! Further programs in a container that runs: for exec, probes and hooks.
//!
//! libcontainer would create the process in the PID namespace of the container first, where the container's programs see it, and
//! then take it from the files of the host to those of the container, and its privileges away. A program that may trace others
//! (`SYS_PTRACE`) would meanwhile read the host's files through `/proc/PID/root`, and could take over the process with
//! all of its privileges. So libcontainer does the rest outside of this PID namespace, and the last step is taken here: what
//! enters it has nothing that the program does not have.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use libcontainer::container::builder::ContainerBuilder;
use libcontainer::syscall::syscall::SyscallType;
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, waitid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

use super::create::{self, CreateError, NAME};
use super::program::{ConfineError, NEXT_LABEL, Program, Role, write_label};
use super::spec::{self, ContainerSpec, Seccomp};
use super::sys::{self, Fork};
use super::{report, stage};
use crate::error::{AtPath as _, PathError};
use crate::oci;

/// How a further program gets to the processes of its container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entering {
    /// The PID namespace; `None` if it is that of the host.
    namespace: Option<RawFd>,
    /// Where the number of the process in the namespace is written, as the host has it.
    number: RawFd,
}

/// A file of the kernel for the AppArmor profile of the next program.
const APPARMOR: &str = "/proc/self/attr/apparmor/exec";

impl Entering {
    /// In the process that libcontainer has prepared: enters the PID namespace. Returns in the process in it; the other one ends.
    pub(super) fn enter(self, program: &Program) {
        let Some(namespace) = self.namespace else {
            return sys::close_others(program.failing);
        };
        let (namespace, number) = (sys::own(namespace), sys::own(self.number));
        let kind = Some(LinkNameSpaceType::ProcessID);
        if let Err(error) = move_into_link_name_space(namespace.as_fd(), kind) {
            program.fail(&format_args!("PID namespace: {error}"), 1);
        }
        drop(namespace);
        if confines_early(&program.spec)
            && let Err(problem) = program.install_and_drop()
        {
            program.fail(&problem, 1);
        }
        // A child of the process that waits for it.
        match sys::fork(libc::CLONE_PARENT) {
            Ok(Fork::Parent(pid)) => {
                let bytes = pid.as_raw_nonzero().get().to_ne_bytes();
                // Without a reader, nothing waits for the program.
                let _ = File::from(number).write_all(&bytes);
                std::process::exit(0)
            }
            Ok(Fork::Child) => {
                drop(number);
                sys::close_others(program.failing);
                let _ = rustix::process::setsid();
            }
            Err(error) => program.fail(&format_args!("fork: {error}"), 1),
        }
    }

    /// Confines the process in the PID namespace, as far as it is not confined.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn confine(self, program: &Program) -> Result<(), ConfineError> {
        if self.namespace.is_none() {
            return program.confine();
        }
        let confinement = &program.spec.security.confinement;
        if let Some(label) = confinement.selinux.as_deref() {
            write_label(NEXT_LABEL, label)?;
        }
        if let Some(profile) = confinement.apparmor.as_deref() {
            let text = format!("exec {profile}");
            write_label(APPARMOR, &text).or_else(|_| write_label(NEXT_LABEL, &text))?;
        }
        match confines_early(&program.spec) {
            true => Ok(()),
            false => program.install_and_drop(),
        }
    }
}

/// Whether the filter can be installed before the process forks for the last time. A profile of a file may refuse that.
fn confines_early(spec: &ContainerSpec) -> bool {
    !matches!(spec.security.seccomp, Seccomp::Profile(_))
}

/// Starts a further program in the container of a directory with the standard streams of this process, which has
/// entered the helper's namespaces. `processes` is the container's PID namespace, unless it has that of the host. Returns the
/// process.
///
/// # Errors
/// Why it could not be started.
pub(super) fn start(
    spec: &ContainerSpec,
    directory: &Path,
    processes: Option<&File>,
    args: &[String],
    tty: bool,
) -> Result<Pid, CreateError> {
    let root = directory.join("stage").join("root");
    let account = stage::account(spec, &root)?;
    let process = oci::further_process(spec, &account, args, processes.is_some())?;
    let description = Description::make(directory, processes.is_some())?;
    let file = description.0.join("process.json");
    spec::write(&file, &process)?;
    let (failure, failing) = sys::pipe()?;
    let (number, numbering) = sys::pipe()?;
    let entering = Entering {
        namespace: processes.map(|it| it.as_raw_fd()),
        number: numbering.as_raw_fd(),
    };
    let bundle = create::bundle(directory);
    let role = Role::Further(entering);
    let program = Program::new(spec, &bundle, role, tty, failing.as_raw_fd())?;
    let built = ContainerBuilder::new(NAME.to_owned(), SyscallType::default())
        .with_executor(program)
        .with_root_path(description.0.clone())
        .map(|builder| {
            builder
                .as_tenant()
                .with_process(Some(&file))
                .with_detach(true)
        })
        .and_then(|builder| builder.build());
    drop((description, failing, numbering));
    let first = Pid::from_raw(built?.as_raw()).ok_or(CreateError::NoProgramProcess)?;
    let reported = report::wait(failure);
    let mut pid = Some(first);
    if processes.is_some() {
        let _ = rustix::process::waitpid(pid, WaitOptions::empty());
        pid = child_in(number);
    }
    match (reported, pid) {
        (Ok(()), Some(pid)) => Ok(pid),
        (Ok(()), None) => Err(CreateError::NoProgramProcess),
        (Err(problem), pid) => {
            if pid.is_some() {
                let _ = rustix::process::waitpid(pid, WaitOptions::empty());
            }
            Err(problem.into())
        }
    }
}

/// The process whose number was written to a pipe, if it is a child of this process. The child has the other end of the pipe when it
/// enters the PID namespace: a program of the container that may trace others can write there, and what is returned gets
/// signals.
fn child_in(pipe: OwnedFd) -> Option<Pid> {
    let mut bytes = [0; 4];
    File::from(pipe).read_exact(&mut bytes).ok()?;
    let number = Some(i32::from_ne_bytes(bytes)).filter(|number| *number > 0)?;
    let pid = Pid::from_raw(number)?;
    // A child stays as it is; for other processes this fails.
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(pid), options).is_ok().then_some(pid)
}

/// A directory that describes the container to libcontainer, for one further program. It is removed at the end.
struct Description(PathBuf);

impl Description {
    /// `outside`: without the PID namespace, which libcontainer does not enter then.
    fn make(directory: &Path, outside: bool) -> Result<Self, PathError> {
        let name = format!("further-{}", std::process::id());
        let made = Self(directory.join(name));
        let bundle = made.0.join("bundle");
        // A process of the same number can have been killed.
        let _ = fs::remove_dir_all(&made.0);
        for path in [&made.0.join(NAME), &bundle] {
            fs::create_dir_all(path).at(path)?;
        }
        let state = Path::new(NAME).join("state.json");
        let mut known: Value = spec::read(&create::state(directory).join(&state))?;
        known["bundle"] = bundle.to_string_lossy().into();
        spec::write(&made.0.join(state), &known)?;
        let mut config: Value = spec::read(&create::bundle(directory).join("config.json"))?;
        if outside && let Some(all) = config["linux"]["namespaces"].as_array_mut() {
            all.retain(|namespace| namespace["type"] != "pid");
        }
        spec::write(&bundle.join("config.json"), &config)?;
        Ok(made)
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{}: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// The attack: a container that may trace processes (`SYS_PTRACE`) writes another number to the pipe before the right one is
    /// there. Signals for the program would go to that process of the host, and with -1 to all of them.
    #[test]
    fn regression_the_number_of_a_process_that_is_no_child_is_refused() {
        let read = |number: i32| {
            let (reader, mut writer) = std::io::pipe().unwrap();
            writer.write_all(&number.to_ne_bytes()).unwrap();
            child_in(reader.into())
        };
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let number = child.id().cast_signed();
        let found = read(number).map(|pid| pid.as_raw_nonzero().get());
        assert_eq!(found, Some(number));
        let own = std::process::id().cast_signed();
        for other in [i32::MIN, -number, -1, 0, own] {
            assert_eq!(read(other), None, "{other}");
        }
        // `cat` ends with its input.
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}
