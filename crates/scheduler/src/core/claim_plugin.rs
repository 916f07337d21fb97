//! Calls the plugin for claims of another generation, if there is one, and carries its effects out.

use std::sync::Arc;

use allot_framework::claim_plugin::{
    ClaimPlugin, Effect, Handle, Message, Negotiation, PodClaims, PostFilter, Queued, Shared,
};
use k8s_openapi::api::resource::v1;
use rustc_hash::FxHashMap;

use super::{Core, Time};
use crate::actions::{Action, Nominate, Rejected};
use crate::cache::Cache;
use crate::config::Profile;
use crate::framework::Plugin;
use crate::hints::ClusterEvent;
use crate::metrics::Outcome;
use crate::node::NodeInfo;
use crate::pod::{Key, PodInfo, Uid};
use crate::queue::{Queue, QueuedPod};
use allot_reflector::Observed;

/// What the plugin may read.
struct View<'a> {
    queue: &'a Queue,
    cache: &'a Cache,
    pods: &'a FxHashMap<Key, Arc<PodInfo>>,
    pods_are_listed: bool,
}

fn queued(pod: &QueuedPod) -> Queued<'_> {
    Queued {
        pod: &pod.info,
        attempts: pod.attempts,
        pending: pod.pending,
    }
}

impl Handle for View<'_> {
    fn nodes(&self) -> &[Arc<NodeInfo>] {
        &self.cache.snapshot().nodes
    }

    fn pods_are_listed(&self) -> bool {
        self.pods_are_listed
    }

    fn pod(&self, key: &Key) -> Option<&Arc<PodInfo>> {
        self.pods.get(key)
    }

    fn queued(&self, uid: &Uid) -> Option<Queued<'_>> {
        self.queue.get(uid).map(queued)
    }

    fn ready(&self, uid: &Uid) -> Option<Queued<'_>> {
        self.queue.ready(uid).map(queued)
    }

    fn ready_users_of_claim(&self, claim: &Key) -> Vec<Queued<'_>> {
        self.queue.ready_users_of_claim(claim).map(queued).collect()
    }
}

impl Core {
    /// Uses a plugin for claims of another generation.
    #[must_use]
    pub fn with_claim_plugin(mut self, plugin: Option<Box<dyn ClaimPlugin>>) -> Self {
        self.claim_plugin = plugin;
        self
    }

    /// Calls the plugin with what it may read of the state, and carries out what follows.
    fn call_claim_plugin(
        &mut self,
        call: impl FnOnce(&mut dyn ClaimPlugin, &dyn Handle) -> Vec<Effect>,
        time: Time,
    ) {
        let Some(plugin) = self.claim_plugin.as_deref_mut() else {
            return;
        };
        let view = View {
            queue: &self.queue,
            cache: &self.cache,
            pods: &self.pods,
            pods_are_listed: self.pods_listed,
        };
        let effects = call(plugin, &view);
        for effect in effects {
            self.carry_out(effect, time);
        }
    }

    fn carry_out(&mut self, effect: Effect, time: Time) {
        match effect {
            Effect::ClaimProgressed(key) => self.activate_pods_using_claim(&key, time),
            Effect::DevicesFreed => self.requeue(&ClusterEvent::DevicesFreed, time),
            Effect::DevicesChanged => self.requeue(&ClusterEvent::DevicesChanged, time),
            Effect::ClassChanged => self.requeue(&ClusterEvent::ClassChanged, time),
            Effect::Activate(pod, event) => {
                if self.queue.contains(&pod.uid) {
                    self.activate(&pod, event, time);
                }
            }
            Effect::Fail(pod, error) => {
                if let Some(queued) = self.queue.remove(&pod) {
                    self.fail(queued, error, Nominate::Keep, time);
                }
            }
            Effect::Write(write) => self.actions.push(Action::ClaimPlugin(write)),
        }
    }

    pub(super) fn claim_plugin_input(&mut self, message: Box<dyn Message>, time: Time) {
        self.call_claim_plugin(|plugin, handle| plugin.handle(message, handle), time);
    }

    /// Adds to a pending pod what its API server leaves out of its status.
    pub(super) fn completed(&self, pod: Arc<PodInfo>) -> Arc<PodInfo> {
        match &self.claim_plugin {
            Some(plugin) => plugin.complete(pod),
            None => pod,
        }
    }

    /// Leaves the claims of the plugin to it. Returns the others.
    pub(super) fn split_claims(
        &mut self,
        observed: Observed<v1::ResourceClaim>,
        time: Time,
    ) -> Option<Observed<v1::ResourceClaim>> {
        let Some(plugin) = &mut self.claim_plugin else {
            return Some(observed);
        };
        let (rest, effects) = plugin.split(observed);
        for effect in effects {
            self.carry_out(effect, time);
        }
        rest
    }

    /// What the plugin does for a pod that fits nowhere; `rejected` are the nodes that fit otherwise.
    pub(super) fn claim_plugin_post_filter(
        &self,
        claims: &dyn PodClaims,
        rejected: &[&NodeInfo],
        attempts: u32,
    ) -> PostFilter {
        let view = View {
            queue: &self.queue,
            cache: &self.cache,
            pods: &self.pods,
            pods_are_listed: self.pods_listed,
        };
        claims.post_filter(rejected, attempts, &view)
    }

    /// Carries out what the plugin decided for a pod.
    pub(super) fn claim_plugin_decided(
        &mut self,
        pod: &Arc<PodInfo>,
        decision: &Shared,
        time: Time,
    ) {
        self.call_claim_plugin(|plugin, _| plugin.decided(pod, decision), time);
    }

    /// Tells drivers about the pod and makes it unschedulable until they have answered.
    pub(super) fn negotiate(
        &mut self,
        queued: QueuedPod,
        profile: &Profile,
        negotiation: Negotiation,
        time: Time,
    ) {
        let pod = queued.info.clone();
        self.metrics.attempt(
            &profile.name,
            Outcome::Unschedulable,
            std::time::Duration::ZERO,
        );
        if let Some(decision) = negotiation.decision {
            self.claim_plugin_decided(&pod, &decision, time);
        }
        // Upstream counts only the selected node.
        let message = format!("0/1 nodes are available: 1 {}.", negotiation.message);
        self.actions.push(Action::Reject(Box::new(Rejected {
            pod,
            reason: "Unschedulable",
            message,
            explanation: None,
            nominate: Nominate::Keep,
        })));
        let by = [Plugin::DynamicResources].into_iter().collect();
        self.queue.add_unschedulable_pending(queued, by, time.now);
    }

    /// Claims of the plugin are about to be written for a pod.
    pub(super) fn assume_plugin_claims(&mut self, pod: &PodInfo, writes: &Shared) {
        if let Some(plugin) = &mut self.claim_plugin {
            plugin.assume(pod, writes);
        }
    }

    /// The binding of a pod has ended.
    pub(super) fn end_plugin_claims(
        &mut self,
        pod: &Arc<PodInfo>,
        claims: &[(Key, Uid)],
        bound: bool,
        time: Time,
    ) {
        self.call_claim_plugin(|plugin, _| plugin.binding_ended(pod, claims, bound), time);
    }

    /// The pod is finished or does not exist any longer.
    pub(super) fn remove_pod_from_claim_plugin(&mut self, pod: &Arc<PodInfo>, time: Time) {
        self.call_claim_plugin(|plugin, _| plugin.pod_removed(pod), time);
    }

    /// Pods may be ready that were not, or the reverse.
    pub(super) fn queue_changed(&mut self, time: Time) {
        self.call_claim_plugin(|plugin, handle| plugin.queue_changed(handle), time);
    }
}
