//! One attempt from the queue to a decision. What follows from a placement is in [`reserve`](super::reserve).

use std::sync::Arc;
use std::time::Duration;

use allot_framework::claim_plugin::Negotiation;

use super::failure::{SchedulingFailure, after_pre_filter};
use super::reserve::{Placed, reserve};
use super::{Core, Time};
use crate::actions::{Action, Nominate};
use crate::attempt::{Attempt, FitError};
use crate::config::Profile;
use crate::dra::{DraContext, release};
use crate::framework::Plugin;
use crate::message;
use crate::metrics::{End, Outcome, Point};
use crate::pod::{PodInfo, scheduler_name};
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
            Err(unplaced) => self.unplaced(queued, &attempt, &unplaced, profile, start),
        }
    }

    /// What follows when no node is feasible: an error ends the cycle, else PostFilter runs. Returns the node on which the search
    /// gave up, if it did.
    fn unplaced(
        &self,
        queued: &QueuedPod,
        attempt: &Attempt<'_>,
        unplaced: &FitError,
        profile: &Profile,
        start: usize,
    ) -> (CycleOutcome, Option<usize>) {
        if let Some(error) = unplaced.error() {
            let plugin = error.plugin.name();
            let message = format!("running {plugin:?} filter plugin: {error}");
            let explanation = attempt.explain_error(unplaced);
            let gave_up = |r: &Option<_>| r.as_ref().is_some_and(Rejection::is_inconclusive);
            let gave_up = unplaced.nodes.iter().position(gave_up);
            return (CycleOutcome::Fail(message, explanation), gave_up);
        }
        let begin = self.config.sources.elapsed();
        let failure = self.post_filter(attempt, unplaced, profile, start, queued.attempts);
        let end = End::of(failure.victims.is_some(), End::Unschedulable);
        self.metrics
            .point(Point::PostFilter, &profile.name, end, self.since(begin));
        (CycleOutcome::Reject(Box::new(failure)), None)
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
}
