//! CRI calls to the container runtime, each with a deadline.

use std::path::PathBuf;
use std::time::Duration;

use allot_protos::cri_v1 as v1;
use allot_protos::transport;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};
use v1::image_service_client::ImageServiceClient;
use v1::runtime_service_client::RuntimeServiceClient;

/// Deadline of calls that only query the runtime.
const LOOK: Duration = Duration::from_secs(15);
/// Deadline of calls that change something; the default of the kubelet's `--runtime-request-timeout`.
const WORK: Duration = Duration::from_secs(120);
/// Deadline for creating a sandbox, which can include network setup. Like the kubelet, twice the normal deadline.
const SANDBOX: Duration = Duration::from_secs(240);
/// Deadline for pulling an image. Runtimes cancel a pull without progress earlier themselves.
const PULL: Duration = Duration::from_secs(3600);
/// Maximum size of a response; the same as the kubelet's.
const LARGEST: usize = 16 << 20;

/// A failed call; the message has the format of Go's gRPC clients.
#[derive(Debug, Clone, thiserror::Error)]
#[error("rpc error: code = {code:?} desc = {message}")]
pub struct CallError {
    pub(super) code: Code,
    pub(super) message: String,
}

impl CallError {
    /// Whether the runtime did not respond, so that the result of the call is unknown.
    pub(super) fn is_away(&self) -> bool {
        matches!(
            self.code,
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled
        )
    }

    /// Whether the requested object does not exist.
    pub(super) fn is_missing(&self) -> bool {
        self.code == Code::NotFound
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        let mut message = status.message().to_owned();
        // The reason for a broken connection is only in the source errors.
        let mut cause = std::error::Error::source(&status);
        while let Some(error) = cause {
            let text = error.to_string();
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            cause = error.source();
        }
        Self {
            code: status.code(),
            message,
        }
    }
}

/// A client of the CRI runtime and image services. It connects on first use, and reconnects after a lost connection.
#[derive(Debug, Clone)]
pub(super) struct Calls {
    runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
}

/// An endpoint that is not a socket of this machine.
#[derive(Debug, thiserror::Error)]
#[error("endpoint {0:?} of the container runtime: expected unix:///PATH")]
pub struct EndpointError(String);

/// Parses the socket path of an endpoint, which is either `unix:///path` or a path.
pub(crate) fn socket(endpoint: &str) -> Result<PathBuf, EndpointError> {
    let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
    match path.starts_with('/') {
        true => Ok(path.into()),
        false => Err(EndpointError(endpoint.to_owned())),
    }
}

async fn within<T>(
    deadline: Duration,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(deadline, call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(status.into()),
        Err(_) => Err(CallError {
            code: Code::DeadlineExceeded,
            message: "context deadline exceeded".into(),
        }),
    }
}

/// Defines one method for each call with a fixed deadline.
macro_rules! calls {
    ($($client:ident.$name:ident($request:ident) -> $response:ident within $deadline:expr;)*) => {
        impl Calls {
            $(pub(super) async fn $name(&self, request: v1::$request) -> Result<v1::$response, CallError> {
                let mut client = self.$client.clone();
                within($deadline, client.$name(request)).await
            })*
        }
    };
}

