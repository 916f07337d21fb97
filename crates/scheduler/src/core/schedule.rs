//! One attempt from the queue to a decision.

use std::sync::Arc;
use std::time::Duration;

use allot_framework::claim_plugin::{Negotiation, Reservation};
use allot_resourceclaim::is_reserved_for;
use tokio_util::sync::CancellationToken;

use super::binding::{Phase, PodInPreBind};
use super::failure::{SchedulingFailure, after_pre_filter};
use super::{Binding, Core, Time};
use crate::actions::{Action, BindJob, ClaimTask, ExtendedResourceClaimTask, Nominate};
use crate::attempt::{Attempt, FitError, Placement};
use crate::config::Profile;
use crate::dra::claims::{Version, allocation_of, uid_of};
use crate::dra::{DraContext, PodClaim, conditions, release};
use crate::framework::Plugin;
use crate::message;
use crate::metrics::{End, Outcome, Point};
use crate::plugins::volumes::PodVolumes;
use crate::pod::claims::claim_key;
use crate::pod::{PodInfo, Uid, scheduler_name};
use crate::queue::QueuedPod;
use crate::status::{Code, Rejection};

/// The decision of a scheduling cycle, before any change is made.
pub(super) enum CycleOutcome {
    Place(Box<Placed>),
    Negotiate(Negotiation),
    Reject(Box<SchedulingFailure>),
    /// The text for the condition, and the likely cause for the event.
    Fail(String, Option<String>),
}

pub(super) struct Placed {
    placement: Placement,
    node: Arc<str>,
    claims: Vec<ClaimTask>,
    joins: Vec<ClaimTask>,
    /// What the plugin for claims of another generation writes.
    plugin_claims: Reservation,
    volumes: PodVolumes,
}

impl Core {
    /// Tries the next pod. Returns whether there was one.
    pub fn schedule_one(&mut self, time: Time) -> bool {
        let found = self.try_next(time);
        self.queue_changed(time);
        found
    }

    fn try_next(&mut self, time: Time) -> bool {
        let Some(mut queued) = self.queue.pop(time.now) else {
            return false;
        };
        // The queue may hold an older version than the newest known one.
        let Some(current) = self.current(&queued.info) else {
            return true;
        };
        queued.info = current.clone();
        if queued.info.is_terminating()
            || queued.info.node_name().is_some()
            || self.cache.is_assumed(&queued.info.uid)
        {
            return true;
        }
        let Some(profile) = self.profile(scheduler_name(&queued.info.pod)).cloned() else {
            return true;
        };
        let _span = tracing::debug_span!("schedule", pod = %queued.info.key).entered();
        if let Some(gang) = self.gang_of(&queued.info, &profile) {
            self.schedule_gang(queued, &gang, &profile, time);
            return true;
        }
        match self.scheduling_cycle(&queued, &profile, 0, time) {
            CycleOutcome::Place(placed) => {
                let begin = self.config.sources.elapsed();
                let job = self.assume(queued, *placed, time);
                self.actions.push(Action::Bind(Box::new(job)));
                let (point, end) = (Point::Reserve, End::Success);
                self.metrics
                    .point(point, &profile.name, end, self.since(begin));
            }
            CycleOutcome::Negotiate(negotiation) => {
                self.negotiate(queued, &profile, negotiation, time)
            }
            CycleOutcome::Reject(failure) => {
                self.handle_scheduling_failure(queued, &profile, *failure, time)
            }
            CycleOutcome::Fail(message, explanation) => {
                tracing::warn!(pod = %queued.info.key, message, "attempt failed");
                self.metrics
                    .attempt(&profile.name, Outcome::Error, Duration::ZERO);
                let nominate = self.cleared_nomination(&queued.info);
                self.fail_explained(queued, message, explanation, nominate, time);
            }
        }
        true
    }

    /// The time since `begin`, a reading of [`Sources::elapsed`](crate::sources::Sources::elapsed).
    fn since(&self, begin: Duration) -> Duration {
        self.config.sources.elapsed().saturating_sub(begin)
    }

