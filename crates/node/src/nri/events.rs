//! What plugins are notified of pods and containers, and asked about them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use allot_protos::nri::{
    Container, ContainerEviction, ContainerUpdate, CreateContainerRequest, CreateContainerResponse,
    Event, LinuxResources, PluginInstance, PodSandbox, PostUpdatePodSandboxRequest,
    RemoveContainerRequest, RemovePodSandboxRequest, RunPodSandboxRequest, StopContainerRequest,
    StopContainerResponse, StopPodSandboxRequest, UpdateContainersRequest, UpdatePodSandboxRequest,
    ValidateContainerAdjustmentRequest, ValidateContainerAdjustmentResponse,
};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::connection::{CallError, read};
use super::merge::{Adjustments, Updates, overlay, resources_of};
use super::plugin::{Plugin, PluginError, Told};
use super::{JOIN, KnownContainer, KnownPod, Nri, Stage, UPDATE, describe, resources};
use crate::events::Kind;
use crate::runtime::{self, Running};
use crate::spec::{ContainerSpec, Exit, PodLimits};

mod containers;

/// The plugins in their order.
type Plugins = [Arc<Plugin>];

/// An error of a plugin, with its name.
fn of(plugin: &Plugin, error: &dyn std::fmt::Display) -> String {
    crate::events::shorten(format!("NRI plugin {:?}: {error}", plugin.name))
}

/// Tells plugins what they cannot prevent.
async fn inform<Q: prost::Message>(plugins: &Plugins, told: &Told<'_, Q>) {
    for plugin in plugins {
        if let Err(error) = plugin.tell(told).await {
            let (plugin, event) = (&plugin.name, told.method);
            tracing::warn!(plugin, event, %error, "an NRI plugin reports an error");
        }
    }
}

fn stop_pod(pod: &PodSandbox) -> Told<'_, StopPodSandboxRequest> {
    Told {
        event: Event::StopPodSandbox,
        method: "StopPodSandbox",
        request: StopPodSandboxRequest {
            pod: Some(pod.clone()),
        },
        pod,
        container: None,
    }
}

fn remove_pod(pod: &PodSandbox) -> Told<'_, RemovePodSandboxRequest> {
    Told {
        event: Event::RemovePodSandbox,
        method: "RemovePodSandbox",
        request: RemovePodSandboxRequest {
            pod: Some(pod.clone()),
        },
        pod,
        container: None,
    }
}

impl Nri {
    /// Adds a plugin that has been configured: it is told everything that there is.
    ///
    /// # Errors
    /// It does not answer, or containers are being started for too long.
    pub(super) async fn join(&self, plugin: Plugin) -> Result<(), PluginError> {
        let sync = tokio::time::timeout(JOIN, self.plugin_sync.write()).await;
        let _sync = sync.map_err(|_| PluginError::Busy)?;
        let mut plugins = self.turn().await;
        let (pods, containers) = {
            let known = self.known.lock();
            let pods = known.pods.values().filter(|it| !it.stopped);
            let running = known.containers.values();
            let running = running.filter(|it| it.stage != Stage::Stopped);
            (
                pods.map(|it| it.sandbox.clone()).collect(),
                running.map(|it| it.container.clone()).collect(),
            )
        };
        let updates = plugin.synchronize(pods, containers).await?;
        tracing::info!(plugin = plugin.name, "an NRI plugin has joined");
        plugins.push(Arc::new(plugin));
        plugins.sort_by(|a, b| a.index.cmp(&b.index));
        self.carry_out(updates).await;
        Ok(())
    }

    /// Tells plugins that a pod has its network, before its first container. Once for each pod.
    ///
    /// # Errors
    /// A plugin refuses the pod. The others were told that it is gone.
    pub(crate) async fn run_pod(&self, sandbox: PodSandbox) -> Result<(), String> {
        let plugins = self.turn().await;
        let runs = {
            let known = self.known.lock();
            known.pods.get(&sandbox.id).is_some_and(|it| !it.stopped)
        };
        if runs {
            self.know(sandbox);
            return Ok(());
        }
        let told = Told {
            event: Event::RunPodSandbox,
            method: "RunPodSandbox",
            request: RunPodSandboxRequest {
                pod: Some(sandbox.clone()),
            },
            pod: &sandbox,
            container: None,
        };
        for plugin in plugins.iter() {
            if let Err(error) = plugin.tell(&told).await {
                inform(&plugins, &stop_pod(&sandbox)).await;
                inform(&plugins, &remove_pod(&sandbox)).await;
                return Err(of(plugin, &error));
            }
        }
        self.write_record(&sandbox);
        let known = KnownPod {
            sandbox: sandbox.clone(),
            stopped: false,
        };
        self.known.lock().pods.insert(sandbox.id, known);
        Ok(())
    }

