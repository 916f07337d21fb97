//! How many pods of a job should run, and when new ones may be made.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::JobSpec;
use k8s_openapi::api::core::v1::Pod;

use super::{Counting, Decision, index_of, is_indexed};
use crate::kit::clock::until;
use crate::kit::meta;

/// Delay after the first failed pod; doubles with each further one (as upstream).
const BACKOFF: Duration = Duration::from_secs(10);
const MAX_BACKOFF: Duration = Duration::from_secs(600);
/// Pods created per pass at most.
const BURST: usize = 500;

/// When a pod ended, for the backoff.
fn ended_at(pod: &Pod) -> Option<Timestamp> {
    let statuses = pod
        .status
        .iter()
        .flat_map(|s| s.container_statuses.iter().flatten());
    let ended =
        statuses.filter_map(|s| s.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
    ended
        .map(|t| t.0)
        .max()
        .or_else(|| pod.metadata.deletion_timestamp.as_ref().map(|t| t.0))
        .or_else(|| {
            meta::pod_condition(pod, "Ready")?
                .last_transition_time
                .as_ref()
                .map(|t| t.0)
        })
        .or_else(|| pod.metadata.creation_timestamp.as_ref().map(|t| t.0))
}

/// Creates or deletes pods so that as many run as should.
#[expect(
    clippy::too_many_arguments,
    reason = "all of it is the state of one job"
)]
pub(super) fn fill(
    spec: &JobSpec,
    pods: &[Arc<Pod>],
    active: &[&Arc<Pod>],
    count: &Counting,
    succeeded: i32,
    failed: i32,
    now: Timestamp,
    decision: &mut Decision,
) {
    let indexed = is_indexed(spec);
    let parallelism = spec.parallelism.unwrap_or(1);
    let wanted = match spec.completions {
        // A work queue: once one pod succeeded no new ones are made.
        None if succeeded > 0 => i32::try_from(active.len())
            .unwrap_or(i32::MAX)
            .min(parallelism),
        None => parallelism,
        Some(n) if indexed => parallelism.min(n - count.done.len() - count.failed_indexes.len()),
        Some(n) => parallelism.min(n - succeeded),
    };
    let wanted = usize::try_from(wanted).unwrap_or(0);
    let mut running: Vec<Arc<Pod>> = active.iter().map(|p| (**p).clone()).collect();
    if running.len() > wanted {
        crate::workload::deletion_rank(&mut running);
        let surplus = running.len() - wanted;
        decision.delete.extend(
            running
                .iter()
                .take(surplus)
                .map(|p| meta::name(&**p).to_owned()),
        );
        decision.release.extend(decision.delete.iter().cloned());
        return;
    }
    // A replacement may have to wait for the end of what it replaces.
    let waits = spec.pod_replacement_policy.as_deref() == Some("Failed")
        || spec.pod_failure_policy.is_some();
    let ending = |p: &&Arc<Pod>| meta::deleting(&***p) && !meta::is_finished(p);
    let blocked = if waits {
        pods.iter().filter(ending).count()
    } else {
        0
    };
    let missing = wanted.saturating_sub(running.len() + blocked).min(BURST);
    if missing == 0 {
        return;
    }
    // After failures new pods wait, longer with each failure.
    let last = pods
        .iter()
        .filter(|p| meta::phase(p) == "Failed")
        .filter_map(|p| ended_at(p))
        .max();
    let last_success = pods
        .iter()
        .filter(|p| meta::phase(p) == "Succeeded")
        .filter_map(|p| ended_at(p))
        .max();
    if let Some(last) = last
        && failed > 0
        && last_success.is_none_or(|s| s < last)
    {
        let shift = u32::try_from(failed - 1).unwrap_or(0).min(10);
        let delay = BACKOFF.saturating_mul(1 << shift).min(MAX_BACKOFF);
        let at = last + SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX);
        if at > now {
            let wait = until(now, at);
            decision.again = Some(decision.again.map_or(wait, |a| a.min(wait)));
            return;
        }
    }
    if !indexed {
        decision.create = vec![None; missing];
        return;
    }
    let mut busy: BTreeSet<i32> = running.iter().filter_map(|p| index_of(p)).collect();
    if waits {
        busy.extend(pods.iter().filter(ending).filter_map(|p| index_of(p)));
    }
    let all = 0..spec.completions.unwrap_or(0);
    decision.create = all
        .filter(|i| {
            !busy.contains(i) && !count.done.contains(*i) && !count.failed_indexes.contains(*i)
        })
        .take(missing)
        .map(Some)
        .collect();
}
