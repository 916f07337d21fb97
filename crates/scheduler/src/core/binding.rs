//! Binding cycles: claims are written, conditions become true, the binding is written; or one of these fails.

use std::sync::Arc;

use allot_resourceclaim::{consumers, is_reserved_for};
use k8s_openapi::api::resource::v1::ResourceClaim;

use super::volumes::Progress;
use super::{Core, Time};
use crate::actions::{Action, Nominate};
use crate::dra::claims::{Version, allocation_of, key_of, uid_of};
use crate::dra::conditions::{self, Readiness};
use crate::framework::Plugin;
use crate::hints::ClusterEvent;
use crate::metrics::{End, Outcome, Point};
use crate::pod::{Key, Uid, scheduler_name};
use crate::podgroups::claims::serves;
use crate::queue::QueuedPod;

mod cycle;
mod error;
mod pre_bind;

pub(super) use cycle::{Binding, Phase};
pub use error::BindError;
pub(super) use pre_bind::PodInPreBind;

impl Core {
    /// A claim of a pod was written: assume the answer first, then drop what was in flight. In between, both count the
    /// devices as in use.
    pub(super) fn claim_written(
        &mut self,
        pod: &Uid,
        in_flight: &Uid,
        claim: Arc<ResourceClaim>,
        time: Time,
    ) {
        let change = self.claims.assume(claim.clone());
        if let Some(binding) = self.bindings.get_mut(pod) {
            let written = Version::from(&*claim);
            match binding.claims.iter_mut().find(|v| v.uid == written.uid) {
                Some(version) => *version = written,
                None => binding.claims.push(written),
            }
            if **in_flight != *uid_of(&claim) {
                binding.extended = Some(claim);
            }
        }
        self.after(&change, time);
        let change = self.claims.finish_write(in_flight, pod, true);
        self.after(&change, time);
    }

    /// All claims are written; wait until the pod's devices are ready and its volumes bound.
    pub(super) fn claims_ready(&mut self, pod: &Uid, time: Time) {
        let Some(binding) = self.bindings.get(pod) else {
            return;
        };
        if let Some(error) = binding.canceled().cloned() {
            return self.bound(pod, Err(error), time);
        }
        let (info, node) = (binding.queued.info.clone(), binding.node.clone());
        let timeout = self
            .profile(scheduler_name(&info.pod))
            .map_or_else(Default::default, |p| p.dynamic_resources.binding_timeout);
        let claims = self.claims_of(pod);
        // Others may have waited for what they have since long ago.
        let waits = |c: &&Arc<ResourceClaim>| conditions::readiness(c) != Readiness::Ready;
        let deadline = claims
            .iter()
            .filter(waits)
            .filter_map(|c| conditions::deadline(c, timeout))
            // The clock of a scheduler that allocated one before may be ahead.
            .chain(time.wall.checked_add(timeout).ok())
            .min();
        let has_conditions = claims.iter().any(|c| conditions::any(c));
        let phase = Phase::Waiting {
            conditions: deadline.filter(|_| has_conditions),
            volumes: self.volumes_deadline(binding, time),
        };
        if let Some(binding) = self.bindings.get_mut(pod) {
            binding.phase = phase;
        }
        self.waiting
            .insert(pod, self.names_of_claims(pod), phase.deadline());
        let waits = |b: &Binding| b.phase.conditions_deadline().is_some();
        if self.check_binding(pod, time) && self.bindings.get(pod).is_some_and(waits) {
            let pending = claims.iter().flat_map(|c| conditions::pending(c)).collect();
            self.actions.push(Action::RecordWaitForConditions {
                pod: info,
                node,
                pending,
            });
        }
    }

    /// The claims of a pod, by name.
    fn names_of_claims(&self, pod: &Uid) -> Vec<Key> {
        let binding = self.bindings.get(pod);
        let claims = binding.map_or(&[][..], |b| &b.claims);
        claims.iter().map(|v| v.key.clone()).collect()
    }

