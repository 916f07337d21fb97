//! The start of a container by its shim, and the adoption of one whose shim an earlier agent started.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerUser, LinuxContainerUser};
use rustix::process::{Pid, PidfdFlags};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::sync::watch;

use super::files::how_it_ended;
use super::{Container, Process};
use crate::error::AtPath as _;
use crate::oci;
use crate::runtime::{Found, Running, StartError, signal};
use crate::shim::spec::{self, Answer, ContainerSpec, Exit, State, User};

/// A shim answers within milliseconds; a host that swaps may need longer.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of its answer, which has the text of at most one error.
const LONGEST_ANSWER: u64 = 64 << 10;

impl Process {
    pub(super) async fn launch(
        &self,
        id: &str,
        mut spec: ContainerSpec,
    ) -> Result<Running, StartError> {
        spec.id = id.to_owned();
        spec.isolation = self.isolation;
        spec.cgroups = self.cgroups;
        let directory = self.directory.join(id);
        std::fs::create_dir_all(&directory)
            .at(&directory)
            .map_err(StartError::failed)?;
        spec::write(&directory.join(spec::SPEC), &spec).map_err(StartError::failed)?;
        let errors =
            std::fs::File::create(directory.join("shim.log")).map_err(StartError::failed)?;
        let mut child = self
            .command("run")
            .arg(&directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .map_err(|error| StartError::failed(format_args!("container helper: {error}")))?;
        let stdout = child
            .stdout
            .take()
            .ok_or_else(|| StartError::failed("container helper has no output"))?;
        let mut line = String::new();
        let mut stdout = BufReader::new(stdout.take(LONGEST_ANSWER));
        let read = tokio::time::timeout(START_TIMEOUT, stdout.read_line(&mut line)).await;
        let answer = match read {
            Ok(Ok(_)) => serde_json::from_str(&line)
                .map_err(|error| StartError::failed(format_args!("container helper: {error}")))?,
            Ok(Err(error)) => Answer::Failed(format!("container helper: {error}")),
            Err(_) => Answer::Failed("container helper did not answer".into()),
        };
        let state = match answer {
            Answer::Started(state) => state,
            Answer::Failed(reason) => {
                let _ = child.start_kill();
                let _ = child.wait().await;
                return Err(StartError::Failed(reason));
            }
        };
        let (started, user) = (state.started, state.user.as_ref().map(user_of));
        let over = async move {
            let _ = child.wait().await;
        };
        let exit = self.watch(&spec, state, directory, over);
        Ok(Running {
            id: id.to_owned(),
            started,
            image_id: spec.root.image_id,
            user,
            given: None,
            exit,
        })
    }

    /// Reports the end of a container when `over` completes, which is when its shim ends.
    fn watch(
        &self,
        spec: &ContainerSpec,
        state: State,
        directory: PathBuf,
        over: impl Future<Output = ()> + Send + 'static,
    ) -> watch::Receiver<Option<Exit>> {
        let (sender, exit) = watch::channel(None);
        let stop = spec.root.config.stop_signal.as_deref();
        let stop = stop.and_then(signal::number);
        self.containers.lock().insert(
            spec.id.clone(),
            Container {
                owner: spec.owner.clone(),
                cgroup: oci::cgroups_path(spec),
                state,
                stop: stop.unwrap_or(libc::SIGTERM),
                exit: exit.clone(),
            },
        );
        tokio::spawn(async move {
            over.await;
            sender.send_replace(Some(how_it_ended(&directory)));
        });
        exit
    }

    pub(super) fn adopt(&self, id: &str, directory: &Path) -> Option<Found> {
        let mut spec: ContainerSpec = spec::read(&directory.join(spec::SPEC)).ok()?;
        id.clone_into(&mut spec.id);
        // Without state the program never ran, or the shim was killed at once.
        let state: State = spec::read(&directory.join(spec::STATE)).ok()?;
        let (started, user) = (state.started, state.user.as_ref().map(user_of));
        let alive = spec::start_time(state.shim) == Some(state.shim_start);
        let shim = Pid::from_raw(state.shim).filter(|_| alive);
        let over = shim.and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK).ok());
        let exit = self.watch(&spec, state, directory.to_owned(), async move {
            // SAFETY: an OwnedFd always yields the same descriptor and keeps it open until it is dropped.
            let over = over.and_then(|fd: OwnedFd| unsafe { AsyncFd::register(fd) }.ok());
            if let Some(over) = over {
                let _ = over.readable().await;
            }
        });
        Some(Found {
            owner: spec.owner,
            running: Running {
                id: id.to_owned(),
                started,
                image_id: spec.root.image_id,
                user,
                given: None,
                exit,
            },
        })
    }
}

/// The user of a container in its status.
fn user_of(user: &User) -> ContainerUser {
    let groups = user.others.iter().copied();
    ContainerUser {
        linux: Some(LinuxContainerUser {
            uid: user.id.into(),
            gid: user.group.into(),
            supplemental_groups: Some(groups.map(i64::from).collect()),
        }),
    }
}
