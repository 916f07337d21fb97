//! Conditions of pods that could not be scheduled: the newest per pod, at leisure.

use std::collections::VecDeque;

use k8s_openapi::api::core::v1::PodCondition;
use rustc_hash::FxHashSet;

use super::condition::with_condition;
use super::*;
use crate::actions::{Nominate, Rejected};

/// How many conditions are written at the same time.
const PARALLEL: usize = 16;

#[derive(Default)]
struct State {
    next: FxHashMap<Uid, Rejected>,
    order: VecDeque<Uid>,
    busy: FxHashSet<Uid>,
    written: FxHashMap<Uid, (String, &'static str)>,
}

/// Writes conditions in the background.
#[derive(Clone)]
pub(super) struct Rejections {
    client: Client,
    clock: Clock,
    state: Arc<Mutex<State>>,
}

impl Rejections {
    pub(super) fn new(client: Client, clock: Clock) -> Self {
        Self {
            client,
            clock,
            state: Arc::default(),
        }
    }

    /// Takes a condition over; an older one of the same pod that was not written yet is not needed any more.
    pub(super) fn put(&self, mut rejected: Rejected) {
        let mut state = self.state.lock();
        let uid = rejected.pod.uid.clone();
        if let Some(old) = state.next.remove(&uid) {
            if rejected.nominate == Nominate::Keep {
                rejected.nominate = old.nominate;
            }
        } else {
            state.order.push_back(uid.clone());
        }
        state.next.insert(uid, rejected);
        drop(state);
        self.go_on();
    }

    fn go_on(&self) {
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
            let Some(rejected) = state.next.remove(&uid) else {
                continue;
            };
            state.busy.insert(uid.clone());
            drop(state);
            let this = self.clone();
            tokio::spawn(async move {
                this.write(&rejected).await;
                this.state.lock().busy.remove(&uid);
                this.go_on();
            });
        }
    }

    async fn write(&self, rejected: &Rejected) {
        let pod = &rejected.pod;
        let conditions = pod
            .pod
            .status
            .as_ref()
            .and_then(|s| s.conditions.as_deref())
            .unwrap_or_default();
        let old = conditions.iter().find(|c| c.type_ == "PodScheduled");
        let same = |c: &PodCondition| {
            c.status == "False"
                && c.reason.as_deref() == Some(rejected.reason)
                && c.message.as_deref() == Some(&rejected.message)
        };
        // What the watch knows may be older than our last write.
        let last = (rejected.message.clone(), rejected.reason);
        let written = self.state.lock().written.get(&pod.uid).cloned();
        let unchanged = written.map_or_else(|| old.is_some_and(same), |w| w == last);
        let nominated = match &rejected.nominate {
            Nominate::Keep => None,
            Nominate::Set(node) => Some(json!(&**node)),
            Nominate::Clear => Some(serde_json::Value::Null),
        };
        if unchanged && nominated.is_none() {
            return;
        }
        let since = old
            .filter(|c| c.status == "False")
            .and_then(|c| c.last_transition_time.clone());
        let mut condition = json!({
            "type": "PodScheduled",
            "status": "False",
            "reason": rejected.reason,
            "message": rejected.message,
            "lastProbeTime": null,
            "lastTransitionTime": since.map_or_else(|| json!(rfc3339(self.clock.now())), |t| json!(t)),
        });
        if let Some(generation) = pod.pod.metadata.generation {
            condition["observedGeneration"] = generation.into();
        }
        let mut status = with_condition(pod, condition);
        if let Some(node) = nominated {
            status["nominatedNodeName"] = node;
        }
        let patch = json!({"metadata": {"uid": &*pod.uid}, "status": status});
        let result = patch_pod_status(&self.client, &pod.key, &patch).await;
        {
            let mut state = self.state.lock();
            if state.written.len() > 16384 {
                state.written.clear();
            }
            if result.is_ok() {
                state.written.insert(pod.uid.clone(), last);
            } else {
                state.written.remove(&pod.uid);
            }
        }
        log("update condition", &pod.key, result.map(drop));
    }
}
