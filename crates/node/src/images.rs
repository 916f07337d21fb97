//! Images of a node's containers: when and with which credentials they are pulled, what is used in their place when
//! their registry cannot be reached, and how long they are kept.
//!
//! The kubelet's rules for pulls are in [`allot_images::Manager`]; this module passes it the pod's policies and
//! secrets, and records the pod's events.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use allot_images::backoff::Backoff;
use allot_images::manager::{Event, Policy, Ready, Request, Waiting};
use allot_images::{Keyring, Manager, Puller, Reference, Registries, Store};
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::{Client, ResourceExt};

use crate::config::{Config, ImageMode};
use crate::error::Error;
use crate::events::{Kind, Recorder};
use crate::spec::{COPY, ImageConfig, RootFs};

mod delegated;
mod garbage;
mod reach;
mod reported;
mod secrets;

pub(crate) use delegated::Delegated;
pub(crate) use garbage::{Request as CollectionRequest, collect};

/// The image name of the host's files, unless images are required.
const HOST: &str = "host";

/// The images of a node.
pub(crate) struct Images {
    mode: ImageMode,
    manager: Manager,
    registries: Registries,
    client: Client,
    events: Recorder,
    /// Whether the kernel can lay layers over each other.
    overlay: bool,
    /// The list that was read last for the node's status.
    listed: parking_lot::Mutex<Option<reported::Listed>>,
}

/// Why the images of a container cannot be kept, or its root directory cannot be created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HoldError {
    /// The image was removed again, or there is no space for a copy of it.
    #[error(transparent)]
    Image(#[from] allot_images::Error),
    /// The task that copies the image ended early.
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
}

/// What a container runs on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Files {
    /// Its image; none for the host's files.
    pub(crate) image: Option<Ready>,
    /// The images that are volumes, by the volume's name.
    pub(crate) volumes: BTreeMap<String, Ready>,
    /// Its image at a runtime that has images of its own.
    pub(crate) delegated: Option<crate::runtime::Image>,
    /// The images of such a runtime that are volumes, by the volume's name.
    pub(crate) delegated_volumes: BTreeMap<String, crate::runtime::Image>,
}

impl Files {
    /// The image's configuration of the program.
    pub(crate) fn config(&self) -> ImageConfig {
        let Some(ready) = &self.image else {
            let user = self.delegated.as_ref().map(|image| image.user.clone());
            return ImageConfig {
                user: user.unwrap_or_default(),
                ..ImageConfig::default()
            };
        };
        let config = ready.image.config.clone();
        ImageConfig {
            entrypoint: config.entrypoint,
            cmd: config.cmd,
            env: config.env,
            user: config.user,
            working_dir: config.working_dir,
            stop_signal: config.stop_signal,
        }
    }
}

impl Images {
    /// Opens the image store of a node, below its directory. `overlay`: the kernel supports overlay mounts of layers.
    ///
    /// # Errors
    /// The directory cannot be used.
    pub(crate) async fn open(
        config: &Config,
        client: Client,
        events: Recorder,
        overlay: bool,
    ) -> Result<Self, Error> {
        let wanted = config.images.clone();
        let path = config.root_dir.join("images");
        let (limits, timeouts) = (wanted.limits, wanted.timeouts);
        let open = move || Store::open(path, limits, timeouts);
        let opened = tokio::task::spawn_blocking(open).await;
        let store = match opened {
            Ok(Ok(store)) => store,
            Ok(Err(error)) => return Err(Error::Images(error.to_string())),
            Err(error) => return Err(Error::Images(error.to_string())),
        };
        let puller = Puller::new(store, wanted.registries.clone());
        let backoff = Backoff::new(wanted.pauses.0, wanted.pauses.1);
        Ok(Self {
            mode: wanted.mode,
            manager: Manager::with_backoff(puller, backoff),
            registries: wanted.registries,
            client,
            events,
            overlay,
            listed: parking_lot::Mutex::default(),
        })
    }

    /// The images, for their collection.
    pub(crate) fn garbage(&self) -> std::sync::Arc<dyn garbage::Garbage> {
        std::sync::Arc::new(self.store().clone())
    }

    fn store(&self) -> &Store {
        self.manager.source().store()
    }

