//! Images of a runtime that pulls them itself. The kubelet's rules around a pull are those of [`Manager`], as for a node's own
//! images.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use allot_images::backoff::Backoff;
use allot_images::collect::{Collectable, Usage};
use allot_images::manager::{Event, Fetched, Policy, Request, Source, Waiting};
use allot_images::{Credential, Error, Keyring, Manager, Reference};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::garbage::Garbage;
use super::{Files, credentials, image_volumes, record_event, refuse, secrets};
use crate::config::Config;
use crate::events::Recorder;
use crate::runtime::{Complete, DynRuntime, Image, RuntimeError};

/// Maximum number of concurrent pulls.
const TOGETHER: usize = 4;
/// Directory of the records of pulls, below the node's.
const RECORDS: &str = "image-pulls";

/// The image manager for a runtime that pulls images itself.
pub(crate) struct Delegated {
    manager: Manager<Remote>,
    runtime: DynRuntime,
    client: Client,
    events: Recorder,
}

impl Delegated {
    /// Creates the image manager if `runtime` pulls images itself.
    ///
    /// # Errors
    /// The directory of the records can not be made.
    pub(crate) fn of(
        runtime: &DynRuntime,
        client: Client,
        events: Recorder,
        config: &Config,
    ) -> Result<Option<Self>, crate::Error> {
        if runtime.complete().is_none() {
            return Ok(None);
        }
        let directory = config.root_dir.join(RECORDS);
        let made = allot_cdi::file::create_private_dir(&directory, 0o700);
        made.map_err(|source| crate::Error::Io {
            path: directory.clone(),
            source,
        })?;
        let (first, longest) = config.images.pauses;
        let remote = Remote {
            runtime: runtime.clone(),
            pulls: Semaphore::new(TOGETHER),
        };
        Ok(Some(Self {
            manager: Manager::of(remote, &directory, Backoff::new(first, longest)),
            runtime: Arc::clone(runtime),
            client,
            events,
        }))
    }

    /// Ensures that the images of a container exist and that the pod may use them: its own and those of its image volumes.
    /// Pulls one if it may not be used as it is, or the pull policy requires it.
    ///
    /// # Errors
    /// The container's waiting state, with the kubelet's reasons and messages.
    pub(crate) async fn ensure(&self, pod: &Pod, container: &Container) -> Result<Files, Waiting> {
        let keyring = secrets::keyring(&self.client, &self.events, pod)
            .await
            .map_err(|error| {
                let message = error.to_string();
                refuse(&self.events, pod, container, "ErrImagePull", message)
            })?;
        let mut volumes = BTreeMap::new();
        for (volume, reference, policy) in image_volumes(pod, container) {
            let image = self.one(pod, container, &keyring, reference, policy);
            volumes.insert(volume.to_owned(), image.await?);
        }
        let name = container.image.as_deref().unwrap_or_default();
        let policy = container.image_pull_policy.as_deref();
        let image = self.one(pod, container, &keyring, name, policy).await?;
        Ok(Files {
            delegated: Some(image),
            delegated_volumes: volumes,
            ..Files::default()
        })
    }

    async fn one(
        &self,
        pod: &Pod,
        container: &Container,
        keyring: &Keyring,
        name: &str,
        policy: Option<&str>,
    ) -> Result<Image, Waiting> {
        let request = Request {
            pod_uid: pod.metadata.uid.as_deref().unwrap_or_default(),
            image: name,
            policy: Policy::of(policy, name),
            credentials: &credentials(keyring, name),
        };
        let mut record = |event: Event| record_event(&self.events, pod, container, event);
        self.manager.ensure(&request, &mut record).await
    }

    /// The images of the runtime, for their collection.
    pub(crate) fn garbage(&self) -> Arc<dyn Garbage> {
        let (runtime, handle) = (Arc::clone(&self.runtime), Handle::current());
        Arc::new(Unused {
            runtime,
            handle,
            sizes: Mutex::default(),
        })
    }

