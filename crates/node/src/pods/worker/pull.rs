//! Pulls the images of a pod's containers. A pull may take long; meanwhile the worker handles the pod's other events,
//! including deletion.

use std::sync::Arc;
use std::time::Duration;

use allot_images::manager::Waiting;
use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::super::state::Phase;
use super::{RETRY, Wake, Worker};
use crate::images::Files;

/// How long to wait for an image before other events are handled: enough for one that is present.
const AT_ONCE: Duration = Duration::from_millis(50);
/// When a pull has failed, a kubelet checks again after this time, and reports the back-off.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Images being pulled for a container. Dropping it ends the wait; a pull in progress continues for the next request.
pub(super) struct Pending {
    /// The container as it was.
    container: Container,
    answer: oneshot::Receiver<Result<Files, Waiting>>,
    task: AbortHandle,
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Worker {
    /// The images of a container. If they are not present yet: when to check again, besides notifications.
    pub(super) async fn files(&mut self, pod: &Pod, container: &Container) -> Result<Files, Wake> {
        let (images, delegated) = (self.node.images.clone(), self.node.delegated.clone());
        if images.is_none() && delegated.is_none() {
            return Ok(Files::default());
        }
        let known = self.pulls.remove(&container.name);
        // Its image may have been changed meanwhile.
        let known = known.filter(|pending| pending.container.image == container.image);
        let mut pending = known.unwrap_or_else(|| {
            let (sender, answer) = oneshot::channel();
            let (pod, news) = (pod.clone(), Arc::clone(&self.news));
            let of = container.clone();
            let task = tokio::spawn(async move {
                let result = match (images, delegated) {
                    (_, Some(delegated)) => delegated.ensure(&pod, &of).await,
                    (Some(images), None) => images.ensure(&pod, &of).await,
                    (None, None) => Ok(Files::default()),
                };
                // It fails when the receiver was dropped: the pod no longer waits.
                let _ = sender.send(result);
                news.notify_one();
            });
            Pending {
                container: container.clone(),
                answer,
                task: task.abort_handle(),
            }
        });
        match tokio::time::timeout(AT_ONCE, &mut pending.answer).await {
            Err(_) => {
                self.pulls.insert(container.name.clone(), pending);
                Err(None)
            }
            Ok(Ok(Ok(files))) => Ok(files),
            Ok(Ok(Err(waiting))) => Err(self.wait_for_image(container, waiting)),
            Ok(Err(_)) => {
                let message = "the pull was interrupted".to_owned();
                Err(self.obstacle(pod, container, "ErrImagePull", message))
            }
        }
    }

    fn wait_for_image(&self, container: &Container, waiting: Waiting) -> Wake {
        let pause = waiting.retry_after.unwrap_or(RETRY.1);
        let pause = if waiting.reason == "ErrImagePull" {
            pause.min(LOOK_AGAIN)
        } else {
            pause
        };
        let at = Instant::now() + pause;
        let mut containers = self.containers.lock();
        let state = containers.entry(container.name.clone()).or_default();
        state.phase = Phase::waiting(waiting.reason, waiting.message);
        state.retry_at = Some(at);
        Some(at)
    }
}
