//! Pods: how they come, run and end.

use std::sync::Arc;
use std::time::Duration;

use allot_reflector::Observed;
use allot_resourceclaim::claim_name;
use allot_scheduler::core::Input;
use allot_scheduler::pod::{Key, PodInfo, Uid};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::event_queue::Event;
use crate::history::{End, Record};
use crate::objects::{LivePod, stored};
use crate::simulation::Simulation;
use crate::workload::Arrival;

impl Simulation {
    /// Creates a pod of the workload.
    pub(crate) fn add_pod(&mut self, arrival: &Arrival) -> anyhow::Result<()> {
        let draft = &self.workload.drafts[arrival.draft as usize];
        let mut pod = draft.pod.clone();
        pod.metadata.name = Some(arrival.name.to_string());
        pod.metadata.uid = Some(self.objects.next_uid());
        if let (Some(priority), Some(spec)) = (arrival.priority, &mut pod.spec) {
            spec.priority = Some(priority);
        }
        self.create_pod(pod, arrival.duration, arrival.job)
    }

    /// Creates a pod with an identity, and its claims.
    pub(crate) fn create_pod(
        &mut self,
        mut pod: Pod,
        duration: Option<Duration>,
        job: Option<u32>,
    ) -> anyhow::Result<()> {
        let key = key_of(&pod);
        anyhow::ensure!(
            !self.objects.names.contains_key(&key),
            "there is a pod {key} already"
        );
        pod.metadata.resource_version = Some(self.objects.next_version());
        pod.metadata.creation_timestamp = Some(Time(self.wall()));
        self.resolve_priority(&mut pod)?;
        self.name_claims(&mut pod);
        let (pod, info) = stored(pod);
        self.remember(pod.clone(), &info, false);
        let uid = info.uid.clone();
        if let Some(live) = self.objects.pods.get_mut(&uid) {
            (live.duration, live.job) = (duration, job);
        }
        self.note_change();
        self.deliver(Input::Pod(Observed::Applied(Box::new(info))));
        // One that names its node itself runs there.
        if let Some(node) = pod.spec.as_ref().and_then(|s| s.node_name.clone()) {
            self.pod_starts(&uid, &node.into());
        }
        self.carry_out();
        Ok(())
    }

    /// Sets `spec.priority` from the PriorityClass, as the admission plugin Priority does.
    fn resolve_priority(&self, pod: &mut Pod) -> anyhow::Result<()> {
        let key = key_of(pod);
        let Some(spec) = pod.spec.as_mut().filter(|s| s.priority.is_none()) else {
            return Ok(());
        };
        let class = spec.priority_class_name.as_deref();
        let found = self.objects.priority(class);
        if let (None, Some(class)) = (&found, class.filter(|c| !c.is_empty())) {
            anyhow::bail!("pod {key}: there is no PriorityClass {class}");
        }
        let (priority, policy) = found.unwrap_or_default();
        spec.priority = Some(priority);
        if spec.preemption_policy.is_none() {
            spec.preemption_policy = policy;
        }
        Ok(())
    }

    /// Begins to keep a pod.
    pub(crate) fn remember(&mut self, pod: Arc<Pod>, info: &PodInfo, found: bool) {
        let spec = info.spec();
        let claims = claims_of(&pod);
        let whole = pod.spec.as_ref();
        let deadline = whole.and_then(|s| s.active_deadline_seconds);
        let deadline = deadline.and_then(|s| u64::try_from(s).ok());
        let node: Option<Arc<str>> = spec.node_name.as_deref().map(Into::into);
        let mut record = Record::new(info.key.clone(), self.now, found);
        if let Some(node) = &node {
            record.placed = Some(self.placement(node, &claims));
            record.was_running = found;
        }
        self.records.push(record);
        let live = LivePod {
            key: info.key.clone(),
            pod,
            node,
            claims,
            duration: None,
            deadline: deadline.map(Duration::from_secs),
            record: self.records.len() - 1,
            job: None,
            terminating: info.is_terminating(),
            preempted: false,
        };
        if live.terminating {
            let at = self.now + self.options.stopping;
            self.agenda.plan(at, Event::Stopped(info.uid.clone()));
        }
        self.objects
            .names
            .insert(info.key.clone(), info.uid.clone());
        self.objects.pods.insert(info.uid.clone(), live);
    }

