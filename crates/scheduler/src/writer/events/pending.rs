//! The events about pods: their reasons, actions and texts are those of kube-scheduler.

use allot_resourceclaim::POD_GROUP_API_GROUP;
use k8s_openapi::api::core::v1::ObjectReference;

use crate::actions::{Preemptor, Rejected};
use crate::dra::conditions::Pending;
use crate::pod::PodInfo;
use crate::podgroups::claims::PodGroup;

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

fn group_reference(group: &PodGroup) -> ObjectReference {
    ObjectReference {
        api_version: Some(format!("{POD_GROUP_API_GROUP}/v1alpha2")),
        kind: Some("PodGroup".to_owned()),
        namespace: Some(group.key.namespace.to_string()),
        name: Some(group.key.name.to_string()),
        uid: Some(group.uid.to_string()),
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

    pub(in crate::writer) fn preempted(
        preemptor: &Preemptor,
        victim: &PodInfo,
        node: &str,
    ) -> Self {
        let (kind, uid) = (preemptor.kind(), preemptor.uid());
        let text = format!("Preempted by {kind} {uid} on node {node}");
        Self::preempted_with(preemptor, victim, text)
    }

    /// The victim was in PreBind, and was not deleted.
    pub(in crate::writer) fn preempted_in_memory(
        preemptor: &Preemptor,
        victim: &PodInfo,
        node: &str,
    ) -> Self {
        let (kind, uid) = (preemptor.kind(), preemptor.uid());
        let text = format!("Preempted by {kind} {uid} on node {node} (in kube-scheduler memory).");
        Self::preempted_with(preemptor, victim, text)
    }

    fn preempted_with(preemptor: &Preemptor, victim: &PodInfo, text: String) -> Self {
        let note = Self::about(victim, "Preempted", "Preempting", text);
        let controller = crate::pod::scheduler_name(&preemptor.pod.pod).to_owned();
        let mut related = match &preemptor.group {
            Some(group) => group_reference(group),
            None => reference(&preemptor.pod),
        };
        if preemptor.key().namespace != victim.key.namespace {
            // Users that may read the victim's events must not learn names from another namespace.
            related = ObjectReference {
                api_version: related.api_version,
                kind: related.kind,
                uid: related.uid,
                ..ObjectReference::default()
            };
        }
        Self {
            controller,
            related: Some(related),
            ..note
        }
    }
}
