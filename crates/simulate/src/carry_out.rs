//! What the scheduler decides is carried out at once.

use std::sync::Arc;

use allot_resourceclaim::{FINALIZER, consumers, is_reserved_for, same_devices};
use allot_scheduler::actions::{
    Action, BindJob, ClaimTask, ExtendedResourceClaimTask, Nominate, Rejected,
};
use allot_scheduler::core::{BindError, Input};
use allot_scheduler::dra::claims::{allocation_of, key_of, uid_of};
use allot_scheduler::pod::{PodInfo, Uid};
use allot_scheduler::podgroups::claims::Consumer;
use k8s_openapi::api::core::v1::{PodCondition, PodExtendedResourceClaimStatus};
use k8s_openapi::api::resource::v1::{AllocatedDeviceStatus, AllocationResult, ResourceClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::history::{End, Preemption};
use crate::simulation::{FirstUnschedulable, Simulation};

impl Simulation {
    /// Carries out what was decided, and what follows from that.
    pub(crate) fn carry_out(&mut self) {
        loop {
            let actions = self.core.take_actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                self.act(action);
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Bind(job) => self.bind(&job),
            Action::BindPod { pod, node } => self.bind_pod(&pod, &node),
            Action::Reject(rejected) => self.reject(&rejected),
            Action::Preempt {
                preemptor,
                node,
                victims,
            } => {
                for victim in victims {
                    self.preempt(&preemptor.pod, &node, &victim);
                }
            }
            Action::ClearNomination(pod) => self.nominate(&pod.uid, None),
            Action::ClearNodeAllocatable(pod) => {
                if let Some(live) = self.objects.pod(&pod.uid) {
                    let mut pod = (*live.pod).clone();
                    let status = pod.status.get_or_insert_default();
                    status.node_allocatable_resource_claim_statuses = None;
                    let uid = Uid::from(pod.metadata.uid.as_deref().unwrap_or_default());
                    self.show_pod(&uid, pod);
                }
            }
            Action::Deallocate(claim) => {
                let now = self.change_claim(&claim, |claim| {
                    if let Some(status) = &mut claim.status {
                        status.allocation = None;
                        status.reserved_for = None;
                        status.devices = None;
                    }
                });
                self.released(&claim, None, now);
            }
            Action::DeleteExtendedResourceClaim(claim) => {
                let key = key_of(&claim);
                let stored = self.objects.claims.get(&key);
                if stored.is_some_and(|stored| uid_of(stored) == uid_of(&claim)) {
                    self.remove_claim(&key);
                }
            }
            Action::Unreserve { pod, claim } => {
                let now = self.change_claim(&claim, |claim| {
                    let users = claim.status.as_mut().and_then(|s| s.reserved_for.as_mut());
                    if let Some(users) = users {
                        users.retain(|user| *user.uid != *pod);
                    }
                });
                self.released(&claim, Some(pod), now);
            }
            // No other scheduler has requests under way.
            Action::Fenced { then, .. } => self.act(*then),
            // What is only told, or about kinds of older releases, which are not simulated.
            Action::RecordMissingClaim { .. }
            | Action::RecordPreempted { .. }
            | Action::RecordWaitForConditions { .. }
            | Action::UpdatePodGroupStatus { .. }
            | Action::ClaimPlugin(_) => {}
        }
    }

    fn bind(&mut self, job: &BindJob) {
        match self.write(job) {
            Ok(()) if job.wait => {
                if job.announce {
                    self.nominate(&job.pod.uid, Some(&job.node));
                }
                self.deliver(Input::ClaimsReady(job.pod.uid.clone()));
            }
            Ok(()) => self.bind_pod(&job.pod, &job.node),
            Err(error) => self.bound(&job.pod.uid, Err(error)),
        }
    }

    fn bound(&mut self, pod: &Uid, outcome: Result<(), BindError>) {
        self.deliver(Input::Bound {
            pod: pod.clone(),
            outcome,
        });
    }

    /// Writes everything that comes before the binding.
    fn write(&mut self, job: &BindJob) -> Result<(), BindError> {
        for task in &job.claims {
            let claim = self.reserve(task)?;
            self.claim_written(&job.pod.uid, &task.uid, claim);
        }
        let mut name = None;
        if let Some(task) = &job.extended {
            name = Some(self.create_extended(&job.pod, task));
        }
        self.write_volumes(job)?;
        if !job.node_allocatable.0.is_empty()
            && let Some(live) = self.objects.pod(&job.pod.uid)
        {
            let mut pod = (*live.pod).clone();
            let recorded = job.node_allocatable.clone().named(name.as_deref()).0;
            let status = pod.status.get_or_insert_default();
            status.node_allocatable_resource_claim_statuses = Some(recorded);
            self.show_pod(&job.pod.uid, pod);
        }
        Ok(())
    }

    /// The answer to the write comes before the watch shows it.
    fn claim_written(&mut self, pod: &Uid, in_flight: &Uid, claim: ResourceClaim) {
        let claim = Arc::new(claim);
        self.deliver(Input::ClaimWritten {
            pod: pod.clone(),
            in_flight: in_flight.clone(),
            claim: claim.clone(),
        });
        self.show_claim(claim);
    }

    /// A claim with its allocation, if it has none yet, and the reservation.
    fn reserve(&mut self, task: &ClaimTask) -> Result<ResourceClaim, BindError> {
        let key = &task.key;
        let stored = self.objects.claims.get(key);
        let stored = stored.filter(|claim| {
            uid_of(claim) == &*task.uid && claim.metadata.deletion_timestamp.is_none()
        });
        let Some(stored) = stored else {
            let text = format!("claim {key} got deleted in the meantime");
            return Err(BindError::new(text));
        };
        let mut claim = (**stored).clone();
        match (allocation_of(&claim), &task.allocation) {
            (Some(there), Some(ours))
                if !same_devices(ours.devices.as_ref(), there.devices.as_ref()) =>
            {
                let text = format!("claim {key} got allocated elsewhere in the meantime");
                return Err(BindError::new(text));
            }
            (None, None) => {
                let text = format!("claim {key} got deallocated elsewhere in the meantime");
                return Err(BindError::new(text));
            }
            (None, Some(ours)) => self.allocate(&mut claim, ours),
            (Some(_), _) => {}
        }
        if !is_reserved_for(&claim, &task.consumer.uid) {
            let status = claim.status.get_or_insert_default();
            let users = status.reserved_for.get_or_insert_default();
            users.push(task.consumer.reference());
        }
        claim.metadata.resource_version = Some(self.objects.next_version());
        Ok(claim)
    }

    fn allocate(&self, claim: &mut ResourceClaim, allocation: &AllocationResult) {
        let finalizers = claim.metadata.finalizers.get_or_insert_default();
        if !finalizers.iter().any(|f| f == FINALIZER) {
            finalizers.push(FINALIZER.to_owned());
        }
        let mut allocation = allocation.clone();
        let since = &mut allocation.allocation_timestamp;
        if self.timestamps && since.is_none() {
            *since = Some(Time(self.wall()));
        }
        let status = claim.status.get_or_insert_default();
        if self.options.devices_ready {
            let devices = ready_devices(&allocation, Time(self.wall()));
            if !devices.is_empty() {
                status.devices = Some(devices);
            }
        }
        status.allocation = Some(allocation);
    }

    /// Creates the claim for the extended resources of a pod. Returns its name.
    fn create_extended(&mut self, pod: &PodInfo, task: &ExtendedResourceClaimTask) -> String {
        let uid = self.objects.next_uid();
        let name = format!("{}-extended-resources-{}", pod.key.name, &uid[24..]);
        let mut claim = (*task.claim).clone();
        claim.metadata.name = Some(name.clone());
        claim.metadata.uid = Some(uid);
        claim.metadata.resource_version = Some(self.objects.next_version());
        claim.metadata.creation_timestamp = Some(Time(self.wall()));
        self.allocate(&mut claim, &task.allocation);
        let status = claim.status.get_or_insert_default();
        status.reserved_for = Some(vec![Consumer::pod(pod).reference()]);
        self.claim_written(&pod.uid, &task.uid, claim);
        if let Some(live) = self.objects.pod(&pod.uid) {
            let mut stored = (*live.pod).clone();
            stored
                .status
                .get_or_insert_default()
                .extended_resource_claim_status = Some(PodExtendedResourceClaimStatus {
                resource_claim_name: name.clone(),
                request_mappings: task.mappings.clone(),
            });
            self.use_claims(&pod.uid, &stored);
            self.show_pod(&pod.uid, stored);
        }
        name
    }

    fn bind_pod(&mut self, pod: &PodInfo, node: &Arc<str>) {
        let Some(live) = self.objects.pod(&pod.uid) else {
            let text = format!("pods {:?} not found", &*pod.key.name);
            return self.bound(&pod.uid, Err(BindError::new(text)));
        };
        let mut stored = (*live.pod).clone();
        stored.spec.get_or_insert_default().node_name = Some(node.to_string());
        if let Some(status) = &mut stored.status {
            status.nominated_node_name = None;
        }
        self.bound(&pod.uid, Ok(()));
        self.pod_starts(&pod.uid, node);
        self.show_pod(&pod.uid, stored);
    }

    fn reject(&mut self, rejected: &Rejected) {
        let uid = &rejected.pod.uid;
        if let Some(live) = self.objects.pod(uid) {
            let number = live.record;
            let record = &mut self.records[number];
            if record.reason.as_deref() != Some(&*rejected.message) {
                record.reason = Some(rejected.message.as_str().into());
            }
            if rejected.reason == "Unschedulable" {
                record.refused.get_or_insert(self.now);
                if self.first_refusal.is_none() {
                    self.first_refusal = Some(FirstUnschedulable {
                        record: number,
                        at: self.now,
                        placed: self.placed,
                        message: rejected.message.clone(),
                    });
                }
            }
        }
        match &rejected.nominate {
            Nominate::Keep => {}
            Nominate::Set(node) => self.nominate(uid, Some(node)),
            Nominate::Clear => self.nominate(uid, None),
        }
    }

    fn nominate(&mut self, uid: &Uid, node: Option<&str>) {
        let Some(live) = self.objects.pod(uid).filter(|live| live.node.is_none()) else {
            return;
        };
        let status = live.pod.status.as_ref();
        let before = status.and_then(|s| s.nominated_node_name.as_deref());
        if before == node {
            return;
        }
        let mut pod = (*live.pod).clone();
        pod.status.get_or_insert_default().nominated_node_name = node.map(str::to_owned);
        self.show_pod(uid, pod);
    }

    fn preempt(&mut self, preemptor: &PodInfo, node: &Arc<str>, victim: &PodInfo) {
        let uid = &victim.uid;
        let Some(live) = self.objects.pods.get_mut(uid) else {
            return;
        };
        if live.terminating {
            return;
        }
        live.preempted = true;
        let is_placed = live.node.is_some();
        let mut pod = (*live.pod).clone();
        self.preemptions.push(Preemption {
            at: self.now,
            victim: victim.key.clone(),
            preemptor: preemptor.key.clone(),
            node: node.clone(),
        });
        self.note_change();
        if !is_placed {
            return self.forget_pod(uid, End::Preempted);
        }
        let conditions = &mut pod.status.get_or_insert_default().conditions;
        conditions.get_or_insert_default().push(PodCondition {
            type_: "DisruptionTarget".to_owned(),
            status: "True".to_owned(),
            reason: Some("PreemptionByScheduler".to_owned()),
            ..PodCondition::default()
        });
        self.show_pod(uid, pod);
        self.delete_pod(uid);
    }

    /// Changes a stored claim, if it is still the same. Returns it as it is then.
    fn change_claim(
        &mut self,
        claim: &ResourceClaim,
        change: impl FnOnce(&mut ResourceClaim),
    ) -> Option<ResourceClaim> {
        let stored = self.objects.claims.get(&key_of(claim))?;
        if uid_of(stored) != uid_of(claim) {
            return None;
        }
        let mut changed = (**stored).clone();
        change(&mut changed);
        if let Some(status) = &mut changed.status {
            status.reserved_for = status.reserved_for.take().filter(|users| !users.is_empty());
        }
        changed.metadata.resource_version = Some(self.objects.next_version());
        Some(changed)
    }

    fn released(&mut self, claim: &ResourceClaim, pod: Option<Uid>, now: Option<ResourceClaim>) {
        let now = now.map(Arc::new);
        self.deliver(Input::Released {
            key: key_of(claim),
            uid: uid_of(claim).into(),
            pod,
            claim: now.clone(),
        });
        if let Some(now) = now {
            match consumers(&now).is_empty() && now.metadata.deletion_timestamp.is_some() {
                true => self.remove_claim(&key_of(&now)),
                false => self.show_claim(now),
            }
        }
    }
}

/// What drivers report once the devices that have binding conditions are ready.
fn ready_devices(allocation: &AllocationResult, now: Time) -> Vec<AllocatedDeviceStatus> {
    let results = allocation
        .devices
        .iter()
        .flat_map(|devices| devices.results.iter().flatten());
    let mut devices = Vec::new();
    for result in results {
        let conditions = result.binding_conditions.as_deref().unwrap_or_default();
        if conditions.is_empty() {
            continue;
        }
        let ready = |name: &String| Condition {
            type_: name.clone(),
            status: "True".to_owned(),
            reason: "Simulated".to_owned(),
            message: String::new(),
            last_transition_time: now.clone(),
            observed_generation: None,
        };
        devices.push(AllocatedDeviceStatus {
            driver: result.driver.clone(),
            pool: result.pool.clone(),
            device: result.device.clone(),
            share_id: result.share_id.clone(),
            conditions: Some(conditions.iter().map(ready).collect()),
            ..AllocatedDeviceStatus::default()
        });
    }
    devices
}
