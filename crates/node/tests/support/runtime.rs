//! A container runtime in name only: the services of the container runtime interface over a socket. What it was told is kept
//! apart from what serves it, so that it can go away and come back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use allot_protos::cri_v1 as v1;
use allot_protos::transport::{Incoming, Services};
use tonic::{Response, Status};
use v1::image_service_server::ImageServiceServer;
use v1::runtime_service_server::RuntimeServiceServer;

#[path = "runtime_images.rs"]
mod images;
#[path = "runtime_service.rs"]
mod service;

/// A sandbox.
#[derive(Debug, Clone)]
pub struct Sandbox {
    pub config: v1::PodSandboxConfig,
    pub handler: String,
    pub ready: bool,
}

/// A container.
#[derive(Debug, Clone)]
pub struct Container {
    pub sandbox: String,
    pub config: v1::ContainerConfig,
    pub status: v1::ContainerStatus,
}

/// Everything that the runtime knows.
#[derive(Debug, Default)]
pub struct State {
    pub sandboxes: BTreeMap<String, Sandbox>,
    pub containers: BTreeMap<String, Container>,
    /// Images by name.
    pub images: BTreeMap<String, v1::Image>,
    /// Passwords that were shown with pulls.
    pub passwords: Vec<String>,
    /// Address of pods; without one there is no network for them.
    pub address: Option<String>,
    /// The file system of the images.
    pub filesystem: Option<v1::FilesystemUsage>,
    /// What it tells about its configuration.
    pub config: String,
    /// Names of calls that are carried out, but whose next answer does not arrive.
    pub lost: Vec<String>,
    /// What it says from the second question on about why a container has ended.
    pub late_reason: Option<String>,
    /// Whether removals of sandboxes do not end.
    pub stuck: bool,
    /// Whether sandboxes are not created, and never refused.
    pub hangs: bool,
    /// Why it refuses to create sandboxes.
    pub no_sandboxes: Option<String>,
    /// Why it refuses to change the resources of containers.
    pub refuses: Option<String>,
    /// Whether its answers have texts, numbers and events that no runtime has.
    pub lies: bool,
    /// How many events it has sent.
    pub events: u64,
    /// How often it was asked for its containers.
    pub lists: u64,
    /// Names of calls that change something.
    pub calls: Vec<String>,
    next: u64,
}

impl State {
    fn id(&mut self, kind: &str) -> String {
        self.next += 1;
        format!("{kind}{}", self.next)
    }

    /// Whether the answer of a call is lost this time.
    fn loses(&mut self, call: &str) -> bool {
        let index = self.lost.iter().position(|it| it == call);
        index.is_some_and(|index| self.lost.remove(index) == call)
    }

    /// Lets all sandboxes and programs end, as a reboot of the machine does.
    pub fn end_all(&mut self) {
        self.sandboxes.values_mut().for_each(|it| it.ready = false);
        let all: Vec<String> = self.containers.keys().cloned().collect();
        all.iter().for_each(|id| self.end(id, 255, "Unknown"));
    }

    /// How often a call that changes something was made.
    pub fn count(&self, call: &str) -> usize {
        self.calls.iter().filter(|it| *it == call).count()
    }

    /// Lets a program end.
    pub fn end(&mut self, id: &str, code: i32, reason: &str) {
        let container = self.containers.get_mut(id).expect("a container");
        let status = &mut container.status;
        if status.state() == v1::ContainerState::ContainerRunning {
            status.set_state(v1::ContainerState::ContainerExited);
            status.exit_code = code;
            status.reason = reason.into();
            status.finished_at = now();
        }
    }
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since.expect("a clock").as_nanos()).expect("a time")
}

/// The runtime.
pub struct Fake {
    pub state: Arc<Mutex<State>>,
    socket: PathBuf,
    server: Option<tokio::runtime::Runtime>,
}

impl Fake {
    /// A runtime that is there, with an image called `app`.
    pub fn start(socket: &Path) -> Self {
        let image = v1::Image {
            id: "sha256:app".into(),
            size: 7,
            ..Default::default()
        };
        let state = State {
            images: [("docker.io/library/app:latest".to_owned(), image)].into(),
            config: r#"{"enableCDI": true}"#.into(),
            ..Default::default()
        };
        let mut this = Self {
            state: Arc::new(Mutex::new(state)),
            socket: socket.to_owned(),
            server: None,
        };
        this.come();
        this
    }

    /// Serves again.
    pub fn come(&mut self) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let server = Server(Arc::clone(&self.state));
        let incoming = {
            let _guard = runtime.enter();
            Incoming::bind(&self.socket).expect("a socket")
        };
        let services = Services::new()
            .with(RuntimeServiceServer::new(server.clone()))
            .with(ImageServiceServer::new(server));
        runtime.spawn(async move { services.serve(incoming, std::future::pending()).await });
        self.server = Some(runtime);
    }

    /// Goes away, with all connections; what was started continues.
    pub fn go(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown_background();
        }
    }

    /// The id of the only container of that name that runs.
    pub fn running(&self, name: &str) -> Option<String> {
        let state = self.state.lock().expect("a state");
        let mut found = state.containers.iter().filter(|(_, container)| {
            let metadata = container.config.metadata.as_ref();
            metadata.is_some_and(|it| it.name == name)
                && container.status.state() == v1::ContainerState::ContainerRunning
        });
        let id = found.next().map(|(id, _)| id.clone());
        assert!(found.next().is_none(), "two containers {name} run");
        id
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.go();
    }
}

#[derive(Clone)]
struct Server(Arc<Mutex<State>>);

type Answer<T> = Result<Response<T>, Status>;
impl Server {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().expect("a state")
    }
}
