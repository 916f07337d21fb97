//! What a pod needs before its first container: volumes and claims.

use std::sync::Arc;

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::{Api, ResourceExt};
use tokio::time::Instant;

use super::super::env::{Downward, Sources};
use super::super::sandbox::{self, Obstacle};
use super::super::state::{ContainerState, Phase};
use super::super::volumes::{self, Contents, Tokens, VolumeError};
use super::super::{Node, Update, adjust, certificates, launch};
use super::{Wake, Worker};
use crate::boot;
use crate::events::Kind;
use crate::rules::is_sidecar;
use crate::runtime::{Opened, RuntimeError};

fn contents<'a>(
    node: &'a Node,
    downward: &'a Downward<'a>,
    tokens: &'a mut Tokens,
    certificates: &'a certificates::OfPod,
) -> Contents<'a> {
    let (client, namespace) = (&node.client, downward.pod.namespace());
    Contents {
        client,
        node,
        downward,
        sources: Sources::new(client.clone(), namespace.unwrap_or_default()),
        tokens: (!node.pretends()).then_some(tokens),
        certificates: (!node.pretends()).then_some(certificates),
    }
}

/// Creates the pod's sandbox, or reuses the existing one: that of the runtime, or else its network if it has one.
async fn open_sandbox(node: &Node, pod: &Pod) -> Result<Opened, Obstacle> {
    let Some(complete) = node.runtime.complete() else {
        let directory = node.pod_dir(&pod.uid().unwrap_or_default());
        let before = node.has_own_network(pod);
        tokio::select! {
            attached = node.sandboxes.attach(pod, &directory) => attached?,
            // Plugins that run are ended; the next agent undoes what they did.
            () = node.shutdown.cancelled() => return Err(Obstacle::failed("the agent is stopping")),
        }
        if !before && sandbox::has_host_ports(pod) && !node.sandboxes.opens_ports(pod) {
            let text = "no plugin of the pod's network has the capability portMappings: its host ports are not opened";
            let events = &node.events;
            events.pod(pod, None, Kind::Warning, "HostPortNotOpened", text);
        }
        if let Some(nri) = &node.nri {
            let told = nri.run_pod(adjust::sandbox(node, pod)).await;
            told.map_err(Obstacle::failed)?;
        }
        // Its containers are each by itself: what they share ends with the machine alone.
        if !node.pretends() && boot::enter(&directory).map_err(Obstacle::failed)? {
            return Ok(Opened::Created);
        }
        return Ok(Opened::Kept);
    };
    let handler = runtime_handler(node, pod).boxed();
    let opened = complete.open(Arc::new(pod.clone()), handler).await;
    opened.map_err(Obstacle::failed)
}

/// The handler of the pod's RuntimeClass; empty for the runtime's default.
async fn runtime_handler(node: &Node, pod: &Pod) -> Result<String, RuntimeError> {
    let spec = pod.spec.as_ref();
    let class = spec.and_then(|spec| spec.runtime_class_name.as_deref());
    let Some(class) = class.filter(|class| !class.is_empty()) else {
        return Ok(String::new());
    };
    let api: Api<RuntimeClass> = Api::all(node.client.clone());
    let found = api.get(class).await;
    let found = found.map_err(|error| RuntimeError::RuntimeClass(Box::new(error)))?;
    Ok(found.handler)
}

impl Worker {
    /// Volumes and claims. Returns when to try again if that failed.
    pub(super) async fn set_up(&mut self, pod: &Pod) -> Wake {
        if let Some(at) = self.setup_retry.1.filter(|at| *at > Instant::now()) {
            return Some(at);
        }
        let events = self.node.events.clone();
        let result = match self.make_volumes(pod).await {
            Ok(()) => self.node.claims.prepare(pod).await.map_err(|error| {
                let message = format!("Failed to prepare dynamic resources: {error}");
                events.pod(
                    pod,
                    None,
                    Kind::Warning,
                    "FailedPrepareDynamicResources",
                    message,
                );
                error.to_string()
            }),
            Err(error) => {
                let message = error.to_string();
                events.pod(pod, None, Kind::Warning, "FailedMount", message.clone());
                Err(message)
            }
        };
        let result = match result {
            Ok(()) => self.open_sandbox(pod).await.map_err(|obstacle| {
                let Obstacle { reason, message } = obstacle;
                if !self.is_ending() {
                    events.pod(pod, None, Kind::Warning, reason, message.clone());
                }
                message
            }),
            Err(error) => Err(error),
        };
        match result {
            Ok(opened) => {
                self.ready = true;
                self.setup_retry = (self.node.config.setup_backoff.0, None);
                self.begin_again(pod, opened);
                None
            }
            Err(error) => {
                tracing::warn!(pod = pod.name_any(), error, "pod is not ready to start");
                let at = Instant::now() + self.setup_retry.0;
                let longest = self.node.config.setup_backoff.1;
                self.setup_retry = (self.setup_retry.0.saturating_mul(2).min(longest), Some(at));
                Some(at)
            }
        }
    }

