//! The helper process behind every container of the process runtime: `allot node-shim`.
//!
//! One shim per container. It enters namespaces, sets up the file system, starts the program, copies its output to the
//! log, and records its exit status. It outlives the agent: a restarted agent reads the state files and continues.
//!
//! Invariants:
//! - single-threaded throughout, no async runtime: it forks, and its code between fork and exec is only safe in a
//!   single-threaded process;
//! - its input is in the container's directory (`spec.json`); its state is written there (`state.json` once the program
//!   runs, `exit.json` at the end), each file replaced as a whole;
//! - when the shim dies, the container dies with it;
//! - its program cannot be changed from inside of the container (`own_program`).
//!
//! Processes: the shim supervises; its child is the init of the container (PID 1 of the PID namespace), which
//! forwards signals and collects orphans; the init's child is the program. With an init even a program that was not
//! written to be PID 1 reacts to SIGTERM.

use std::ffi::OsString;
use std::path::Path;

mod attach;
mod create;
mod devices;
mod exec;
mod further;
mod init;
pub(crate) mod log;
mod own_program;
mod probe;
mod program;
mod report;
mod said;
mod stage;
mod start_hooks;
mod supervise;
mod sys;
pub(crate) mod terminal;

pub use crate::spec;
pub use log::format_line;
pub(crate) use stage::{SUB_PATH, SubPathError, open_below};

/// Leaves the session keyring that this process was started with, for an empty one: what the agent starts, such as drivers,
/// plugins and the helpers of containers, does not have the keys of the user's session. Must be called before any thread is
/// started, because each thread has its own; where the kernel refuses it, containers cannot use keyrings.
pub fn leave_keyring() {
    sys::leave_keyring();
}

/// Entry of the hidden subcommand: `run <directory>`, `exec <file>` or `probe <directory>`. Must be called before any
/// thread is started; never returns.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ! {
    // A process that waits for the end of a pipe which the agent inherited must not wait for the containers.
    sys::close_inherited();
    let unprotected = own_program::execute().err();
    crate::huge_pages::restore();
    let args: Vec<OsString> = args.into_iter().collect();
    let code = match args
        .iter()
        .map(|arg| arg.to_str().unwrap_or_default())
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["run", directory] => {
            if let Some(reason) = unprotected {
                eprintln!(
                    "the program of the container's first process is not read-only: {reason}"
                );
            }
            supervise::run(Path::new(directory))
        }
        ["exec", file] => exec::run(Path::new(file)),
        ["probe", directory] => probe::run(Path::new(directory)),
        _ => {
            eprintln!("usage: node-shim run <directory> | exec <file> | probe <directory>");
            2
        }
    };
    std::process::exit(code)
}