    /// Ensures that the images of a container are present: its own and those of its image volumes.
    ///
    /// # Errors
    /// Why the container waits, in the kubelet's words.
    pub(crate) async fn ensure(&self, pod: &Pod, container: &Container) -> Result<Files, Waiting> {
        let keyring = secrets::keyring(&self.client, &self.events, pod)
            .await
            .map_err(|error| {
                let message = error.to_string();
                refuse(&self.events, pod, container, "ErrImagePull", message)
            })?;
        let mut files = Files {
            image: self.root(pod, container, &keyring).await?,
            ..Files::default()
        };
        for (volume, reference, policy) in image_volumes(pod, container) {
            let credentials = credentials(&keyring, reference);
            let request = Request {
                pod_uid: pod.metadata.uid.as_deref().unwrap_or_default(),
                image: reference,
                policy: Policy::of(policy, reference),
                credentials: &credentials,
            };
            let mut tell = |event: Event| self.record_event(pod, container, event);
            let ready = self.manager.ensure(&request, &mut tell).await?;
            if !self.overlay && ready.rootfs.lower.len() > 1 {
                let message = format!(
                    "volume {volume:?}: images of several layers need overlayfs, which this node does not have"
                );
                let reason = "CreateContainerConfigError";
                return Err(refuse(&self.events, pod, container, reason, message));
            }
            files.volumes.insert(volume.to_owned(), ready);
        }
        Ok(files)
    }

    /// The image of a container; none if it runs from the host's files.
    async fn root(
        &self,
        pod: &Pod,
        container: &Container,
        keyring: &Keyring,
    ) -> Result<Option<Ready>, Waiting> {
        let name = container.image.as_deref().unwrap_or_default();
        let auto = self.mode == ImageMode::Auto;
        let command = container.command.iter().flatten().next().is_some();
        if auto && command && name == HOST {
            return Ok(None);
        }
        let credentials = credentials(keyring, name);
        let request = Request {
            pod_uid: pod.metadata.uid.as_deref().unwrap_or_default(),
            image: name,
            policy: Policy::of(container.image_pull_policy.as_deref(), name),
            credentials: &credentials,
        };
        if auto && command && !self.is_worth_a_try(&request).await {
            let stored = self.stored(&request).await;
            self.record_present_instead(pod, container, stored.is_some());
            return Ok(stored);
        }
        let mut tell = |event: Event| self.record_event(pod, container, event);
        let waiting = match self.manager.ensure(&request, &mut tell).await {
            Ok(ready) => return Ok(Some(ready)),
            Err(waiting) => waiting,
        };
        let unreachable = waiting.cause.as_ref();
        if auto && unreachable.is_some_and(allot_images::Error::is_unreachable) {
            let stored = self.stored(&request).await;
            if stored.is_some() || command {
                self.record_present_instead(pod, container, stored.is_some());
                return Ok(stored);
            }
        }
        Err(waiting)
    }

    /// Whether an image is present, or its registry is quickly found to be reachable. If this gives no answer in time,
    /// the pull itself does.
    async fn is_worth_a_try(&self, request: &Request<'_>) -> bool {
        let Ok(reference) = Reference::parse(request.image) else {
            return true;
        };
        if request.policy == Policy::Never {
            return true;
        }
        if request.policy == Policy::IfNotPresent {
            let (store, reference) = (self.store().clone(), reference.clone());
            let found = tokio::task::spawn_blocking(move || store.find(&reference)).await;
            if matches!(found, Ok(Ok(Some(_)))) {
                return true;
            }
        }
        reach::any(&self.registries.endpoints(reference.domain())).await
    }

    /// The image if the node has it and the pod may use it; nothing is pulled.
    async fn stored(&self, request: &Request<'_>) -> Option<Ready> {
        let request = Request {
            policy: Policy::Never,
            ..request.clone()
        };
        self.manager.ensure(&request, &mut |_| {}).await.ok()
    }

    fn record_event(&self, pod: &Pod, container: &Container, event: Event) {
        record_event(&self.events, pod, container, event);
    }

    fn record_present_instead(&self, pod: &Pod, container: &Container, stored: bool) {
        let instead = if stored {
            "the image is used as it is on this node"
        } else {
            "the command runs from the host's files"
        };
        let event = Event {
            warning: true,
            reason: "ImageNotPulled",
            message: format!(
                "The registry of image {:?} cannot be reached: {instead}",
                container.image.as_deref().unwrap_or_default()
            ),
        };
        self.record_event(pod, container, event);
    }

