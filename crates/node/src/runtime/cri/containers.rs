//! Container operations of the CRI runtime.

use std::time::Duration;

use allot_protos::cri_v1 as v1;
use jiff::Timestamp;
use kube::ResourceExt;
use tokio::sync::watch;

use super::demands::Demands;
use super::{Creation, Inner, Known, Removal, calls, follow, reported, time, translate};
use crate::runtime::{ReportedResources, Request, Running, RuntimeError, StartError, ended};
use crate::shim::spec::{ContainerSpec, Limits};

impl Inner {
    /// Creates a container and starts it.
    pub(super) async fn launch(
        &self,
        spec: ContainerSpec,
        request: Request,
    ) -> Result<Running, StartError> {
        let obstacle = |reason: &'static str, message: String| StartError::Obstacle {
            reason,
            message,
            remedy: None,
        };
        let name = &request.container.name;
        self.is_ready()
            .map_err(|error| obstacle("CreateContainerError", error.to_string()))?;
        let devices = &request.cdi_devices;
        if !devices.is_empty() {
            // Query the current state: the runtime may just have been restarted with a different configuration.
            let asked = self.ask().await;
            asked.map_err(|failure| obstacle("CreateContainerError", failure.to_string()))?;
        }
        if let Some(problem) = self.devices.lock().problem(devices) {
            return Err(StartError::Obstacle {
                reason: "CreateContainerError",
                message: format!(
                    "failed to generate container \"{name}\" spec: failed to inject CDI devices: {}",
                    problem.text
                ),
                remedy: Some(problem.remedy),
            });
        }
        let refused = |what: &str| {
            let message = format!("failed to inject CDI devices: {what}");
            obstacle("CreateContainerError", message)
        };
        let demands = Demands::of(&self.settings.cdi_dirs, devices).map_err(|it| refused(&it))?;
        let pod = &request.pod;
        let uid = pod.uid().unwrap_or_default();
        let _creation = Creation::begin(&self.creating, &uid);
        let sandbox = self
            .open_sandbox(&uid)
            .ok_or_else(|| obstacle("CreateContainerError", "the pod has no sandbox".into()))?;
        let place = translate::Place {
            directory: &self.settings.directory,
            networks: sandbox.networks,
            attempt: sandbox.attempt,
        };
        let config = translate::container(&spec, &request, place)
            .map_err(|error| obstacle("CreateContainerConfigError", error.to_string()))?;
        let of_pod = translate::sandbox(pod, place)
            .map_err(|error| obstacle("CreateContainerConfigError", error.to_string()))?;
        let logs = spec.log.parent().map(make_private).transpose();
        logs.map_err(|error| obstacle("CreateContainerConfigError", error.to_string()))?;
        let create = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.id,
            config: Some(config),
            sandbox_config: Some(of_pod),
        };
        let created = self.calls.create_container(create).await;
        let id = created
            .map_err(|failure| {
                let message = failure.to_string();
                let dirs = &self.settings.cdi_dirs;
                let remedy = self.devices.lock().remedy(&message, dirs);
                StartError::Obstacle {
                    reason: "CreateContainerError",
                    message,
                    remedy,
                }
            })?
            .container_id;
        // Recorded before the container starts, so that its exit is not missed.
        let (sender, exit) = watch::channel(None);
        let known = Known {
            exit: sender,
            stdin: spec.stdin,
            tty: spec.tty,
            killed: None,
        };
        self.containers.lock().insert(id.clone(), known);
        let start = v1::StartContainerRequest {
            container_id: id.clone(),
        };
        if let Err(failure) = self.calls.start_container(start).await {
            self.remove(Removal::Container(id));
            return Err(match failure.is_away() {
                true => obstacle("RunContainerError", failure.to_string()),
                false => StartError::Failed(failure.to_string()),
            });
        }
        if let Some(what) = demands.left_out(&id) {
            self.remove(Removal::Container(id));
            return Err(refused(&what));
        }
        self.look.notify_one();
        let status = self.status(&id).await.ok().flatten();
        let started = status.as_ref().map(|status| time(status.started_at));
        Ok(Running {
            started: started.flatten().unwrap_or_else(Timestamp::now),
            user: status.as_ref().and_then(reported::user),
            given: status.as_ref().and_then(reported::given),
            image_id: status.map_or(request.image.id, |status| reported::image_id(&status)),
            id,
            exit,
        })
    }

    /// Queries the status of a container; `None` if the runtime does not know the container.
    pub(super) async fn status(
        &self,
        id: &str,
    ) -> Result<Option<v1::ContainerStatus>, calls::CallError> {
        let request = v1::ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose: false,
        };
        match self.calls.container_status(request).await {
            Ok(answer) => Ok(answer.status),
            Err(failure) if failure.is_missing() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Changes the limits of a container; returns the resources that the runtime reports afterwards.
    pub(super) async fn update(
        &self,
        id: &str,
        limits: &Limits,
    ) -> Result<Option<ReportedResources>, RuntimeError> {
        let request = v1::UpdateContainerResourcesRequest {
            container_id: id.to_owned(),
            linux: Some(v1::LinuxContainerResources {
                // A resize does not change them.
                hugepage_limits: Vec::new(),
                ..translate::resources(limits)
            }),
            ..v1::UpdateContainerResourcesRequest::default()
        };
        self.calls.update_container_resources(request).await?;
        let status = self.status(id).await.ok().flatten();
        Ok(status.as_ref().and_then(reported::given))
    }

    /// Stops a container; retries for as long as the runtime is unavailable.
    pub(super) async fn stop(&self, id: &str, grace: Duration) {
        let Some(mut exit) = self.containers.lock().get(id).map(|it| it.exit.subscribe()) else {
            return;
        };
        while exit.borrow().is_none() {
            match self.calls.stop_container(id, grace).await {
                Err(failure) if !failure.is_missing() => {
                    tracing::warn!(container = id, %failure, "container was not stopped yet");
                }
                _ => self.settle(id, true).await,
            }
            // Wait for the exit, or until the next attempt is due.
            let _ = tokio::time::timeout(follow::PERIOD, ended(&mut exit)).await;
        }
    }
}

/// Creates a log directory that other users of the host cannot read.
pub(super) fn make_private(path: &std::path::Path) -> std::io::Result<()> {
    allot_cdi::file::create_private_dir(path, 0o750)
}
