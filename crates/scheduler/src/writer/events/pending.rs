//! The events about pods: their reasons, actions and texts are those of kube-scheduler.

use k8s_openapi::api::core::v1::ObjectReference;

use crate::actions::Rejected;
use crate::dra::conditions::Pending;
use crate::pod::PodInfo;

/// An event to write.
#[derive(Debug, Clone)]
pub struct PendingEvent {
    pub(super) controller: String,
    pub(super) regarding: ObjectReference,
    pub(super) related: Option<ObjectReference>,
    pub(super) warning: bool,
    pub(super) reason: &'static str,
    pub(super) action: &'static str,
    pub(super) text: String,
}

fn reference(pod: &PodInfo) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(pod.key.namespace.to_string()),
        name: Some(pod.key.name.to_string()),
        uid: Some(pod.uid.to_string()),
        resource_version: pod.pod.metadata.resource_version.clone(),
        ..ObjectReference::default()
    }
}

impl PendingEvent {
    fn about(pod: &PodInfo, reason: &'static str, action: &'static str, text: String) -> Self {
        Self {
            controller: crate::pod::scheduler_name(&pod.pod).to_owned(),
            regarding: reference(pod),
            related: None,
            warning: false,
            reason,
            action,
            text,
        }
    }

    pub(in crate::writer) fn scheduled(pod: &PodInfo, node: &str) -> Self {
        Self::about(
            pod,
            "Scheduled",
            "Binding",
            format!("Successfully assigned {} to {node}", pod.key),
        )
    }

    pub(in crate::writer) fn failed_scheduling(rejected: &Rejected) -> Self {
        let note = Self::about(
            &rejected.pod,
            "FailedScheduling",
            "Scheduling",
            crate::message::explained(&rejected.message, rejected.explanation.as_deref()),
        );
        Self {
            warning: true,
            ..note
        }
    }

    /// Upstream's text, then which condition of which device it is.
    pub(in crate::writer) fn waits_for_conditions(
        pod: &PodInfo,
        node: &str,
        pending: &[Pending],
    ) -> Self {
        const SHOWN: usize = 5;
        let mut text = format!("waiting for binding conditions for device on node {node}");
        for (
            index,
            Pending {
                device, condition, ..
            },
        ) in pending.iter().take(SHOWN).enumerate()
        {
            let separator = if index == 0 { ": " } else { ", " };
            text += &format!("{separator}{condition} of {device}");
        }
        if pending.len() > SHOWN {
            text += &format!(" and {} more", pending.len() - SHOWN);
        }
        Self::about(pod, "BindingConditionsPending", "Scheduling", text)
    }

    /// Upstream records no event for a pod that is not tried because its claim does not exist.
    pub(in crate::writer) fn lacks_claim(pod: &PodInfo, text: String) -> Self {
        let note = Self::about(pod, "FailedScheduling", "Scheduling", text);
        Self {
            warning: true,
            ..note
        }
    }

    pub(in crate::writer) fn preempted(preemptor: &PodInfo, victim: &PodInfo, node: &str) -> Self {
        let text = format!("Preempted by pod {} on node {node}", preemptor.uid);
        Self::preempted_with(preemptor, victim, text)
    }

    /// The victim was in PreBind, and was not deleted.
    pub(in crate::writer) fn preempted_in_memory(
        preemptor: &PodInfo,
        victim: &PodInfo,
        node: &str,
    ) -> Self {
        let uid = &preemptor.uid;
        let text = format!("Preempted by pod {uid} on node {node} (in kube-scheduler memory).");
        Self::preempted_with(preemptor, victim, text)
    }

    fn preempted_with(preemptor: &PodInfo, victim: &PodInfo, text: String) -> Self {
        let note = Self::about(victim, "Preempted", "Preempting", text);
        let controller = crate::pod::scheduler_name(&preemptor.pod).to_owned();
        Self {
            controller,
            related: Some(match preemptor.key.namespace == victim.key.namespace {
                true => reference(preemptor),
                // Users that may read the victim's events must not learn names from another namespace.
                false => ObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    uid: Some(preemptor.uid.to_string()),
                    ..ObjectReference::default()
                },
            }),
            ..note
        }
    }
}
