//! Admission of pods by the node, as by a kubelet: a pod that is not admitted fails before any of its containers starts.

use k8s_openapi::api::core::v1::Pod;

use super::super::Node;
use super::super::security::check_system;
use super::{ContainerState, Worker};
use crate::events::Kind;
use crate::sysctls;

/// Why a pod is not admitted: the kubelet's reason and message.
fn refusal(node: &Node, pod: &Pod) -> Option<(&'static str, String)> {
    let spec = pod.spec.as_ref();
    if spec.is_some_and(|spec| check_system(spec).is_err()) {
        let text = "Failed to admit pod as the OS field doesn't match node OS";
        return Some(("PodOSNotSupported", text.to_owned()));
    }
    let refused = node.config.sysctls.refusal(pod);
    refused.map(|message| (sysctls::FORBIDDEN, message))
}

impl Worker {
    /// Whether a pod is admitted; if not, it fails. A pod is not evaluated again once one of its containers has started: the
    /// agent that started it may have had other settings.
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