    /// Keeps a container's images until [`Images::release`], and creates its root directory. `directory` is the
    /// container's own.
    ///
    /// # Errors
    /// The image was removed again, or there is no space for a copy of it.
    pub(crate) async fn hold(
        &self,
        id: &str,
        files: &Files,
        directory: &Path,
    ) -> Result<RootFs, HoldError> {
        let all: Vec<&Ready> = files.image.iter().chain(files.volumes.values()).collect();
        if all.is_empty() {
            return Ok(RootFs::default());
        }
        let images: Vec<_> = all.iter().map(|ready| ready.image.clone()).collect();
        let layers: Vec<_> = all
            .iter()
            .flat_map(|ready| ready.rootfs.lower.clone())
            .collect();
        let (store, name) = (self.store().clone(), id.to_owned());
        let copied = files.image.as_ref().filter(|_| !self.overlay);
        let copied = copied.map(|ready| (ready.image.clone(), directory.join(COPY)));
        let copy = copied.as_ref().map(|(_, path)| path.clone());
        let work = move || {
            store.hold_all(&name, &images)?;
            // Images that were removed before they were held must be pulled again.
            if let Some(gone) = layers.iter().find(|layer| !layer.is_dir()) {
                let shown = gone.display();
                return Err(allot_images::Error::NotFound(format!("layer {shown}")));
            }
            if let Some((image, path)) = copied {
                std::fs::create_dir_all(&path)
                    .map_err(allot_images::Error::io(path.display().to_string()))?;
                store.unpack_merged(&image, &path, &AtomicBool::new(false))?;
            }
            Ok(())
        };
        let done = tokio::task::spawn_blocking(work).await;
        let done = done.map_err(HoldError::from);
        if let Err(error) = done.and_then(|done| done.map_err(HoldError::from)) {
            self.release(id);
            return Err(error);
        }
        let ready = files.image.as_ref();
        let lower = ready.filter(|_| copy.is_none());
        Ok(RootFs {
            lower: lower.map_or_else(Vec::new, |ready| ready.rootfs.lower.clone()),
            copy,
            image_id: ready.map_or_else(String::new, |ready| ready.image.image_id()),
            config: files.config(),
        })
    }

    /// A container was removed: its images may be removed.
    pub(crate) fn release(&self, id: &str) {
        if let Err(error) = self.store().release(id) {
            tracing::warn!(container = id, %error, "image is still held");
        }
    }

    /// Releases the images of all containers except for these: the others were removed in an earlier run.
    pub(crate) fn release_others(&self, containers: &BTreeSet<String>) {
        match self.store().held() {
            Ok(held) => {
                for id in held.iter().filter(|id| !containers.contains(*id)) {
                    self.release(id);
                }
            }
            Err(error) => tracing::warn!(%error, "images that are held"),
        }
    }

    /// A pod was removed: its back-off is dropped.
    pub(crate) fn forget(&self, pod: &Pod) {
        self.manager.forget(&pod.uid().unwrap_or_default());
    }
}

/// Records an event of a container's image.
fn record_event(events: &Recorder, pod: &Pod, container: &Container, event: Event) {
    let kind = match event.warning {
        true => Kind::Warning,
        false => Kind::Normal,
    };
    let name = Some(container.name.as_str());
    events.pod(pod, name, kind, event.reason, event.message);
}

/// The waiting state of a container whose image is not even looked for, with its event.
fn refuse(
    events: &Recorder,
    pod: &Pod,
    container: &Container,
    reason: &'static str,
    message: String,
) -> Waiting {
    let event = Event {
        warning: true,
        reason: "Failed",
        message: format!("Error: {message}"),
    };
    record_event(events, pod, container, event);
    Waiting {
        reason,
        message,
        cause: None,
        retry_after: None,
    }
}

fn credentials(keyring: &Keyring, image: &str) -> Vec<allot_images::Credential> {
    // An invalid name is rejected before any request.
    Reference::parse(image).map_or_else(|_| Vec::new(), |it| keyring.lookup(&it.name()))
}

/// The image volumes that a container mounts: name, reference and pull policy.
fn image_volumes<'a>(
    pod: &'a Pod,
    container: &'a Container,
) -> impl Iterator<Item = (&'a str, &'a str, Option<&'a str>)> {
    let volumes = pod.spec.iter();
    let volumes = volumes.flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| {
        let image = volume.image.as_ref()?;
        let mut mounts = container.volume_mounts.iter().flatten();
        let mounted = mounts.any(|mount| mount.name == volume.name);
        let reference = image.reference.as_deref().unwrap_or_default();
        mounted.then_some((
            volume.name.as_str(),
            reference,
            image.pull_policy.as_deref(),
        ))
    })
}