    /// The claims of a binding that exist.
    fn claims_of(&self, pod: &Uid) -> Vec<Arc<ResourceClaim>> {
        let keys = self.names_of_claims(pod).into_iter();
        keys.filter_map(|key| self.claims.get(&key).cloned())
            .collect()
    }

    /// Fails the bindings whose deadline has passed.
    pub(super) fn check_conditions(&mut self, time: Time) {
        for pod in self.waiting.late(time.wall) {
            self.check_binding(&pod, time);
        }
    }

    /// Checks the bindings that wait for a watch to show a claim, or for its conditions.
    pub(super) fn check_claim(&mut self, claim: &Key, time: Time) {
        for pod in self.waiting.for_claim(claim) {
            self.check_binding(&pod, time);
        }
    }

    /// Continues the binding of a pod when the watch has shown its claims, its devices are ready and its volumes are
    /// bound; fails it when one of these cannot happen. Returns whether the binding still waits.
    pub(super) fn check_binding(&mut self, pod: &Uid, time: Time) -> bool {
        let Some(binding) = self.bindings.get(pod) else {
            return false;
        };
        let Phase::Waiting {
            conditions: deadline,
            volumes: volumes_deadline,
        } = binding.phase
        else {
            return false;
        };
        let late = deadline.is_some_and(|at| at <= time.wall);
        let waits_for_devices = deadline.is_some();
        let claims = self.claims_of(pod);
        if let Some(message) = self.pre_bind_error(binding, &claims, late) {
            let status = if late { "timeout" } else { "failure" };
            self.note_conditions(pod, &claims, status, time);
            let error = BindError::new(message).before_binding(Plugin::DynamicResources);
            self.bound(pod, Err(error), time);
            return false;
        }
        let volumes = self.volume_progress(binding, time);
        if let Progress::Failed(message) = volumes {
            let error = BindError::new(message).before_binding(Plugin::VolumeBinding);
            self.bound(pod, Err(error), time);
            return false;
        }
        let ready = claims
            .iter()
            .all(|c| conditions::readiness(c) == Readiness::Ready);
        let seen = binding.claims.iter().all(|v| self.claims.is_observed(v));
        if ready && waits_for_devices {
            self.note_conditions(pod, &claims, "success", time);
        }
        let Some(binding) = self.bindings.get_mut(pod) else {
            return false;
        };
        if ready && waits_for_devices {
            binding.phase = Phase::Waiting {
                conditions: None,
                volumes: volumes_deadline,
            };
            self.waiting.set_deadline(pod, binding.phase.deadline());
        }
        if ready && seen && matches!(volumes, Progress::Bound) {
            binding.phase = Phase::Bind { since: time.now };
            self.waiting.remove(pod);
            let (pod, node) = (binding.queued.info.clone(), binding.node.clone());
            let extended = binding.extended.as_deref().map(|c| Uid::from(uid_of(c)));
            self.delete_earlier_claims(&pod.uid, extended.as_ref());
            self.actions.push(Action::BindPod { pod, node });
            return false;
        }
        true
    }

