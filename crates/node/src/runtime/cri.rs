//! Client of a container runtime that implements CRI v1: containerd 1.7 or newer, or CRI-O.
//!
//! The runtime owns all state: this module stores nothing on disk. After a restart, the agent lists the sandboxes and
//! containers that have its label and adopts them. While the runtime is unavailable, the node is not ready, and the state
//! of its containers is left unchanged until the runtime responds again.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use allot_images::Credential;
use allot_protos::cri_v1 as v1;
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio::net::UnixStream;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::{
    Complete, Condition, Connection, Disks, Exec, Found, Image, Measured, Opened, Output,
    ReportedResources, Running, Runtime, RuntimeError, Start, StartError, Written,
};
use crate::config::LogLimits;
use crate::shim::spec::{Exit, Isolation, Limits};
use crate::spdy::channel;
pub use calls::CallError;
pub(crate) use calls::socket;
use calls::{Calls, EndpointError};
use devices::Devices;
use orphans::{Creating, Creation};
use removals::{Removal, Removals};
use sandbox::Sandbox;
pub use translate::TranslateError;

mod calls;
mod containers;
mod demands;
mod devices;
mod follow;
mod images;
mod logs;
mod orphans;
mod recover;
mod removals;
mod reported;
mod sandbox;
mod stream;
mod translate;
mod usage;

/// The runtime's endpoint and the node's directories.
#[derive(Debug, Clone)]
pub struct Settings {
    /// CRI endpoint, as `unix:///PATH`.
    pub endpoint: String,
    /// The node's directory, which contains logs and profiles. Its path is also the label value that identifies the node's
    /// containers.
    pub directory: PathBuf,
    /// Directories to which drivers write CDI specs.
    pub cdi_dirs: Vec<PathBuf>,
    /// When logs are rotated.
    pub logs: LogLimits,
}

/// A container runtime that is reached through a CRI endpoint.
pub struct Cri {
    inner: Arc<Inner>,
    _tasks: [AbortOnDropHandle<()>; 4],
}

/// State shared with the background tasks.
struct Inner {
    settings: Settings,
    calls: Calls,
    condition: watch::Sender<Condition>,
    /// Runtime name and version from the last status query.
    identity: watch::Sender<Option<(String, String)>>,
    devices: Mutex<Devices>,
    /// Started and recovered containers by ID.
    containers: Mutex<HashMap<String, Known>>,
    /// Sandboxes by pod UID.
    sandboxes: Mutex<HashMap<String, Sandbox>>,
    /// Whether the sandboxes and containers of an earlier agent have been recorded.
    recovered: AtomicBool,
    /// Pods for which something is being created.
    creating: Creating,
    /// Sandboxes and containers that are to be removed once the runtime responds.
    removals: Removals,
    /// Notified when the state of a container may have changed.
    look: Notify,
}

/// A container that the agent tracks.
#[derive(Debug)]
struct Known {
    exit: watch::Sender<Option<Exit>>,
    /// Whether its standard input is open.
    stdin: bool,
    /// Whether it has a terminal.
    tty: bool,
    /// When it was first found to be killed for a reason that the runtime has not told.
    killed: Option<Instant>,
}

impl Cri {
    /// Starts connecting to the runtime, which need not be running yet.
    ///
    /// # Errors
    /// The endpoint is invalid.
    pub fn new(settings: Settings) -> Result<Self, EndpointError> {
        let socket = socket(&settings.endpoint)?;
        let waiting = format!(
            "container runtime at {} has not answered yet",
            settings.endpoint
        );
        let condition = Condition {
            ready: Err(waiting.clone()),
            network: Err(waiting),
            waits: false,
        };
        let inner = Arc::new(Inner {
            calls: Calls::new(&socket),
            settings,
            condition: watch::channel(condition).0,
            identity: watch::channel(None).0,
            devices: Mutex::default(),
            containers: Mutex::default(),
            sandboxes: Mutex::default(),
            recovered: AtomicBool::new(false),
            creating: Creating::default(),
            removals: Removals::default(),
            look: Notify::new(),
        });
        let follow = tokio::spawn(follow::follow(Arc::clone(&inner)));
        let events = tokio::spawn(follow::events(Arc::clone(&inner)));
        let logs = tokio::spawn(logs::rotate(Arc::clone(&inner)));
        let removals = tokio::spawn(removals::carry_out(Arc::clone(&inner)));
        Ok(Self {
            inner,
            _tasks: [follow, events, removals, logs].map(AbortOnDropHandle::new),
        })
    }
}

