//! Classic claims, classes and negotiations.

use std::sync::Arc;

use allot_model::classic::objects::{ResourceClaim, SchedulingSpec};
use k8s_openapi::api::resource::v1;
use rustc_hash::FxHashSet;

use super::{Core, Time};
use crate::actions::{Action, Nominate, Rejected};
use crate::assume_cache::Object;
use crate::classic::claims::Change;
use crate::classic::deferrals::Deferral;
use crate::classic::negotiations::RetryReason;
use crate::classic::pod::{Deallocation, Negotiation, PodClaim};
use crate::classic::{self, Classic, Input, PodClaims, Served, key_of};
use crate::config::Profile;
use crate::framework::Plugin;
use crate::hints::{CLAIM, ClusterEvent};
use crate::metrics::Outcome;
use crate::node::NodeInfo;
use crate::pod::{Key, PodInfo, Uid};
use crate::queue::QueuedPod;
use allot_reflector::Observed;

/// Of how many pods that use a claim an attempt checks whether they can be placed where it is allocated.
const MOST_USERS: usize = 64;

impl Core {
    /// The server has classic kinds.
    #[must_use]
    pub fn with_classic(mut self, served: Option<Served>) -> Self {
        self.classic = served.map(|served| Box::new(Classic::new(served)));
        self
    }

    /// Adds to a pending pod what follows from the release that the server is.
    pub(super) fn completed(&self, pod: Arc<PodInfo>) -> Arc<PodInfo> {
        match &self.classic {
            Some(classic) if classic.completes() && pod.node_name().is_none() => {
                let mut whole = (*pod.pod).clone();
                classic.complete(&mut whole);
                Arc::new(PodInfo::new(Arc::new(whole)))
            }
            _ => pod,
        }
    }

    pub(super) fn classic_input(&mut self, input: Input, time: Time) {
        let Some(classic) = &mut self.classic else {
            return;
        };
        match input {
            Input::Claim(observed) => self.observe_classic_claims(observed, time),
            Input::Class(observed) => {
                classic.set_classes(observed);
                self.requeue(&ClusterEvent::ClassChanged, time);
            }
            Input::Slice(observed) => {
                classic.structured.set_slices(observed);
                self.requeue(&ClusterEvent::DevicesChanged, time);
            }
            Input::ClaimParameters(observed) => {
                classic.structured.set_claim_parameters(observed);
                self.requeue(&ClusterEvent::DevicesChanged, time);
            }
            Input::ClassParameters(observed) => {
                classic.structured.set_class_parameters(observed);
                self.requeue(&ClusterEvent::DevicesChanged, time);
            }
            Input::Scheduling(observed) => {
                for (pod, news) in classic.negotiations.observe(observed) {
                    self.answered(&pod, news, time);
                }
            }
            Input::ClaimWritten { pod, claim } => {
                let key = key_of(&claim.metadata);
                let uid = claim.metadata.uid.clone().unwrap_or_default();
                let assumed = classic.claims.assume(claim);
                let settled = classic.claims.finish_write(&key, &uid, &pod, true);
                self.after_classic(&assumed, time);
                self.after_classic(&settled, time);
            }
            Input::Released {
                key,
                uid,
                pod,
                claim,
            } => {
                let assumed = claim.map(|claim| classic.claims.assume(claim));
                let over = classic.claims.released(&key, &uid, pod);
                self.after_classic(&assumed.unwrap_or_default(), time);
                self.after_classic(&over, time);
            }
            Input::Published { pod, outcome } => match outcome {
                Ok(scheduling) => {
                    let news = classic.negotiations.published(scheduling);
                    self.answered(&pod.key, news, time);
                }
                Err(error) => {
                    classic.negotiations.failed(&pod.key);
                    if let Some(queued) = self.queue.remove(&pod.uid) {
                        self.fail(queued, error.to_string(), Nominate::Keep, time);
                    }
                }
            },
        }
    }

    fn observe_classic_claims(&mut self, observed: Observed<ResourceClaim>, time: Time) {
        match observed {
            Observed::Applied(claim) => self.observe_classic_claim(*claim, time),
            Observed::Deleted(claim) => self.forget_classic(&key_of(&claim.metadata), time),
            Observed::Listed { items, .. } => {
                let present: FxHashSet<Key> = items.iter().map(|c| key_of(&c.metadata)).collect();
                let known = self.classic.iter().flat_map(|c| c.claims.keys());
                let gone: Vec<Key> = known.filter(|k| !present.contains(*k)).cloned().collect();
                gone.iter().for_each(|key| self.forget_classic(key, time));
                items
                    .into_iter()
                    .for_each(|claim| self.observe_classic_claim(claim, time));
            }
        }
    }

