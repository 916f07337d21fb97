//! The plugin at the extension points of the scheduler: what inputs and decisions change, and what follows for pods.

use std::sync::Arc;

use allot_framework::assume_cache::Object;
use allot_framework::claim_plugin::{
    self, CLAIM_EVENT, ClaimPlugin, Effect, Handle, Message, Negotiation, PluginRejection,
    PostFilter, Queued, Reservation, Shared,
};
use allot_framework::node::NodeInfo;
use allot_framework::pod::claims::ResolveError;
use allot_framework::pod::{Key, PodInfo, Uid, key_of};
use allot_model::classic::objects::{ResourceClaim, SchedulingSpec};
use allot_reflector::Observed;
use k8s_openapi::api::core::v1::PodResourceClaim;
use k8s_openapi::api::resource::v1;
use rustc_hash::FxHashSet;

use crate::claims::Change;
use crate::deferrals::Deferral;
use crate::message::{Action, ClaimTasks, Input};
use crate::negotiations::RetryReason;
use crate::pod::{Deallocation, PodClaim, PodClaims};
use crate::state::Classic;

/// Of how many pods that use a claim an attempt checks whether they can be placed where it is allocated.
const MOST_USERS: usize = 64;
/// Upstream's event for a pod whose drivers answered.
const ANSWER_EVENT: &str = "resource.k8s.io/PodSchedulingContextUpdate";

/// What an attempt decided for a pod.
#[derive(Debug)]
enum Decision {
    /// Publish a specification to the drivers.
    Publish(SchedulingSpec),
    /// Have a claim deallocated, after a specification was published.
    Deallocate(Arc<ResourceClaim>, Option<SchedulingSpec>),
    /// Publish a specification, and leave a claim to another pod.
    Leave(Option<SchedulingSpec>, Deferral),
}

impl Message for Decision {}

/// The claims of a pod with the state that judges nodes for them.
#[derive(Debug)]
struct Prepared<'a> {
    pod: &'a PodInfo,
    claims: PodClaims,
    state: &'a Classic,
}

impl claim_plugin::PodClaims for Prepared<'_> {
    fn is_pending(&self) -> bool {
        self.claims.is_pending()
    }

    fn filter(&self, node: &NodeInfo) -> Result<(), PluginRejection> {
        self.claims.filter(node, self.state)
    }

    fn preferred(&self, nodes: &[Arc<NodeInfo>], feasible: &[usize]) -> Option<usize> {
        self.claims.selected_among(nodes, feasible)
    }

    fn negotiate(&self, feasible: &[&str], best: &str, others: bool) -> Negotiation {
        let found = self.claims.negotiate(&self.pod.uid, feasible, best, others);
        Negotiation {
            message: found.message,
            decision: found.publish.map(Decision::Publish).map(Shared::new),
        }
    }

    fn reserve(&self, node: &str) -> Result<Reservation, PluginRejection> {
        let tasks = self.claims.tasks(&self.pod.uid, node, self.state)?;
        Ok(Reservation {
            writes: (!tasks.is_empty()).then(|| Shared::new(ClaimTasks(tasks))),
            claims: self.claims.keys(),
        })
    }

    fn post_filter(
        &self,
        rejected: &[&NodeInfo],
        attempts: u32,
        handle: &dyn Handle,
    ) -> PostFilter {
        let deferral = |claim: &PodClaim| deferral(self.pod, claim, self.state, handle);
        let found =
            self.claims
                .deallocation(&self.pod.uid, rejected, attempts, self.state, deferral);
        let decision = match found {
            Some(Deallocation::Now(claim, publish)) => {
                return PostFilter {
                    deallocates: true,
                    decision: Some(Shared::new(Decision::Deallocate(claim, publish))),
                };
            }
            Some(Deallocation::Deferred(found)) => {
                Some(Decision::Leave(self.claims.withdrawal(), found))
            }
            None => self.claims.withdrawal().map(Decision::Publish),
        };
        PostFilter {
            deallocates: false,
            decision: decision.map(Shared::new),
        }
    }
}

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
        let mut effects = Vec::new();
        let Some(input) = claim_plugin::unwrap::<Input>(message) else {
            return effects;
        };
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

    fn split(
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
    fn collect(&mut self, handle: &dyn Handle) -> Vec<Effect> {
        let keys = std::mem::take(&mut self.without_pod);
        let keys = keys.into_iter().filter(|key| handle.pod(key).is_none());
        let owned = keys.filter_map(|pod| Some((self.negotiations.owner(&pod)?, pod)));
        owned
            .map(|(uid, pod)| write(Action::Collect { pod, uid }))
            .collect()
    }

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

/// Finds another pod that will be tried without a further event and can use a claim where it is allocated.
fn deferral(
    pod: &PodInfo,
    claim: &PodClaim,
    state: &Classic,
    handle: &dyn Handle,
) -> Option<Deferral> {
    let nodes = handle.nodes().iter();
    let nodes = nodes.filter(|node| claim.is_allocated_on(node));
    let nodes: Vec<&NodeInfo> = nodes.map(|node| &**node).collect();
    let can_use = |other: &Queued<'_>| {
        let Ok(Some(claims)) = PodClaims::prepare(other.pod, state) else {
            return false;
        };
        !claims.is_pending() && nodes.iter().any(|n| claims.filter(n, state).is_ok())
    };
    let mut others = handle
        .ready_users_of_claim(claim.key())
        .into_iter()
        .filter(|o| o.pod.uid != pod.uid)
        .filter(|o| !state.deferrals.is_over(claim.key(), &o.pod.uid))
        .take(MOST_USERS);
    let other = others.find(can_use)?;
    tracing::debug!(claim = %claim.key(), pod = %other.pod.key, "leaves the claim to a pod that can use it");
    Some(Deferral {
        claim: claim.key().clone(),
        pod: other.pod.uid.clone(),
        attempts: other.attempts,
    })
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