    /// Searches a node for a pod, skipping the first alternatives of its lists.
    pub(super) fn scheduling_cycle(
        &mut self,
        queued: &QueuedPod,
        profile: &Profile,
        skip_alternatives: usize,
        time: Time,
    ) -> CycleOutcome {
        let pod = &queued.info;
        let total = self.cache.snapshot().nodes.len();
        if total == 0 {
            // A new node of any kind may help.
            let message = message::NO_NODES.to_owned();
            let failure =
                SchedulingFailure::new(Plugin::NodeAffinity, message, self.cleared_nomination(pod));
            return CycleOutcome::Reject(Box::new(failure));
        }
        self.allocator
            .set_timeout(profile.dynamic_resources.filter_timeout);
        self.allocator
            .set_policy(profile.dynamic_resources.placement);
        let start = self.next_start;
        self.next_start = (start + 1) % total;
        let (outcome, gave_up) = self.run_cycle(queued, profile, start, skip_alternatives, time);
        // The next attempt starts behind the node on which the search gave up, so that other nodes are filtered as well.
        if let Some(at) = gave_up {
            self.next_start = (at + 1) % total;
        }
        outcome
    }

    /// The cycle from PreFilter to Reserve on the current state, with the nodes in their order from `start`. Returns the
    /// node on which the search gave up, if it did.
    fn run_cycle(
        &self,
        queued: &QueuedPod,
        profile: &Profile,
        start: usize,
        skip_alternatives: usize,
        time: Time,
    ) -> (CycleOutcome, Option<usize>) {
        let pod = &queued.info;
        let nominated = |node: &str| self.nominated_to(node, pod);
        let dra = DraContext {
            skip_alternatives,
            ..self.dra(profile, time)
        };
        let metrics = self.metrics.clone();
        let begin = self.config.sources.elapsed();
        let prepared = self.prepare(pod, profile, dra);
        let end = match &prepared {
            Ok(_) => End::Success,
            Err(rejection) if rejection.code == Code::Error => End::Error,
            Err(_) => End::Unschedulable,
        };
        metrics.point(Point::PreFilter, &profile.name, end, self.since(begin));
        let attempt = match prepared {
            Ok(attempt) => attempt.with_memo(&self.node_memo),
            Err(rejection) if rejection.code == Code::Error => {
                let plugin = rejection.plugin.name();
                let message = format!("running PreFilter plugin {plugin:?}: {rejection}");
                return (CycleOutcome::Fail(message, None), None);
            }
            Err(rejection) => {
                let total = self.cache.snapshot().nodes.len();
                let failure = self.pre_filter_failure(pod, profile, rejection, &dra, total);
                return (CycleOutcome::Reject(Box::new(failure)), None);
            }
        };
        let begin = self.config.sources.elapsed();
        let placed = attempt.place(start, &nominated);
        let (searching, scoring) = (self.since(begin), attempt.scoring());
        let end = End::of(placed.is_ok(), End::Unschedulable);
        metrics.point(
            Point::Filter,
            &profile.name,
            end,
            searching.saturating_sub(scoring),
        );
        if !scoring.is_zero() {
            metrics.point(Point::Score, &profile.name, end, scoring);
        }
        match placed {
            Ok(placement) => (reserve(&attempt, placement), None),
            Err(unplaced) => match unplaced.error() {
                Some(error) => {
                    let plugin = error.plugin.name();
                    let message = format!("running {plugin:?} filter plugin: {error}");
                    let explanation = attempt.explain_error(&unplaced);
                    let gave_up =
                        |r: &Option<_>| r.as_ref().is_some_and(Rejection::is_inconclusive);
                    let gave_up = unplaced.nodes.iter().position(gave_up);
                    (CycleOutcome::Fail(message, explanation), gave_up)
                }
                None => {
                    let begin = self.config.sources.elapsed();
                    let failure =
                        self.post_filter(&attempt, &unplaced, profile, start, queued.attempts);
                    let end = End::of(failure.victims.is_some(), End::Unschedulable);
                    metrics.point(Point::PostFilter, &profile.name, end, self.since(begin));
                    (CycleOutcome::Reject(Box::new(failure)), None)
                }
            },
        }
    }

    /// The failure of a pod that a plugin rejected before any node was filtered.
    fn pre_filter_failure(
        &self,
        pod: &PodInfo,
        profile: &Profile,
        rejection: Rejection,
        dra: &DraContext<'_>,
        nodes: usize,
    ) -> SchedulingFailure {
        let by = rejection.plugin;
        let unplaced = FitError {
            nodes: Vec::new(),
            before: Some(rejection),
        };
        let after = after_pre_filter(pod, profile, by, nodes);
        let message = message::unschedulable(&unplaced, nodes, &after);
        let nominate = match profile.post_filters.contains(Plugin::DefaultPreemption) {
            true => self.cleared_nomination(pod),
            false => Nominate::Keep,
        };
        let explanation = match by {
            Plugin::DynamicResources => crate::dra::missing_class(pod, dra),
            _ => None,
        };
        SchedulingFailure {
            cleanup: release::claims_to_release(pod, &self.claims, self.claim_plugin.as_deref()),
            explanation,
            ..SchedulingFailure::new(by, message, nominate)
        }
    }

