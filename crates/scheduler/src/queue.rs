//! The scheduling queue: which pod is tried next, and what the others wait for.
//!
//! A pod is in one of four places: *active* (ready, ordered by priority then age), *backoff* (ready, but it failed a
//! moment ago), *unschedulable* (rejected; an event that may help its rejectors moves it) or *gated* (not to be tried at all
//! yet). A pod that was popped is in none of them until it is put back or forgotten.
//!
//! The queue is plain data: time is passed in as the time since the scheduler started, so that it can be simulated. An
//! attempt happens between two events (see [`crate::core`]), therefore no event can be missed while a pod is being
//! tried, and upstream's list of in-flight events is not needed.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::framework::{Plugin, PluginSet};
use crate::pod::{Key, PodInfo, Uid};

mod backoff;
mod entries;
mod moves;

pub use backoff::Backoff;
use moves::Moves;
pub use moves::{Moved, Rejected};

/// Time since the scheduler started.
pub type Now = Duration;

/// Unschedulable pods are tried again after this time even without an event; upstream's value.
pub const UNSCHEDULABLE_TIMEOUT: Duration = Duration::from_secs(300);

/// The event under which a pod returns to the queue after an attempt that failed.
const FAILED: &str = "ScheduleAttemptFailure";

/// A pod with its history in the queue.
#[derive(Debug, Clone)]
pub struct QueuedPod {
    /// The pod as it was last observed.
    pub info: Arc<PodInfo>,
    /// Rejections, for the backoff.
    pub failures: u32,
    /// Errors in a row, for the backoff after another one.
    pub errors: u32,
    /// Attempts so far, for metrics.
    pub attempts: u32,
    /// When it was first added to the queue.
    pub entered: Now,
    /// When it moved to its current part of the queue.
    pub since: Now,
    /// Plugins that rejected it in its last attempt.
    pub rejected_by: PluginSet,
    /// The last attempt failed for a reason unrelated to fitting: the pod must complete its backoff.
    pub errored: bool,
    /// The last attempt waits for an answer of a driver: the pod is tried again as soon as it arrives.
    pub pending: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SubQueue {
    Active,
    Backoff { until: Now },
    Unschedulable,
    Gated(Plugin),
}

#[derive(Debug)]
struct Entry {
    pod: QueuedPod,
    place: SubQueue,
    order: u64,
}

impl Entry {
    /// Whether the pod is active or in backoff.
    fn is_ready(&self) -> bool {
        matches!(self.place, SubQueue::Active | SubQueue::Backoff { .. })
    }
}

/// Highest priority first, then first in, first out.
type Rank = (Reverse<i32>, u64, Uid);

/// Number of pods in each part of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Ready.
    pub active: usize,
    /// Ready after a while.
    pub backoff: usize,
    /// Rejected and waiting for an event.
    pub unschedulable: usize,
    /// Gated pods: a PreEnqueue plugin rejects them.
    pub gated: usize,
}

/// The queue. See the module.
#[derive(Debug, Default)]
pub struct Queue {
    backoff_rule: Backoff,
    entries: FxHashMap<Uid, Entry>,
    active: BTreeSet<Rank>,
    backoff: BTreeSet<(Now, Uid)>,
    /// Pods in backoff that may be tried early when no other is ready.
    early: BTreeSet<Rank>,
    unschedulable: BTreeSet<(Now, Uid)>,
    by_plugin: FxHashMap<Plugin, FxHashSet<Uid>>,
    gated: FxHashSet<Uid>,
    by_claim: FxHashMap<Key, FxHashSet<Uid>>,
    next_order: u64,
    moves: Moves,
}

impl Queue {
    /// An empty queue.
    pub fn new(backoff_rule: Backoff) -> Self {
        Self {
            backoff_rule,
            ..Self::default()
        }
    }

    /// Number of pods in each part of the queue.
    pub fn counts(&self) -> Counts {
        Counts {
            active: self.active.len(),
            backoff: self.backoff.len(),
            unschedulable: self.unschedulable.len(),
            gated: self.gated.len(),
        }
    }

