//! A pod that fits nowhere: PostFilter, and the texts for the pod's status and events.

use std::sync::Arc;

use allot_framework::claim_plugin::Shared;

use super::{Core, Time};
use crate::actions::{Action, Nominate, Preemptor, Rejected};
use crate::attempt::{Attempt, FitError, MOST_CHECKS, MOST_CHECKS_IN_GANG};
use crate::config::Profile;
use crate::dra::ClaimCleanup;
use crate::framework::{Plugin, PluginSet};
use crate::message;
use crate::metrics::Outcome;
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::podgroups::group_key;
use crate::preemption;
use crate::queue::QueuedPod;
use crate::status::Rejection;

/// What follows from an attempt that found no node.
pub(super) struct SchedulingFailure {
    pub(super) by: PluginSet,
    /// Upstream's text, for the condition.
    pub(super) message: String,
    /// The unsatisfied requests on the nearest node, for the event.
    pub(super) explanation: Option<String>,
    pub(super) nominate: Nominate,
    pub(super) cleanup: Option<ClaimCleanup>,
    /// PostFilter of DynamicResources released a claim: whether preemption is needed shows when that is done.
    pub(super) deallocates: bool,
    /// What the plugin for claims of another generation decided.
    pub(super) plugin_decision: Option<Shared>,
    pub(super) victims: Option<(Arc<str>, Vec<Arc<PodInfo>>)>,
    /// All victims on the nominated node are terminating already.
    pub(super) victims_terminating: bool,
}

impl SchedulingFailure {
    /// A failure without cleanup, preemption or publication.
    pub(super) fn new(by: Plugin, message: String, nominate: Nominate) -> Self {
        Self {
            by: [by].into_iter().collect(),
            message,
            explanation: None,
            nominate,
            cleanup: None,
            deallocates: false,
            plugin_decision: None,
            victims: None,
            victims_terminating: false,
        }
    }
}

/// What PostFilter of DynamicResources found.
#[derive(Default)]
struct Deallocation {
    cleanup: Option<ClaimCleanup>,
    /// What the plugin for claims of another generation decided.
    plugin_decision: Option<Shared>,
    /// That decision deallocates a claim.
    by_plugin: bool,
}

impl Deallocation {
    fn is_something(&self) -> bool {
        self.cleanup.is_some() || self.by_plugin
    }

    /// Upstream's text for the condition.
    fn text(&self, attempt: &Attempt<'_>) -> &'static str {
        match &self.cleanup {
            _ if self.by_plugin => "deallocation of ResourceClaim completed",
            Some(ClaimCleanup::Deallocate(_)) => "deallocation of ResourceClaim completed",
            Some(ClaimCleanup::Delete(_)) => "deletion of ResourceClaim completed",
            None | Some(ClaimCleanup::Unreserve(_)) => {
                match attempt.devices().is_some() || attempt.plugin_claims().is_some() {
                    true => "still not schedulable",
                    false => "no new claims to deallocate",
                }
            }
        }
    }
}

/// What PostFilter of DefaultPreemption found.
struct Preemption {
    nominate: Nominate,
    victims: Option<(Arc<str>, Vec<Arc<PodInfo>>)>,
    /// All victims on the nominated node are terminating already.
    victims_terminating: bool,
    /// Upstream's text for the condition.
    text: Option<String>,
}

impl Default for Preemption {
    fn default() -> Self {
        Self {
            nominate: Nominate::Keep,
            victims: None,
            victims_terminating: false,
            text: None,
        }
    }
}

impl Core {
    /// Runs PostFilter for a pod that fits nowhere: which claims to clean up, which pods to preempt, and the messages.
    pub(super) fn post_filter(
        &self,
        attempt: &Attempt<'_>,
        unplaced: &FitError,
        profile: &Profile,
        start: usize,
        tries: u32,
    ) -> SchedulingFailure {
        let nodes = &attempt.snapshot.nodes;
        let by: PluginSet = unplaced.nodes.iter().flatten().map(|r| r.plugin).collect();
        let mut after = Vec::new();
        let has_devices = profile.post_filters.contains(Plugin::DynamicResources);
        let mut released = Deallocation::default();
        if has_devices {
            released = self.deallocation(attempt, unplaced, tries);
            after.push(released.text(attempt).to_owned());
        }
        let mut preemption = Preemption::default();
        if profile.post_filters.contains(Plugin::DefaultPreemption) {
            preemption = self.preemption(attempt, unplaced, profile, start, &released);
            if preemption.victims.is_some() {
                after.clear();
            }
            after.extend(preemption.text);
        }
        let deallocates = released.is_something();
        let mut cleanup = released.cleanup;
        if has_devices
            && cleanup.is_none()
            && !released.by_plugin
            && preemption.victims.is_none()
            && !preemption.victims_terminating
        {
            cleanup = attempt.devices().and_then(|d| d.claims_to_release(nodes));
        }
        let message = message::unschedulable(unplaced, nodes.len(), &after.join(", "));
        let most = match self.gang_of(attempt.pod, profile) {
            Some(_) => MOST_CHECKS_IN_GANG,
            None => MOST_CHECKS,
        };
        let explanation = attempt.explain_nearest(unplaced, most);
        SchedulingFailure {
            by,
            message,
            explanation,
            nominate: preemption.nominate,
            cleanup,
            deallocates,
            plugin_decision: released.plugin_decision,
            victims: preemption.victims,
            victims_terminating: preemption.victims_terminating,
        }
    }

