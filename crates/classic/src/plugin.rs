//! The plugin at the extension points of the scheduler: what inputs and decisions change, and what follows for pods.

use std::sync::Arc;

use allot_framework::assume_cache::Object;
use allot_framework::claim_plugin::{
    self, CLAIM_EVENT, ClaimPlugin, Effect, Handle, Message, PluginRejection, Shared,
};
use allot_framework::pod::claims::ResolveError;
use allot_framework::pod::{Key, PodInfo, Uid};
use allot_model::classic::objects::{ResourceClaim, SchedulingSpec};
use allot_reflector::Observed;
use k8s_openapi::api::core::v1::PodResourceClaim;
use k8s_openapi::api::resource::v1;

use crate::claims::Change;
use crate::message::{Action, ClaimTasks, Input};
use crate::pod::PodClaims;
use crate::state::Classic;

mod inputs;
mod pod_claims;

use pod_claims::{Decision, Prepared};

impl ClaimPlugin for Classic {
    fn owns(&self, pod: &PodInfo, entry: &PodResourceClaim) -> bool {
        Classic::owns(self, pod, entry)
    }

    fn complete(&self, pod: Arc<PodInfo>) -> Arc<PodInfo> {
        let names = match pod.node_name() {
            None => self.deterministic_names(&pod.pod),
            Some(_) => return pod,
        };
        if names.is_empty() {
            return pod;
        }
        let mut completed = (*pod.pod).clone();
        let status = completed.status.get_or_insert_default();
        status.resource_claim_statuses = Some(names);
        Arc::new(PodInfo::new(Arc::new(completed)))
    }

    fn pre_enqueue(&self, pod: &PodInfo) -> Result<(), ResolveError> {
        self.resolve(pod).map(drop)
    }

    fn pre_filter<'a>(
        &'a self,
        pod: &'a PodInfo,
    ) -> Result<Option<Box<dyn claim_plugin::PodClaims + 'a>>, PluginRejection> {
        let claims = PodClaims::prepare(pod, self)?;
        Ok(claims.map(|claims| {
            Box::new(Prepared {
                pod,
                claims,
                state: self,
            }) as Box<dyn claim_plugin::PodClaims + 'a>
        }))
    }

    fn handle(&mut self, message: Box<dyn Message>, handle: &dyn Handle) -> Vec<Effect> {
        match claim_plugin::unwrap::<Input>(message) {
            Some(input) => self.handle_input(input, handle),
            None => Vec::new(),
        }
    }

    fn split(
        &mut self,
        observed: Observed<v1::ResourceClaim>,
    ) -> (Option<Observed<v1::ResourceClaim>>, Vec<Effect>) {
        self.split_observed(observed)
    }

    fn decided(&mut self, pod: &Arc<PodInfo>, decision: &Shared) -> Vec<Effect> {
        let action = match decision.get::<Decision>() {
            Some(Decision::Publish(spec)) => Some(self.publish(pod, spec.clone())),
            Some(Decision::Deallocate(claim, publish)) => {
                Some(self.deallocate(pod, claim.clone(), publish.clone()))
            }
            Some(Decision::Leave(publish, deferral)) => {
                let published = publish.clone().map(|spec| self.publish(pod, spec));
                self.deferrals.begin(deferral.clone(), pod.clone());
                published
            }
            None => None,
        };
        action.into_iter().map(write).collect()
    }

    fn assume(&mut self, pod: &PodInfo, writes: &Shared) {
        for task in writes.get::<ClaimTasks>().iter().flat_map(|tasks| &tasks.0) {
            self.claims.assume_allocated(task, &pod.uid);
        }
    }

    fn binding_ended(
        &mut self,
        pod: &Arc<PodInfo>,
        claims: &[(Key, Uid)],
        bound: bool,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        for (key, uid) in claims {
            let change = self.claims.finish_write(key, uid, &pod.uid, bound);
            let claim = self.claims.get(key).cloned();
            if let Some(claim) = claim.filter(|c| !bound && c.is_reserved_for(&pod.uid)) {
                let pod = pod.uid.clone();
                self.claims.release(uid, Some(pod.clone()));
                effects.push(write(Action::Unreserve { pod, claim }));
            }
            effects.extend(of_change(change));
        }
        if bound {
            effects.extend(self.delete_negotiation(pod));
        }
        effects
    }

    fn pod_removed(&mut self, pod: &Arc<PodInfo>) -> Vec<Effect> {
        let mut effects = Vec::new();
        if pod.node_name().is_some() {
            // A scheduler that ended after the binding left it over. Drivers would go on allocating claims for the finished
            // pod, as often as they are deallocated for others.
            effects.extend(self.delete_negotiation(pod));
        }
        self.negotiations.forget(&pod.key);
        effects.extend(
            self.deferrals
                .forget_pod(&pod.uid)
                .into_iter()
                .map(activate),
        );
        effects
    }

    /// Tries pods again that waited until another pod was tried, and collects negotiations of finished pods.
    fn queue_changed(&mut self, handle: &dyn Handle) -> Vec<Effect> {
        let waiting = self.deferrals.end(|pod, attempts| {
            let ready = handle.ready(pod);
            ready.is_none_or(|queued| queued.attempts != attempts)
        });
        let mut effects: Vec<Effect> = waiting.into_iter().map(activate).collect();
        if !self.without_pod.is_empty() && handle.pods_are_listed() {
            effects.extend(self.collect(handle));
        }
        effects
    }
}

impl Classic {
    fn publish(&mut self, pod: &Arc<PodInfo>, spec: SchedulingSpec) -> Action {
        tracing::debug!(pod = %pod.key, node = spec.selected_node, "negotiates");
        self.negotiations.begin_publish(&pod.key, spec.clone());
        let (pod, known) = (pod.clone(), self.negotiations.uid(&pod.key));
        Action::Publish { pod, spec, known }
    }

    /// Requests the deallocation of a claim that prevents a pod from using its node.
    fn deallocate(
        &mut self,
        pod: &Arc<PodInfo>,
        claim: Arc<ResourceClaim>,
        publish: Option<SchedulingSpec>,
    ) -> Action {
        self.claims.release(claim.uid(), None);
        if let Some(spec) = &publish {
            self.negotiations.begin_publish(&pod.key, spec.clone());
        }
        Action::Deallocate {
            pod: pod.clone(),
            claim,
            publish,
            known: self.negotiations.uid(&pod.key),
        }
    }

    /// Requests the deletion of what was published for a pod.
    fn delete_negotiation(&mut self, pod: &Arc<PodInfo>) -> Option<Effect> {
        let exists = self.negotiations.exists(&pod.key);
        exists.then(|| {
            self.negotiations.forget(&pod.key);
            write(Action::Forget(pod.clone()))
        })
    }
}

/// Which pods a change of a claim concerns.
fn of_change(change: Change) -> impl Iterator<Item = Effect> {
    let progressed = change.progressed.map(Effect::ClaimProgressed);
    let freed = change.freed.then_some(Effect::DevicesFreed);
    progressed.into_iter().chain(freed)
}

fn write(action: Action) -> Effect {
    Effect::Write(Shared::new(action))
}

fn activate(pod: Arc<PodInfo>) -> Effect {
    Effect::Activate(pod, CLAIM_EVENT)
}