    /// Why a pod must not be bound with its claims, if there is a reason; `late`: their devices had to be ready by now.
    fn pre_bind_error(
        &self,
        binding: &Binding,
        claims: &[Arc<ResourceClaim>],
        late: bool,
    ) -> Option<String> {
        let error = claims.iter().find_map(|claim| {
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            let key = key_of(claim);
            if allocation_of(claim).is_none() {
                return Some(format!(
                    "claim {key} got deallocated elsewhere in the meantime"
                ));
            }
            let mut users = consumers(claim).iter();
            if !users.any(|user| serves(user, &binding.queued.info)) {
                return Some(format!(
                    "claim {key} lost the reservation for the pod in the meantime"
                ));
            }
            if let Some(conflict) = self.claims.must_yield(claim, &self.pods) {
                return Some(format!("claim {key} was allocated later: {conflict}"));
            }
            match conditions::readiness(claim) {
                Readiness::Ready => None,
                Readiness::Failed { reason, message } => Some(format!(
                    "device binding failed: claim={name}, reason={reason}, message={message:?}"
                )),
                Readiness::Waiting if late => Some(format!("device binding timeout: claim={name}")),
                Readiness::Waiting => None,
            }
        });
        let gone = |version: &&Version| {
            let known = self.claims.get(&version.key);
            known.is_none_or(|c| uid_of(c) != &*version.uid)
        };
        let missing = || binding.claims.iter().find(gone).map(|v| &v.key);
        error.or_else(|| missing().map(|key| format!("claim {key} got deleted in the meantime")))
    }

    /// Deletes the extended resource claims of a pod, other than the one that it uses: requests of earlier attempts whose
    /// answers were lost created them. The watch must have shown all of them before the pod is bound.
    fn delete_earlier_claims(&mut self, pod: &Uid, used: Option<&Uid>) {
        let created = self.claims.extended_resource_claims_of(pod);
        let earlier = created.filter(|c| Some(uid_of(c)) != used.map(|uid| &**uid));
        for claim in earlier.cloned().collect::<Vec<_>>() {
            self.delete_extended_resource_claim(claim);
        }
    }

    fn note_conditions(
        &self,
        pod: &Uid,
        claims: &[Arc<ResourceClaim>],
        status: &'static str,
        time: Time,
    ) {
        let Some(binding) = self.bindings.get(pod) else {
            return;
        };
        let profile = scheduler_name(&binding.queued.info.pod);
        for driver in claims.iter().flat_map(|c| conditions::drivers(c)) {
            self.metrics.conditions(
                profile,
                driver,
                status,
                time.now.saturating_sub(binding.started),
            );
        }
    }

    /// The binding of a pod is over.
    pub(super) fn bound(&mut self, pod: &Uid, outcome: Result<(), BindError>, time: Time) {
        let Some(binding) = self.bindings.remove(pod) else {
            return;
        };
        // Whatever became of the writes that had begun.
        let outcome = outcome.map_err(|error| binding.canceled().cloned().unwrap_or(error));
        self.waiting.remove(pod);
        if !binding.volumes.is_empty() {
            self.cache.storage_mut().forget(pod);
        }
        self.observe_duration(&binding, outcome.is_ok(), time);
        match outcome {
            Ok(()) => self.binding_succeeded(&binding, time),
            Err(error) => self.binding_failed(binding, error, time),
        }
    }

    /// Counts the attempt, and the time of the extension points that it went through since Reserve.
    fn observe_duration(&self, binding: &Binding, bound: bool, time: Time) {
        let profile = scheduler_name(&binding.queued.info.pod);
        let taken = time.now.saturating_sub(binding.started);
        let end = End::of(bound, End::Error);
        match binding.phase {
            Phase::Bind { since } => {
                let before = since.saturating_sub(binding.started);
                let (point, success) = (Point::PreBind, End::Success);
                self.metrics.point(point, profile, success, before);
                let after = time.now.saturating_sub(since);
                self.metrics.point(Point::Bind, profile, end, after);
            }
            // Without claims to write, only the binding remains.
            Phase::Writing | Phase::Waiting { .. } if bound || binding.claims.is_empty() => {
                self.metrics.point(Point::Bind, profile, end, taken);
            }
            Phase::Writing | Phase::Waiting { .. } => {
                self.metrics.point(Point::PreBind, profile, end, taken);
            }
        }
        let outcome = match bound {
            true => Outcome::Scheduled,
            false => Outcome::Error,
        };
        self.metrics.attempt(profile, outcome, taken);
    }