    fn observe_classic_claim(&mut self, claim: ResourceClaim, time: Time) {
        if let Some(classic) = &mut self.classic {
            if claim.status.allocation.is_none() {
                classic.deferrals.forget_claim(&key_of(&claim.metadata));
            }
            let change = classic.claims.observe(Arc::new(claim));
            self.after_classic(&change, time);
        }
    }

    fn forget_classic(&mut self, key: &Key, time: Time) {
        if let Some(classic) = &mut self.classic {
            classic.deferrals.forget_claim(key);
            let change = classic.claims.observe_deleted(key);
            self.after_classic(&change, time);
        }
    }

    /// Removes the classic claims from the list of a current version: a server that serves both generations lists both.
    pub(super) fn split_claims(
        &mut self,
        observed: Observed<v1::ResourceClaim>,
        time: Time,
    ) -> Option<Observed<v1::ResourceClaim>> {
        if self.classic.is_none() {
            return Some(observed);
        }
        let original = |claim: &v1::ResourceClaim| ResourceClaim::from_v1(&claim.metadata);
        match observed {
            Observed::Applied(claim) => match original(&claim) {
                Some(classic) => self.observe_classic_claim(classic, time),
                None => return Some(Observed::Applied(claim)),
            },
            Observed::Deleted(claim) => match original(&claim) {
                Some(classic) => self.forget_classic(&key_of(&classic.metadata), time),
                None => return Some(Observed::Deleted(claim)),
            },
            Observed::Listed { items, version } => {
                let (mut newer, mut classic) = (Vec::new(), Vec::new());
                for claim in items {
                    match original(&claim) {
                        Some(original) => classic.push(original),
                        None => newer.push(claim),
                    }
                }
                let version_of_both = version.clone();
                let listed = Observed::Listed {
                    items: classic,
                    version,
                };
                self.observe_classic_claims(listed, time);
                return Some(Observed::Listed {
                    items: newer,
                    version: version_of_both,
                });
            }
        }
        None
    }

    /// Brings back the pods that a change of a claim concerns.
    fn after_classic(&mut self, change: &Change, time: Time) {
        if let Some(key) = &change.progressed {
            self.activate_pods_using_claim(key, time);
        }
        if change.freed {
            self.requeue(&ClusterEvent::DevicesFreed, time);
        }
    }

    /// Drivers answered in the negotiation of a pod: bring it back if that matters to it.
    fn answered(&mut self, key: &Key, news: RetryReason, time: Time) {
        if news == RetryReason::None {
            return;
        }
        let (Some(classic), Some(pod)) = (&self.classic, self.pods.get(key).cloned()) else {
            return;
        };
        let Some(queued) = self.queue.get(&pod.uid) else {
            return;
        };
        // Only a pod that waits for its drivers is affected.
        let matters = news == RetryReason::Lost
            || !queued.pending
            || !matches!(PodClaims::prepare(&pod, classic), Ok(Some(claims)) if !claims.answers_matter());
        if matters {
            self.activate(&pod, "resource.k8s.io/PodSchedulingContextUpdate", time);
        }
    }

