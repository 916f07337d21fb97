//! What a node does not run at all, as a kubelet: the pod fails before anything of it has started.

use k8s_openapi::api::core::v1::Pod;

use super::super::Node;
use super::super::security::check_system;
use super::{ContainerState, Worker};
use crate::events::Kind;
use crate::sysctls;

/// Reason and message; `None` for a pod that may run.
fn refusal(node: &Node, pod: &Pod) -> Option<(&'static str, String)> {
    let spec = pod.spec.clone().unwrap_or_default();
    if check_system(&spec).is_err() {
        let text = "Failed to admit pod as the OS field doesn't match node OS";
        return Some(("PodOSNotSupported", text.to_owned()));
    }
    let refused = node.config.sysctls.refusal(pod);
    refused.map(|message| (sysctls::FORBIDDEN, message))
}

impl Worker {
    /// Whether a pod may run. One that may not fails, but containers that an agent has started before go on: it may have had
    /// other settings.
    pub(super) fn is_admitted(&mut self, pod: &Pod) -> bool {
        if self
            .containers
            .lock()
            .values()
            .any(ContainerState::started_once)
        {
            return true;
        }
        let Some((reason, message)) = refusal(&self.node, pod) else {
            return true;
        };
        let events = &self.node.events;
        events.pod(pod, None, Kind::Warning, reason, message.clone());
        self.failed = Some((reason, format!("Pod was rejected: {message}")));
        false
    }
}
