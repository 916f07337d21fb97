//! Runtimes that know pods and have images of their own, such as those behind the container runtime interface.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use allot_images::Credential;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::net::UnixStream;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::DropGuard;

/// An image of the runtime.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    /// What identifies it to the runtime.
    pub id: String,
    /// What the container asks for.
    pub reference: String,
    /// The user that its program runs as, number or name; empty if the image does not say.
    pub user: String,
    /// Bytes.
    pub size: u64,
}

/// What a complete runtime is asked for beside the specification of a container.
#[derive(Debug, Clone)]
pub struct Request {
    /// The pod.
    pub pod: Arc<Pod>,
    /// The container as the API has it.
    pub container: Container,
    /// What it runs from.
    pub image: Image,
    /// Replaces the entrypoint of the image; empty if the container does not say.
    pub command: Vec<String>,
    /// Replaces the arguments of the image; empty if the container does not say.
    pub args: Vec<String>,
    /// Qualified names of CDI devices, which the runtime looks up.
    pub cdi_devices: Vec<String>,
}

/// What a program that has ended has left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// Exit code.
    pub code: i32,
    /// What it wrote, standard error last; of much the beginning.
    pub text: Vec<u8>,
}

/// How the runtime is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Whether containers can be run, or why not.
    pub ready: Result<(), String>,
    /// Whether pods have a network of their own, or why they share the host's.
    pub network: Result<(), String>,
}

/// A pod that containers can be started in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opened {
    /// Addresses of the pod, the first one counts most; none where it shares the host's network.
    pub addresses: Vec<IpAddr>,
}

/// A connection to a port of a pod.
#[derive(Debug)]
pub struct Connection {
    /// What the two sides say.
    pub stream: UnixStream,
    /// What is wrong with the connection, if something is; it may come after the connection was made.
    pub trouble: oneshot::Receiver<String>,
    /// Ends it when it is dropped.
    pub guard: DropGuard,
}

/// What a runtime does that knows pods and has images of its own. Every call ends within a deadline of its own, also where
/// the runtime does not answer, unless something else is said.
pub trait Complete: Send + Sync {
    /// How it is; changes are told.
    fn condition(&self) -> watch::Receiver<Condition>;

    /// An image that is there.
    fn image<'a>(&'a self, reference: &'a str) -> BoxFuture<'a, Result<Option<Image>, String>>;

    /// Gets an image from its registry.
    fn pull<'a>(
        &'a self,
        reference: &'a str,
        credential: Option<&'a Credential>,
    ) -> BoxFuture<'a, Result<Image, String>>;

    /// Makes a pod that containers can be started in, or goes on with the one that is there.
    fn open(&self, pod: Arc<Pod>) -> BoxFuture<'_, Result<Opened, String>>;

    /// Addresses of a pod that was opened and does not share the host's network.
    fn addresses(&self, pod_uid: &str) -> Vec<IpAddr>;

    /// Ends what is left of a pod whose containers have ended, with its network. Returns when that is done, however long the
    /// runtime may be away.
    fn close<'a>(&'a self, pod_uid: &'a str) -> BoxFuture<'a, ()>;

    /// Forgets a pod that was closed, and its containers.
    fn forget(&self, pod_uid: &str);

    /// UIDs of the pods that there are.
    fn known(&self) -> Vec<String>;

    /// Runs a further program in a container to its end, and ends it after `limit`.
    fn run(
        &self,
        id: &str,
        args: Vec<String>,
        limit: Duration,
    ) -> BoxFuture<'static, Result<Output, String>>;

    /// Connects to a port of a pod, as from inside of it.
    fn dial(&self, pod_uid: &str, port: u16) -> BoxFuture<'static, std::io::Result<Connection>>;
}
