//! The interface between pod workers and container runtimes.
//!
//! Every runtime implements [`Runtime`], which starts, stops, recovers and execs into containers. A runtime that manages
//! pods and images itself, such as containerd, also implements [`Complete`]. Pod workers get it from [`Runtime::complete`]
//! and delegate to it what they otherwise do themselves: images, security contexts, CDI devices and the pod network.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ContainerUser;
use tokio::sync::watch;

use crate::disk::Used;
pub use crate::oci::pod::PodChange;
use crate::shim::spec::{ContainerSpec, Exit, Isolation, Limits, Owner, PodLimits};

mod complete;
mod cri;
mod error;
mod process;
mod signal;
mod simulated;

pub use complete::{
    Complete, Condition, Connection, Disks, Image, Measured, Opened, Output, Request,
};
pub(crate) use cri::socket as cri_socket;
pub use cri::{Cri, Settings as CriSettings};
pub use error::RuntimeError;
pub use process::Process;
pub use simulated::Simulated;

/// A container that has been started.
#[derive(Debug, Clone)]
pub struct Running {
    /// Container ID assigned by the runtime.
    pub id: String,
    /// When the container's process started.
    pub started: Timestamp,
    /// `imageID` in the container status; empty if the container uses the host's root filesystem.
    pub image_id: String,
    /// `user` in the container status, if the runtime reports it.
    pub user: Option<ContainerUser>,
    /// The resources of the container, if the runtime reports them.
    pub given: Option<ReportedResources>,
    /// Becomes `Some` when the container exits.
    pub exit: watch::Receiver<Option<Exit>>,
}

/// The resources of a container that its runtime reports: CPU in thousandths, memory in bytes. Those that it does not report are
/// `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReportedResources {
    /// From its CPU weight.
    pub cpu_request: Option<i64>,
    /// From its CPU quota.
    pub cpu_limit: Option<i64>,
    /// From its memory limit.
    pub memory_limit: Option<i64>,
}

/// A container found after an agent restart, running or exited.
#[derive(Debug, Clone)]
pub struct Found {
    /// The pod and container name that it belongs to.
    pub owner: Owner,
    /// The container's ID, start time, image and exit.
    pub running: Running,
}

/// What a container has written to its root directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// UID of its pod.
    pub pod_uid: String,
    /// Its name in the pod.
    pub container: String,
    /// What that uses of the disk.
    pub used: Used,
}

/// A process executed in a container in addition to the main process.
pub enum Exec {
    /// A child process of the agent.
    Child {
        /// The child process; its standard streams are pipes or a terminal.
        child: tokio::process::Child,
        /// The master side of the terminal, if one was requested.
        terminal: Option<std::os::fd::OwnedFd>,
    },
    /// A process that the runtime manages. Frames have the format of [`Runtime::attach`]; the last frame is on the error
    /// channel and contains a `Status` as JSON.
    Stream(tokio::net::UnixStream),
}

/// Parameters for starting a container.
pub struct Start {
    /// A unique container ID. A runtime that assigns IDs itself returns a different one in [`Running::id`].
    pub id: String,
    /// The resolved container specification.
    pub spec: ContainerSpec,
    /// Annotations of the pod.
    pub annotations: BTreeMap<String, String>,
    /// Input for the settings that a [`Complete`] runtime resolves itself; `None` for other runtimes.
    pub request: Option<Box<Request>>,
}

/// Why a container could not be started.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StartError {
    /// The container was created, but its process failed to start: the container has terminated.
    #[error("{0}")]
    Failed(String),
    /// The container could not be created yet: it stays in the waiting state and the start is retried.
    #[error("{message}")]
    Obstacle {
        /// `reason` of the waiting state.
        reason: &'static str,
        /// `message` of the waiting state.
        message: String,
        /// What an administrator can do about it; reported as a separate event.
        remedy: Option<String>,
    },
}

impl StartError {
    /// A container whose process did not start because of an error.
    pub(crate) fn failed(error: impl std::fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }
}

