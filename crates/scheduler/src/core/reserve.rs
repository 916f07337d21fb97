//! Reserve: from a placement to the binding cycle. The decision is assumed in memory before anything is written.

use std::sync::Arc;

use allot_framework::claim_plugin::Reservation;
use allot_resourceclaim::is_reserved_for;
use tokio_util::sync::CancellationToken;

use super::binding::{Phase, PodInPreBind};
use super::schedule::CycleOutcome;
use super::{Binding, Core, Time};
use crate::actions::{BindJob, ClaimTask, ExtendedResourceClaimTask};
use crate::attempt::{Attempt, Placement};
use crate::dra::claims::{Version, allocation_of, uid_of};
use crate::dra::{ExtendedResourceClaimOnNode, PodClaim, conditions};
use crate::plugins::volumes::PodVolumes;
use crate::pod::claims::claim_key;
use crate::pod::{Key, PodInfo, Uid};
use crate::queue::QueuedPod;

/// A node for a pod, and what has to be written before the pod is bound to it.
pub(super) struct Placed {
    placement: Placement,
    node: Arc<str>,
    claims: Vec<ClaimTask>,
    /// What the plugin for claims of another generation writes.
    plugin_claims: Reservation,
    volumes: PodVolumes,
}

impl Core {
    /// Assumes the decision in memory and returns the writes that carry it out.
    pub(super) fn assume(&mut self, queued: QueuedPod, placed: Placed, time: Time) -> BindJob {
        let Placed {
            placement,
            node,
            claims,
            plugin_claims,
            volumes,
        } = placed;
        let pod = queued.info.clone();
        let mut in_flight = Vec::new();
        for task in &claims {
            if let Some(allocation) = &task.allocation {
                self.claims.reserve(&task.claim, allocation, &pod.uid);
                in_flight.push(task.uid.clone());
            }
        }
        let found = claims.iter().filter(|t| t.allocation.is_none() && !t.fence);
        let found = found.map(|t| t.uid.clone()).collect();
        if let Some(writes) = &plugin_claims.writes {
            self.assume_plugin_claims(&pod, writes);
        }
        let extended = placement.devices.extended;
        let extended = extended.map(|claim| self.assume_extended_resource_claim(claim, &pod));
        in_flight.extend(extended.iter().map(|task| task.uid.clone()));
        let (volumes, awaited) = self.assume_volumes(&pod, &node, &volumes);
        let keys = self.claim_keys(&pod);
        let known = || keys.iter().filter_map(|key| self.claims.get(key));
        let written = claims.iter().filter_map(|task| task.allocation.as_deref());
        let mut written = written.chain(extended.iter().map(|task| &*task.allocation));
        let announce = written.any(conditions::in_allocation)
            || known().any(|claim| conditions::any(claim))
            || !awaited.is_empty();
        let needed: Vec<Version> = known().map(|claim| Version::from(&**claim)).collect();
        let node_allocatable = placement.devices.node_allocatable;
        // Whether the claims hold their devices exclusively is known when the watch shows them.
        let wait = announce
            || extended.is_some()
            || !claims.is_empty()
            || needed.iter().any(|v| !self.claims.is_observed(v))
            || !node_allocatable.0.is_empty();
        let counts = match node_allocatable.0.is_empty() {
            true => pod.clone(),
            false => Arc::new(pod.with_node_allocatable(&node_allocatable.0)),
        };
        self.cache.assume(counts, &node);
        self.nominations.remove(&pod.uid);
        let cancel = CancellationToken::new();
        let binding = Binding {
            queued,
            node: node.clone(),
            phase: Phase::Writing,
            pre_bind: wait.then(|| PodInPreBind::new(cancel.clone())),
            in_flight,
            claims: needed,
            found,
            plugin_claims: plugin_claims.claims,
            has_node_allocatable: !node_allocatable.0.is_empty(),
            extended: None,
            volumes: awaited,
            started: time.now,
        };
        self.bindings.insert(pod.uid.clone(), binding);
        BindJob {
            pod,
            node,
            claims,
            plugin_claims: plugin_claims.writes,
            extended,
            volumes,
            node_allocatable,
            wait,
            announce,
            cancel,
        }
    }