    fn binding_succeeded(&mut self, binding: &Binding, time: Time) {
        let pod = &binding.queued.info;
        let waited = time.now.saturating_sub(binding.queued.entered);
        self.metrics.bound(binding.queued.attempts, waited);
        if !binding.claims.is_empty() {
            self.metrics.allocated(waited);
        }
        for uid in &binding.in_flight {
            let change = self.claims.finish_write(uid, &pod.uid, true);
            self.after(&change, time);
        }
        for version in &binding.claims {
            self.claims.mark_used(&version.uid);
        }
        self.end_plugin_claims(pod, &binding.plugin_claims, true, time);
    }

    /// Reverts what was assumed and written for a pod, and returns it to the queue.
    fn binding_failed(&mut self, binding: Binding, error: BindError, time: Time) {
        let pod = binding.queued.info.clone();
        tracing::info!(pod = %pod.key, node = %binding.node, %error, "binding failed");
        // Forget the pod first, so that pods which are requeued below see the free capacity.
        self.cache.forget(&pod.uid);
        for uid in &binding.in_flight {
            let change = self.claims.finish_write(uid, &pod.uid, false);
            self.after(&change, time);
        }
        let current = self.current(&pod);
        let runs = current.is_some_and(|p| p.node_name().is_some());
        if !error.bound_elsewhere && !runs {
            self.unreserve_all(&pod.uid, &binding, time);
        }
        self.end_plugin_claims(&pod, &binding.plugin_claims, false, time);
        self.requeue(&ClusterEvent::PodGone(&pod), time);
        // The pod may have changed, or have been deleted, in the meantime.
        if let Some(current) = self.current(&pod).cloned()
            && !error.bound_elsewhere
            && !current.is_terminating()
            && current.node_name().is_none()
        {
            let queued = QueuedPod {
                info: current,
                ..binding.queued
            };
            self.fail(queued, error.message, Nominate::Clear, time);
        }
    }

    /// Cancels the bindings that rely on a claim which is about to be deallocated: the devices are no longer in use then,
    /// and their pods would allocate them again.
    fn cancel_sharers(&mut self, claim: &Version, time: Time) {
        let bindings = self.bindings.iter();
        let sharers = bindings.filter(|(_, b)| b.claims.iter().any(|v| v.uid == claim.uid));
        let mut sharers: Vec<Uid> = sharers.map(|(pod, _)| pod.clone()).collect();
        sharers.sort_unstable();
        let why = format!("claim {} got deallocated in the meantime", claim.key);
        for pod in sharers {
            self.cancel_pod(&pod, &why, time);
        }
    }

    /// Reverts what was written for a pod that was not bound.
    fn unreserve_all(&mut self, pod: &Uid, binding: &Binding, time: Time) {
        let extended = binding.extended.as_deref().map(uid_of);
        let own = |v: &&Version| Some(&*v.uid) != extended;
        // Removing the last reservation deallocates the claim if the pod was deleted: it has no next attempt.
        let gone = self.current(&binding.queued.info).is_none();
        for version in binding.claims.iter().filter(own) {
            let Some(claim) = self.claims.get(&version.key).cloned() else {
                continue;
            };
            if !is_reserved_for(&claim, pod) {
                continue;
            }
            let alone = consumers(&claim).len() == 1;
            let yields = self.claims.must_yield(&claim, &self.pods).is_some();
            match alone && (yields || gone) {
                true => {
                    self.cancel_sharers(version, time);
                    self.deallocate(claim);
                }
                false => {
                    // The allocation stays for the next attempt; it is released when the pod fits nowhere.
                    if !binding.found.contains(&version.uid) {
                        self.claims.mark_orphaned(&version.uid);
                    }
                    self.unreserve(pod, claim);
                }
            }
        }
        if let Some(extended) = &binding.extended {
            self.delete_extended_resource_claim(extended.clone());
        }
        if binding.has_node_allocatable {
            let pod = binding.queued.info.clone();
            self.actions.push(Action::ClearNodeAllocatable(pod));
        }
    }
}
