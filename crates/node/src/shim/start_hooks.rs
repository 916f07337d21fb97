//! Hooks at `startContainer`: programs among the files of the container, which run before its own program.
//!
//! The image provides these programs, too. libcontainer would run them before the filter of system calls is
//! installed, with the privileges that installing it takes, so they are run here, confined as the program itself.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use allot_cdi::Hook;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use serde_json::json;

use super::spec::ContainerSpec;
use super::sys::{self, Fork};
use crate::hooks::{self, START};

/// Why the program is not started.
#[derive(Debug, thiserror::Error)]
#[error("startContainer hook {path:?}: {reason}")]
pub(super) struct HookError {
    path: String,
    reason: Reason,
}

#[derive(Debug, thiserror::Error)]
enum Reason {
    /// There is no process for it, or no pipe.
    #[error(transparent)]
    System(#[from] io::Error),
    /// It cannot be waited for.
    #[error(transparent)]
    Wait(#[from] Errno),
    /// It failed.
    #[error("exit code {0}")]
    Code(i32),
    /// A signal ended it.
    #[error("killed by signal {0}")]
    Killed(i32),
    /// It did not end in time.
    #[error("did not end within {0:?}")]
    Timeout(Duration),
}

/// Runs all of them, one after the other. A hook without variables has those of the program, as with runc.
///
/// # Errors
/// The first one that failed.
pub(super) fn run(
    spec: &ContainerSpec,
    bundle: &Path,
    variables: &[String],
) -> Result<(), HookError> {
    let at_start = spec.hooks.iter().filter(|hook| hook.hook_name == START);
    for hook in at_start {
        one(hook, bundle, variables).map_err(|reason| HookError {
            path: hook.path.clone(),
            reason,
        })?;
    }
    Ok(())
}

fn one(hook: &Hook, bundle: &Path, variables: &[String]) -> Result<(), Reason> {
    let state = json!({
        "ociVersion": "1.2.0",
        "id": super::create::NAME,
        "status": "created",
        "pid": std::process::id(),
        "bundle": bundle.to_string_lossy(),
    });
    // It fits into a pipe: a hook that reads nothing delays nothing.
    let (input, mut writer) = io::pipe()?;
    writer.write_all(state.to_string().as_bytes())?;
    drop(writer);
    let process = match sys::fork(0)? {
        Fork::Parent(process) => process,
        Fork::Child => become_hook(hook, &input, variables),
    };
    drop(input);
    let limit = Duration::from_secs(hooks::timeout(hook).unsigned_abs());
    let status = wait(process, limit)?;
    match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => Err(Reason::Code(code)),
        (None, signal) => Err(Reason::Killed(signal.unwrap_or_default())),
    }
}

/// Its output goes where its errors go: it is no output of the program.
fn become_hook(hook: &Hook, input: &io::PipeReader, variables: &[String]) -> ! {
    let streams = rustix::stdio::dup2_stdin(input)
        .and_then(|()| rustix::stdio::dup2_stdout(rustix::stdio::stderr()));
    let error = match streams {
        Ok(()) => {
            let zeroth = [hook.path.clone()];
            let arguments = match hook.args.is_empty() {
                true => zeroth.as_slice(),
                false => hook.args.as_slice(),
            };
            let own = match hook.env.is_empty() {
                true => variables,
                false => hook.env.as_slice(),
            };
            sys::reset_signals();
            sys::exec(&hook.path, arguments, own)
        }
        Err(error) => error.into(),
    };
    let _ = writeln!(io::stderr(), "exec: {:?}: {error}", hook.path);
    std::process::exit(127)
}

/// Waits for a child process, and kills it when the time is over.
fn wait(process: Pid, limit: Duration) -> Result<WaitStatus, Reason> {
    let (sender, receiver) = mpsc::channel();
    let waiting = move || {
        let ended = rustix::process::waitpid(Some(process), WaitOptions::empty());
        let _ = sender.send(ended);
    };
    let thread = std::thread::Builder::new().spawn(waiting);
    let ended = match &thread {
        Ok(_) => receiver.recv_timeout(limit),
        Err(_) => Err(mpsc::RecvTimeoutError::Disconnected),
    };
    if ended.is_err() {
        let _ = rustix::process::kill_process(process, Signal::KILL);
    }
    let thread = thread?;
    let ended = ended.map_err(|_| Reason::Timeout(limit))?;
    // The program is executed by a process with one thread.
    let _ = thread.join();
    match ended? {
        Some((_, status)) => Ok(status),
        None => Err(Reason::Wait(Errno::CHILD)),
    }
}
