//! Inputs: what watches observe and what became of writes, and what follows for pods.

use std::sync::Arc;

use allot_framework::claim_plugin::{Effect, Handle};
use allot_framework::pod::{Key, key_of};
use allot_model::classic::objects::ResourceClaim;
use allot_reflector::Observed;
use k8s_openapi::api::resource::v1;
use rustc_hash::FxHashSet;

use super::{of_change, write};
use crate::message::{Action, Input};
use crate::negotiations::RetryReason;
use crate::pod::PodClaims;
use crate::state::Classic;

/// Upstream's event for a pod whose drivers answered.
const ANSWER_EVENT: &str = "resource.k8s.io/PodSchedulingContextUpdate";

impl Classic {
    /// Takes an input in.
    pub(super) fn handle_input(&mut self, input: Input, handle: &dyn Handle) -> Vec<Effect> {
        let mut effects = Vec::new();
        match input {
            Input::Claim(observed) => self.observe_claims(observed, &mut effects),
            Input::Class(observed) => {
                self.set_classes(observed);
                effects.push(Effect::ClassChanged);
            }
            Input::Slice(observed) => {
                self.structured.set_slices(observed);
                effects.push(Effect::DevicesChanged);
            }
            Input::ClaimParameters(observed) => {
                self.structured.set_claim_parameters(observed);
                effects.push(Effect::DevicesChanged);
            }
            Input::ClassParameters(observed) => {
                self.structured.set_class_parameters(observed);
                effects.push(Effect::DevicesChanged);
            }
            Input::Scheduling(observed) => {
                for (pod, news) in self.negotiations.observe(observed) {
                    if handle.pod(&pod).is_none() {
                        self.without_pod.insert(pod.clone());
                    }
                    effects.extend(self.answered(&pod, news, handle));
                }
            }
            Input::ClaimWritten { pod, claim } => {
                let key = key_of(&claim.metadata);
                let uid = claim.metadata.uid.clone().unwrap_or_default();
                let assumed = self.claims.assume(claim);
                let settled = self.claims.finish_write(&key, &uid, &pod, true);
                effects.extend(of_change(assumed).chain(of_change(settled)));
            }
            Input::Released {
                key,
                uid,
                pod,
                claim,
            } => {
                let assumed = claim.map(|claim| self.claims.assume(claim));
                let over = self.claims.released(&key, &uid, pod);
                effects.extend(of_change(assumed.unwrap_or_default()).chain(of_change(over)));
            }
            Input::Published { pod, outcome } => match outcome {
                Ok(scheduling) => {
                    let news = self.negotiations.published(scheduling);
                    effects.extend(self.answered(&pod.key, news, handle));
                }
                Err(error) => {
                    self.negotiations.failed(&pod.key);
                    effects.push(Effect::Fail(pod.uid.clone(), error.to_string()));
                }
            },
        }
        effects
    }

    /// Takes out of claims in the current form those that were classic ones.
    pub(super) fn split_observed(
        &mut self,
        observed: Observed<v1::ResourceClaim>,
    ) -> (Option<Observed<v1::ResourceClaim>>, Vec<Effect>) {
        let original = |claim: &v1::ResourceClaim| ResourceClaim::from_v1(&claim.metadata);
        let mut effects = Vec::new();
        match observed {
            Observed::Applied(claim) => match original(&claim) {
                Some(classic) => self.observe_claim(classic, &mut effects),
                None => return (Some(Observed::Applied(claim)), effects),
            },
            Observed::Deleted(claim) => match original(&claim) {
                Some(classic) => self.forget_claim(&key_of(&classic.metadata), &mut effects),
                None => return (Some(Observed::Deleted(claim)), effects),
            },
            Observed::Listed { items, version } => {
                let (mut newer, mut classic) = (Vec::new(), Vec::new());
                for claim in items {
                    match original(&claim) {
                        Some(original) => classic.push(original),
                        None => newer.push(claim),
                    }
                }
                let listed = Observed::Listed {
                    items: classic,
                    version: version.clone(),
                };
                self.observe_claims(listed, &mut effects);
                let newer = Observed::Listed {
                    items: newer,
                    version,
                };
                return (Some(newer), effects);
            }
        }
        (None, effects)
    }

    fn observe_claims(&mut self, observed: Observed<ResourceClaim>, effects: &mut Vec<Effect>) {
        match observed {
            Observed::Applied(claim) => self.observe_claim(*claim, effects),
            Observed::Deleted(claim) => self.forget_claim(&key_of(&claim.metadata), effects),
            Observed::Listed { items, .. } => {
                let present: FxHashSet<Key> = items.iter().map(|c| key_of(&c.metadata)).collect();
                let known = self.claims.keys();
                let gone: Vec<Key> = known.filter(|k| !present.contains(*k)).cloned().collect();
                gone.iter().for_each(|key| self.forget_claim(key, effects));
                for claim in items {
                    self.observe_claim(claim, effects);
                }
            }
        }
    }

    fn observe_claim(&mut self, claim: ResourceClaim, effects: &mut Vec<Effect>) {
        if claim.status.allocation.is_none() {
            self.deferrals.forget_claim(&key_of(&claim.metadata));
        }
        effects.extend(of_change(self.claims.observe(Arc::new(claim))));
    }

    fn forget_claim(&mut self, key: &Key, effects: &mut Vec<Effect>) {
        self.deferrals.forget_claim(key);
        effects.extend(of_change(self.claims.observe_deleted(key)));
    }

    /// Drivers answered in the negotiation of a pod: the pod is tried again if that matters to it.
    fn answered(&self, key: &Key, news: RetryReason, handle: &dyn Handle) -> Option<Effect> {
        if news == RetryReason::None {
            return None;
        }
        let pod = handle.pod(key)?;
        let queued = handle.queued(&pod.uid)?;
        // Only a pod that waits for its drivers is affected.
        let matters = news == RetryReason::Lost
            || !queued.pending
            || !matches!(PodClaims::prepare(pod, self), Ok(Some(claims)) if !claims.answers_matter());
        matters.then(|| Effect::Activate(pod.clone(), ANSWER_EVENT))
    }

    /// Requests the deletion of the negotiations whose pods have finished: as long as a node is selected in one, drivers
    /// allocate claims for its pod, as often as these are deallocated for others. A scheduler that ended after the binding
    /// left it over, and no watch shows a finished pod to the next one. The writer checks that the pod has finished: it may
    /// also be one that the watch of pods is about to show.
    pub(super) fn collect(&mut self, handle: &dyn Handle) -> Vec<Effect> {
        let keys = std::mem::take(&mut self.without_pod);
        let keys = keys.into_iter().filter(|key| handle.pod(key).is_none());
        let owned = keys.filter_map(|pod| Some((self.negotiations.owner(&pod)?, pod)));
        owned
            .map(|(uid, pod)| write(Action::Collect { pod, uid }))
            .collect()
    }
}