    /// Tells plugins that the network of a pod is going to be removed, and before that that its containers have ended.
    pub(crate) async fn stop_pod(&self, uid: &str) {
        let plugins = self.turn().await;
        for id in self.containers_of(uid) {
            self.stop_container(&plugins, &id).await;
        }
        let sandbox = {
            let mut known = self.known.lock();
            let known = known.pods.get_mut(uid).filter(|it| !it.stopped);
            let Some(known) = known else { return };
            known.stopped = true;
            known.sandbox.clone()
        };
        inform(&plugins, &stop_pod(&sandbox)).await;
        let _ = std::fs::remove_file(self.record_of(uid));
    }

    /// Tells plugins that a pod is gone, with its containers.
    pub(crate) async fn forget_pod(&self, uid: &str) {
        let plugins = self.turn().await;
        for id in self.containers_of(uid) {
            self.remove_container(&plugins, &id).await;
        }
        let gone = self.known.lock().pods.remove(uid);
        if let Some(KnownPod { sandbox, stopped }) = gone {
            if !stopped {
                inform(&plugins, &stop_pod(&sandbox)).await;
            }
            inform(&plugins, &remove_pod(&sandbox)).await;
            let _ = std::fs::remove_file(self.record_of(uid));
        }
    }

    /// Tells plugins that the limits of a pod as a whole are going to be changed.
    ///
    /// # Errors
    /// A plugin refuses.
    pub(crate) async fn update_pod(&self, uid: &str, limits: PodLimits) -> Result<(), String> {
        let plugins = self.turn().await;
        let resources = Some(resources::of_pod(limits));
        // An agent that has been started again puts the same limits in force again.
        let changed = |sandbox: &PodSandbox| told_resources(sandbox) != resources.as_ref();
        let Some(sandbox) = self.sandbox(uid).filter(changed) else {
            return Ok(());
        };
        let told = Told {
            event: Event::UpdatePodSandbox,
            method: "UpdatePodSandbox",
            request: UpdatePodSandboxRequest {
                pod: Some(sandbox.clone()),
                overhead_linux_resources: None,
                linux_resources: resources,
            },
            pod: &sandbox,
            container: None,
        };
        for plugin in plugins.iter() {
            plugin
                .tell(&told)
                .await
                .map_err(|error| of(plugin, &error))?;
        }
        Ok(())
    }

    /// Tells plugins that the limits of a pod as a whole have been changed.
    pub(crate) async fn updated_pod(&self, uid: &str, limits: PodLimits) {
        let plugins = self.turn().await;
        let resources = Some(resources::of_pod(limits));
        let sandbox = {
            let mut known = self.known.lock();
            let known = known.pods.get_mut(uid);
            let changed = |it: &&mut KnownPod| told_resources(&it.sandbox) != resources.as_ref();
            let Some(known) = known.filter(changed) else {
                return;
            };
            known.sandbox.linux.get_or_insert_default().pod_resources = resources;
            known.sandbox.clone()
        };
        self.write_record(&sandbox);
        let told = Told {
            event: Event::PostUpdatePodSandbox,
            method: "PostUpdatePodSandbox",
            request: PostUpdatePodSandboxRequest {
                pod: Some(sandbox.clone()),
            },
            pod: &sandbox,
            container: None,
        };
        inform(&plugins, &told).await;
    }

    fn sandbox(&self, uid: &str) -> Option<PodSandbox> {
        let known = self.known.lock();
        known.pods.get(uid).map(|it| it.sandbox.clone())
    }

