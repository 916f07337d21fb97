//! A kubelet's rules for pulls: policies, credentials, back-off, and events, as data.
//!
//! The texts and the order of steps are those of Kubernetes 1.36 (`pkg/kubelet/images`).

mod records;
mod source;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allot_apimachinery::go_duration;
use parking_lot::Mutex;

use crate::backoff::Backoff;
use crate::pull::Puller;
use crate::store::{Image, RootFs};
use crate::{Credential, Error, Reference};
pub use records::PullRecord;
use records::{End, Records};
pub use source::{Fetched, Source};

/// When an image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Each time a container starts.
    Always,
    /// If it is not present, or the pod has not proven that it may use it.
    IfNotPresent,
    /// Never.
    Never,
}

impl Policy {
    /// A container's `imagePullPolicy`; what the API server defaults to if it is absent: `Always` for the tag `latest`.
    pub fn of(field: Option<&str>, image: &str) -> Self {
        match field {
            Some("Always") => Self::Always,
            Some("Never") => Self::Never,
            Some("IfNotPresent") => Self::IfNotPresent,
            _ if Reference::parse(image).is_ok_and(|reference| reference.is_latest()) => {
                Self::Always
            }
            _ => Self::IfNotPresent,
        }
    }
}

/// An event about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whether its type is `Warning` instead of `Normal`.
    pub warning: bool,
    /// The event's reason.
    pub reason: &'static str,
    /// The event's message.
    pub message: String,
}

/// Why a container waits: for `state.waiting` of its status.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// `ErrImagePull`, `ImagePullBackOff`, `ErrImageNeverPull`, `InvalidImageName` or `ImageInspectError`.
    pub reason: &'static str,
    /// The status' message.
    pub message: String,
    /// What went wrong in this attempt, or in a pause in the last one.
    pub cause: Option<Error>,
    /// How long to wait before the next attempt; absent if it would not help.
    pub retry_after: Option<Duration>,
}

/// An image that can be run.
#[derive(Clone, Debug)]
pub struct Ready {
    /// The image.
    pub image: Image,
    /// Its layers.
    pub rootfs: RootFs,
}

/// What a container needs.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The pod's UID. Pauses are by pod and image.
    pub pod_uid: &'a str,
    /// The container's `image`.
    pub image: &'a str,
    /// When to pull it.
    pub policy: Policy,
    /// Credentials of the pod's secrets for the image ([`crate::Keyring::lookup`]) and of the node.
    pub credentials: &'a [Credential],
}

/// Ensures that images are present.
pub struct Manager<S = Puller> {
    source: Arc<S>,
    records: Records,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    backoff: Backoff,
    /// The last error by key of the back-off.
    errors: HashMap<String, Error>,
}

impl Manager {
    /// A manager of a puller's images, whose records are in the puller's store.
    pub fn with_backoff(puller: Puller, backoff: Backoff) -> Self {
        let directory = puller.store().root().to_owned();
        Self::of(puller, &directory, backoff)
    }
}

impl<S: Source> Manager<S> {
    /// A manager of a source's images. The directory, which exists, is for the records of pulls.
    pub fn of(source: S, directory: &Path, backoff: Backoff) -> Self {
        let state = State {
            backoff,
            errors: HashMap::new(),
        };
        Self {
            source: Arc::new(source),
            records: Records::new(directory),
            state: Mutex::new(state),
        }
    }

    /// The source of the images.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Ensures that a container's image is present and unpacked. Events are reported as they occur.
    ///
    /// # Errors
    ///
    /// Why the container must wait. The caller calls again, which is cheap during a back-off.
    pub async fn ensure(
        &self,
        request: &Request<'_>,
        tell: &mut (dyn FnMut(Event) + Send),
    ) -> Result<S::Ready, Waiting> {
        let result = self.try_ensure(request, tell).await;
        if let Err(waiting) = &result {
            tell(warning("Failed", format!("Error: {}", waiting.reason)));
        }
        result
    }

    async fn try_ensure(
        &self,
        request: &Request<'_>,
        tell: &mut (dyn FnMut(Event) + Send),
    ) -> Result<S::Ready, Waiting> {
        let image = request.image;
        let reference = Reference::parse(image).map_err(|error| {
            let message = format!("Failed to apply default image tag {image:?}: {error}");
            tell(warning("InspectFailed", message.clone()));
            waiting("InvalidImageName", message, Some(error))
        })?;
        let reference = reference.with_default_tag();
        if request.policy != Policy::Always {
            let found = self.source.find(&reference).await.map_err(|error| {
                let message = format!("Failed to inspect image {image:?}: {error}");
                tell(warning("InspectFailed", message.clone()));
                waiting("ImageInspectError", message, Some(error))
            })?;
            if let Some(found) = found
                && self.may_use(&found, &reference, request.credentials).await
                && let Some(ready) = self.present(image, found, tell).await
            {
                return Ok(ready);
            }
            if request.policy == Policy::Never {
                let message =
                    format!("Container image {image:?} is not present with pull policy of Never");
                tell(warning("ErrImageNeverPull", message.clone()));
                return Err(waiting("ErrImageNeverPull", message, None));
            }
        }
        self.pull(request, &reference, tell).await
    }

