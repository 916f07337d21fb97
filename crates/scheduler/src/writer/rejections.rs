//! Status of pods that could not be scheduled: the newest per pod, written with low priority.

use std::collections::VecDeque;

use k8s_openapi::api::core::v1::PodCondition;
use rustc_hash::FxHashSet;
use tokio::sync::Notify;

use super::condition::with_condition;
use super::*;
use crate::actions::{Nominate, Rejected};

/// How many are written at the same time.
const PARALLEL: usize = 16;

/// The report about a pod.
pub(super) struct Report {
    pod: Arc<PodInfo>,
    /// Why it could not be scheduled: the reason and the message of the condition.
    why: Option<(&'static str, String)>,
    nominate: Nominate,
}

impl Report {
    /// The nomination of a pod is cleared.
    pub(super) fn cleared(pod: Arc<PodInfo>) -> Self {
        let (why, nominate) = (None, Nominate::Clear);
        Self { pod, why, nominate }
    }

    /// Merges an older report: fields that this one lacks are taken from it.
    fn after(self, old: Self) -> Self {
        Self {
            why: self.why.or(old.why),
            nominate: match self.nominate {
                Nominate::Keep => old.nominate,
                newer => newer,
            },
            pod: self.pod,
        }
    }
}

impl From<Rejected> for Report {
    fn from(rejected: Rejected) -> Self {
        Self {
            pod: rejected.pod,
            why: Some((rejected.reason, rejected.message)),
            nominate: rejected.nominate,
        }
    }
}

#[derive(Default)]
struct State {
    next: FxHashMap<Uid, Report>,
    order: VecDeque<Uid>,
    busy: FxHashSet<Uid>,
    written: FxHashMap<Uid, (&'static str, String)>,
}

/// Writes reports in the background.
#[derive(Clone)]
pub(super) struct Rejections {
    client: Client,
    clock: Clock,
    state: Arc<Mutex<State>>,
    done: Arc<Notify>,
}

impl Rejections {
    pub(super) fn new(client: Client, clock: Clock) -> Self {
        Self {
            client,
            clock,
            state: Arc::default(),
            done: Arc::default(),
        }
    }

    /// Queues a report; it replaces an older report about the same pod that has not been written yet.
    pub(super) fn put(&self, report: Report) {
        let mut state = self.state.lock();
        let uid = report.pod.uid.clone();
        let report = match state.next.remove(&uid) {
            Some(old) => report.after(old),
            None => {
                state.order.push_back(uid.clone());
                report
            }
        };
        state.next.insert(uid, report);
        drop(state);
        self.start_next();
    }

    /// The pod has a node now: the pending report is obsolete.
    pub(super) fn forget(&self, pod: &Uid) {
        let mut state = self.state.lock();
        if state.next.remove(pod).is_some() {
            state.order.retain(|uid| uid != pod);
        }
    }

    /// Waits until no write about the pod is in progress.
    pub(super) async fn written(&self, pod: &Uid) {
        loop {
            let done = self.done.notified();
            if !self.state.lock().busy.contains(pod) {
                return;
            }
            done.await;
        }
    }

    fn start_next(&self) {
        loop {
            let mut state = self.state.lock();
            if state.busy.len() >= PARALLEL {
                return;
            }
            let Some(at) = state.order.iter().position(|uid| !state.busy.contains(uid)) else {
                return;
            };
            let Some(uid) = state.order.remove(at) else {
                return;
            };
            let Some(report) = state.next.remove(&uid) else {
                continue;
            };
            state.busy.insert(uid.clone());
            drop(state);
            let this = self.clone();
            tokio::spawn(async move {
                this.write(&report).await;
                this.state.lock().busy.remove(&uid);
                this.done.notify_waiters();
                this.start_next();
            });
        }
    }

    async fn write(&self, report: &Report) {
        let pod = &report.pod;
        let mut status = match &report.why {
            Some(why) if self.is_new(pod, why) => {
                with_condition(pod, self.condition(pod, why.0, &why.1))
            }
            _ => json!({}),
        };
        match &report.nominate {
            Nominate::Keep => {}
            Nominate::Set(node) => status["nominatedNodeName"] = json!(&**node),
            Nominate::Clear => status["nominatedNodeName"] = serde_json::Value::Null,
        }
        if status.as_object().is_none_or(serde_json::Map::is_empty) {
            return;
        }
        let patch = json!({"metadata": {"uid": &*pod.uid}, "status": status});
        let result = patch_pod_status(&self.client, &pod.key, &patch).await;
        if let Some(why) = &report.why {
            let mut state = self.state.lock();
            if state.written.len() > 16384 {
                state.written.clear();
            }
            if result.is_ok() {
                state.written.insert(pod.uid.clone(), why.clone());
            } else {
                state.written.remove(&pod.uid);
            }
        }
        log("update status", &pod.key, result.map(drop));
    }

    /// Whether the pod's condition differs. The observed pod may be older than the last write.
    fn is_new(&self, pod: &PodInfo, why: &(&'static str, String)) -> bool {
        let same = |c: &PodCondition| {
            c.status == "False"
                && c.reason.as_deref() == Some(why.0)
                && c.message.as_deref() == Some(&why.1)
        };
        match self.state.lock().written.get(&pod.uid) {
            Some(written) => written != why,
            None => !condition_of(pod).is_some_and(same),
        }
    }

    fn condition(&self, pod: &PodInfo, reason: &str, message: &str) -> serde_json::Value {
        let since = condition_of(pod)
            .filter(|c| c.status == "False")
            .and_then(|c| c.last_transition_time.clone());
        let mut condition = json!({
            "type": "PodScheduled",
            "status": "False",
            "reason": reason,
            "message": message,
            "lastProbeTime": null,
            "lastTransitionTime": since.map_or_else(|| json!(rfc3339(self.clock.now())), |t| json!(t)),
        });
        if let Some(generation) = pod.pod.metadata.generation {
            condition["observedGeneration"] = generation.into();
        }
        condition
    }
}

fn condition_of(pod: &PodInfo) -> Option<&PodCondition> {
    let status = pod.pod.status.as_ref();
    let mut conditions = status.and_then(|s| s.conditions.as_deref())?.iter();
    conditions.find(|c| c.type_ == "PodScheduled")
}