impl Inner {
    /// Waits until the runtime is ready.
    async fn reached(&self) {
        let mut condition = self.condition.subscribe();
        // Cannot fail: `self` owns the sender.
        let _ = condition.wait_for(|it| it.ready.is_ok()).await;
    }

    fn is_ready(&self) -> Result<(), RuntimeError> {
        let ready = self.condition.borrow().ready.clone();
        ready.map_err(RuntimeError::NotReady)
    }

    fn networks(&self) -> bool {
        self.condition.borrow().network.is_ok()
    }

    fn remove(&self, removal: Removal) {
        let container = match &removal {
            Removal::Container(id) => Some(id.clone()),
            Removal::Sandbox(_) => None,
        };
        // First, so that it is never unknown.
        self.removals.add(removal);
        if let Some(id) = container {
            self.containers.lock().remove(&id);
        }
    }

    /// Whether unknown sandboxes and containers are not simply those of an earlier agent.
    fn is_recovered(&self) -> bool {
        self.recovered.load(Ordering::Acquire)
    }
}

/// Converts a CRI time in nanoseconds since the epoch; zero, for an event that has not happened yet, becomes `None`.
fn time(nanoseconds: i64) -> Option<Timestamp> {
    let time = Timestamp::from_nanosecond(nanoseconds.into()).ok()?;
    (nanoseconds > 0).then_some(time)
}

impl Runtime for Cri {
    fn name(&self) -> &str {
        // The name is only needed once containers exist, and by then it is known.
        let known = self.inner.identity.borrow();
        match known.as_ref().map(|(name, _)| name.as_str()) {
            Some("cri-o") => "cri-o",
            Some("containerd") => "containerd",
            _ => "cri",
        }
    }

    fn version(&self) -> String {
        let known = self.inner.identity.borrow();
        known
            .as_ref()
            .map_or("Unknown", |(_, it)| it.as_str())
            .to_owned()
    }

    fn complete(&self) -> Option<&dyn Complete> {
        Some(self)
    }

    fn limitations(&self) -> Vec<String> {
        Vec::new()
    }

    fn isolation(&self) -> Isolation {
        Isolation::Namespaces
    }

    fn enforces_limits(&self) -> bool {
        true
    }

    fn start(&self, start: Start) -> BoxFuture<'_, Result<Running, StartError>> {
        async move {
            let Start { spec, request, .. } = start;
            let Some(request) = request else {
                let text = "a container runtime needs the pod".to_owned();
                return Err(StartError::Failed(text));
            };
            self.inner.launch(spec, *request).await
        }
        .boxed()
    }

    fn recover(&self) -> BoxFuture<'_, Vec<Found>> {
        self.inner.recover().boxed()
    }

    fn update(
        &self,
        id: &str,
        limits: Limits,
    ) -> BoxFuture<'_, Result<Option<ReportedResources>, RuntimeError>> {
        let id = id.to_owned();
        async move { self.inner.update(&id, &limits).await }.boxed()
    }

    fn stop(&self, id: String, grace: Duration) -> BoxFuture<'_, ()> {
        async move { self.inner.stop(&id, grace).await }.boxed()
    }

    fn remove(&self, id: &str) {
        // The runtime never created any other container.
        if self.inner.containers.lock().contains_key(id) {
            self.inner.remove(Removal::Container(id.to_owned()));
        }
    }

    fn usage(&self) -> BoxFuture<'_, Result<Vec<Measured>, RuntimeError>> {
        async move { self.inner.usage().await }.boxed()
    }

    fn written<'a>(
        &'a self,
        pod_uid: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Vec<Written>, RuntimeError>> {
        async move { self.inner.written(pod_uid).await }.boxed()
    }

    fn exec(
        &self,
        id: &str,
        args: Vec<String>,
        stdin: bool,
        tty: bool,
    ) -> BoxFuture<'static, std::io::Result<Exec>> {
        let (calls, container_id) = (self.inner.calls.clone(), id.to_owned());
        async move {
            let request = v1::ExecRequest {
                container_id,
                cmd: args,
                tty,
                stdin,
                stdout: true,
                stderr: !tty,
            };
            let answer = calls.exec(request).await.map_err(std::io::Error::other)?;
            let stream = stream::program(&answer.url, &channels(stdin, tty)).await?;
            Ok(Exec::Stream(stream))
        }
        .boxed()
    }

    fn attach(&self, id: &str) -> BoxFuture<'static, std::io::Result<UnixStream>> {
        let known = self
            .inner
            .containers
            .lock()
            .get(id)
            .map(|it| (it.stdin, it.tty));
        let (calls, container_id) = (self.inner.calls.clone(), id.to_owned());
        async move {
            let gone =
                || std::io::Error::new(std::io::ErrorKind::NotFound, "container not running");
            // The container determines which streams exist, regardless of what the client requests.
            let (stdin, tty) = known.ok_or_else(gone)?;
            let request = v1::AttachRequest {
                container_id,
                stdin,
                tty,
                stdout: true,
                stderr: !tty,
            };
            let answer = calls.attach(request).await;
            let url = answer.map_err(std::io::Error::other)?.url;
            stream::program(&url, &channels(stdin, tty)).await
        }
        .boxed()
    }
}