    /// Whether a pod with these credentials may use an image without a pull.
    async fn may_use(
        &self,
        image: &S::Image,
        reference: &Reference,
        credentials: &[Credential],
    ) -> bool {
        let id = S::id(image);
        self.records.may_use(&id, reference, credentials).await
    }

    /// Uses a present image. One that can not be prepared, such as one whose layers are gone, is pulled again.
    async fn present(
        &self,
        name: &str,
        image: S::Image,
        tell: &mut (dyn FnMut(Event) + Send),
    ) -> Option<S::Ready> {
        let ready = match self.source.prepare(image).await {
            Ok(ready) => ready,
            Err(error) => {
                tracing::warn!(image = name, %error, "image can not be unpacked");
                return None;
            }
        };
        let message = format!(
            "Container image {name:?} already present on machine and can be accessed by the pod"
        );
        tell(normal("Pulled", message));
        Some(ready)
    }

    async fn pull(
        &self,
        request: &Request<'_>,
        reference: &Reference,
        tell: &mut (dyn FnMut(Event) + Send),
    ) -> Result<S::Ready, Waiting> {
        let image = request.image;
        let key = format!("{}_{image}", request.pod_uid);
        let paused = {
            let mut state = self.state.lock();
            let left = state.backoff.left(&key, Instant::now());
            match left {
                Some(left) => Some((left, state.errors.get(&key).cloned())),
                None => {
                    state.errors.remove(&key);
                    None
                }
            }
        };
        if let Some((left, error)) = paused {
            let mut message = format!("Back-off pulling image {image:?}");
            tell(normal("BackOff", message.clone()));
            if let Some(error) = &error {
                message = format!("{message}: ErrImagePull: {error}");
            }
            let mut waiting = waiting("ImagePullBackOff", message, error);
            waiting.retry_after = Some(left);
            return Err(waiting);
        }
        tell(normal("Pulling", format!("Pulling image {image:?}")));
        let start = Instant::now();
        match self.fetch(reference, request.credentials).await {
            Ok(fetched) => {
                let took = duration(start.elapsed());
                let size = fetched.size;
                tell(normal(
                    "Pulled",
                    format!(
                        "Successfully pulled image {image:?} in {took} ({took} including waiting). Image size: {size} bytes."
                    ),
                ));
                self.state.lock().backoff.collect(Instant::now());
                Ok(fetched.ready)
            }
            Err(error) => {
                tell(warning(
                    "Failed",
                    format!("Failed to pull image {image:?}: {error}"),
                ));
                let mut state = self.state.lock();
                let now = Instant::now();
                state.backoff.fail(&key, now);
                if state.errors.len() > 10_000 {
                    state.errors.clear();
                }
                state.errors.insert(key.clone(), error.clone());
                let mut waiting = waiting("ErrImagePull", error.to_string(), Some(error));
                waiting.retry_after = state.backoff.left(&key, now);
                Err(waiting)
            }
        }
    }

    /// Pulls an image and records it. Both go on if the caller is dropped: what a source has begun it may complete.
    async fn fetch(
        &self,
        reference: &Reference,
        credentials: &[Credential],
    ) -> Result<Fetched<S::Ready>, Error> {
        let (source, records) = (Arc::clone(&self.source), self.records.clone());
        let (reference, credentials) = (reference.clone(), credentials.to_vec());
        let work = tokio::spawn(async move {
            let find = |reference: Reference| {
                let source = Arc::clone(&source);
                async move {
                    let found = source.find(&reference).await?;
                    Ok(found.map(|image| S::id(&image)))
                }
            };
            records.begin(&reference, find).await?;
            let fetched = source.pull(&reference, &credentials).await;
            let end = match &fetched {
                Ok(fetched) => {
                    let secret = fetched.secret.clone();
                    let recorded = records.record(&fetched.id, &reference, secret, source.ids());
                    match recorded.await {
                        Ok(()) => End::Recorded,
                        Err(error) => {
                            // Pods will have to show their credentials again.
                            tracing::warn!(image = %reference, %error, "pull can not be recorded");
                            End::Undecided
                        }
                    }
                }
                Err(error) if error.is_undecided() => End::Undecided,
                Err(_) => End::Failed,
            };
            records.end(&reference, end).await;
            fetched
        });
        work.await
            .unwrap_or_else(|error| Err(Error::Internal(error.to_string())))
    }

    /// Drops the back-off of a deleted pod.
    pub fn forget(&self, pod_uid: &str) {
        let prefix = format!("{pod_uid}_");
        self.state
            .lock()
            .errors
            .retain(|key, _| !key.starts_with(&prefix));
    }
}

fn waiting(reason: &'static str, message: String, cause: Option<Error>) -> Waiting {
    Waiting {
        reason,
        message,
        cause,
        retry_after: None,
    }
}

fn warning(reason: &'static str, message: String) -> Event {
    Event {
        warning: true,
        reason,
        message,
    }
}

fn normal(reason: &'static str, message: String) -> Event {
    Event {
        warning: false,
        reason,
        message,
    }
}

/// A duration in whole milliseconds, in Go's format.
fn duration(duration: Duration) -> String {
    let nanos = duration.subsec_nanos() % 1_000_000;
    go_duration(duration - Duration::from_nanos(nanos.into()))
}

#[cfg(test)]
mod tests;
