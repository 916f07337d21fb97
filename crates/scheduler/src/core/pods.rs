//! Pods: added to the queue, assumed on nodes, deleted.

use std::sync::Arc;

use allot_model::features::Feature;
use k8s_openapi::api::core::v1::PodResourceClaim;
use rustc_hash::FxHashSet;

use super::requeue::releases_claims;
use super::{Core, Time};
use crate::actions::Action;
use crate::dra::claims::Change;
use crate::dra::resolve;
use crate::framework::Plugin;
use crate::hints::ClusterEvent;
use crate::pod::claims::ResolveError;
use crate::pod::{Key, PodInfo, scheduler_name};
use allot_reflector::Observed;

impl Core {
    pub(super) fn observe_pods(&mut self, observed: Observed<Arc<PodInfo>>, time: Time) {
        match observed {
            Observed::Applied(pod) => self.set_pod(*pod, time),
            Observed::Deleted(pod) => self.remove_pod(&pod.key, time),
            Observed::Listed { items, .. } => {
                let present: FxHashSet<Key> = items.iter().map(|p| p.key.clone()).collect();
                let gone: Vec<Key> = self
                    .pods
                    .keys()
                    .filter(|k| !present.contains(*k))
                    .cloned()
                    .collect();
                gone.iter().for_each(|k| self.remove_pod(k, time));
                if !std::mem::replace(&mut self.pods_listed, true) {
                    let pending = items.iter().filter(|p| p.node_name().is_none());
                    let known = pending.map(|p| (p.uid.clone(), p.key.clone()));
                    self.inherited = known.collect();
                }
                items.into_iter().for_each(|pod| self.set_pod(pod, time));
            }
        }
    }

    fn set_pod(&mut self, new: Arc<PodInfo>, time: Time) {
        let new = self.with_effective_tolerations(self.completed(new));
        let old = self.pods.get(&new.key).cloned();
        if old.as_ref().is_some_and(|o| o.uid != new.uid) {
            self.remove_pod(&new.key, time);
        }
        let old = old.filter(|o| o.uid == new.uid);
        if new.is_finished() {
            self.remove_pod(&new.key, time);
            return;
        }
        self.pods.insert(new.key.clone(), new.clone());
        self.add_pod_to_gang(&new, time);
        if new.node_name().is_some() {
            self.set_assigned(old.as_deref(), new, time);
        } else {
            self.set_pending(old.as_deref(), new, time);
        }
    }

    /// The pod without the tolerations whose feature is off.
    pub(super) fn with_effective_tolerations(&self, pod: Arc<PodInfo>) -> Arc<PodInfo> {
        let features = &self.config.features;
        match features.enabled(Feature::TaintTolerationComparisonOperators) {
            true => pod,
            false => pod.without_comparison_operators(),
        }
    }

    fn set_assigned(&mut self, old: Option<&PodInfo>, new: Arc<PodInfo>, time: Time) {
        self.queue.remove(&new.uid);
        self.nominations.remove(&new.uid);
        self.preemption_done(&new, time);
        self.inherited.remove(&new.uid);
        self.cache.set_pod(new.clone());
        if new.is_terminating() {
            self.victim_terminating(&new.uid, time);
        }
        match old.filter(|o| o.node_name().is_some()) {
            None => {
                self.requeue(&ClusterEvent::PodAdded(&new), time);
                self.activate_pods_sharing_claims(&new, time);
            }
            Some(old) => {
                if old.labels() != new.labels() {
                    self.requeue(&ClusterEvent::PodChanged(&new), time);
                }
                if old.requests != new.requests {
                    self.requeue(&ClusterEvent::PodResized { old, new: &new }, time);
                }
            }
        }
    }

    /// A pod was bound: its devices are settled, even after a double allocation, and other pods can share them now.
    fn activate_pods_sharing_claims(&mut self, pod: &PodInfo, time: Time) {
        for key in self.claims.double_allocated_of(pod) {
            let change = Change {
                key: Some(key),
                progressed: true,
                ..Change::default()
            };
            self.after(&change, time);
        }
    }

