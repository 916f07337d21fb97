//! Images of a runtime that pulls them itself. Implements what the kubelet does around a pull: pull policies, image pull
//! secrets, back-off and events.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use allot_images::Reference;
use allot_images::backoff::Backoff;
use allot_images::manager::{Policy, Waiting};
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::{credentials, secrets};
use crate::events::{Kind, Recorder};
use crate::runtime::{Complete, DynRuntime, Image};

/// Maximum number of concurrent pulls.
const TOGETHER: usize = 4;
/// Maximum number of pull errors that are kept.
const MOST: usize = 10_000;

/// The image manager for a runtime that pulls images itself.
pub(crate) struct Delegated {
    runtime: DynRuntime,
    client: Client,
    events: Recorder,
    pauses: Mutex<Pauses>,
    pulls: Semaphore,
}

#[derive(Default)]
struct Pauses {
    backoff: Backoff,
    /// The last pull error by back-off key.
    errors: HashMap<String, String>,
}

fn waiting(reason: &'static str, message: String) -> Waiting {
    Waiting {
        reason,
        message,
        cause: None,
        retry_after: None,
    }
}

impl Delegated {
    /// Creates the image manager if `runtime` pulls images itself.
    pub(crate) fn of(
        runtime: &DynRuntime,
        client: Client,
        events: Recorder,
        pauses: (std::time::Duration, std::time::Duration),
    ) -> Option<Arc<Self>> {
        runtime.complete()?;
        Some(Arc::new(Self {
            runtime: Arc::clone(runtime),
            client,
            events,
            pauses: Mutex::new(Pauses {
                backoff: Backoff::new(pauses.0, pauses.1),
                errors: HashMap::new(),
            }),
            pulls: Semaphore::new(TOGETHER),
        }))
    }

    /// Ensures that the image of a container exists, and pulls it if the pull policy requires it.
    ///
    /// # Errors
    /// The container's waiting state, with the kubelet's reasons and messages.
    pub(crate) async fn ensure(&self, pod: &Pod, container: &Container) -> Result<Image, Waiting> {
        let result = self.try_ensure(pod, container).await;
        if let Err(waiting) = &result {
            let message = format!("Error: {}", waiting.reason);
            self.tell(pod, container, Kind::Warning, "Failed", message);
        }
        result
    }

    async fn try_ensure(&self, pod: &Pod, container: &Container) -> Result<Image, Waiting> {
        let name = container.image.as_deref().unwrap_or_default();
        let warn = |reason: &'static str, message: &str| {
            self.tell(pod, container, Kind::Warning, reason, message.to_owned());
        };
        let reference = Reference::parse(name).map_err(|error| {
            let message = format!("Failed to apply default image tag {name:?}: {error}");
            warn("InspectFailed", &message);
            waiting("InvalidImageName", message)
        })?;
        let wanted = reference.with_default_tag().to_string();
        let Some(complete) = self.runtime.complete() else {
            return Err(waiting("ErrImagePull", "the runtime has no images".into()));
        };
        let policy = Policy::of(container.image_pull_policy.as_deref(), name);
        if policy != Policy::Always {
            let found = complete.image(&wanted).await.map_err(|error| {
                let message = format!("Failed to inspect image {name:?}: {error}");
                warn("InspectFailed", &message);
                waiting("ImageInspectError", message)
            })?;
            if let Some(found) = found {
                let message = format!(
                    "Container image {name:?} already present on machine and can be accessed by the pod"
                );
                self.tell(pod, container, Kind::Normal, "Pulled", message);
                return Ok(found);
            }
            if policy == Policy::Never {
                let message =
                    format!("Container image {name:?} is not present with pull policy of Never");
                warn("ErrImageNeverPull", &message);
                return Err(waiting("ErrImageNeverPull", message));
            }
        }
        let key = format!("{}_{name}", pod.uid().unwrap_or_default());
        if let Some(waiting) = self.pause(&key, name) {
            let message = format!("Back-off pulling image {name:?}");
            self.tell(pod, container, Kind::Normal, "BackOff", message);
            return Err(waiting);
        }
        let message = format!("Pulling image {name:?}");
        self.tell(pod, container, Kind::Normal, "Pulling", message);
        let begun = Instant::now();
        match self.pull(complete, pod, &wanted).await {
            Ok(image) => {
                let took = format!("{:.3}s", begun.elapsed().as_secs_f64());
                let message = format!(
                    "Successfully pulled image {name:?} in {took} ({took} including waiting). Image size: {} bytes.",
                    image.size
                );
                self.tell(pod, container, Kind::Normal, "Pulled", message);
                self.pauses.lock().backoff.collect(Instant::now());
                Ok(image)
            }
            Err(error) => {
                warn("Failed", &format!("Failed to pull image {name:?}: {error}"));
                let mut pauses = self.pauses.lock();
                let now = Instant::now();
                pauses.backoff.fail(&key, now);
                if pauses.errors.len() >= MOST {
                    pauses.errors.clear();
                }
                pauses.errors.insert(key.clone(), error.clone());
                let mut waiting = waiting("ErrImagePull", error);
                waiting.retry_after = pauses.backoff.left(&key, now);
                Err(waiting)
            }
        }
    }

    /// The waiting state if the back-off has not expired yet.
    fn pause(&self, key: &str, name: &str) -> Option<Waiting> {
        let pauses = self.pauses.lock();
        let left = pauses.backoff.left(key, Instant::now())?;
        let mut message = format!("Back-off pulling image {name:?}");
        if let Some(error) = pauses.errors.get(key) {
            message = format!("{message}: ErrImagePull: {error}");
        }
        let mut waiting = waiting("ImagePullBackOff", message);
        waiting.retry_after = Some(left);
        Some(waiting)
    }

    /// Pulls an image; like the kubelet, tries the credentials from the pod's image pull secrets one after another.
    async fn pull(
        &self,
        complete: &dyn Complete,
        pod: &Pod,
        wanted: &str,
    ) -> Result<Image, String> {
        let keyring = secrets::keyring(&self.client, &self.events, pod).await?;
        let Ok(_one) = self.pulls.acquire().await else {
            return Err("the agent ends".into());
        };
        let all = credentials(&keyring, wanted);
        if all.is_empty() {
            return complete.pull(wanted, None).await;
        }
        let mut errors: Vec<String> = Vec::new();
        for credential in &all {
            match complete.pull(wanted, Some(credential)).await {
                Ok(image) => return Ok(image),
                Err(error) if errors.contains(&error) => {}
                Err(error) => errors.push(error),
            }
        }
        Err(errors.join(", "))
    }

    fn tell(
        &self,
        pod: &Pod,
        container: &Container,
        kind: Kind,
        reason: &'static str,
        message: String,
    ) {
        let name = Some(container.name.as_str());
        self.events.pod(pod, name, kind, reason, message);
    }
}
