//! Finding out what this machine permits.

use std::fmt::Display;
use std::fs::File;
use std::path::Path;

use rustix::process::WaitOptions;

use super::create::{self, CreateError};
use super::program::Role;
use super::report::{self, ReportError};
use super::spec::{ContainerSpec, Isolation, Limits};
use super::stage;
use super::sys::{self, Fork, PipeError};
use crate::error::{AtPath as _, PathError};

/// More memory than the trial needs.
const MEMORY: i64 = 1 << 30;

/// Why a kind of container, or layers of images, do not work on this machine.
#[derive(Debug, thiserror::Error)]
enum ProbeError {
    /// A directory for the trial cannot be created.
    #[error(transparent)]
    Directory(#[from] PathError),
    /// The child process has no pipe to report through.
    #[error(transparent)]
    Pipe(#[from] PipeError),
    /// There is no child process.
    #[error("clone: {0}")]
    Clone(#[source] std::io::Error),
    /// The trial itself failed.
    #[error(transparent)]
    Report(#[from] ReportError),
}

/// Tries containers in `directory`, the best kind first; prints which work as JSON, with the reasons why better ones do
/// not.
pub(super) fn run(directory: &Path) -> i32 {
    let mut reasons = Vec::new();
    let candidates: &[(Isolation, bool)] = if rustix::process::geteuid().is_root() {
        &[
            (Isolation::Namespaces, true),
            (Isolation::Namespaces, false),
            (Isolation::UserNamespace, false),
        ]
    } else {
        &[(Isolation::UserNamespace, false)]
    };
    for (number, (isolation, cgroups)) in candidates.iter().enumerate() {
        let directory = directory.join(number.to_string());
        match attempt(&directory, *isolation, *cgroups) {
            Ok(()) => {
                let overlay = layers(&directory, *isolation);
                let overlay = overlay
                    .map_err(|error| reasons.push(error.to_string()))
                    .is_ok();
                return print(*isolation, (*cgroups, overlay), &reasons);
            }
            Err(error) => reasons.push(error.to_string()),
        }
    }
    print(Isolation::None, (false, false), &reasons)
}

fn print(isolation: Isolation, (cgroups, overlay): (bool, bool), reasons: &[String]) -> i32 {
    println!(
        "{}",
        serde_json::json!({"isolation": isolation, "cgroups": cgroups, "overlay": overlay, "reasons": reasons})
    );
    0
}

/// Whether layers of images can be laid over each other.
fn layers(directory: &Path, isolation: Isolation) -> Result<(), ProbeError> {
    let directory = directory.join("overlay");
    std::fs::create_dir_all(&directory).at(&directory)?;
    let spec = ContainerSpec {
        isolation,
        ..ContainerSpec::default()
    };
    apart(|| stage::enter(&spec).and_then(|()| stage::try_layers(&spec, &directory)))
}

/// A whole container, except for its program.
fn attempt(directory: &Path, isolation: Isolation, cgroups: bool) -> Result<(), ProbeError> {
    std::fs::create_dir_all(directory).at(directory)?;
    // In the second version of cgroups, an agent may be given a part of the hierarchy that has not all controllers: containers
    // with limits would not start there.
    let limits = Limits {
        cpu_shares: cgroups.then_some(1024),
        memory: cgroups.then_some(MEMORY),
        ..Limits::default()
    };
    let spec = ContainerSpec {
        limits,
        id: format!("probe-{}", std::process::id()),
        args: vec!["true".into()],
        hostname: "probe".into(),
        isolation,
        cgroups,
        ..ContainerSpec::default()
    };
    let null = || File::open("/dev/null").map(Into::into);
    let stdio = || Ok::<_, std::io::Error>([null()?, null()?, null()?]);
    apart(|| {
        let stdio = stdio().at(Path::new("/dev/null"))?;
        let made = create::create(&spec, directory, Some(stdio), Role::Probe)?;
        let _ = rustix::process::waitpid(Some(made.pid), WaitOptions::empty());
        made.clean_up(&spec);
        Ok::<(), CreateError>(())
    })
}

/// Runs `work` in a child process: namespaces cannot be left again.
fn apart<E: Display>(work: impl FnOnce() -> Result<(), E>) -> Result<(), ProbeError> {
    let (failure, failing) = sys::pipe()?;
    let pid = match sys::fork(0).map_err(ProbeError::Clone)? {
        Fork::Child => {
            drop(failure);
            if let Err(problem) = work() {
                report::send(failing, &problem);
            }
            std::process::exit(0)
        }
        Fork::Parent(pid) => pid,
    };
    drop(failing);
    let reported = report::wait(failure);
    let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
    Ok(reported?)
}
