//! A container runtime in name only: the services of the container runtime interface over a socket. What it was told is kept
//! apart from what serves it, so that it can go away and come back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use allot_protos::cri_v1 as v1;
use allot_protos::transport::{Incoming, Services};
use tonic::{Request, Response, Status};
use v1::image_service_server::{ImageService, ImageServiceServer};
use v1::runtime_service_server::{RuntimeService, RuntimeServiceServer};

/// A sandbox.
#[derive(Debug, Clone)]
pub struct Sandbox {
    pub config: v1::PodSandboxConfig,
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
    /// Names of calls that change something.
    pub calls: Vec<String>,
    next: u64,
}

impl State {
    fn id(&mut self, kind: &str) -> String {
        self.next += 1;
        format!("{kind}{}", self.next)
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

    /// Goes away, with all connections; what was started goes on.
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
type Events =
    Pin<Box<dyn futures::Stream<Item = Result<v1::ContainerEventResponse, Status>> + Send>>;

fn selected(
    wanted: Option<&std::collections::HashMap<String, String>>,
    labels: &std::collections::HashMap<String, String>,
) -> bool {
    let mut wanted = wanted.into_iter().flatten();
    wanted.all(|(name, value)| labels.get(name) == Some(value))
}

impl Server {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().expect("a state")
    }
}

#[tonic::async_trait]
impl RuntimeService for Server {
    type GetContainerEventsStream = Events;

    async fn version(&self, _: Request<v1::VersionRequest>) -> Answer<v1::VersionResponse> {
        Ok(Response::new(v1::VersionResponse {
            version: "0.1.0".into(),
            runtime_name: "containerd".into(),
            runtime_version: "v2.0.0-fake".into(),
            runtime_api_version: "v1".into(),
        }))
    }

    async fn status(&self, _: Request<v1::StatusRequest>) -> Answer<v1::StatusResponse> {
        let state = self.state();
        let condition = |kind: &str, status: bool| v1::RuntimeCondition {
            r#type: kind.into(),
            status,
            reason: if status { "" } else { "NetworkPluginNotReady" }.into(),
            message: if status {
                ""
            } else {
                "cni plugin not initialized"
            }
            .into(),
        };
        let conditions = vec![
            condition("RuntimeReady", true),
            condition("NetworkReady", state.address.is_some()),
        ];
        Ok(Response::new(v1::StatusResponse {
            status: Some(v1::RuntimeStatus { conditions }),
            info: [("config".to_owned(), state.config.clone())].into(),
        }))
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<v1::RunPodSandboxRequest>,
    ) -> Answer<v1::RunPodSandboxResponse> {
        let config = request.into_inner().config.unwrap_or_default();
        let mut state = self.state();
        let id = state.id("sandbox");
        state.calls.push("RunPodSandbox".into());
        let ready = true;
        state
            .sandboxes
            .insert(id.clone(), Sandbox { config, ready });
        Ok(Response::new(v1::RunPodSandboxResponse {
            pod_sandbox_id: id,
        }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<v1::StopPodSandboxRequest>,
    ) -> Answer<v1::StopPodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let mut state = self.state();
        if let Some(sandbox) = state.sandboxes.get_mut(&id) {
            sandbox.ready = false;
        }
        let inside = state.containers.iter().filter(|(_, it)| it.sandbox == id);
        let inside: Vec<String> = inside.map(|(id, _)| id.clone()).collect();
        for id in inside {
            state.end(&id, 137, "Error");
        }
        Ok(Response::new(Default::default()))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<v1::RemovePodSandboxRequest>,
    ) -> Answer<v1::RemovePodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let mut state = self.state();
        state.sandboxes.remove(&id);
        state.containers.retain(|_, it| it.sandbox != id);
        Ok(Response::new(Default::default()))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<v1::PodSandboxStatusRequest>,
    ) -> Answer<v1::PodSandboxStatusResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let state = self.state();
        let found = state.sandboxes.get(&id);
        let found = found.ok_or_else(|| Status::not_found("no such sandbox"))?;
        let mut status = v1::PodSandboxStatus {
            id,
            metadata: found.config.metadata.clone(),
            labels: found.config.labels.clone(),
            network: state.address.clone().map(|ip| v1::PodSandboxNetworkStatus {
                ip,
                ..Default::default()
            }),
            ..Default::default()
        };
        status.set_state(if found.ready {
            v1::PodSandboxState::SandboxReady
        } else {
            v1::PodSandboxState::SandboxNotready
        });
        Ok(Response::new(v1::PodSandboxStatusResponse {
            status: Some(status),
        }))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<v1::ListPodSandboxRequest>,
    ) -> Answer<v1::ListPodSandboxResponse> {
        let filter = request.into_inner().filter;
        let wanted = filter.as_ref().map(|it| &it.label_selector);
        let state = self.state();
        let all = state.sandboxes.iter();
        let all = all.filter(|(_, it)| selected(wanted, &it.config.labels));
        let items = all.map(|(id, it)| v1::PodSandbox {
            id: id.clone(),
            metadata: it.config.metadata.clone(),
            labels: it.config.labels.clone(),
            annotations: it.config.annotations.clone(),
            state: i32::from(!it.ready),
            created_at: 0,
        });
        Ok(Response::new(v1::ListPodSandboxResponse {
            items: items.collect(),
        }))
    }