    fn assume_extended_resource_claim(
        &mut self,
        on_node: ExtendedResourceClaimOnNode,
        pod: &PodInfo,
    ) -> ExtendedResourceClaimTask {
        let uid = Uid::from(uid_of(&on_node.claim));
        self.claims
            .reserve(&on_node.claim, &on_node.allocation, &pod.uid);
        ExtendedResourceClaimTask {
            uid,
            claim: on_node.claim,
            allocation: on_node.allocation,
            mappings: on_node.mappings,
        }
    }

    /// The claims of a pod, those of another generation excepted.
    fn claim_keys(&self, pod: &PodInfo) -> Vec<Key> {
        let entries = pod.spec().resource_claims.iter().flatten();
        entries
            .filter(|c| !self.claim_plugin.as_ref().is_some_and(|p| p.owns(pod, c)))
            .filter_map(|c| claim_key(pod, c).ok().flatten())
            .collect()
    }
}

/// What binding the pod to its node needs: writes of claims and volumes, or first a negotiation with drivers.
pub(super) fn reserve(attempt: &Attempt<'_>, placement: Placement) -> CycleOutcome {
    let nodes = &attempt.snapshot.nodes;
    let node = nodes[placement.node].name.clone();
    if let Some(claims) = attempt.plugin_claims().filter(|c| c.is_pending()) {
        let feasible = placement.feasible.iter();
        let names: Vec<&str> = feasible.map(|i| &*nodes[*i].name).collect();
        let devices = &placement.devices;
        let others = !devices.allocations.is_empty() || devices.extended.is_some();
        return CycleOutcome::Negotiate(claims.negotiate(&names, &node, others));
    }
    let plugin_claims = match attempt.plugin_claims().map(|claims| claims.reserve(&node)) {
        Some(Ok(reservation)) => reservation,
        Some(Err(rejection)) => return CycleOutcome::Fail(rejection.reason.into_owned(), None),
        None => Reservation::default(),
    };
    let volumes = match attempt.find_pod_volumes(&nodes[placement.node]) {
        Ok(choice) => choice,
        Err(rejection) => return CycleOutcome::Fail(rejection.message(), None),
    };
    let claims = claim_tasks(attempt, &placement);
    CycleOutcome::Place(Box::new(Placed {
        placement,
        node,
        claims,
        plugin_claims,
        volumes,
    }))
}

/// Claims to write for a pod: those that the attempt allocated, and those that only lack the reservation. The last ones
/// are claims that another pod is about to write; they are written again if that fails.
fn claim_tasks(attempt: &Attempt<'_>, placement: &Placement) -> Vec<ClaimTask> {
    let (mut tasks, mut joins) = (Vec::new(), Vec::new());
    let Some(devices) = attempt.devices() else {
        return tasks;
    };
    for PodClaim {
        key,
        claim,
        consumer,
        allocation: known,
        ..
    } in devices.claims()
    {
        let uid = Uid::from(uid_of(claim));
        let fresh = placement
            .devices
            .allocations
            .iter()
            .find(|(_, u, _)| *u == uid)
            .map(|(.., a)| a.clone());
        let task = |allocation| ClaimTask {
            key: key.clone(),
            uid: uid.clone(),
            claim: claim.clone(),
            consumer: consumer.clone(),
            allocation,
            fence: false,
        };
        if fresh.is_some() {
            tasks.push(task(fresh));
        } else if allocation_of(claim).is_none() {
            joins.push(task(known.clone()));
        } else if !is_reserved_for(claim, &consumer.uid) {
            tasks.push(task(None));
        } else if attempt.dra.claims.needs_fencing(&uid) {
            tasks.push(ClaimTask {
                fence: true,
                ..task(None)
            });
        }
    }
    tasks.append(&mut joins);
    tasks
}
