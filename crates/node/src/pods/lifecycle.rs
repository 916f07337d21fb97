//! Hooks after the start and before the end of a container.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::time::Instant;

use super::Node;
use super::handler::Action;
use crate::events::Kind;

/// What a container has left after its `preStop` hook, at least.
const LEAST_GRACE: Duration = Duration::from_secs(2);
/// What a program of a `postStart` hook may take at a runtime that runs it by itself; a kubelet has no bound for it.
const LONGEST: Duration = Duration::from_secs(3600);

/// Runs the container's postStart hook.
///
/// # Errors
/// It did not work, and the container is to be ended; the event has been sent.
pub(super) async fn started(
    node: &Node,
    pod: &Pod,
    container: &Container,
    id: &str,
) -> Result<(), ()> {
    let hook = container.lifecycle.as_ref();
    let Some(hook) = hook.and_then(|hooks| hooks.post_start.as_ref()) else {
        return Ok(());
    };
    if !node.runtime.has_network() {
        return Ok(());
    }
    let result = Action::of_hook(hook)
        .run(node, pod, container, id, LONGEST)
        .await;
    result.map_err(|failure| {
        let message = format!("PostStartHook failed: {}", failure.text());
        let name = Some(container.name.as_str());
        let events = &node.events;
        events.pod(pod, name, Kind::Warning, "FailedPostStartHook", message);
    })
}

/// Ends a container: its hook first, then politely, then by force, all within `grace`.
pub(super) async fn stop(node: &Node, pod: &Pod, container: &Container, id: &str, grace: Duration) {
    let hook = container.lifecycle.as_ref();
    let hook = hook.and_then(|hooks| hooks.pre_stop.as_ref());
    let mut left = grace;
    if let Some(hook) = hook.filter(|_| !grace.is_zero() && node.runtime.has_network()) {
        let begun = Instant::now();
        let action = Action::of_hook(hook);
        let result = tokio::time::timeout(grace, action.run(node, pod, container, id, grace)).await;
        let failure = match &result {
            Ok(Ok(())) => None,
            Ok(Err(failure)) => Some(failure.text()),
            Err(_) => Some("it did not end within the grace period"),
        };
        if let Some(reason) = failure {
            let message = format!("PreStopHook failed: {reason}");
            let name = Some(container.name.as_str());
            let events = &node.events;
            events.pod(pod, name, Kind::Warning, "FailedPreStopHook", message);
        }
        left = grace.saturating_sub(begun.elapsed()).max(LEAST_GRACE);
    }
    node.runtime.stop(id.to_owned(), left).await;
}