    /// PostFilter of DynamicResources: a claim whose allocation keeps the pod from nodes that would do otherwise.
    fn deallocation(&self, attempt: &Attempt<'_>, unplaced: &FitError, tries: u32) -> Deallocation {
        let nodes = &attempt.snapshot.nodes;
        let rejected = unplaced.nodes.iter().zip(nodes);
        let elsewhere: Vec<&NodeInfo> = rejected
            .filter(|(r, _)| r.as_ref().is_some_and(Rejection::is_not_available))
            .map(|(_, node)| &**node)
            .collect();
        let devices = attempt.devices();
        let cleanup = devices.and_then(|d| d.claim_to_deallocate(nodes, &elsewhere));
        let mut found = Deallocation {
            cleanup,
            ..Deallocation::default()
        };
        if let (None, Some(claims)) = (&found.cleanup, attempt.plugin_claims()) {
            let plugin = self.claim_plugin_post_filter(claims, &elsewhere, tries);
            found.plugin_decision = plugin.decision;
            found.by_plugin = plugin.deallocates;
        }
        found
    }

    /// PostFilter of DefaultPreemption: the victims, and the node that the pod is nominated to.
    fn preemption(
        &self,
        attempt: &Attempt<'_>,
        unplaced: &FitError,
        profile: &Profile,
        start: usize,
        released: &Deallocation,
    ) -> Preemption {
        let budgets: Vec<_> = self.budgets.values().collect();
        let nominated = |node: &str| self.nominated_to(node, attempt.pod);
        let gang = self.gang_of(attempt.pod, profile).map(|g| g.key.clone());
        let rules = preemption::Rules {
            budgets: &budgets,
            nominated: &nominated,
            spares: &|pod| gang.is_some() && group_key(pod) == gang,
        };
        let mut result = Preemption::default();
        if gang.is_some() && self.preempts_for_groups(profile) {
            let text = "preemption: not eligible due to workload aware preemption enabled";
            result.text = Some(text.to_owned());
            return result;
        }
        match preemption::preempt(attempt, unplaced, start, &rules) {
            // Whether preemption is needed shows when the claim is deallocated.
            preemption::Outcome::Preempt(_) if released.is_something() => {}
            preemption::Outcome::Preempt(found) => {
                let node = attempt.snapshot.nodes[found.node].name.clone();
                // Keep the nomination while victims terminate: with a new one on every attempt, pods would requeue each
                // other endlessly.
                result.victims_terminating = found.pods.iter().all(|v| v.is_terminating());
                if !result.victims_terminating
                    || preemption::nominated_position(attempt, unplaced).is_none()
                {
                    result.nominate = Nominate::Set(node.clone());
                }
                result.victims = Some((node, found.pods));
            }
            preemption::Outcome::Nothing(text) => {
                if !released.is_something() {
                    result.nominate = self.cleared_nomination(attempt.pod);
                }
                result.text = Some(text);
            }
            preemption::Outcome::VictimsTerminating(text) => {
                result.victims_terminating = true;
                result.text = Some(text);
            }
        }
        result
    }

