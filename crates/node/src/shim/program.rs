//! The last steps inside of a container, which libcontainer leaves to its caller: from the finished container to the
//! program.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::str::FromStr;

use caps::{CapSet, Capability, CapsHashSet};
use libcontainer::workload::{
    Executor, ExecutorError, ExecutorSetEnvsError, ExecutorValidationError,
};
use oci_spec::runtime::Spec;
use seccompiler::BpfProgram;

use super::spec::{ContainerSpec, Isolation, Seccomp};
use super::sys::{self, Fork};
use super::{further, init, report, start_hooks};
use crate::error::{AtPath as _, PathError};
use crate::oci::{is_proc, seccomp};

/// A file of the kernel for the label of the next program: that of SELinux, and in kernels before 5.8 also that of AppArmor.
pub(super) const NEXT_LABEL: &str = "/proc/self/attr/exec";

/// Why a process of a container cannot be confined as its pod demands.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConfineError {
    /// The seccomp profile cannot be compiled.
    #[error("{0}")]
    Profile(String),
    /// The kernel refuses a filter.
    #[error("seccomp: {0}")]
    Filter(#[source] std::io::Error),
    /// A capability cannot be given up.
    #[error("capabilities: {0}")]
    Capabilities(#[from] caps::errors::CapsError),
    /// The path of the label of a security module leads to a file of a volume.
    #[error("{0}: not the kernel's")]
    NotTheKernels(&'static str),
    /// The label cannot be written.
    #[error(transparent)]
    Label(#[from] PathError),
}

/// Why a program cannot be executed; the texts are runc's.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExecError {
    /// There are no arguments.
    #[error("no command specified")]
    NoCommand,
    /// The kernel refuses.
    #[error("exec: {program:?}: {source}")]
    Refused {
        program: String,
        source: std::io::Error,
    },
    /// There is nothing at the path.
    #[error("exec: {0:?}: stat {0}: no such file or directory")]
    NoFile(String),
    /// No directory of the PATH has it.
    #[error("exec: {0:?}: executable file not found in $PATH")]
    NotInPath(String),
}

/// What the process that libcontainer created becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The init of the container, with the program as its child.
    Init,
    /// A further program.
    Further(further::Entering),
    /// It ends at once. To probe whether containers work here.
    Probe,
}

/// The last steps of one container or of a further program in it.
#[derive(Clone)]
pub(super) struct Program {
    pub(super) spec: Rc<ContainerSpec>,
    /// Hooks are given this directory.
    bundle: PathBuf,
    /// A terminal instead of pipes.
    tty: bool,
    role: Role,
    /// For the text of what went wrong; closed by a successful exec.
    pub(super) failing: RawFd,
    filters: Rc<Vec<BpfProgram>>,
}

impl Program {
    /// `failing` is a descriptor that this process keeps open until libcontainer has created the other one.
    ///
    /// # Errors
    /// The seccomp profile cannot be used.
    pub(super) fn new(
        spec: &ContainerSpec,
        bundle: &Path,
        role: Role,
        tty: bool,
        failing: RawFd,
    ) -> Result<Self, ConfineError> {
        let filters = seccomp::compile(&spec.security).map_err(ConfineError::Profile)?;
        Ok(Self {
            filters: Rc::new(filters),
            spec: Rc::new(spec.clone()),
            bundle: bundle.to_owned(),
            tty,
            role,
            failing,
        })
    }

    /// Writes down what went wrong and ends.
    pub(super) fn fail(&self, problem: &impl std::fmt::Display, code: i32) -> ! {
        report::send(sys::own(self.failing), problem);
        std::process::exit(code)
    }

    fn init(&self, spec: &Spec) -> ! {
        // No descriptor of the shim stays open: PID 1 is an ordinary process of the container.
        sys::close_others(self.failing);
        if self.spec.isolation == Isolation::UserNamespace {
            // Namespaces of a process that cannot be dumped can only be entered by the host's root.
            sys::set_dumpable();
        }
        if let Some(score) = self.spec.limits.oom_score_adj {
            // To be killed later than others takes a privilege that not every root has.
            let _ = std::fs::write("/proc/self/oom_score_adj", score.to_string());
        }
        let early = self.spec.security.seccomp == Seccomp::RuntimeDefault;
        if early && let Err(problem) = self.confine() {
            self.fail(&problem, 1);
        }
        sys::block_signals();
        // The program starts when this end is closed.
        let (waiting, holding) = match sys::pipe() {
            Ok(ends) => ends,
            Err(problem) => self.fail(&problem, 1),
        };
        match sys::fork(0) {
            Ok(Fork::Parent(program)) => {
                if !early && let Err(problem) = self.give_up() {
                    self.fail(&problem, 1);
                }
                drop((waiting, holding));
                drop(sys::own(self.failing));
                std::process::exit(init::watch(program))
            }
            Ok(Fork::Child) => {
                sys::die_with_parent();
                drop(holding);
                let _ = File::from(waiting).read_to_end(&mut Vec::new());
                if self.tty {
                    // In the session of the terminal, and in front of it.
                    let _ = rustix::process::setpgid(None, None);
                    if let Ok(group) = rustix::process::getpgid(None) {
                        let _ = rustix::termios::tcsetpgrp(rustix::stdio::stdin(), group);
                    }
                } else {
                    let _ = rustix::process::setsid();
                }
                if !early && let Err(problem) = self.confine() {
                    self.fail(&problem, 127);
                }
                let variables = spec.process().as_ref().and_then(|it| it.env().as_deref());
                let variables = variables.unwrap_or_default();
                if let Err(problem) = start_hooks::run(&self.spec, &self.bundle, variables) {
                    self.fail(&problem, 127);
                }
                self.fail(&become_program(spec), 127)
            }
            Err(error) => self.fail(&format_args!("fork: {error}"), 1),
        }
    }

    /// Leaves the first process of a container nothing that its program does not have. The filters of the program are not
    /// for it, since they may refuse what it does, and it would keep the privileges that installing them takes: a program that
    /// may trace other processes would have both.
    fn give_up(&self) -> Result<(), ConfineError> {
        if self.filters.is_empty() {
            return Ok(());
        }
        let filter = seccomp::of_the_first().map_err(ConfineError::Profile)?;
        // It passes signals on to programs of other users.
        let mut kept = caps::read(None, CapSet::Permitted)?;
        kept.retain(|it| *it == Capability::CAP_KILL);
        caps::set(None, CapSet::Effective, &kept)?;
        caps::set(None, CapSet::Permitted, &kept)?;
        // It never executes another program. A filter can be installed without privileges then.
        sys::no_new_privileges();
        sys::install(&filter).map_err(ConfineError::Filter)
    }

    /// Installs the filters, and drops the privileges that this needed.
    pub(super) fn confine(&self) -> Result<(), ConfineError> {
        if let Some(label) = self.spec.security.confinement.selinux.as_deref() {
            write_label(NEXT_LABEL, label)?;
        }
        match seccomp::needs_privileges(&self.spec.security) {
            true => self.install_and_drop(),
            false => self.install(),
        }
    }

    fn install(&self) -> Result<(), ConfineError> {
        let mut all = self.filters.iter();
        all.try_for_each(|filter| sys::install(filter).map_err(ConfineError::Filter))
    }

    /// Installs the filters, and drops [`seccomp::PRIVILEGES`] unless the container has them.
    pub(super) fn install_and_drop(&self) -> Result<(), ConfineError> {
        let security = &self.spec.security;
        let kept: CapsHashSet = security
            .capabilities
            .iter()
            .map(|name| Capability::from_str(name))
            .collect::<Result<_, _>>()?;
        for name in seccomp::PRIVILEGES.iter().rev() {
            let capability = Capability::from_str(name)?;
            if !kept.contains(&capability) {
                caps::drop(None, CapSet::Bounding, capability)?;
            }
        }
        // After the calls that a profile may refuse, and before the privileges are gone.
        self.install()?;
        caps::set(None, CapSet::Effective, &kept)?;
        Ok(caps::set(None, CapSet::Permitted, &kept)?)
    }
}

impl Executor for Program {
    /// Called inside of the container, before it may start.
    fn validate(&self, _: &Spec) -> Result<(), ExecutorValidationError> {
        // From here on the helper's end is the container's end. Before, libcontainer notices at its channels.
        sys::die_with_parent();
        Ok(())
    }

    /// The variables are passed to the program; this process needs none.
    fn setup_envs(&self, _: HashMap<String, String>) -> Result<(), ExecutorSetEnvsError> {
        Ok(())
    }

    fn exec(&self, spec: &Spec) -> Result<(), ExecutorError> {
        match self.role {
            Role::Probe => std::process::exit(0),
            Role::Init => self.init(spec),
            Role::Further(entering) => {
                entering.enter(self);
                sys::die_with_parent();
                if self.tty {
                    let _ = rustix::process::ioctl_tiocsctty(rustix::stdio::stdin());
                }
                if let Err(problem) = entering.confine(self) {
                    self.fail(&problem, 127);
                }
                self.fail(&become_program(spec), 127)
            }
        }
    }
}

/// Writes a label for the program that this process executes to a file of the kernel. A link of the image can lead a volume
/// there.
pub(super) fn write_label(file: &'static str, label: &str) -> Result<(), ConfineError> {
    if !is_proc(Path::new(file)) {
        return Err(ConfineError::NotTheKernels(file));
    }
    Ok(std::fs::write(file, label).at(Path::new(file))?)
}

/// Becomes the program of a specification; returns only what went wrong.
fn become_program(spec: &Spec) -> ExecError {
    let process = spec.process().as_ref();
    let args = process.and_then(|it| it.args().clone()).unwrap_or_default();
    let env = process.and_then(|it| it.env().clone()).unwrap_or_default();
    exec(&args, &env)
}

/// Executes a program, which is looked up in the PATH of its environment; returns only on failure, with the error.
pub(super) fn exec(args: &[String], env: &[String]) -> ExecError {
    let Some(program) = args.first() else {
        return ExecError::NoCommand;
    };
    let candidates: Vec<String> = if program.contains('/') {
        vec![program.clone()]
    } else {
        let path = env.iter().rev().find_map(|it| it.strip_prefix("PATH="));
        path.unwrap_or_default()
            .split(':')
            .map(|directory| format!("{directory}/{program}"))
            .collect()
    };
    sys::reset_signals();
    let mut refused = None;
    for candidate in candidates {
        let error = sys::exec(&candidate, args, env);
        match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {}
            _ => refused = Some(error),
        }
    }
    let program = program.clone();
    match refused {
        Some(source) => ExecError::Refused { program, source },
        None if program.contains('/') => ExecError::NoFile(program),
        None => ExecError::NotInPath(program),
    }
}