    /// Publishes the specification to the drivers and makes the pod unschedulable until they have answered.
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
        if let Some(spec) = negotiation.publish {
            self.publish_classic(&pod, spec);
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

    pub(super) fn publish_classic(&mut self, pod: &Arc<PodInfo>, spec: SchedulingSpec) {
        let Some(classic) = &mut self.classic else {
            return;
        };
        tracing::debug!(pod = %pod.key, node = spec.selected_node, "negotiates");
        classic.negotiations.begin_publish(&pod.key, spec.clone());
        let (pod, known) = (pod.clone(), classic.negotiations.uid(&pod.key));
        self.actions.push(Action::Classic(classic::Action::Publish {
            pod,
            spec,
            known,
        }));
    }

    /// Classic claims are about to be reserved for a pod.
    pub(super) fn assume_classic(&mut self, pod: &PodInfo, tasks: &[classic::ClaimTask]) {
        let Some(classic) = &mut self.classic else {
            return;
        };
        for task in tasks {
            classic.claims.assume_allocated(task, &pod.uid);
        }
    }

    /// Chooses the claim whose deallocation may help a pod that fits nowhere; `rejected` are the nodes that fit otherwise.
    pub(super) fn classic_deallocation(
        &self,
        pod: &PodInfo,
        claims: &PodClaims,
        rejected: &[&NodeInfo],
        attempt: u32,
    ) -> Option<Deallocation> {
        let classic = self.classic.as_deref()?;
        let deferral = |claim: &PodClaim| self.deferral(pod, claim, classic);
        claims.deallocation(&pod.uid, rejected, attempt, classic, deferral)
    }

    /// Finds another pod that will be tried without a further event and can use a claim where it is allocated.
    fn deferral(&self, pod: &PodInfo, claim: &PodClaim, classic: &Classic) -> Option<Deferral> {
        let nodes = &self.cache.snapshot().nodes;
        let nodes = nodes.iter().filter(|node| claim.is_allocated_on(node));
        let nodes: Vec<&NodeInfo> = nodes.map(|node| &**node).collect();
        let can_use = |other: &&QueuedPod| {
            let Ok(Some(claims)) = PodClaims::prepare(&other.info, classic) else {
                return false;
            };
            !claims.is_pending() && nodes.iter().any(|n| claims.filter(n, classic).is_ok())
        };
        let mut others = self
            .queue
            .ready_users_of_claim(claim.key())
            .filter(|o| o.info.uid != pod.uid)
            .filter(|o| !classic.deferrals.is_over(claim.key(), &o.info.uid))
            .take(MOST_USERS);
        let other = others.find(can_use)?;
        tracing::debug!(claim = %claim.key(), pod = %other.info.key, "leaves the claim to a pod that can use it");
        Some(Deferral {
            claim: claim.key().clone(),
            pod: other.info.uid.clone(),
            attempts: other.attempts,
        })
    }

    /// Tries pods again that waited until another pod was tried.
    pub(super) fn end_deferrals(&mut self, time: Time) {
        let Some(classic) = &mut self.classic else {
            return;
        };
        let queue = &self.queue;
        let waiting = classic.deferrals.end(|pod, attempts| {
            let ready = queue.ready(pod);
            ready.is_none_or(|queued| queued.attempts != attempts)
        });
        self.activate_waiting(waiting, time);
    }

    /// The pod is finished or does not exist any longer.
    pub(super) fn forget_classic_pod(&mut self, pod: &Arc<PodInfo>, time: Time) {
        if pod.node_name().is_some() {
            // A scheduler that ended after the binding left it over. Drivers would go on allocating claims for the finished
            // pod, as often as they are deallocated for others.
            self.delete_negotiation(pod);
        }
        let Some(classic) = &mut self.classic else {
            return;
        };
        classic.negotiations.forget(&pod.key);
        let waiting = classic.deferrals.forget_pod(&pod.uid);
        self.activate_waiting(waiting, time);
    }

    fn activate_waiting(&mut self, pods: Vec<Arc<PodInfo>>, time: Time) {
        for pod in pods {
            if self.queue.contains(&pod.uid) {
                self.activate(&pod, CLAIM, time);
            }
        }
    }

    /// Requests the deallocation of a claim that prevents a pod from using its node.
    pub(super) fn deallocate_classic(
        &mut self,
        pod: &Arc<PodInfo>,
        claim: Arc<ResourceClaim>,
        publish: Option<SchedulingSpec>,
    ) {
        let Some(classic) = &mut self.classic else {
            return;
        };
        classic.claims.release(claim.uid(), None);
        if let Some(spec) = &publish {
            classic.negotiations.begin_publish(&pod.key, spec.clone());
        }
        let known = classic.negotiations.uid(&pod.key);
        self.actions
            .push(Action::Classic(classic::Action::Deallocate {
                pod: pod.clone(),
                claim,
                publish,
                known,
            }));
    }

    /// The binding of a pod has ended: none of its claims is in flight anymore.
    pub(super) fn finish_classic_write(
        &mut self,
        pod: &Arc<PodInfo>,
        claims: &[(Key, Uid)],
        bound: bool,
        time: Time,
    ) {
        for (key, uid) in claims {
            let Some(classic) = &mut self.classic else {
                return;
            };
            let change = classic.claims.finish_write(key, uid, &pod.uid, bound);
            let claim = classic.claims.get(key).cloned();
            if let Some(claim) = claim.filter(|c| !bound && c.is_reserved_for(&pod.uid)) {
                let pod = pod.uid.clone();
                classic.claims.release(uid, Some(pod.clone()));
                self.actions
                    .push(Action::Classic(classic::Action::Unreserve { pod, claim }));
            }
            self.after_classic(&change, time);
        }
        if bound {
            self.delete_negotiation(pod);
        }
    }

    /// Requests the deletion of what was published for a pod.
    fn delete_negotiation(&mut self, pod: &Arc<PodInfo>) {
        if let Some(classic) = &mut self.classic
            && classic.negotiations.exists(&pod.key)
        {
            classic.negotiations.forget(&pod.key);
            self.actions
                .push(Action::Classic(classic::Action::Forget(pod.clone())));
        }
    }
}
