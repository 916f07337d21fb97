//! Finding out what this machine permits.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use rustix::process::WaitOptions;

use super::create;
use super::program::Role;
use super::spec::{ContainerSpec, Isolation};
use super::stage;
use super::sys::{self, Fork};

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
                let overlay = overlay.map_err(|reason| reasons.push(reason)).is_ok();
                return print(*isolation, (*cgroups, overlay), &reasons);
            }
            Err(reason) => reasons.push(reason),
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
fn layers(directory: &Path, isolation: Isolation) -> Result<(), String> {
    let directory = directory.join("overlay");
    std::fs::create_dir_all(&directory)
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    let spec = ContainerSpec {
        isolation,
        ..ContainerSpec::default()
    };
    apart(|| stage::enter(&spec).and_then(|()| stage::try_layers(&spec, &directory)))
}

/// A whole container, except for its program.
fn attempt(directory: &Path, isolation: Isolation, cgroups: bool) -> Result<(), String> {
    std::fs::create_dir_all(directory)
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    let spec = ContainerSpec {
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
        let stdio = stdio().map_err(|error| format!("/dev/null: {error}"))?;
        let made = create::create(&spec, directory, Some(stdio), Role::Probe)?;
        let _ = rustix::process::waitpid(Some(made.pid), WaitOptions::empty());
        made.clean_up(&spec);
        Ok(())
    })
}

/// Runs `work` in a child process: namespaces cannot be left again.
fn apart(work: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let (failure, mut failing) =
        sys::pipe().map(|(read, write)| (File::from(read), File::from(write)))?;
    let pid = match sys::fork(0).map_err(|error| format!("clone: {error}"))? {
        Fork::Child => {
            drop(failure);
            if let Err(problem) = work() {
                let _ = failing.write_all(problem.as_bytes());
            }
            std::process::exit(0)
        }
        Fork::Parent(pid) => pid,
    };
    drop(failing);
    let mut problem = String::new();
    let read = (&failure).read_to_string(&mut problem);
    let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
    read.map_err(|error| error.to_string())?;
    if problem.is_empty() {
        Ok(())
    } else {
        Err(problem)
    }
}
