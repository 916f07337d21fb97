//! What runs containers: the boundary between the workers of pods and runtimes.
//!
//! Every runtime implements [`Runtime`]: it starts, stops, finds and enters containers. One with a notion of pods and
//! images of its own, such as containerd, also implements [`Complete`]; workers ask for that with [`Runtime::complete`] and
//! leave to it what they do themselves elsewhere: images, security contexts, CDI devices, the network of a pod.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::watch;

use crate::shim::spec::{ContainerSpec, Exit, Isolation, Owner};

mod complete;
mod cri;
mod process;
mod signal;
mod simulated;

pub use complete::{Complete, Condition, Connection, Image, Opened, Output, Request};
pub use cri::{Cri, Settings as CriSettings};
pub use process::Process;
pub use simulated::Simulated;

/// A container that was started.
#[derive(Debug, Clone)]
pub struct Running {
    /// Identifies it to the runtime.
    pub id: String,
    /// When its program was started.
    pub started: Timestamp,
    /// What its status calls its image; empty for the host's files.
    pub image_id: String,
    /// Becomes `Some` when it ends.
    pub exit: watch::Receiver<Option<Exit>>,
}

/// A container found after a restart of the agent, running or not.
#[derive(Debug, Clone)]
pub struct Found {
    /// Whose it is.
    pub owner: Owner,
    /// The container.
    pub running: Running,
}

/// A program that runs in a container beside its main one.
pub enum Exec {
    /// A process of this agent.
    Child {
        /// The process; its standard streams are pipes or a terminal.
        child: tokio::process::Child,
        /// The other side of the terminal, if there is one.
        terminal: Option<std::os::fd::OwnedFd>,
    },
    /// A process of somebody else. Frames as those of [`Runtime::attach`]; at the end one on the channel for errors, with a
    /// `Status` as JSON.
    Stream(tokio::net::UnixStream),
}

/// A container to start.
pub struct Start {
    /// An id that was never used. A runtime that chooses ids itself has another one in [`Running::id`].
    pub id: String,
    /// What was decided about it.
    pub spec: ContainerSpec,
    /// Annotations of its pod.
    pub annotations: BTreeMap<String, String>,
    /// What a [`Complete`] runtime decides by itself, and needs for that; `None` for others.
    pub request: Option<Box<Request>>,
}

/// Why a container could not be started.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StartError {
    /// It was made, and its program did not start: the container has ended.
    #[error("{0}")]
    Failed(String),
    /// It could not be made yet; it waits, and is tried again.
    #[error("{message}")]
    Obstacle {
        /// Reason of the waiting state.
        reason: &'static str,
        /// What went wrong.
        message: String,
        /// What an administrator can do about it, for an event of its own.
        remedy: Option<String>,
    },
}

/// A container runtime.
pub trait Runtime: Send + Sync + 'static {
    /// Name for container ids and `nodeInfo`, such as `process`.
    fn name(&self) -> &str;

    /// Its version, for `nodeInfo`.
    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    /// The same runtime, if it knows pods and has images of its own.
    fn complete(&self) -> Option<&dyn Complete> {
        None
    }

    /// Limitations of this runtime on this host, for users; empty without any.
    fn limitations(&self) -> Vec<String>;

    /// How much of the host is hidden from containers.
    fn isolation(&self) -> Isolation {
        Isolation::None
    }

    /// Whether limits for CPU, memory and processes are enforced by the kernel.
    fn enforces_limits(&self) -> bool {
        false
    }

    /// Whether overlay mounts of image layers are supported. Otherwise every container needs a copy.
    fn lays_layers(&self) -> bool {
        false
    }

    /// Whether programs of a pod can listen on ports.
    fn has_network(&self) -> bool {
        true
    }

    /// Starts a container.
    fn start(&self, start: Start) -> BoxFuture<'_, Result<Running, StartError>>;

    /// Containers of an earlier run of the agent.
    fn recover(&self) -> BoxFuture<'_, Vec<Found>>;

    /// Ends a container: politely, and after `grace` by force. Returns when it has ended.
    fn stop(&self, id: String, grace: Duration) -> BoxFuture<'_, ()>;

    /// Forgets a container that has ended.
    fn remove(&self, id: &str);

    /// Starts a further program in a running container.
    ///
    /// # Errors
    /// The container does not exist, or this runtime has no processes.
    fn exec(
        &self,
        id: &str,
        args: Vec<String>,
        stdin: bool,
        tty: bool,
    ) -> BoxFuture<'static, std::io::Result<Exec>>;

    /// Connects to the streams of a running container, in frames: the channel as one byte, the length as four, data.
    /// Channels are those of [`crate::spdy::channel`].
    fn attach(&self, id: &str) -> BoxFuture<'static, std::io::Result<tokio::net::UnixStream>>;
}

/// A shared runtime.
pub type DynRuntime = Arc<dyn Runtime>;

/// A new container id: 32 hexadecimal digits.
pub fn new_id() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

/// Waits for the end of a container.
pub async fn ended(exit: &mut watch::Receiver<Option<Exit>>) -> Exit {
    match exit.wait_for(Option::is_some).await {
        Ok(value) => value.clone().unwrap_or(Exit {
            code: 255,
            finished: Timestamp::now(),
            oom_killed: false,
        }),
        // The shim that watched it has ended: the exit code is not known.
        Err(_) => Exit {
            code: 255,
            finished: Timestamp::now(),
            oom_killed: false,
        },
    }
}
