//! How long a job backs off after failures before it creates new pods.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;

use super::failure::{Failures, has_failed};
use super::observed::ObservedJob;
use crate::controller::clock::{shifted, until};
use crate::controller::meta;

/// Delay after the first failed pod; doubles with each further one (as upstream).
const BACKOFF: Duration = Duration::from_secs(10);
const MAX_BACKOFF: Duration = Duration::from_secs(600);

/// How often pods failed since one succeeded, and when last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::job) struct Backoff {
    failures: i32,
    last: Option<Timestamp>,
    /// Counted pods (by UID) that still exist. They are observed again until their finalizer is removed, also pods that
    /// the job's failure policy ignores.
    seen: BTreeSet<String>,
}

impl Backoff {
    /// With the pods that finished since. Without a past, as after a restart, it is derived from the existing pods.
    pub(super) fn after<'a>(past: Option<&Self>, look: &ObservedJob<'a>) -> Self {
        let (succeeded, failed) = match past {
            Some(past) => {
                let new = |pods: &[&'a Pod]| -> Vec<&'a Pod> {
                    let new = |pod: &&&Pod| !past.seen.contains(meta::uid(**pod));
                    pods.iter().filter(new).copied().collect()
                };
                (new(&look.fresh_succeeded), new(&look.fresh_failed))
            }
            None => {
                let pods = || look.pods.iter().map(|pod| &**pod);
                (
                    pods().filter(|p| meta::phase(p) == "Succeeded").collect(),
                    pods().filter(|p| has_failed(look.spec, p)).collect(),
                )
            }
        };
        let before = past.cloned().unwrap_or_default();
        let mut seen = before.seen.clone();
        seen.extend(
            succeeded
                .iter()
                .chain(&failed)
                .map(|p| meta::uid(*p).to_owned()),
        );
        let there: BTreeSet<&str> = look.pods.iter().map(|p| meta::uid(&**p)).collect();
        seen.retain(|uid| there.contains(uid.as_str()));
        Self {
            seen,
            ..before.with(&succeeded, &failed)
        }
    }

    fn with(self, succeeded: &[&Pod], failed: &[&Pod]) -> Self {
        let success = succeeded.iter().filter_map(|p| ended_at(p)).max();
        let failures = failed.iter().filter_map(|p| ended_at(p));
        let later = failures.filter(|at| success.is_none_or(|success| *at > success));
        let before = if succeeded.is_empty() {
            self
        } else {
            Self::default()
        };
        later.fold(before, |sum, at| Self {
            failures: sum.failures.saturating_add(1),
            last: sum.last.max(Some(at)),
            ..sum
        })
    }

    /// The time until new pods may be created; `None` if that is now.
    pub(super) fn remaining(&self, now: Timestamp) -> Option<Duration> {
        remaining(self.failures, self.last?, now)
    }
}

/// How long the next pod of an index must wait after the failure of the last one.
pub(super) fn of_index(last: &Pod, now: Timestamp) -> Option<Duration> {
    remaining(
        Failures::of(last).all().saturating_add(1),
        ended_at(last)?,
        now,
    )
}

fn remaining(failures: i32, last: Timestamp, now: Timestamp) -> Option<Duration> {
    let shift = u32::try_from(failures.saturating_sub(1)).ok()?.min(10);
    let delay = BACKOFF.saturating_mul(1 << shift).min(MAX_BACKOFF);
    let delay = SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX);
    let at = shifted(last, delay);
    (at > now).then(|| until(now, at))
}

/// When a pod ended: when its last container did, when it ceased to be ready, when it was deleted, or its creation.
pub(super) fn ended_at(pod: &Pod) -> Option<Timestamp> {
    let containers = pod
        .status
        .as_ref()
        .and_then(|s| s.container_statuses.as_ref());
    let ends = containers.into_iter().flatten().map(|container| {
        let terminated = container.state.as_ref()?.terminated.as_ref()?;
        terminated.finished_at.as_ref().map(|at| at.0)
    });
    // One that has not ended leaves the question open.
    let ends: Option<Vec<Timestamp>> = ends.collect();
    let unready = || {
        let ready = meta::pod_condition(pod, "Ready").filter(|c| c.status == "False")?;
        ready.last_transition_time.as_ref().map(|at| at.0)
    };
    let deleted = || {
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
        let at = pod.metadata.deletion_timestamp.as_ref()?.0;
        Some(shifted(at, -SignedDuration::from_secs(grace.max(0))))
    };
    let created = || pod.metadata.creation_timestamp.as_ref().map(|at| at.0);
    ends.and_then(|ends| ends.into_iter().max())
        .or_else(unready)
        .or_else(deleted)
        .or_else(created)
}