    fn set_pending(&mut self, old: Option<&PodInfo>, new: Arc<PodInfo>, time: Time) {
        if self.profile(scheduler_name(&new.pod)).is_none() {
            return;
        }
        if new.is_terminating() {
            self.remove_pending(&new, time);
            return;
        }
        let before = old.and_then(|o| o.nominated_node());
        match new.nominated_node() {
            Some(node) => self.observe_nomination(&new, node, time),
            None if before.is_some() => self.forget_nomination(&new.uid, time),
            None => {}
        }
        if let Some(binding) = self.bindings.get_mut(&new.uid) {
            // With other claims it counts as a different pod: the binding names the version that was decided on, and is
            // rejected.
            if binding.queued.info.has_claims_of(&new.pod) {
                binding.queued.info = new;
            }
            return;
        }
        let gate = self.gate(&new);
        if !self.queue.contains(&new.uid) {
            self.queue.add(new.clone(), gate, time.now);
            if gate == Some(Plugin::DynamicResources) {
                self.record_missing_claim(&new);
            }
            if gate.is_some_and(releases_claims) {
                self.release_claims(&new);
            }
            return;
        }
        let matters = old.is_none_or(|old| may_fit_now(old, &new));
        let uid = new.uid.clone();
        self.queue.update(new);
        if matters {
            self.queue
                .activate(&uid, gate, "UnschedulablePodUpdate", time.now);
        }
    }

    /// Reports once that a named claim does not exist; a claim from a template is created without the user.
    fn record_missing_claim(&mut self, pod: &Arc<PodInfo>) {
        let resolved = resolve::all(pod, self.claim_plugin.as_deref(), &self.claims);
        if let Err(missing @ ResolveError::NotFound(_)) = resolved {
            let names = |entry: &PodResourceClaim| entry.resource_claim_name.is_some();
            if pod.spec().resource_claims.iter().flatten().any(names) {
                let text = missing.to_string();
                let pod = pod.clone();
                self.actions.push(Action::RecordMissingClaim { pod, text });
            }
        }
    }

    /// A pending pod is being deleted: its nomination and its binding are dropped.
    fn remove_pending(&mut self, pod: &Arc<PodInfo>, time: Time) {
        self.queue.remove(&pod.uid);
        self.preemption_done(pod, time);
        self.victim_terminating(&pod.uid, time);
        self.forget_nomination(&pod.uid, time);
        let canceled = self.cancel_pod(&pod.uid, "the pod is being deleted", time);
        if !canceled && self.cache.is_assumed(&pod.uid) {
            self.cache.forget(&pod.uid);
            self.requeue(&ClusterEvent::PodGone(pod), time);
        }
    }

    fn remove_pod(&mut self, key: &Key, time: Time) {
        let Some(pod) = self.pods.remove(key) else {
            return;
        };
        self.queue.remove(&pod.uid);
        self.preemption_done(&pod, time);
        self.forget_nomination(&pod.uid, time);
        self.victim_terminating(&pod.uid, time);
        self.inherited.remove(&pod.uid);
        self.cancel_pod(&pod.uid, "the pod does not exist any more", time);
        self.remove_pod_from_claim_plugin(&pod, time);
        self.remove_pod_from_gang(&pod, time);
        let was_placed = self.cache.node_of(&pod.uid).is_some();
        self.cache.remove_pod(&pod.uid);
        if was_placed {
            self.requeue(&ClusterEvent::PodGone(&pod), time);
        }
    }

    /// The newest version of a pod that still exists.
    pub(super) fn current(&self, pod: &PodInfo) -> Option<&Arc<PodInfo>> {
        self.pods.get(&pod.key).filter(|p| p.uid == pod.uid)
    }
}

/// Whether an update of a pending pod is more than a note about the last attempt.
fn may_fit_now(old: &PodInfo, new: &PodInfo) -> bool {
    let claims = |p: &PodInfo| {
        p.pod
            .status
            .as_ref()
            .and_then(|s| s.resource_claim_statuses.clone())
    };
    old.pod.spec != new.pod.spec || old.labels() != new.labels() || claims(old) != claims(new)
}