/// A container runtime.
pub trait Runtime: Send + Sync + 'static {
    /// Runtime name used in container IDs and `nodeInfo`, such as `process`.
    fn name(&self) -> &str;

    /// Runtime version reported in `nodeInfo`.
    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    /// This runtime as [`Complete`], if it manages pods and images itself.
    fn complete(&self) -> Option<&dyn Complete> {
        None
    }

    /// User-facing descriptions of this runtime's limitations on this host; empty if it has none.
    fn limitations(&self) -> Vec<String>;

    /// How strongly containers are isolated from the host.
    fn isolation(&self) -> Isolation {
        Isolation::None
    }

    /// Whether the kernel enforces CPU, memory and PID limits.
    fn enforces_limits(&self) -> bool {
        false
    }

    /// Whether image layers can be mounted with overlayfs. If not, every container needs its own copy of the image.
    fn lays_layers(&self) -> bool {
        false
    }

    /// Whether processes in a pod can listen on ports.
    fn has_network(&self) -> bool {
        true
    }

    /// Starts a container.
    fn start(&self, start: Start) -> BoxFuture<'_, Result<Running, StartError>>;

    /// Returns the containers that an earlier agent process started.
    fn recover(&self) -> BoxFuture<'_, Vec<Found>>;

    /// Waits until what [`Runtime::recover`] found to be left of ended containers has been removed.
    fn settled(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }

    /// Changes the CPU and memory limits of a running container; other limits stay as they are. Returns the resources that the
    /// runtime reports afterwards. Where limits are not enforced, nothing is changed.
    ///
    /// # Errors
    /// The runtime or the kernel refuses. Some of the limits may have been changed.
    fn update(
        &self,
        _id: &str,
        _limits: Limits,
    ) -> BoxFuture<'_, Result<Option<ReportedResources>, RuntimeError>> {
        std::future::ready(Ok(None)).boxed()
    }

    /// Changes the limits for all containers of a pod together, if its containers are in a cgroup of the pod.
    ///
    /// # Errors
    /// The kernel refuses, or the pod uses more memory. Some of the limits may have been changed.
    fn update_pod(
        &self,
        _uid: &str,
        _limits: PodLimits,
        _which: PodChange,
    ) -> BoxFuture<'_, Result<(), RuntimeError>> {
        std::future::ready(Ok(())).boxed()
    }

    /// Removes what is left of a pod when its containers have been removed.
    fn forget_pod(&self, _uid: &str) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }

    /// Stops a container: sends its stop signal, and kills it after `grace`. Returns when the container has exited.
    fn stop(&self, id: String, grace: Duration) -> BoxFuture<'_, ()>;

    /// Removes a container that has exited.
    fn remove(&self, id: &str);

    /// Measures the containers of this node; none if nothing counts what they use.
    ///
    /// # Errors
    /// The runtime does not answer.
    fn usage(&self) -> BoxFuture<'_, Result<Vec<Measured>, RuntimeError>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }

    /// Measures what running containers, of one pod or of all, have written to their root directories; none if that is not on a
    /// disk.
    ///
    /// # Errors
    /// The runtime does not answer.
    fn written<'a>(
        &'a self,
        _pod_uid: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Vec<Written>, RuntimeError>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }

    /// Executes a command in a running container.
    ///
    /// # Errors
    /// The container does not exist, or the runtime does not run processes.
    fn exec(
        &self,
        id: &str,
        args: Vec<String>,
        stdin: bool,
        tty: bool,
    ) -> BoxFuture<'static, std::io::Result<Exec>>;

    /// Attaches to the standard streams of a running container. Each frame is one byte for the channel, four bytes for the
    /// length, and the data. Channel numbers are those of [`crate::spdy::channel`].
    fn attach(&self, id: &str) -> BoxFuture<'static, std::io::Result<tokio::net::UnixStream>>;
}

/// A reference-counted runtime.
pub type DynRuntime = Arc<dyn Runtime>;

/// Generates a container ID of 32 hexadecimal digits.
pub fn new_id() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

/// Waits until a container has exited.
pub async fn ended(exit: &mut watch::Receiver<Option<Exit>>) -> Exit {
    match exit.wait_for(Option::is_some).await {
        Ok(value) => value.clone().unwrap_or(Exit {
            code: 255,
            finished: Timestamp::now(),
            oom_killed: false,
        }),
        // The shim that monitored the container has exited, so the exit code is unknown.
        Err(_) => Exit {
            code: 255,
            finished: Timestamp::now(),
            oom_killed: false,
        },
    }
}