    async fn create_container(
        &self,
        request: Request<v1::CreateContainerRequest>,
    ) -> Answer<v1::CreateContainerResponse> {
        let request = request.into_inner();
        let config = request.config.unwrap_or_default();
        let mut state = self.state();
        let ready = state.sandboxes.get(&request.pod_sandbox_id);
        if !ready.is_some_and(|it| it.ready) {
            return Err(Status::unknown("sandbox is not ready"));
        }
        if let Some(device) = config
            .cdi_devices
            .iter()
            .find(|it| it.name.ends_with("=gone"))
        {
            let text = format!(
                "CDI device injection failed: unresolvable CDI devices {}",
                device.name
            );
            return Err(Status::unknown(text));
        }
        let id = state.id("container");
        state.calls.push("CreateContainer".into());
        let status = v1::ContainerStatus {
            id: id.clone(),
            metadata: config.metadata.clone(),
            image_ref: config.image.clone().unwrap_or_default().image,
            ..Default::default()
        };
        let container = Container {
            sandbox: request.pod_sandbox_id,
            config,
            status,
        };
        state.containers.insert(id.clone(), container);
        Ok(Response::new(v1::CreateContainerResponse {
            container_id: id,
        }))
    }

    async fn start_container(
        &self,
        request: Request<v1::StartContainerRequest>,
    ) -> Answer<v1::StartContainerResponse> {
        let id = request.into_inner().container_id;
        let mut state = self.state();
        let container = state.containers.get_mut(&id);
        let container = container.ok_or_else(|| Status::not_found("no such container"))?;
        let status = &mut container.status;
        if container.config.command == ["missing"] {
            status.set_state(v1::ContainerState::ContainerExited);
            return Err(Status::unknown("exec: \"missing\": not found"));
        }
        status.set_state(v1::ContainerState::ContainerRunning);
        status.started_at = now();
        Ok(Response::new(Default::default()))
    }

    async fn stop_container(
        &self,
        request: Request<v1::StopContainerRequest>,
    ) -> Answer<v1::StopContainerResponse> {
        let request = request.into_inner();
        let mut state = self.state();
        if !state.containers.contains_key(&request.container_id) {
            return Err(Status::not_found("no such container"));
        }
        let call = format!("StopContainer {}", request.timeout);
        state.calls.push(call);
        state.end(&request.container_id, 143, "Error");
        Ok(Response::new(Default::default()))
    }

    async fn remove_container(
        &self,
        request: Request<v1::RemoveContainerRequest>,
    ) -> Answer<v1::RemoveContainerResponse> {
        let id = request.into_inner().container_id;
        self.state().containers.remove(&id);
        Ok(Response::new(Default::default()))
    }

    async fn list_containers(
        &self,
        request: Request<v1::ListContainersRequest>,
    ) -> Answer<v1::ListContainersResponse> {
        let filter = request.into_inner().filter;
        let wanted = filter.as_ref().map(|it| &it.label_selector);
        let state = self.state();
        let all = state.containers.iter();
        let all = all.filter(|(_, it)| selected(wanted, &it.config.labels));
        let containers = all.map(|(id, it)| v1::Container {
            id: id.clone(),
            pod_sandbox_id: it.sandbox.clone(),
            metadata: it.config.metadata.clone(),
            state: it.status.state,
            labels: it.config.labels.clone(),
            annotations: it.config.annotations.clone(),
            ..Default::default()
        });
        Ok(Response::new(v1::ListContainersResponse {
            containers: containers.collect(),
        }))
    }

    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> Answer<v1::ContainerStatusResponse> {
        let id = request.into_inner().container_id;
        let state = self.state();
        let found = state.containers.get(&id);
        let found = found.ok_or_else(|| Status::not_found("no such container"))?;
        Ok(Response::new(v1::ContainerStatusResponse {
            status: Some(found.status.clone()),
        }))
    }