    /// Changes since the last call, for metrics: pods that moved between parts of the queue, and the plugins that
    /// reject pods, if those changed.
    pub fn take_moves(&mut self) -> (Moved, Option<&Rejected>) {
        self.moves.take()
    }

    /// Whether the pod is in a part of the queue; a popped pod is not.
    pub fn contains(&self, uid: &str) -> bool {
        self.entries.contains_key(uid)
    }

    /// The pod as it is in the queue.
    pub fn get(&self, uid: &str) -> Option<&QueuedPod> {
        self.entries.get(uid).map(|e| &e.pod)
    }

    /// Adds a pod that was not in the queue, ready or held back by a plugin.
    pub fn add(&mut self, info: Arc<PodInfo>, gate: Option<Plugin>, now: Now) {
        let pod = QueuedPod {
            info,
            failures: 0,
            errors: 0,
            attempts: 0,
            entered: now,
            since: now,
            rejected_by: PluginSet::default(),
            errored: false,
            pending: false,
        };
        self.insert(
            pod,
            gate.map_or(SubQueue::Active, SubQueue::Gated),
            "UnschedulablePodAdd",
        );
    }

    /// Replaces the object of a pod in the queue by a newer version, without moving it.
    pub fn update(&mut self, info: Arc<PodInfo>) {
        if let Some(entry) = self.remove_entry(&info.uid) {
            self.insert_ordered(QueuedPod { info, ..entry.pod }, entry.place, entry.order);
        }
    }

    /// Puts a popped pod back after a rejection; `rejected_by` decides which events bring it back.
    pub fn add_unschedulable(&mut self, mut pod: QueuedPod, rejected_by: PluginSet, now: Now) {
        pod.failures += 1;
        pod.errors = 0;
        pod.since = now;
        pod.rejected_by = rejected_by;
        pod.errored = false;
        pod.pending = false;
        self.insert(pod, SubQueue::Unschedulable, FAILED);
    }

    /// Returns a popped pod to the queue until another component has acted for it; that does not count as a failure.
    pub fn add_unschedulable_pending(
        &mut self,
        mut pod: QueuedPod,
        waits_for: PluginSet,
        now: Now,
    ) {
        pod.since = now;
        pod.rejected_by = waits_for;
        pod.errored = false;
        pod.pending = true;
        self.insert(pod, SubQueue::Unschedulable, FAILED);
    }

    /// Puts a popped pod back after a failure that calls for a repetition.
    pub fn add_backoff(&mut self, mut pod: QueuedPod, now: Now) {
        pod.errors += 1;
        pod.since = now;
        pod.errored = true;
        pod.pending = false;
        let until = now + self.backoff_rule.after(pod.errors);
        self.insert(pod, SubQueue::Backoff { until }, FAILED);
    }

    /// Makes an unschedulable or gated pod ready because of an event, or gates it. Pods that are ready already stay
    /// where they are.
    pub fn activate(&mut self, uid: &str, gate: Option<Plugin>, event: &'static str, now: Now) {
        let Some(entry) = self.entries.get(uid) else {
            return;
        };
        let place = match (entry.place, gate) {
            (SubQueue::Gated(old), Some(new)) if old == new => return,
            (_, Some(plugin)) => SubQueue::Gated(plugin),
            (SubQueue::Active | SubQueue::Backoff { .. }, None) => return,
            (SubQueue::Gated(_), None) => SubQueue::Active,
            (SubQueue::Unschedulable, None) => {
                let until = entry.pod.since + self.backoff_rule.after(entry.pod.failures);
                if until > now && !entry.pod.pending {
                    SubQueue::Backoff { until }
                } else {
                    SubQueue::Active
                }
            }
        };
        if let Some(mut entry) = self.remove_entry(uid) {
            if place == SubQueue::Active {
                entry.pod.since = now;
            }
            self.insert(entry.pod, place, event);
        }
    }