    /// A pod was removed: its back-off is dropped.
    pub(crate) fn forget(&self, pod: &Pod) {
        self.manager.forget(&pod.uid().unwrap_or_default());
    }
}

/// The images of a container runtime.
struct Remote {
    runtime: DynRuntime,
    pulls: Semaphore,
}

/// The images of a container runtime, asked by a thread that may wait.
struct Unused {
    runtime: DynRuntime,
    handle: Handle,
    /// Bytes of each image, as listed last.
    sizes: Mutex<HashMap<String, u64>>,
}

impl Unused {
    fn ask<'a, T>(
        &'a self,
        call: impl FnOnce(&'a dyn Complete) -> BoxFuture<'a, Result<T, RuntimeError>>,
    ) -> Result<T, Error> {
        let complete = self.runtime.complete();
        let complete = complete.ok_or_else(|| failed("the runtime has no images"))?;
        self.handle.block_on(call(complete)).map_err(failed)
    }
}

impl Collectable for Unused {
    fn ids(&self) -> Result<BTreeSet<String>, Error> {
        let images = self.ask(|it| it.images())?.into_iter();
        let images: Vec<_> = images.filter(|image| !image.pinned).collect();
        let sizes = images.iter().map(|image| (image.id.clone(), image.size));
        *self.sizes.lock() = sizes.collect();
        Ok(images.into_iter().map(|image| image.id).collect())
    }

    fn remove(&self, id: &str) -> Result<u64, Error> {
        self.ask(|it| it.remove_image(id))?;
        Ok(self.sizes.lock().remove(id).unwrap_or(0))
    }
}

impl Garbage for Unused {
    fn in_use(&self) -> Result<BTreeSet<String>, Error> {
        self.ask(|it| it.images_in_use())
    }

    fn usage(&self) -> Result<Usage, Error> {
        Usage::of(&self.ask(|it| it.disks())?.images)
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Runtime {
        message: error.to_string(),
        unanswered: false,
    }
}

impl Remote {
    fn complete(&self) -> Result<&dyn Complete, Error> {
        let complete = self.runtime.complete();
        complete.ok_or_else(|| failed("the runtime has no images"))
    }
}

impl Source for Remote {
    type Image = Image;
    type Ready = Image;

    fn id(image: &Image) -> String {
        image.id.clone()
    }

    async fn ids(&self) -> Result<BTreeSet<String>, Error> {
        let images = self.complete()?.images().await.map_err(failed)?;
        Ok(images.into_iter().map(|image| image.id).collect())
    }

    async fn find(&self, reference: &Reference) -> Result<Option<Image>, Error> {
        let wanted = reference.to_string();
        self.complete()?.image(&wanted).await.map_err(failed)
    }

    async fn prepare(&self, image: Image) -> Result<Image, Error> {
        Ok(image)
    }

    async fn pull(
        &self,
        reference: &Reference,
        credentials: &[Credential],
    ) -> Result<Fetched<Image>, Error> {
        let (complete, wanted) = (self.complete()?, reference.to_string());
        let Ok(_one) = self.pulls.acquire().await else {
            return Err(failed("the agent ends"));
        };
        let attempts: Vec<Option<&Credential>> = match credentials {
            [] => vec![None],
            all => all.iter().map(Some).collect(),
        };
        let (mut errors, mut unanswered): (Vec<String>, bool) = (Vec::new(), false);
        for credential in attempts {
            match complete.pull(&wanted, credential).await {
                Ok(image) => {
                    return Ok(Fetched {
                        id: image.id.clone(),
                        size: image.size,
                        secret: credential.and_then(|it| it.source.clone()),
                        ready: image,
                    });
                }
                Err(error) => {
                    unanswered |= error.is_undecided();
                    let text = error.to_string();
                    if !errors.contains(&text) {
                        errors.push(text);
                    }
                }
            }
        }
        Err(Error::Runtime {
            message: errors.join(", "),
            unanswered,
        })
    }
}