    async fn list_container_stats(
        &self,
        request: Request<v1::ListContainerStatsRequest>,
    ) -> Answer<v1::ListContainerStatsResponse> {
        let filter = request.into_inner().filter;
        let wanted = filter.as_ref().map(|it| &it.label_selector);
        let value = |value| Some(v1::UInt64Value { value });
        let state = self.state();
        let all = state.containers.iter();
        let all = all.filter(|(_, it)| selected(wanted, &it.config.labels));
        let stats = all.map(|(id, it)| v1::ContainerStats {
            attributes: Some(v1::ContainerAttributes {
                id: id.clone(),
                metadata: it.config.metadata.clone(),
                labels: it.config.labels.clone(),
                annotations: it.config.annotations.clone(),
            }),
            cpu: Some(v1::CpuUsage {
                timestamp: now(),
                usage_core_nano_seconds: value(2_000_000_000),
                usage_nano_cores: value(250_000_000),
            }),
            memory: Some(v1::MemoryUsage {
                timestamp: now(),
                working_set_bytes: value(64 << 20),
                usage_bytes: value(65 << 20),
                ..Default::default()
            }),
            writable_layer: None,
        });
        Ok(Response::new(v1::ListContainerStatsResponse {
            stats: stats.collect(),
        }))
    }

    async fn reopen_container_log(
        &self,
        _: Request<v1::ReopenContainerLogRequest>,
    ) -> Answer<v1::ReopenContainerLogResponse> {
        Ok(Response::new(Default::default()))
    }

    async fn exec_sync(
        &self,
        request: Request<v1::ExecSyncRequest>,
    ) -> Answer<v1::ExecSyncResponse> {
        let request = request.into_inner();
        let good = request.cmd == ["true"];
        Ok(Response::new(v1::ExecSyncResponse {
            stdout: b"told".to_vec(),
            stderr: Vec::new(),
            exit_code: i32::from(!good),
        }))
    }

    async fn exec(&self, _: Request<v1::ExecRequest>) -> Answer<v1::ExecResponse> {
        Err(Status::unimplemented("no streams"))
    }

    async fn attach(&self, _: Request<v1::AttachRequest>) -> Answer<v1::AttachResponse> {
        Err(Status::unimplemented("no streams"))
    }

    async fn port_forward(
        &self,
        _: Request<v1::PortForwardRequest>,
    ) -> Answer<v1::PortForwardResponse> {
        Err(Status::unimplemented("no streams"))
    }

    async fn get_container_events(
        &self,
        _: Request<v1::GetEventsRequest>,
    ) -> Answer<Self::GetContainerEventsStream> {
        Err(Status::unimplemented("no events"))
    }
}

#[tonic::async_trait]
impl ImageService for Server {
    async fn list_images(
        &self,
        _: Request<v1::ListImagesRequest>,
    ) -> Answer<v1::ListImagesResponse> {
        let images = self.state().images.clone();
        let images = images.into_iter().map(|(name, image)| v1::Image {
            repo_tags: vec![name],
            ..image
        });
        Ok(Response::new(v1::ListImagesResponse {
            images: images.collect(),
        }))
    }

    async fn remove_image(
        &self,
        request: Request<v1::RemoveImageRequest>,
    ) -> Answer<v1::RemoveImageResponse> {
        let wanted = request.into_inner().image.unwrap_or_default().image;
        self.state().images.retain(|_, image| image.id != wanted);
        Ok(Response::new(Default::default()))
    }

    async fn image_fs_info(
        &self,
        _: Request<v1::ImageFsInfoRequest>,
    ) -> Answer<v1::ImageFsInfoResponse> {
        Ok(Response::new(v1::ImageFsInfoResponse {
            image_filesystems: self.state().filesystem.clone().into_iter().collect(),
        }))
    }

    async fn image_status(
        &self,
        request: Request<v1::ImageStatusRequest>,
    ) -> Answer<v1::ImageStatusResponse> {
        let wanted = request.into_inner().image.unwrap_or_default().image;
        let state = self.state();
        let mut all = state.images.iter();
        let found = all.find(|(name, image)| **name == wanted || image.id == wanted);
        Ok(Response::new(v1::ImageStatusResponse {
            image: found.map(|(_, image)| image.clone()),
        }))
    }

    async fn pull_image(
        &self,
        request: Request<v1::PullImageRequest>,
    ) -> Answer<v1::PullImageResponse> {
        let request = request.into_inner();
        let wanted = request.image.unwrap_or_default().image;
        let password = request.auth.unwrap_or_default().password;
        let mut state = self.state();
        state.passwords.push(password.clone());
        if password != "right" {
            return Err(Status::unknown("401 Unauthorized"));
        }
        let id = format!("sha256:{wanted}");
        let image = v1::Image {
            id: id.clone(),
            ..Default::default()
        };
        state.images.insert(wanted, image);
        Ok(Response::new(v1::PullImageResponse { image_ref: id }))
    }
}
