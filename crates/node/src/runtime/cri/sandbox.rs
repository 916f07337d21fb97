//! Pod sandboxes, which contain the namespaces that the containers of a pod share.

use std::net::IpAddr;
use std::path::Path;

use allot_protos::cri_v1 as v1;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::calls::CallError;
use super::containers::make_private;
use super::{Creation, Inner, follow, translate};
use crate::error::AtPath as _;
use crate::runtime::{Opened, RuntimeError};

/// The newest sandbox of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sandbox {
    pub(super) id: String,
    pub(super) attempt: u32,
    /// Whether the runtime had a pod network when the sandbox was created.
    pub(super) networks: bool,
    /// Pod IPs; empty if the pod shares the host's network.
    pub(super) addresses: Vec<IpAddr>,
    /// Whether the sandbox has been stopped or is being stopped. One that is being replaced stays recorded until there is the next one:
    /// the runtime refuses its attempt number until it is removed.
    pub(super) closed: bool,
    /// Whether the pod has yet to be told that it is new.
    pub(super) unseen: bool,
}

/// The pod IPs that a sandbox status reports.
pub(super) fn addresses(status: &v1::PodSandboxStatus) -> Vec<IpAddr> {
    let network = status.network.clone().unwrap_or_default();
    let more = network.additional_ips.into_iter().map(|it| it.ip);
    let all = std::iter::once(network.ip).chain(more);
    all.filter_map(|text| text.parse().ok()).collect()
}

impl Inner {
    /// The sandbox of a pod, unless it has been stopped.
    pub(super) fn open_sandbox(&self, uid: &str) -> Option<Sandbox> {
        let sandboxes = self.sandboxes.lock();
        sandboxes.get(uid).filter(|it| !it.closed).cloned()
    }

    /// Queries the status of a sandbox; `None` if the runtime does not know the sandbox.
    pub(super) async fn sandbox_status(
        &self,
        id: &str,
    ) -> Result<Option<v1::PodSandboxStatus>, CallError> {
        let request = v1::PodSandboxStatusRequest {
            pod_sandbox_id: id.to_owned(),
            verbose: false,
        };
        match self.calls.pod_sandbox_status(request).await {
            Ok(answer) => Ok(answer.status),
            Err(failure) if failure.is_missing() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Reuses the sandbox of a pod, or creates one. A sandbox that is no longer ready is replaced.
    pub(super) async fn open(
        &self,
        pod: &Pod,
        handler: BoxFuture<'_, Result<String, RuntimeError>>,
    ) -> Result<Opened, RuntimeError> {
        self.is_ready()?;
        let uid = pod.uid().unwrap_or_default();
        let _creation = Creation::begin(&self.creating, &uid);
        let known = self.sandboxes.lock().get(&uid).cloned();
        let mut attempt = 0;
        if let Some(sandbox) = known {
            let status = self.sandbox_status(&sandbox.id).await?;
            let ready = status.filter(|it| it.state() == v1::PodSandboxState::SandboxReady);
            if let Some(status) = ready.filter(|_| !sandbox.closed) {
                let own = translate::own_network(pod, sandbox.networks);
                return Ok(self.see(&uid, own.then_some(&status)));
            }
            attempt = sandbox.attempt.saturating_add(1);
            self.stop_sandbox(&sandbox.id).await?;
            if let Some(replaced) = self.sandboxes.lock().get_mut(&uid) {
                replaced.closed = true;
                replaced.addresses.clear();
            }
            self.remove(super::Removal::Sandbox(sandbox.id));
        }
        let runtime_handler = handler.await?;
        let networks = self.networks();
        let place = translate::Place {
            directory: &self.settings.directory,
            networks,
            attempt,
        };
        let config = translate::sandbox(pod, place)?;
        let logs = Path::new(&config.log_directory);
        make_private(logs).at(logs)?;
        let request = v1::RunPodSandboxRequest {
            config: Some(config),
            runtime_handler,
        };
        let id = self.calls.run_pod_sandbox(request).await?.pod_sandbox_id;
        // Recorded before a later call can fail, so that the sandbox is removed together with the pod.
        let sandbox = Sandbox {
            id: id.clone(),
            attempt,
            networks,
            addresses: Vec::new(),
            closed: false,
            unseen: true,
        };
        self.sandboxes.lock().insert(uid.clone(), sandbox);
        let status = match translate::own_network(pod, networks) {
            // If this fails, the next attempt asks again.
            true => self.sandbox_status(&id).await?,
            false => None,
        };
        Ok(self.see(&uid, status.as_ref()))
    }

    /// Records the addresses of a pod from the status of its sandbox, if it has a network of its own. A sandbox is new the first time.
    fn see(&self, uid: &str, status: Option<&v1::PodSandboxStatus>) -> Opened {
        let mut sandboxes = self.sandboxes.lock();
        let Some(sandbox) = sandboxes.get_mut(uid) else {
            return Opened::Kept;
        };
        if !std::mem::take(&mut sandbox.unseen) {
            return Opened::Kept;
        }
        sandbox.addresses = status.map(addresses).unwrap_or_default();
        Opened::Created
    }

    /// Stops the sandbox of a pod; retries for as long as the runtime is unavailable.
    pub(super) async fn close(&self, uid: &str) {
        loop {
            let known = self.sandboxes.lock().get_mut(uid).map(|sandbox| {
                sandbox.closed = true;
                sandbox.id.clone()
            });
            let Some(id) = known else { return };
            // One that is being replaced was stopped before.
            if self.removals.contains(&super::Removal::Sandbox(id.clone())) {
                return;
            }
            match self.stop_sandbox(&id).await {
                Ok(()) => return,
                Err(failure) => {
                    tracing::warn!(sandbox = id, %failure, "sandbox was not stopped yet");
                }
            }
            tokio::time::sleep(follow::PERIOD).await;
        }
    }

    async fn stop_sandbox(&self, id: &str) -> Result<(), CallError> {
        let request = v1::StopPodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        match self.calls.stop_pod_sandbox(request).await {
            Err(failure) if !failure.is_missing() => Err(failure),
            _ => Ok(()),
        }
    }

    /// Stops and removes a sandbox including its containers. Stopping a sandbox is idempotent.
    pub(super) async fn remove_sandbox(&self, id: &str) -> Result<(), CallError> {
        self.stop_sandbox(id).await?;
        let request = v1::RemovePodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        self.calls.remove_pod_sandbox(request).await.map(drop)
    }
}