calls! {
    runtime.version(VersionRequest) -> VersionResponse within LOOK;
    runtime.status(StatusRequest) -> StatusResponse within LOOK;
    runtime.run_pod_sandbox(RunPodSandboxRequest) -> RunPodSandboxResponse within SANDBOX;
    runtime.stop_pod_sandbox(StopPodSandboxRequest) -> StopPodSandboxResponse within WORK;
    runtime.remove_pod_sandbox(RemovePodSandboxRequest) -> RemovePodSandboxResponse within WORK;
    runtime.pod_sandbox_status(PodSandboxStatusRequest) -> PodSandboxStatusResponse within LOOK;
    runtime.list_pod_sandbox(ListPodSandboxRequest) -> ListPodSandboxResponse within LOOK;
    runtime.create_container(CreateContainerRequest) -> CreateContainerResponse within WORK;
    runtime.start_container(StartContainerRequest) -> StartContainerResponse within WORK;
    runtime.remove_container(RemoveContainerRequest) -> RemoveContainerResponse within WORK;
    runtime.list_containers(ListContainersRequest) -> ListContainersResponse within LOOK;
    runtime.container_status(ContainerStatusRequest) -> ContainerStatusResponse within LOOK;
    runtime.update_container_resources(UpdateContainerResourcesRequest) -> UpdateContainerResourcesResponse within WORK;
    runtime.list_container_stats(ListContainerStatsRequest) -> ListContainerStatsResponse within LOOK;
    runtime.reopen_container_log(ReopenContainerLogRequest) -> ReopenContainerLogResponse within LOOK;
    runtime.exec(ExecRequest) -> ExecResponse within WORK;
    runtime.attach(AttachRequest) -> AttachResponse within WORK;
    runtime.port_forward(PortForwardRequest) -> PortForwardResponse within WORK;
    images.list_images(ListImagesRequest) -> ListImagesResponse within LOOK;
    images.remove_image(RemoveImageRequest) -> RemoveImageResponse within WORK;
    images.image_fs_info(ImageFsInfoRequest) -> ImageFsInfoResponse within LOOK;
    images.image_status(ImageStatusRequest) -> ImageStatusResponse within LOOK;
    images.pull_image(PullImageRequest) -> PullImageResponse within PULL;
}

impl Calls {
    pub(super) fn new(socket: &std::path::Path) -> Self {
        let channel = transport::connect_lazy(socket);
        Self {
            runtime: RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(LARGEST),
            images: ImageServiceClient::new(channel).max_decoding_message_size(LARGEST),
        }
    }

    /// Stops a container; the runtime responds once the container has exited.
    pub(super) async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), CallError> {
        let request = v1::StopContainerRequest {
            container_id: id.to_owned(),
            timeout: seconds(grace),
        };
        let mut client = self.runtime.clone();
        let stopped = within(grace.saturating_add(WORK), client.stop_container(request)).await;
        stopped.map(drop)
    }

    /// Executes a command and waits until it exits. The runtime kills it after `limit`; the call itself has a slightly
    /// longer deadline.
    pub(super) async fn exec_sync(
        &self,
        id: &str,
        cmd: Vec<String>,
        limit: Duration,
    ) -> Result<v1::ExecSyncResponse, CallError> {
        let request = v1::ExecSyncRequest {
            container_id: id.to_owned(),
            cmd,
            timeout: seconds(limit),
        };
        let mut client = self.runtime.clone();
        within(limit.saturating_add(LOOK), client.exec_sync(request)).await
    }

    /// Subscribes to container events. Each event means that the containers should be listed again.
    pub(super) async fn events(
        &self,
    ) -> Result<tonic::Streaming<v1::ContainerEventResponse>, CallError> {
        let mut client = self.runtime.clone();
        within(
            LOOK,
            client.get_container_events(v1::GetEventsRequest::default()),
        )
        .await
    }
}

/// Whole seconds, rounded up so that less than a second does not become zero.
fn seconds(time: Duration) -> i64 {
    let whole = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    i64::try_from(whole).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_sockets() {
        let check = |endpoint: &str, expected: Option<&str>| {
            let found = socket(endpoint).ok();
            assert_eq!(found.as_deref(), expected.map(std::path::Path::new));
        };
        check(
            "unix:///run/containerd/containerd.sock",
            Some("/run/containerd/containerd.sock"),
        );
        check("/run/crio/crio.sock", Some("/run/crio/crio.sock"));
        check("unix://run/crio.sock", None);
        check("tcp://127.0.0.1:1", None);
        check("", None);
    }

    #[test]
    fn half_a_second_is_not_no_time() {
        assert_eq!(seconds(Duration::ZERO), 0);
        assert_eq!(seconds(Duration::from_millis(1)), 1);
        assert_eq!(seconds(Duration::from_secs(30)), 30);
    }
}
