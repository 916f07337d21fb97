//! Runtimes that manage pods and images themselves, such as CRI runtimes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allot_images::Credential;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::net::UnixStream;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::DropGuard;

use super::RuntimeError;
use crate::oci::measure::Figures;

/// An image in the runtime's image store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    /// Image ID assigned by the runtime.
    pub id: String,
    /// Image reference from the container spec.
    pub reference: String,
    /// User from the image configuration, numeric or by name; empty if the image does not set one.
    pub user: String,
    /// Size in bytes.
    pub size: u64,
    /// Whether the runtime needs it itself, so that it must not be removed.
    pub pinned: bool,
}

/// Input that a complete runtime needs in addition to the container specification.
#[derive(Debug, Clone)]
pub struct Request {
    /// The pod that the container belongs to.
    pub pod: Arc<Pod>,
    /// The container as defined in the pod spec.
    pub container: Container,
    /// The container's image.
    pub image: Image,
    /// Images that are volumes, by the volume's name.
    pub volumes: BTreeMap<String, Image>,
    /// Overrides the image's entrypoint; empty if the container does not set `command`.
    pub command: Vec<String>,
    /// Overrides the image's default arguments; empty if the container does not set `args`.
    pub args: Vec<String>,
    /// Fully qualified CDI device names, which the runtime resolves.
    pub cdi_devices: Vec<String>,
}

/// The result of a command that has exited.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// Exit code of the command.
    pub code: i32,
    /// Standard output followed by standard error, truncated at the end if too long.
    pub text: Vec<u8>,
}

/// What a container uses, as far as the kernel or the runtime tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// ID of the container.
    pub id: String,
    /// UID of its pod.
    pub pod_uid: String,
    /// Its name in the pod.
    pub container: String,
    /// When it was measured.
    pub at: Timestamp,
    /// Its cgroup; empty if only the runtime knows it.
    pub cgroup: String,
    /// Billionths of a processor, recently.
    pub cpu_nanocores: Option<u64>,
    /// What is measured since its start, and its memory.
    pub figures: Figures,
}

/// The condition of the runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Whether the runtime can run containers; otherwise the reason.
    pub ready: Result<(), String>,
    /// Whether pods get their own network namespace; otherwise the reason why they share the host's, or wait.
    pub network: Result<(), String>,
    /// Without a network pods wait for it, and do not share the host's.
    pub waits: bool,
}

/// The file systems of a runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disks {
    /// A directory on that of the images.
    pub images: PathBuf,
    /// A directory on that of what containers write to their root directories; `None` if the runtime does not report it.
    pub containers: Option<PathBuf>,
}

/// What became of a pod's sandbox that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opened {
    /// It was there, with the containers that run in it.
    Kept,
    /// It is new: nothing of the pod runs.
    Created,
}

/// A connection to a port of a pod.
#[derive(Debug)]
pub struct Connection {
    /// The data of both directions.
    pub stream: UnixStream,
    /// Error message of the connection, if any; it can arrive after the connection has been established.
    pub trouble: oneshot::Receiver<String>,
    /// Closes the connection when dropped.
    pub guard: DropGuard,
}

/// Operations of a runtime that manages pods and images itself. Unless documented otherwise, every call has a deadline and
/// returns even if the runtime does not respond.
pub trait Complete: Send + Sync {
    /// The runtime's condition; the receiver is notified of changes.
    fn condition(&self) -> watch::Receiver<Condition>;

    /// Looks up an image in the runtime's image store.
    fn image<'a>(
        &'a self,
        reference: &'a str,
    ) -> BoxFuture<'a, Result<Option<Image>, RuntimeError>>;

    /// All images in the runtime's image store.
    fn images(&self) -> BoxFuture<'_, Result<Vec<Image>, RuntimeError>>;

    /// IDs of the images that containers use, also those of others at the runtime.
    fn images_in_use(&self) -> BoxFuture<'_, Result<BTreeSet<String>, RuntimeError>>;

    /// Removes an image with all its names.
    fn remove_image<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Directories on the file systems of the images and of what containers write.
    fn disks(&self) -> BoxFuture<'_, Result<Disks, RuntimeError>>;

    /// Pulls an image from its registry.
    ///
    /// # Errors
    /// [`allot_images::Error::Runtime`].
    fn pull<'a>(
        &'a self,
        reference: &'a str,
        credential: Option<&'a Credential>,
    ) -> BoxFuture<'a, Result<Image, allot_images::Error>>;

    /// Creates a pod's sandbox, or reuses the existing one. `handler`, which is only needed for a new one, looks up that of the
    /// pod's RuntimeClass; it is empty for the runtime's default.
    fn open<'a>(
        &'a self,
        pod: Arc<Pod>,
        handler: BoxFuture<'a, Result<String, RuntimeError>>,
    ) -> BoxFuture<'a, Result<Opened, RuntimeError>>;

    /// IPs of a pod that has a sandbox and does not share the host's network.
    fn addresses(&self, pod_uid: &str) -> Vec<IpAddr>;

    /// Stops the sandbox and tears down the network of a pod whose containers have exited. Has no deadline: retries for as
    /// long as the runtime is unavailable.
    fn close<'a>(&'a self, pod_uid: &'a str) -> BoxFuture<'a, ()>;

    /// Removes a closed pod and its containers.
    fn forget(&self, pod_uid: &str);

    /// UIDs of the pods that have a sandbox.
    fn known(&self) -> Vec<String>;

    /// Executes a command in a container and waits until it exits; kills it after `limit`.
    fn run(
        &self,
        id: &str,
        args: Vec<String>,
        limit: Duration,
    ) -> BoxFuture<'static, Result<Output, RuntimeError>>;

    /// Connects to a port of a pod from within its network namespace.
    fn dial(&self, pod_uid: &str, port: u16) -> BoxFuture<'static, std::io::Result<Connection>>;
}
