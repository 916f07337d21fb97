//! The runtime service of the fake runtime.

use std::path::Path;
use std::pin::Pin;

use allot_protos::cri_v1 as v1;
use tonic::{Request, Response, Status};
use v1::runtime_service_server::RuntimeService;

use super::{Answer, Container, Sandbox, Server, now};

type Events =
    Pin<Box<dyn futures::Stream<Item = Result<v1::ContainerEventResponse, Status>> + Send>>;

/// A text that is larger than the API accepts.
fn huge() -> String {
    "\u{1b}x".repeat(2 << 20)
}

fn selected(
    wanted: Option<&std::collections::HashMap<String, String>>,
    labels: &std::collections::HashMap<String, String>,
) -> bool {
    let mut wanted = wanted.into_iter().flatten();
    wanted.all(|(name, value)| labels.get(name) == Some(value))
}

#[tonic::async_trait]
impl RuntimeService for Server {
    type GetContainerEventsStream = Events;

    async fn version(&self, _: Request<v1::VersionRequest>) -> Answer<v1::VersionResponse> {
        let garbage = self.state().sends_garbage;
        Ok(Response::new(v1::VersionResponse {
            version: "0.1.0".into(),
            runtime_name: "containerd".into(),
            runtime_version: if garbage {
                huge()
            } else {
                "v2.0.0-fake".into()
            },
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
        let request = request.into_inner();
        let (config, handler) = (request.config.unwrap_or_default(), request.runtime_handler);
        let hangs = {
            let mut state = self.state();
            let hangs = state.creations_hang;
            if hangs {
                state.calls.push("RunPodSandbox".into());
            }
            hangs
        };
        if hangs {
            std::future::pending::<()>().await;
        }
        let mut state = self.state();
        if let Some(reason) = state.sandbox_error.clone() {
            state.calls.push("RunPodSandbox".into());
            return Err(Status::unknown(reason));
        }
        let mut others = state.sandboxes.values();
        if others.any(|it| it.config.metadata == config.metadata) {
            return Err(Status::unknown("the name of the sandbox is reserved"));
        }
        let id = state.id("sandbox");
        state.calls.push("RunPodSandbox".into());
        let sandbox = Sandbox {
            config,
            handler,
            ready: true,
        };
        state.sandboxes.insert(id.clone(), sandbox);
        if state.loses_response("RunPodSandbox") {
            return Err(Status::deadline_exceeded("context deadline exceeded"));
        }
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
        let stuck = {
            let mut state = self.state();
            state.calls.push("RemovePodSandbox".into());
            state.removals_hang
        };
        if stuck {
            std::future::pending::<()>().await;
        }
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
        let mut others = state.containers.values();
        if others
            .any(|it| it.sandbox == request.pod_sandbox_id && it.config.metadata == config.metadata)
        {
            return Err(Status::unknown("the name of the container is reserved"));
        }
        let id = state.id("container");
        state.calls.push("CreateContainer".into());
        let linux = config.linux.clone().unwrap_or_default();
        let context = linux.security_context.unwrap_or_default();
        let user = context.run_as_user.map_or(0, |user| user.value);
        let user = v1::LinuxContainerUser {
            uid: user,
            gid: user,
            supplemental_groups: vec![user],
        };
        let status = v1::ContainerStatus {
            id: id.clone(),
            resources: Some(v1::ContainerResources {
                linux: linux.resources,
            }),
            user: Some(v1::ContainerUser { linux: Some(user) }),
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
        if state.loses_response("CreateContainer") {
            return Err(Status::deadline_exceeded("context deadline exceeded"));
        }
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
        let mut state = self.state();
        state.lists += 1;
        let all = state.containers.iter();
        let all = all.filter(|(_, it)| selected(wanted, &it.config.labels));
        let garbage = state.sends_garbage;
        let containers = all.map(|(id, it)| v1::Container {
            id: id.clone(),
            pod_sandbox_id: it.sandbox.clone(),
            metadata: match (garbage, it.config.metadata.clone()) {
                (true, Some(metadata)) => Some(v1::ContainerMetadata {
                    attempt: u32::MAX,
                    ..metadata
                }),
                (_, metadata) => metadata,
            },
            state: it.status.state,
            labels: it.config.labels.clone(),
            annotations: it.config.annotations.clone(),
            image_ref: it.status.image_ref.clone(),
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
        let mut state = self.state();
        let found = state.containers.get(&id);
        let found = found.ok_or_else(|| Status::not_found("no such container"))?;
        let mut status = found.status.clone();
        if state.sends_garbage {
            status.image_ref = huge();
            status.reason = "\u{0}\u{1b}[2J\n".into();
            status.started_at = i64::MIN;
            status.finished_at = i64::MAX;
            status.exit_code = match status.state() {
                v1::ContainerState::ContainerExited => i32::MIN,
                _ => status.exit_code,
            };
            let user = v1::LinuxContainerUser {
                uid: i64::MIN,
                gid: i64::MAX,
                supplemental_groups: vec![-1; 200_000],
            };
            status.user = Some(v1::ContainerUser { linux: Some(user) });
        }
        if status.state() == v1::ContainerState::ContainerExited
            && let Some(reason) = state.late_reason.take()
            && let Some(container) = state.containers.get_mut(&id)
        {
            container.status.reason = reason;
        }
        Ok(Response::new(v1::ContainerStatusResponse {
            status: Some(status),
        }))
    }

    async fn update_container_resources(
        &self,
        request: Request<v1::UpdateContainerResourcesRequest>,
    ) -> Answer<v1::UpdateContainerResourcesResponse> {
        let request = request.into_inner();
        let mut state = self.state();
        state.calls.push("UpdateContainerResources".into());
        if let Some(why) = state.update_error.clone() {
            return Err(Status::unknown(why));
        }
        let container = state.containers.get_mut(&request.container_id);
        let container = container.ok_or_else(|| Status::not_found("no such container"))?;
        container.status.resources = Some(v1::ContainerResources {
            linux: request.linux,
        });
        Ok(Response::new(Default::default()))
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
        request: Request<v1::ReopenContainerLogRequest>,
    ) -> Answer<v1::ReopenContainerLogResponse> {
        let id = request.into_inner().container_id;
        let state = self.state();
        let container = state.containers.get(&id);
        let container = container.ok_or_else(|| Status::not_found("no such container"))?;
        let sandbox = &state.sandboxes[&container.sandbox].config;
        let path = Path::new(&sandbox.log_directory).join(&container.config.log_path);
        std::fs::create_dir_all(path.parent().unwrap_or(&path))?;
        std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)?;
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
        if !self.state().sends_garbage {
            return Err(Status::unimplemented("no events"));
        }
        let state = self.0.clone();
        let endless = futures::stream::repeat_with(move || {
            state.lock().expect("a state").events += 1;
            Ok(v1::ContainerEventResponse {
                container_id: "\u{0}".into(),
                created_at: i64::MIN,
            })
        });
        let events: Events = Box::pin(endless);
        Ok(Response::new(events))
    }
}