    /// Removes a pod.
    pub fn remove(&mut self, uid: &str) -> Option<QueuedPod> {
        self.remove_entry(uid).map(|e| e.pod)
    }

    /// Removes and returns the next pod. When none is ready, a pod that only backs off after a rejection is tried
    /// early: an idle scheduler gains nothing from waiting.
    pub fn pop(&mut self, now: Now) -> Option<QueuedPod> {
        self.flush(now);
        let ready = self.active.first();
        let early = ready.is_none();
        let uid = ready.or_else(|| self.early.first())?.2.clone();
        if early {
            self.moves
                .record_incoming("PopFromBackoffQ", SubQueue::Active);
        }
        self.take(&uid)
    }

    /// Removes a pod from any part of the queue to try it; not a gated one.
    pub fn take(&mut self, uid: &str) -> Option<QueuedPod> {
        let entry = self.entries.get(uid)?;
        if matches!(entry.place, SubQueue::Gated(_)) {
            return None;
        }
        let mut pod = self.remove(uid)?;
        pod.attempts += 1;
        Some(pod)
    }

    /// When the queue needs the next flush without an event.
    pub fn next_wakeup(&self) -> Option<Now> {
        let backoff = self.backoff.first().map(|(until, _)| *until);
        let waiting = self
            .unschedulable
            .first()
            .map(|(since, _)| *since + UNSCHEDULABLE_TIMEOUT);
        [backoff, waiting].into_iter().flatten().min()
    }

    /// Moves pods whose backoff or timeout has ended.
    fn flush(&mut self, now: Now) {
        while let Some((until, uid)) = self.backoff.first().cloned() {
            if until > now {
                break;
            }
            match self.remove_entry(&uid) {
                Some(entry) => self.insert(entry.pod, SubQueue::Active, "BackoffComplete"),
                None => break,
            }
        }
        while let Some((since, uid)) = self.unschedulable.first().cloned() {
            if since + UNSCHEDULABLE_TIMEOUT > now {
                break;
            }
            self.activate(&uid, None, "UnschedulableTimeout", now);
        }
    }

    /// Unschedulable and gated pods that one of the plugins rejected, in the order of scheduling.
    pub fn rejected_by(&self, plugins: PluginSet) -> Vec<Arc<PodInfo>> {
        let mut seen = FxHashSet::default();
        let mut out = Vec::new();
        for plugin in plugins.iter() {
            for uid in self.by_plugin.get(&plugin).into_iter().flatten() {
                if seen.insert(uid)
                    && let Some(entry) = self.entries.get(uid)
                {
                    out.push((entry.order, entry.pod.info.clone()));
                }
            }
        }
        out.sort_unstable_by_key(|(order, _)| *order);
        out.into_iter().map(|(_, info)| info).collect()
    }

    /// Unschedulable or gated pods that use a claim.
    pub fn users_of_claim(&self, claim: &Key) -> Vec<Arc<PodInfo>> {
        let users = self.users(claim, |e| !e.is_ready()).into_iter();
        users.map(|e| e.pod.info.clone()).collect()
    }

    /// Active pods and pods in backoff that use a claim.
    pub fn ready_users_of_claim(&self, claim: &Key) -> impl Iterator<Item = &QueuedPod> {
        let users = self.users(claim, Entry::is_ready).into_iter();
        users.map(|e| &e.pod)
    }

    fn users(&self, claim: &Key, which: impl Fn(&Entry) -> bool) -> Vec<&Entry> {
        let uids = self.by_claim.get(claim).into_iter().flatten();
        let mut out: Vec<_> = uids
            .filter_map(|uid| self.entries.get(uid))
            .filter(|e| which(e))
            .collect();
        out.sort_unstable_by_key(|e| e.order);
        out
    }

    /// The pod, if it is active or in backoff.
    pub fn ready(&self, uid: &str) -> Option<&QueuedPod> {
        let entry = self.entries.get(uid).filter(|e| e.is_ready())?;
        Some(&entry.pod)
    }
}

#[cfg(test)]
mod tests;
