//! A fake container runtime: the CRI services over a socket. The state is separate from the server, so that a test can stop
//! and restart the server.

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

/// The state of the runtime, and the faults that a test injects.
#[derive(Debug, Default)]
pub struct State {
    pub sandboxes: BTreeMap<String, Sandbox>,
    pub containers: BTreeMap<String, Container>,
    /// Images by name.
    pub images: BTreeMap<String, v1::Image>,
    /// Passwords that pull requests contained.
    pub passwords: Vec<String>,
    /// Address of pods; without one the runtime reports that the network is not ready.
    pub address: Option<String>,
    /// The file system of the images.
    pub filesystem: Option<v1::FilesystemUsage>,
    /// The configuration that the runtime reports, in JSON.
    pub config: String,
    /// Names of calls that are carried out, but whose next response is an error.
    pub lost_responses: Vec<String>,
    /// The exit reason of containers, reported from the second status request on.
    pub late_reason: Option<String>,
    /// Whether removals of sandboxes never end.
    pub removals_hang: bool,
    /// Whether creations of sandboxes never end.
    pub creations_hang: bool,
    /// The error of every creation of a sandbox.
    pub sandbox_error: Option<String>,
    /// The error of every update of container resources.
    pub update_error: Option<String>,
    /// Whether responses contain absurd texts, numbers and events.
    pub sends_garbage: bool,
    /// How many events it has sent.
    pub events: u64,
    /// How often containers were listed.
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

    /// Whether the response of a call is lost this time.
    fn loses_response(&mut self, call: &str) -> bool {
        let index = self.lost_responses.iter().position(|it| it == call);
        index.is_some_and(|index| self.lost_responses.remove(index) == call)
    }

    /// Ends all sandboxes and containers, as a reboot of the machine does.
    pub fn end_all(&mut self) {
        self.sandboxes.values_mut().for_each(|it| it.ready = false);
        let all: Vec<String> = self.containers.keys().cloned().collect();
        all.iter().for_each(|id| self.end(id, 255, "Unknown"));
    }

    /// How often a call that changes something was made.
    pub fn count(&self, call: &str) -> usize {
        self.calls.iter().filter(|it| *it == call).count()
    }

    /// Ends a container.
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

/// The runtime and its server.
pub struct FakeRuntime {
    pub state: Arc<Mutex<State>>,
    socket: PathBuf,
    server: Option<tokio::runtime::Runtime>,
}

impl FakeRuntime {
    /// Starts a runtime with the image `app`.
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
        this.serve();
        this
    }

    /// Starts the server.
    pub fn serve(&mut self) {
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

    /// Stops the server and closes all connections; containers keep running.
    pub fn shut_down(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown_background();
        }
    }

    /// The ID of the only running container with this name.
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

impl Drop for FakeRuntime {
    fn drop(&mut self) {
        self.shut_down();
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
