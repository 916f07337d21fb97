//! How many pods of a job should run, and when new ones may be created.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::failure::Failures;
use super::observed::ObservedJob;
use super::{Decision, backoff, name};
use crate::controller::meta;

/// Pods created or deleted per pass at most.
const BURST: usize = 500;

/// A pod that the Job lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::job) struct PodToCreate {
    /// Its completion index, if the job is indexed.
    pub index: Option<i32>,
    /// Earlier failures, if failures count per index.
    pub failures: Option<Failures>,
}

/// Creates or deletes pods so that as many run as should.
pub(super) fn fill(look: &ObservedJob<'_>, now: Timestamp, decision: &mut Decision) {
    let running = look.active.len();
    let parallelism = usize::try_from(look.spec.parallelism.unwrap_or(1)).unwrap_or(0);
    let wanted = match look.spec.completions {
        _ if look.suspended() => 0,
        // A work queue: once one pod succeeded no new ones are created, and running ones may finish.
        None if look.succeeded > 0 => running,
        None => parallelism,
        Some(all) => parallelism.min(usize::try_from(all - look.succeeded).unwrap_or(0)),
    };
    let mut surplus = surplus(look, running.saturating_sub(wanted));
    if !surplus.is_empty() {
        if !look.suspended() {
            surplus.truncate(BURST);
        }
        // Pods that we stop do not count as failed.
        decision.release.extend(surplus.iter().map(|p| name(p)));
        decision.delete.extend(surplus.iter().map(|p| name(p)));
        return;
    }
    let blocked = match look.replaces_only_failed() {
        true => look.terminating,
        false => 0,
    };
    let missing = wanted.saturating_sub(running + blocked).min(BURST);
    if missing == 0 {
        return;
    }
    let per_index = look.failed_indexes.is_some();
    if !per_index && let Some(wait) = decision.backoff.remaining(now) {
        return decision.look_again(wait);
    }
    if !look.indexed {
        let pod = PodToCreate {
            index: None,
            failures: None,
        };
        decision.create = vec![pod; missing];
        return;
    }
    for index in pending(look).take(missing) {
        let last = look.delayed.get(&index);
        if let Some(wait) = last.and_then(|last| backoff::of_index(last, now)) {
            decision.look_again(wait);
            continue;
        }
        let failures = || last.map_or_else(Failures::default, |l| Failures::after(look.job, l));
        decision.create.push(PodToCreate {
            index: Some(index),
            failures: per_index.then(failures),
        });
    }
}

/// Pods to delete: those with a duplicate or invalid index, then the surplus.
fn surplus(look: &ObservedJob<'_>, count: usize) -> Vec<Arc<Pod>> {
    let mut pods: Vec<Arc<Pod>> = look.active.iter().map(|p| (**p).clone()).collect();
    crate::workload::rank::workers(&mut pods);
    if !look.indexed {
        pods.truncate(count);
        return pods;
    }
    // The last in rank is the most valuable one.
    let (mut taken, mut kept) = (BTreeSet::new(), BTreeSet::new());
    for pod in pods.iter().rev() {
        if look.index_of(pod).is_some_and(|index| taken.insert(index)) {
            kept.insert(meta::uid(&**pod).to_owned());
        }
    }
    let (left, mut gone): (Vec<_>, Vec<_>) = pods
        .into_iter()
        .partition(|p| kept.contains(meta::uid(&**p)));
    let more = count.saturating_sub(gone.len());
    gone.extend(left.into_iter().take(more));
    gone
}

/// Indexes that have neither ended nor a pod.
fn pending<'a>(look: &'a ObservedJob<'_>) -> impl Iterator<Item = i32> + use<'a> {
    let ending = look
        .pods
        .iter()
        .filter(|p| look.replaces_only_failed() && meta::deleting(&***p) && !meta::is_finished(p));
    let busy = look.active.iter().copied().chain(ending);
    let busy: BTreeSet<i32> = busy.filter_map(|p| look.index_of(p)).collect();
    (0..look.spec.completions.unwrap_or(0)).filter(move |index| {
        !busy.contains(index)
            && !look.done.contains(*index)
            && !look
                .failed_indexes
                .as_ref()
                .is_some_and(|f| f.contains(*index))
    })
}
