//! Which finished pods are counted, and which may lose their finalizer.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::super::is_tracked;
use super::failure::{Failure, has_failed, judge_failure};
use super::observed::ObservedJob;
use super::verdict::Verdict;
use super::{Decision, name};
use crate::controller::meta;

/// Limit of UIDs in `uncountedTerminatedPods`, to keep the object small.
const MAX_UNCOUNTED: usize = 500;

/// The counts of finished pods in the status.
pub(super) struct Count {
    pub succeeded: i32,
    pub failed: i32,
    uncounted_succeeded: BTreeSet<String>,
    uncounted_failed: BTreeSet<String>,
    /// Pods were left for a later pass.
    full: bool,
}

impl Count {
    /// Whether every finished pod is in the counters.
    pub(super) fn is_complete(&self) -> bool {
        !self.full && self.uncounted_succeeded.is_empty() && self.uncounted_failed.is_empty()
    }

    pub(super) fn uncounted(&self) -> Value {
        let list = |uids: &BTreeSet<String>| match uids.is_empty() {
            true => Value::Null,
            false => json!(uids),
        };
        json!({"succeeded": list(&self.uncounted_succeeded), "failed": list(&self.uncounted_failed)})
    }

    /// The counts in the current status; pods without finalizer move into the counters.
    fn before(look: &ObservedJob<'_>) -> Self {
        let status = look.job.status.clone().unwrap_or_default();
        let uncounted = status.uncounted_terminated_pods.unwrap_or_default();
        let tracked = look.pods.iter().filter(|p| is_tracked(p));
        let tracked: BTreeSet<&str> = tracked.map(|p| meta::uid(&**p)).collect();
        let settle = |counted: Option<i32>, uids: Option<Vec<String>>| {
            let uids = uids.unwrap_or_default();
            let all = uids.len();
            let rest = uids
                .into_iter()
                .filter(|uid| tracked.contains(uid.as_str()));
            let rest: BTreeSet<String> = rest.collect();
            let settled = i32::try_from(all - rest.len()).unwrap_or(i32::MAX);
            (counted.unwrap_or(0) + settled, rest)
        };
        let (succeeded, uncounted_succeeded) = settle(status.succeeded, uncounted.succeeded);
        let (failed, uncounted_failed) = settle(status.failed, uncounted.failed);
        Self {
            // An index that succeeded is itself the record.
            succeeded: if look.indexed {
                look.done.len()
            } else {
                succeeded
            },
            failed,
            uncounted_succeeded,
            uncounted_failed,
            full: false,
        }
    }
}

/// Counts finished pods and decides which may lose their finalizer, now that the status has them.
pub(super) fn track(
    look: &ObservedJob<'_>,
    verdict: Option<&Verdict>,
    decision: &mut Decision,
) -> Count {
    let mut count = Count::before(look);
    let mut tracked: Vec<&Pod> = look
        .pods
        .iter()
        .map(|p| &**p)
        .filter(|p| is_tracked(p))
        .collect();
    // Pods that are released without being counted.
    tracked.retain(|pod| !decision.release.iter().any(|n| n == meta::name(*pod)));
    if look.indexed {
        tracked.sort_by_key(|pod| look.index_of(pod));
    }
    let failing = verdict.is_some_and(|v| !v.is_success());
    let mut indexes = 0;
    for pod in tracked {
        let succeeded = meta::phase(pod) == "Succeeded";
        let failed = has_failed(look.spec, pod);
        let delayed = look
            .index_of(pod)
            .and_then(|index| look.delayed.get(&index));
        let delayed = delayed.is_some_and(|last| meta::uid(*last) == meta::uid(pod));
        if verdict.is_none() && !succeeded && (!failed || delayed) {
            continue;
        }
        decision.release.push(name(pod));
        let uid = meta::uid(pod).to_owned();
        if succeeded && !count.uncounted_failed.contains(&uid) {
            match look.indexed {
                true => indexes += 1,
                false => _ = count.uncounted_succeeded.insert(uid),
            }
        } else if (failed || failing)
            && (!look.indexed || look.index_of(pod).is_some())
            && judge_failure(look.job, pod) != Failure::Ignore
        {
            // A job that failed counts the pods that it stops.
            count.uncounted_failed.insert(uid);
        }
        let listed = count.uncounted_succeeded.len() + count.uncounted_failed.len();
        if indexes + listed >= MAX_UNCOUNTED {
            count.full = true;
            break;
        }
    }
    count
}
