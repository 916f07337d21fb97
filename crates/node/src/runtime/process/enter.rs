//! Further programs in a container, and its own standard streams.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;

use tokio::net::UnixStream;

use super::Process;
use crate::runtime::{Exec, new_id};
use crate::shim::spec::{self, ExecSpec, State};
use crate::shim::terminal;

impl Process {
    /// Starts a further program by the helper.
    pub(super) fn enter(
        &self,
        id: &str,
        args: Vec<String>,
        stdin: bool,
        tty: bool,
    ) -> std::io::Result<Exec> {
        let gone = || std::io::Error::new(std::io::ErrorKind::NotFound, "container not running");
        let container = self.containers.lock().get(id).cloned().ok_or_else(gone)?;
        if container.exit.borrow().is_some() {
            return Err(gone());
        }
        let directory = self.directory.join(id);
        let file = directory.join(format!("exec-{}.json", new_id()));
        let terminal = tty.then(|| open_terminal(&directory)).transpose()?;
        let spec = ExecSpec {
            directory,
            args,
            tty,
        };
        spec::write(&file, &spec).map_err(std::io::Error::other)?;
        let mut command = self.command("exec");
        command.arg(&file).kill_on_drop(true);
        let terminal = if let Some((master, slave)) = terminal {
            command
                .stdin(slave.try_clone()?)
                .stdout(slave.try_clone()?)
                .stderr(slave);
            Some(master)
        } else {
            command.stdin(if stdin { Stdio::piped() } else { Stdio::null() });
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            None
        };
        Ok(Exec::Child {
            child: command.spawn()?,
            terminal,
        })
    }
}

/// A terminal for a further program in the container at `directory`: one with a name inside if the container has its
/// own terminals, else one of the host.
fn open_terminal(directory: &Path) -> std::io::Result<(OwnedFd, OwnedFd)> {
    let state: Result<State, _> = spec::read(&directory.join(spec::STATE));
    let own = state.ok().and_then(|state| {
        terminal::open_inside(Path::new(&format!("/proc/{}/root", state.pid))).ok()
    });
    own.map_or_else(|| terminal::open(Path::new(terminal::HOST)), Ok)
}

/// Connects to the standard streams of the container at `directory`.
pub(super) async fn attach(directory: &Path) -> std::io::Result<UnixStream> {
    // By its directory: the path may be longer than the path of a socket can be.
    let directory = std::fs::File::open(directory)?;
    let path = format!("/proc/self/fd/{}/{}", directory.as_raw_fd(), spec::ATTACH);
    UnixStream::connect(path).await
}