    /// Starts a pod on the node that it was bound to.
    pub(crate) fn pod_starts(&mut self, uid: &Uid, node: &Arc<str>) {
        let Some(live) = self.objects.pods.get_mut(uid) else {
            return;
        };
        live.node = Some(node.clone());
        let runs = [live.duration, live.deadline].into_iter().flatten().min();
        let (record, claims) = (live.record, live.claims.clone());
        if let Some(runs) = runs {
            self.agenda.plan(self.now + runs, Event::Ends(uid.clone()));
        }
        self.placed += 1;
        let placement = self.placement(node, &claims);
        let record = &mut self.records[record];
        record.placed = Some(placement);
        record.reason = None;
        self.note_change();
    }

    /// A pod has run for its time. Its job continues with the next.
    pub(crate) fn pod_ends(&mut self, uid: &Uid) -> anyhow::Result<()> {
        let Some(number) = self.objects.pod(uid).map(|live| live.job) else {
            return Ok(());
        };
        self.forget_pod(uid, End::Completed);
        let Some(number) = number else {
            return Ok(());
        };
        let job = self.workload.jobs.get_mut(number as usize);
        let Some(job) = job.filter(|job| job.left > 0) else {
            return Ok(());
        };
        let (draft, next) = (job.draft, job.next);
        job.left -= 1;
        job.next += 1;
        let of = &self.workload.drafts[draft as usize];
        let arrival = Arrival {
            at: self.now,
            name: format!("{}-{next}", of.name).into(),
            draft,
            duration: of.duration,
            priority: None,
            job: Some(number),
        };
        self.add_pod(&arrival)
    }

    /// Deletes a pod: at once where it is on no node, otherwise when it has stopped.
    pub(crate) fn delete_pod(&mut self, uid: &Uid) {
        let Some(live) = self.objects.pod(uid) else {
            return;
        };
        if live.node.is_none() {
            return self.forget_pod(uid, End::Deleted);
        }
        if live.terminating {
            return;
        }
        let mut pod = (*live.pod).clone();
        let grace = pod.metadata.deletion_grace_period_seconds;
        let grace = grace.and_then(|s| u64::try_from(s).ok());
        let stopping = grace.map_or(self.options.stopping, |s| {
            self.options.stopping.min(Duration::from_secs(s))
        });
        pod.metadata.deletion_timestamp = Some(Time(self.wall()));
        if let Some(live) = self.objects.pods.get_mut(uid) {
            live.terminating = true;
        }
        self.show_pod(uid, pod);
        self.agenda
            .plan(self.now + stopping, Event::Stopped(uid.clone()));
    }

    /// A pod reports that it has ended, as its kubelet would.
    pub(crate) fn pod_finishes(&mut self, uid: &Uid, pod: &Pod) {
        if self.options.keep_objects
            && let Ok(object) = serde_json::to_value(pod)
        {
            self.objects.finished.insert(key_of(pod), object);
        }
        self.forget_pod(uid, End::Completed);
    }

    /// A pod that was deleted has stopped.
    pub(crate) fn pod_stopped(&mut self, uid: &Uid) {
        let end = match self.objects.pod(uid) {
            Some(live) if live.preempted => End::Preempted,
            _ => End::Deleted,
        };
        self.forget_pod(uid, end);
    }

    /// A pod has ended, and its state is dropped.
    pub(crate) fn forget_pod(&mut self, uid: &Uid, end: End) {
        let Some(live) = self.objects.pods.remove(uid) else {
            return;
        };
        self.objects.names.remove(&live.key);
        self.records[live.record].ended = Some((self.now, end));
        self.note_change();
        let info = Arc::new(PodInfo::new(live.pod.clone()));
        self.deliver(Input::Pod(Observed::Deleted(Box::new(info))));
        self.release_claims(uid, &live.claims);
        self.carry_out();
    }

    /// Stores a new state of a pod and shows it to the scheduler.
    pub(crate) fn show_pod(&mut self, uid: &Uid, mut pod: Pod) {
        pod.metadata.resource_version = Some(self.objects.next_version());
        let (pod, info) = stored(pod);
        if let Some(live) = self.objects.pods.get_mut(uid) {
            live.pod = pod;
        }
        self.deliver(Input::Pod(Observed::Applied(Box::new(info))));
    }
}

/// Namespace and name.
pub(crate) fn key_of(pod: &Pod) -> Key {
    let meta = &pod.metadata;
    Key::new(
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    )
}

/// The claims that a pod uses, as far as their names are known: sorted, each once.
pub(crate) fn claims_of(pod: &Pod) -> Vec<Key> {
    let entries = pod
        .spec
        .iter()
        .flat_map(|s| s.resource_claims.iter().flatten());
    let names = entries.filter_map(|entry| claim_name(pod, entry).ok().flatten());
    let extended = allot_resourceclaim::extended_resource_claim_name(pod);
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let keys = names.chain(extended).map(|name| Key::new(namespace, name));
    let mut keys: Vec<Key> = keys.collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}
