//! Containers as processes of this host, each with its own shim.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{
    Exec, Found, Measured, PodChange, ReportedResources, Running, Runtime, RuntimeError, Start,
    StartError, Written, ended,
};
use crate::error::Error;
use crate::shim::spec::{self, Exit, Isolation, Limits, Owner, PodLimits, State};
use crate::{huge_pages, oci};
use files::{discard, make_private};

mod enter;
mod files;
mod launch;
mod measure;
mod pods;

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

/// The helper, with what it is to do, and nothing of the agent's environment.
fn shim_command(shim: &[OsString], verb: &str) -> Command {
    let mut command = Command::new(&shim[0]);
    command.args(&shim[1..]).arg(verb).env_clear();
    huge_pages::tell(&mut command);
    command
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
        let mut command = shim_command(&shim, "probe");
        let output = command.arg(&trial).stdin(Stdio::null()).output();
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
        shim_command(&self.shim, verb)
    }

    /// The containers that run, of one pod or of all.
    fn running(&self, pod_uid: Option<&str>) -> Vec<(String, Container)> {
        let containers = self.containers.lock();
        let of_pod = |owner: &Owner| pod_uid.is_none_or(|uid| owner.pod_uid == uid);
        let running = containers
            .iter()
            .filter(|(_, it)| of_pod(&it.owner) && it.exit.borrow().is_none());
        running.map(|(id, it)| (id.clone(), it.clone())).collect()
    }

    fn signal(&self, container: &Container, signal: i32) {
        let State { pid, pid_start, .. } = container.state;
        if pid > 0 && spec::start_time(pid) == Some(pid_start) {
            // A process that ended before the signal needs none.
            super::signal::send(pid, signal);
        }
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
    ) -> BoxFuture<'_, Result<Option<ReportedResources>, RuntimeError>> {
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
        // Without cgroups nothing counts what they use.
        let running = match self.cgroups {
            true => self.running(None),
            false => Vec::new(),
        };
        let measured = tokio::task::spawn_blocking(move || measure::usage(running));
        async move { Ok(measured.await?) }.boxed()
    }

    fn written<'a>(
        &'a self,
        pod_uid: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Vec<Written>, RuntimeError>> {
        let (running, directory) = (self.running(pod_uid), self.directory.clone());
        let measured = tokio::task::spawn_blocking(move || measure::written(running, &directory));
        async move { Ok(measured.await?) }.boxed()
    }

    fn attach(&self, id: &str) -> BoxFuture<'static, std::io::Result<UnixStream>> {
        let directory = self.directory.join(id);
        async move { enter::attach(&directory).await }.boxed()
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