    /// Prepares an attempt on the current snapshot (PreFilter).
    ///
    /// # Errors
    /// The pod cannot be placed on any node.
    pub(super) fn prepare<'a>(
        &'a self,
        pod: &'a Arc<PodInfo>,
        profile: &'a Profile,
        dra: DraContext<'a>,
    ) -> Result<Attempt<'a>, Rejection> {
        Attempt::prepare(
            pod,
            self.cache.snapshot(),
            profile,
            dra,
            self.nominated_node(pod),
            &self.config.sources,
        )
    }

    /// Assumes the decision in memory and returns the writes that carry it out.
    pub(super) fn assume(&mut self, queued: QueuedPod, placed: Placed, time: Time) -> BindJob {
        let Placed {
            placement,
            node,
            mut claims,
            joins,
            plugin_claims,
            volumes,
        } = placed;
        let pod = queued.info.clone();
        let mut in_flight = Vec::new();
        for task in claims.iter().chain(&joins) {
            if let Some(allocation) = &task.allocation {
                self.claims.reserve(&task.claim, allocation, &pod.uid);
                in_flight.push(task.uid.clone());
            }
        }
        claims.extend(joins);
        let found = claims.iter().filter(|t| t.allocation.is_none() && !t.fence);
        let found = found.map(|t| t.uid.clone()).collect();
        if let Some(writes) = &plugin_claims.writes {
            self.assume_plugin_claims(&pod, writes);
        }
        let extended = placement.devices.extended.map(|extended| {
            let uid = Uid::from(uid_of(&extended.claim));
            self.claims
                .reserve(&extended.claim, &extended.allocation, &pod.uid);
            in_flight.push(uid.clone());
            ExtendedResourceClaimTask {
                uid,
                claim: extended.claim,
                allocation: extended.allocation,
                mappings: extended.mappings,
            }
        });
        let needed: Vec<_> = pod
            .spec()
            .resource_claims
            .iter()
            .flatten()
            .filter(|c| !self.claim_plugin.as_ref().is_some_and(|p| p.owns(&pod, c)))
            .filter_map(|c| claim_key(&pod, c).ok().flatten())
            .collect();
        let allocations = claims.iter().filter_map(|t| t.allocation.as_deref());
        let mut wait = allocations
            .chain(extended.iter().map(|s| &*s.allocation))
            .any(conditions::in_allocation);
        wait |= needed
            .iter()
            .filter_map(|k| self.claims.get(k))
            .any(|c| conditions::any(c));
        let (volumes, awaited) = self.assume_volumes(&pod, &node, &volumes);
        wait |= !awaited.is_empty();
        // Whether the claims hold their devices exclusively is known when the watch shows them.
        let announce = wait;
        let known = needed.iter().filter_map(|k| self.claims.get(k));
        let needed: Vec<Version> = known.map(|c| Version::from(&**c)).collect();
        wait |= extended.is_some() || !claims.is_empty();
        wait |= needed.iter().any(|v| !self.claims.is_observed(v));
        let node_allocatable = placement.devices.node_allocatable;
        wait |= !node_allocatable.0.is_empty();
        let counts = match node_allocatable.0.is_empty() {
            true => pod.clone(),
            false => Arc::new(pod.with_node_allocatable(&node_allocatable.0)),
        };
        self.cache.assume(counts, &node);
        self.nominations.remove(&pod.uid);
        let cancel = CancellationToken::new();
        self.bindings.insert(
            pod.uid.clone(),
            Binding {
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
            },
        );
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
}

/// Claims to write for a pod: those that the attempt allocated, and those that only lack the reservation. The second
/// list are claims that another pod is about to write; they are written again if that fails.
fn claim_tasks(attempt: &Attempt<'_>, placement: &Placement) -> (Vec<ClaimTask>, Vec<ClaimTask>) {
    let (mut tasks, mut joins) = (Vec::new(), Vec::new());
    let Some(devices) = attempt.devices() else {
        return (tasks, joins);
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
    (tasks, joins)
}

/// What binding the pod to its node needs: writes of claims and volumes, or first a negotiation with drivers.
fn reserve(attempt: &Attempt<'_>, placement: Placement) -> CycleOutcome {
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
    let (claims, joins) = claim_tasks(attempt, &placement);
    CycleOutcome::Place(Box::new(Placed {
        placement,
        node,
        claims,
        joins,
        plugin_claims,
        volumes,
    }))
}