    /// Makes a pod that fits nowhere unschedulable.
    pub(super) fn handle_scheduling_failure(
        &mut self,
        queued: QueuedPod,
        profile: &Profile,
        failure: SchedulingFailure,
        time: Time,
    ) {
        let SchedulingFailure {
            by,
            message,
            explanation,
            nominate,
            cleanup,
            deallocates: _,
            plugin_decision,
            victims,
            victims_terminating: _,
        } = failure;
        let pod = queued.info.clone();
        self.metrics.attempt(
            &profile.name,
            Outcome::Unschedulable,
            std::time::Duration::ZERO,
        );
        tracing::debug!(pod = %pod.key, message, "unschedulable");
        if let Some(cleanup) = cleanup {
            self.clean_up(&pod, cleanup);
        }
        if let Some(decision) = plugin_decision {
            self.claim_plugin_decided(&pod, &decision, time);
        }
        match &nominate {
            Nominate::Set(node) => self.nominate(&pod, node, time),
            Nominate::Clear => self.forget_nomination(&pod.uid, time),
            Nominate::Keep => {}
        }
        self.actions.push(Action::Reject(Box::new(Rejected {
            pod: pod.clone(),
            reason: "Unschedulable",
            message,
            explanation,
            nominate,
        })));
        self.queue.add_unschedulable(queued, by, time.now);
        if let Some((node, victims)) = victims {
            let preemptor = Preemptor { pod, group: None };
            self.preempt(&preemptor, node, victims, time);
        }
    }

    /// Returns a pod whose attempt or binding failed to the queue.
    pub(super) fn fail(
        &mut self,
        queued: QueuedPod,
        message: String,
        nominate: Nominate,
        time: Time,
    ) {
        self.fail_explained(queued, message, None, nominate, time);
    }

    /// Like [`Core::fail`], with a text for the event only.
    pub(super) fn fail_explained(
        &mut self,
        queued: QueuedPod,
        message: String,
        explanation: Option<String>,
        nominate: Nominate,
        time: Time,
    ) {
        let pod = queued.info.clone();
        if nominate == Nominate::Clear {
            self.forget_nomination(&pod.uid, time);
        }
        let rejected = Rejected {
            pod,
            reason: "SchedulerError",
            message,
            explanation,
            nominate,
        };
        self.actions.push(Action::Reject(Box::new(rejected)));
        self.queue.add_backoff(queued, time.now);
    }
}

/// The text of the PostFilter plugins when `by` rejected the pod in PreFilter. In upstream, DynamicResources does not
/// find the state that its PreFilter would have stored, and its error is the only text.
pub(super) fn after_pre_filter(
    pod: &PodInfo,
    profile: &Profile,
    by: Plugin,
    total: usize,
) -> String {
    let mut after = Vec::new();
    if profile.post_filters.contains(Plugin::DynamicResources) {
        if by != Plugin::DynamicResources {
            return "not found".to_owned();
        }
        after.push("no new claims to deallocate".to_owned());
    }
    if profile.post_filters.contains(Plugin::DefaultPreemption) {
        after.push(match preemption::may_preempt(pod) {
            true => format!(
                "preemption: 0/{total} nodes are available: {total} Preemption is not helpful for scheduling."
            ),
            false => preemption::NEVER.to_owned(),
        });
    }
    after.join(", ")
}