/// The channels that a process uses.
fn channels(stdin: bool, tty: bool) -> Vec<u8> {
    let all = [
        (channel::ERROR, true),
        (channel::STDIN, stdin),
        (channel::STDOUT, true),
        (channel::STDERR, !tty),
        (channel::RESIZE, tty),
    ];
    let wanted = all.into_iter().filter(|(_, wanted)| *wanted);
    wanted.map(|(channel, _)| channel).collect()
}

impl Complete for Cri {
    fn condition(&self) -> watch::Receiver<Condition> {
        self.inner.condition.subscribe()
    }

    fn image<'a>(
        &'a self,
        reference: &'a str,
    ) -> BoxFuture<'a, Result<Option<Image>, RuntimeError>> {
        async move { self.inner.image(reference).await }.boxed()
    }

    fn images(&self) -> BoxFuture<'_, Result<Vec<Image>, RuntimeError>> {
        async move { self.inner.images().await }.boxed()
    }

    fn images_in_use(&self) -> BoxFuture<'_, Result<BTreeSet<String>, RuntimeError>> {
        async move { self.inner.images_in_use().await }.boxed()
    }

    fn remove_image<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>> {
        async move { self.inner.remove_image(id).await }.boxed()
    }

    fn disks(&self) -> BoxFuture<'_, Result<Disks, RuntimeError>> {
        async move { self.inner.disks().await }.boxed()
    }

    fn pull<'a>(
        &'a self,
        reference: &'a str,
        credential: Option<&'a Credential>,
    ) -> BoxFuture<'a, Result<Image, allot_images::Error>> {
        async move { self.inner.pull(reference, credential).await }.boxed()
    }

    fn open<'a>(
        &'a self,
        pod: Arc<Pod>,
        handler: BoxFuture<'a, Result<String, RuntimeError>>,
    ) -> BoxFuture<'a, Result<Opened, RuntimeError>> {
        async move { self.inner.open(&pod, handler).await }.boxed()
    }

    fn addresses(&self, pod_uid: &str) -> Vec<IpAddr> {
        let sandboxes = self.inner.sandboxes.lock();
        let found = sandboxes.get(pod_uid);
        found.map_or_else(Vec::new, |sandbox| sandbox.addresses.clone())
    }

    fn close<'a>(&'a self, pod_uid: &'a str) -> BoxFuture<'a, ()> {
        self.inner.close(pod_uid).boxed()
    }

    fn forget(&self, pod_uid: &str) {
        if let Some(sandbox) = self.inner.sandboxes.lock().remove(pod_uid) {
            self.inner.remove(Removal::Sandbox(sandbox.id));
        }
    }

    fn known(&self) -> Vec<String> {
        self.inner.sandboxes.lock().keys().cloned().collect()
    }

    fn run(
        &self,
        id: &str,
        args: Vec<String>,
        limit: Duration,
    ) -> BoxFuture<'static, Result<Output, RuntimeError>> {
        let (calls, id) = (self.inner.calls.clone(), id.to_owned());
        async move {
            let answer = calls.exec_sync(&id, args, limit).await?;
            Ok(Output {
                code: answer.exit_code,
                text: [answer.stdout, answer.stderr].concat(),
            })
        }
        .boxed()
    }

    fn dial(&self, pod_uid: &str, port: u16) -> BoxFuture<'static, std::io::Result<Connection>> {
        let sandbox = self.inner.open_sandbox(pod_uid);
        let calls = self.inner.calls.clone();
        async move {
            let gone =
                || std::io::Error::new(std::io::ErrorKind::NotFound, "the pod has no sandbox");
            let request = v1::PortForwardRequest {
                pod_sandbox_id: sandbox.ok_or_else(gone)?.id,
                port: vec![port.into()],
            };
            let answer = calls.port_forward(request).await;
            let url = answer.map_err(std::io::Error::other)?.url;
            stream::port(&url, port).await
        }
        .boxed()
    }
}
