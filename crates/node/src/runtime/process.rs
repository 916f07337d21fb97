//! Containers as processes of this host, each with its own shim.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerUser, LinuxContainerUser};
use parking_lot::Mutex;
use rustix::process::{Pid, PidfdFlags};
use serde::Deserialize;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{
    Exec, Found, Given, Measured, PodChange, Running, Runtime, RuntimeError, Start, StartError,
    Written, ended,
};
use crate::error::{AtPath as _, Error};
use crate::oci;
use crate::shim::spec::{
    self, Answer, ContainerSpec, ExecSpec, Exit, Isolation, Limits, Owner, PodLimits, State, User,
};
use crate::shim::terminal;
use files::{discard, how_it_ended, make_private};

mod files;
mod pods;

/// A shim answers within milliseconds; a host that swaps may need longer.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of its answer, which has the text of at most one error.
const LONGEST_ANSWER: u64 = 64 << 10;

/// The runtime with processes.
#[derive(Debug)]
pub struct Process {
    directory: PathBuf,
    shim: Vec<OsString>,
    isolation: Isolation,
    cgroups: bool,
    overlay: bool,
    reasons: Vec<String>,
    containers: Mutex<HashMap<String, Container>>,
    /// Removals that have begun.
    removals: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug, Clone)]
struct Container {
    owner: Owner,
    cgroup: PathBuf,
    state: State,
    /// The signal that asks its program to terminate.
    stop: i32,
    exit: watch::Receiver<Option<Exit>>,
}

#[derive(Deserialize)]
struct Probe {
    isolation: Isolation,
    cgroups: bool,
    overlay: bool,
    reasons: Vec<String>,
}

