//! The pods of a job, counted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::Pod;

use super::super::{INDEX, is_tracked};
use super::failure::{Failure, Failures, has_failed, judge_failure, replaces_only_failed};
use super::indexes::Indexes;
use crate::controller::meta;

/// The job and its pods, as they are.
pub(super) struct ObservedJob<'a> {
    pub job: &'a Job,
    pub spec: &'a JobSpec,
    pub pods: &'a [Arc<Pod>],
    pub indexed: bool,
    pub active: Vec<&'a Arc<Pod>>,
    /// How many pods are deleted and still run.
    pub terminating: usize,
    /// Succeeded and failed pods, including those whose finalizer is still to be removed.
    pub succeeded: i32,
    pub failed: i32,
    /// Pods that finished and are in no count yet.
    pub fresh_succeeded: Vec<&'a Pod>,
    pub fresh_failed: Vec<&'a Pod>,
    /// Succeeded indexes, including new ones.
    pub done: Indexes,
    /// Failed indexes, if failures count per index.
    pub failed_indexes: Option<Indexes>,
    /// The last failed pod of each index that is to be replaced. It stays until the replacement exists, which takes
    /// over its failure count.
    pub delayed: BTreeMap<i32, &'a Pod>,
}

impl<'a> ObservedJob<'a> {
    pub(super) fn new(job: &'a Job, spec: &'a JobSpec, pods: &'a [Arc<Pod>]) -> Self {
        let status = job.status.as_ref();
        let active: Vec<&Arc<Pod>> = pods.iter().filter(|p| meta::is_active(p)).collect();
        let ending = |p: &&Arc<Pod>| meta::deleting(&***p) && !meta::is_finished(p);
        let completions = spec.completions.unwrap_or(0);
        let parse =
            |text: Option<&str>| Indexes::parse_below(text.unwrap_or_default(), completions);
        let indexed = spec.completion_mode.as_deref() == Some("Indexed");
        let mut this = Self {
            job,
            spec,
            pods,
            indexed,
            active,
            terminating: pods.iter().filter(ending).count(),
            succeeded: 0,
            failed: 0,
            fresh_succeeded: Vec::new(),
            fresh_failed: Vec::new(),
            done: parse(status.and_then(|s| s.completed_indexes.as_deref())),
            failed_indexes: (indexed && spec.backoff_limit_per_index.is_some())
                .then(|| parse(status.and_then(|s| s.failed_indexes.as_deref()))),
            delayed: BTreeMap::new(),
        };
        this.count();
        if this.indexed {
            this.count_indexes();
        }
        this
    }

    fn count(&mut self) {
        let status = self.job.status.as_ref();
        let uncounted = status.and_then(|s| s.uncounted_terminated_pods.as_ref());
        let succeeded: BTreeSet<&str> = strings(uncounted.and_then(|u| u.succeeded.as_ref()));
        let failed: BTreeSet<&str> = strings(uncounted.and_then(|u| u.failed.as_ref()));
        let is_new = |counted: &BTreeSet<&str>, pod: &&Pod| !counted.contains(meta::uid(*pod));
        let ended = self.tracked().filter(|p| meta::phase(p) == "Succeeded");
        let fresh_succeeded = ended.filter(|p| is_new(&succeeded, p)).collect();
        let ended = self.tracked().filter(|p| has_failed(self.spec, p));
        let fresh_failed = ended.filter(|p| is_new(&failed, p)).collect();
        self.fresh_succeeded = fresh_succeeded;
        self.fresh_failed = fresh_failed;
        let counts = |pod: &&&Pod| judge_failure(self.job, pod) != Failure::Ignore;
        let new = self.fresh_failed.iter().filter(counts).count();
        let sum = |before: Option<i32>, more: usize| {
            before.unwrap_or(0) + i32::try_from(more).unwrap_or(i32::MAX)
        };
        self.failed = sum(status.and_then(|s| s.failed), failed.len() + new);
        let new = self.fresh_succeeded.len();
        self.succeeded = sum(status.and_then(|s| s.succeeded), succeeded.len() + new);
    }

    fn count_indexes(&mut self) {
        for pod in self
            .pods
            .iter()
            .filter(|p| is_tracked(p) && meta::phase(p) == "Succeeded")
        {
            if let Some(index) = self.index_of(pod) {
                self.done.insert(index);
            }
        }
        // An index counts once, however many pods had it.
        self.succeeded = self.done.len();
        let (Some(limit), Some(mut failed)) = (
            self.spec.backoff_limit_per_index,
            self.failed_indexes.take(),
        ) else {
            return;
        };
        let busy: BTreeSet<i32> = self
            .active
            .iter()
            .filter_map(|p| self.index_of(p))
            .collect();
        let ended = || self.tracked().filter(|p| has_failed(self.spec, p));
        for pod in ended() {
            let over = match judge_failure(self.job, pod) {
                Failure::FailIndex => true,
                Failure::Ignore => false,
                Failure::Count | Failure::FailJob(_) => Failures::of(pod).counted >= limit,
            };
            if over && let Some(index) = self.index_of(pod) {
                failed.insert(index);
            }
        }
        let mut delayed: BTreeMap<i32, &Pod> = BTreeMap::new();
        for pod in ended() {
            let Some(index) = self.index_of(pod) else {
                continue;
            };
            if self.done.contains(index) || failed.contains(index) || busy.contains(&index) {
                continue;
            }
            let last = delayed.entry(index).or_insert(pod);
            let order = |p: &Pod| (Failures::of(p).all(), super::backoff::ended_at(p));
            if order(last) <= order(pod) {
                *last = pod;
            }
        }
        self.delayed = delayed;
        self.failed_indexes = Some(failed);
    }

    /// Pods that have the finalizer, and of an indexed job an index that it has.
    fn tracked(&self) -> impl Iterator<Item = &'a Pod> + use<'a, '_> {
        let pods: &'a [Arc<Pod>] = self.pods;
        pods.iter()
            .map(|pod| &**pod)
            .filter(|pod| is_tracked(pod) && (!self.indexed || self.index_of(pod).is_some()))
    }

    /// The completion index of a pod, if the job has that index.
    pub(super) fn index_of(&self, pod: &Pod) -> Option<i32> {
        let index: i32 = meta::annotation(pod, INDEX)?.parse().ok()?;
        (0..self.spec.completions.unwrap_or(0))
            .contains(&index)
            .then_some(index)
    }

    pub(super) fn suspended(&self) -> bool {
        self.spec.suspend == Some(true)
    }

    /// Whether a replacement waits until the replaced pod has terminated.
    pub(super) fn replaces_only_failed(&self) -> bool {
        replaces_only_failed(self.spec)
    }

    /// Whether enough pods have succeeded and none runs.
    pub(super) fn is_complete(&self, active: usize) -> bool {
        active == 0
            && match self.spec.completions {
                None => self.succeeded > 0,
                Some(wanted) => self.succeeded >= wanted,
            }
    }
}

fn strings(list: Option<&Vec<String>>) -> BTreeSet<&str> {
    list.into_iter().flatten().map(String::as_str).collect()
}