    fn containers_of(&self, uid: &str) -> Vec<String> {
        let known = self.known.lock();
        let own = known.containers.iter().filter(|(_, it)| it.pod == uid);
        own.map(|(id, _)| id.clone()).collect()
    }

    /// A container and its pod, as plugins are notified of them.
    fn container(&self, id: &str) -> Option<(PodSandbox, Container)> {
        let known = self.known.lock();
        let container = known.containers.get(id)?;
        let pod = known.pods.get(&container.pod)?;
        Some((pod.sandbox.clone(), container.container.clone()))
    }

    /// Updates that a plugin requests without being asked. Returns those that failed.
    ///
    /// # Errors
    /// The request cannot be read.
    pub(super) async fn update_unasked(
        &self,
        request: &[u8],
    ) -> Result<Vec<ContainerUpdate>, CallError> {
        let _turn = self.turn().await;
        // In turn, because it needs more memory than the text.
        let wanted: UpdateContainersRequest = read(request)?;
        let failed = self.carry_out(wanted.update).await;
        self.evict(wanted.evict);
        Ok(failed)
    }

    /// Changes the resources of running containers. Returns the updates that failed, but for those that may fail. Containers that
    /// are not known have ended, which is no failure, as with containerd.
    async fn carry_out(&self, updates: Vec<ContainerUpdate>) -> Vec<ContainerUpdate> {
        let deadline = Instant::now() + UPDATE;
        let mut failed = Vec::new();
        for update in updates {
            let id = &update.container_id;
            let Some((pod, container)) = self.container(id) else {
                continue;
            };
            let wanted = resources_of(&update);
            let enforced = self.runtime.enforces_limits();
            let changed = match resources::update(&wanted, enforced) {
                Ok(limits) => {
                    let changed = timeout_at(deadline, self.runtime.update(id, limits)).await;
                    match changed {
                        Ok(changed) => changed.map(drop).map_err(|error| error.to_string()),
                        Err(_) => Err(format!("not in force after {UPDATE:?}")),
                    }
                }
                Err(error) => Err(error),
            };
            match changed {
                Ok(()) => self.changed(id, &wanted),
                Err(error) if update.ignore_failure => {
                    tracing::debug!(container = id, error, "an update of an NRI plugin failed");
                }
                Err(error) => {
                    let message = format!("An NRI plugin requires resources: {error}");
                    let name = Some(container.name.as_str());
                    let pod = named(&pod);
                    let recorder = &self.recorder;
                    recorder.pod(&pod, name, Kind::Warning, "FailedNRIUpdate", message);
                    failed.push(update);
                }
            }
        }
        failed
    }

    fn changed(&self, id: &str, wanted: &LinuxResources) {
        let mut known = self.known.lock();
        if let Some(known) = known.containers.get_mut(id) {
            let linux = known.container.linux.get_or_insert_default();
            overlay(linux.resources.get_or_insert_default(), wanted);
        }
    }

    /// Stops containers that plugins want to be stopped, without waiting.
    fn evict(&self, evictions: Vec<ContainerEviction>) {
        let mut stopped = BTreeSet::new();
        for ContainerEviction {
            container_id,
            reason,
        } in evictions
        {
            // Once, however often it is requested.
            if !stopped.insert(container_id.clone()) {
                continue;
            }
            let Some((pod, container)) = self.container(&container_id) else {
                continue;
            };
            let message = format!(
                "Stopping container {} for an NRI plugin: {reason}",
                container.name
            );
            let name = Some(container.name.as_str());
            let recorder = &self.recorder;
            recorder.pod(&named(&pod), name, Kind::Normal, "Killing", message);
            let runtime = Arc::clone(&self.runtime);
            tokio::spawn(async move { runtime.stop(container_id, Duration::ZERO).await });
        }
    }
}

/// The resources of a pod as a whole that plugins were told.
fn told_resources(sandbox: &PodSandbox) -> Option<&LinuxResources> {
    sandbox.linux.as_ref()?.pod_resources.as_ref()
}

/// A pod as events need it.
fn named(sandbox: &PodSandbox) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some(sandbox.name.clone()),
            namespace: Some(sandbox.namespace.clone()),
            uid: Some(sandbox.uid.clone()),
            ..ObjectMeta::default()
        },
        ..Pod::default()
    }
}