impl Process {
    /// A runtime that keeps its state below `directory`; probes what the kernel permits.
    ///
    /// # Errors
    /// The directory or the helper cannot be used.
    pub async fn new(directory: PathBuf, shim: Vec<OsString>) -> Result<Self, Error> {
        let shim = match shim.is_empty() {
            false => shim,
            true => {
                let this = std::env::current_exe().map_err(|source| Error::Io {
                    path: "/proc/self/exe".into(),
                    source,
                })?;
                vec![this.into(), "node-shim".into()]
            }
        };
        let trial = directory.join(format!("probe-{}", std::process::id()));
        make_private(&directory)
            .and_then(|()| std::fs::create_dir_all(&trial))
            .map_err(|source| Error::Io {
                path: trial.clone(),
                source,
            })?;
        let failed = |reason: String| Error::Shim {
            program: shim[0].to_string_lossy().into_owned(),
            reason,
        };
        let output = Command::new(&shim[0])
            .args(&shim[1..])
            .arg("probe")
            .arg(&trial)
            .stdin(Stdio::null())
            .output();
        let output = output.await.map_err(|error| failed(error.to_string()))?;
        let _ = std::fs::remove_dir_all(&trial);
        let probe: Probe = serde_json::from_slice(&output.stdout).map_err(|error| {
            failed(format!(
                "{error}; it said {}",
                String::from_utf8_lossy(&output.stderr)
            ))
        })?;
        Ok(Self {
            directory,
            shim,
            isolation: probe.isolation,
            cgroups: probe.cgroups,
            overlay: probe.overlay,
            reasons: probe.reasons,
            containers: Mutex::default(),
            removals: Mutex::default(),
        })
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.shim[0]);
        command.args(&self.shim[1..]).arg(verb);
        command
    }

    async fn launch(&self, id: &str, mut spec: ContainerSpec) -> Result<Running, StartError> {
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
            .env_clear()
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
        let stop = stop.and_then(super::signal::number);
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

    fn adopt(&self, id: &str, directory: &Path) -> Option<Found> {
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

    fn signal(&self, container: &Container, signal: i32) {
        let State { pid, pid_start, .. } = container.state;
        if pid > 0 && spec::start_time(pid) == Some(pid_start) {
            // A process that ended before the signal needs none.
            super::signal::send(pid, signal);
        }
    }

    /// Starts a further program by the helper.
    fn enter(&self, id: &str, args: Vec<String>, stdin: bool, tty: bool) -> std::io::Result<Exec> {
        let gone = || std::io::Error::new(std::io::ErrorKind::NotFound, "container not running");
        let container = self.containers.lock().get(id).cloned().ok_or_else(gone)?;
        if container.exit.borrow().is_some() {
            return Err(gone());
        }
        let directory = self.directory.join(id);
        let file = directory.join(format!("exec-{}.json", super::new_id()));
        let terminal = tty.then(|| open_terminal(&directory)).transpose()?;
        let spec = ExecSpec {
            directory,
            args,
            tty,
        };
        spec::write(&file, &spec).map_err(std::io::Error::other)?;
        let mut command = self.command("exec");
        command.arg(&file).env_clear().kill_on_drop(true);
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

/// The user of a container in its status. As with container runtimes, the groups begin with the primary one.
fn user_of(user: &User) -> ContainerUser {
    let groups = std::iter::once(user.group).chain(user.others.iter().copied());
    ContainerUser {
        linux: Some(LinuxContainerUser {
            uid: user.id.into(),
            gid: user.group.into(),
            supplemental_groups: Some(groups.map(i64::from).collect()),
        }),
    }
}

impl Runtime for Process {
    fn name(&self) -> &str {
        "process"
    }

    fn isolation(&self) -> Isolation {
        self.isolation
    }

    fn enforces_limits(&self) -> bool {
        self.cgroups
    }

    fn lays_layers(&self) -> bool {
        self.overlay
    }

    fn limitations(&self) -> Vec<String> {
        match self.isolation {
            Isolation::Namespaces => Vec::new(),
            Isolation::UserNamespace => {
                vec!["containers run as the agent's user in a user namespace".into()]
            }
            Isolation::None => {
                let mut all = vec![
                    "namespaces are not permitted here: containers are plain processes, mounts and device nodes are \
                     not applied"
                        .to_owned(),
                ];
                all.extend(self.reasons.clone());
                all
            }
        }
    }

    fn start(&self, start: Start) -> BoxFuture<'_, Result<Running, StartError>> {
        async move { self.launch(&start.id, start.spec).await }.boxed()
    }

    fn recover(&self) -> BoxFuture<'_, Vec<Found>> {
        let entries = std::fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten();
        let (mut found, mut left) = (Vec::new(), Vec::new());
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            match self.adopt(&name, &entry.path()) {
                Some(container) => found.push(container),
                None => left.push(entry.path()),
            }
        }
        let cgroups = self.cgroups;
        // In the background: the directories may have millions of files, and recovery does not depend on their removal.
        let removal = tokio::task::spawn_blocking(move || {
            for directory in left {
                discard(&directory, cgroups);
            }
        });
        self.removals.lock().push(removal);
        std::future::ready(found).boxed()
    }

    fn settled(&self) -> BoxFuture<'_, ()> {
        async move {
            let removals = std::mem::take(&mut *self.removals.lock());
            futures::future::join_all(removals).await;
        }
        .boxed()
    }

    fn update(
        &self,
        id: &str,
        limits: Limits,
    ) -> BoxFuture<'_, Result<Option<Given>, RuntimeError>> {
        let container = self.containers.lock().get(id).cloned();
        let enforced = self.cgroups;
        async move {
            if !enforced {
                return Ok(None);
            }
            let container = container.ok_or(RuntimeError::NotRunning)?;
            let change = move || oci::limits::change(&container.cgroup, &limits);
            // Blocking: the kernel may have to reclaim memory first.
            let changed = tokio::task::spawn_blocking(change).await?;
            changed.map_err(RuntimeError::Limit)?;
            Ok(None)
        }
        .boxed()
    }

    fn update_pod(
        &self,
        uid: &str,
        limits: PodLimits,
        which: PodChange,
    ) -> BoxFuture<'_, Result<(), RuntimeError>> {
        pods::limit(self.cgroups, uid.to_owned(), limits, which)
    }

    fn forget_pod(&self, uid: &str) -> BoxFuture<'_, ()> {
        pods::forget(self.cgroups, uid.to_owned())
    }

    fn stop(&self, id: String, grace: Duration) -> BoxFuture<'_, ()> {
        async move {
            let Some(mut container) = self.containers.lock().get(&id).cloned() else {
                return;
            };
            if container.exit.borrow().is_some() {
                return;
            }
            if !grace.is_zero() {
                self.signal(&container, container.stop);
                if tokio::time::timeout(grace, ended(&mut container.exit))
                    .await
                    .is_ok()
                {
                    return;
                }
            }
            self.signal(&container, libc::SIGKILL);
            ended(&mut container.exit).await;
        }
        .boxed()
    }

    fn remove(&self, id: &str) {
        self.containers.lock().remove(id);
        discard(&self.directory.join(id), self.cgroups);
    }

    fn usage(&self) -> BoxFuture<'_, Result<Vec<Measured>, RuntimeError>> {
        let running: Vec<(String, Container)> = match self.cgroups {
            true => {
                let containers = self.containers.lock();
                let running = containers
                    .iter()
                    .filter(|(_, it)| it.exit.borrow().is_none());
                running.map(|(id, it)| (id.clone(), it.clone())).collect()
            }
            false => Vec::new(),
        };
        let measure = move || {
            let all = running.into_iter().map(|(id, container)| Measured {
                id,
                pod_uid: container.owner.pod_uid,
                container: container.owner.container,
                at: Timestamp::now(),
                cgroup: container.cgroup.to_string_lossy().into_owned(),
                cpu_nanocores: None,
                figures: oci::measure::measure(&container.cgroup),
            });
            all.collect()
        };
        let measured = tokio::task::spawn_blocking(measure);
        async move { Ok(measured.await?) }.boxed()
    }

    fn written<'a>(
        &'a self,
        pod_uid: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Vec<Written>, RuntimeError>> {
        let running: Vec<(PathBuf, Owner)> = {
            let containers = self.containers.lock();
            let of = |owner: &Owner| pod_uid.is_none_or(|uid| owner.pod_uid == uid);
            let wanted = containers.iter().filter(|(_, it)| of(&it.owner));
            let running = wanted.filter(|(_, it)| it.exit.borrow().is_none());
            running
                .map(|(id, it)| (self.directory.join(id), it.owner.clone()))
                .collect()
        };
        let measured = tokio::task::spawn_blocking(move || files::written(running));
        async move { Ok(measured.await?) }.boxed()
    }

    fn attach(&self, id: &str) -> BoxFuture<'static, std::io::Result<tokio::net::UnixStream>> {
        use std::os::fd::AsRawFd;
        let directory = self.directory.join(id);
        async move {
            // By its directory: the path may be longer than the path of a socket can be.
            let directory = std::fs::File::open(directory)?;
            let path = format!("/proc/self/fd/{}/{}", directory.as_raw_fd(), spec::ATTACH);
            tokio::net::UnixStream::connect(path).await
        }
        .boxed()
    }

    fn exec(
        &self,
        id: &str,
        args: Vec<String>,
        stdin: bool,
        tty: bool,
    ) -> BoxFuture<'static, std::io::Result<Exec>> {
        std::future::ready(self.enter(id, args, stdin, tty)).boxed()
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