    /// Whether the agent is stopping or the pod is to end: what fails meanwhile is no fault of the pod.
    pub(super) fn is_ending(&self) -> bool {
        self.node.shutdown.is_cancelled() || self.updates.borrow().is_ending()
    }

    /// As [`open_sandbox`], but no longer than until the pod is to end: a container runtime has minutes for it, and all of them if a
    /// network plugin hangs. What it creates later is removed.
    pub(super) async fn open_sandbox(&self, pod: &Pod) -> Result<Opened, Obstacle> {
        let mut updates = self.updates.clone();
        let cancels = self.node.runtime.complete().is_some();
        tokio::select! {
            biased;
            opened = open_sandbox(&self.node, pod) => opened,
            () = updates.wait_for(Update::is_ending).map(drop), if cancels => Err(Obstacle::failed("the pod is to end")),
        }
    }

    /// In a new sandbox a pod begins with its first init container, as with a kubelet: after the end of the machine, of the runtime or
    /// of the sandbox alone, nothing is there of what they have set up. Returns whether it does.
    pub(super) fn begin_again(&mut self, pod: &Pod, opened: Opened) -> bool {
        let mut containers = self.containers.lock();
        if opened == Opened::Kept || !containers.values().any(ContainerState::started_once) {
            return false;
        }
        let init = pod.spec.iter().flat_map(|spec| &spec.init_containers);
        for container in init.flatten().filter(|container| !is_sidecar(container)) {
            let Some(state) = containers.get_mut(&container.name) else {
                continue;
            };
            if let Phase::Terminated(end) = &state.phase {
                state.last = Some(end.clone());
                state.phase = Phase::waiting("PodInitializing", "");
                state.retry_at = None;
            }
        }
        drop(containers);
        self.initializing = true;
        let message = "Pod sandbox changed, it will be killed and re-created.";
        let events = &self.node.events;
        events.pod(pod, None, Kind::Normal, "SandboxChanged", message);
        true
    }

    pub(super) async fn make_volumes(&mut self, pod: &Pod) -> Result<(), VolumeError> {
        let directory = self.node.pod_dir(&pod.uid().unwrap_or_default());
        let downward = launch::downward(&self.node, pod);
        let (tokens, certificates) = (&mut self.tokens, &self.certificates);
        let mut contents = contents(&self.node, &downward, tokens, certificates);
        self.volumes = Some(volumes::prepare(&mut contents, &directory).await?);
        self.refresh = Some(Instant::now() + self.node.config.sync_frequency);
        Ok(())
    }

    /// Requests and renews the certificates of a pod. Returns when to check again.
    pub(super) fn keep_certificates(&mut self, pod: &Pod) -> Wake {
        if self.node.pretends() {
            return None;
        }
        let (wake, changed) = self.certificates.keep(&self.node, pod, &self.news);
        if changed {
            // The files are written at once, or it is reported why there are none.
            self.setup_retry.1 = None;
            if self.ready {
                self.refresh = Some(Instant::now());
            }
        }
        wake
    }

    /// Updates the volumes from the API server. Returns when to check again.
    pub(super) async fn refresh_volumes(&mut self, pod: &Pod) -> Wake {
        if !self.ready || self.node.pretends() || !volumes::may_change(pod) {
            return None;
        }
        let now = Instant::now();
        // No time is set yet if an earlier agent prepared the volumes: their age is not known.
        if self.refresh.is_none_or(|at| at <= now) {
            self.refresh = Some(now + self.node.config.sync_frequency);
            let directory = self.node.pod_dir(&pod.uid().unwrap_or_default());
            let downward = launch::downward(&self.node, pod);
            let (tokens, certificates) = (&mut self.tokens, &self.certificates);
            let mut contents = contents(&self.node, &downward, tokens, certificates);
            if let Err(error) = volumes::refresh(&mut contents, &directory).await {
                let events = &self.node.events;
                let message = error.to_string();
                events.pod(pod, None, Kind::Warning, "FailedMount", message);
            }
        }
        self.refresh
    }
}
