//! The resources that are allocated to the pods of a node, and their resizes.
//!
//! A resize of a running pod is granted if the requested resources fit on the node beside those of the other pods. Otherwise it
//! is deferred: the pod keeps the allocated resources, and the resize is tried again when another pod has released some. Deferred
//! resizes are tried in the kubelet's order: first those that request no more than is allocated, then by priority, QoS class
//! and age.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::ResourceExt;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::resources::{Allocation, Sizes, requests};
pub(crate) use events::{ResizeEvent, record_events};

mod events;
#[cfg(test)]
mod tests;

/// The allocatable resources of nodes, by node name.
pub(crate) type AllocatableByNode = HashMap<String, Sizes>;

/// A condition about the resize of a pod; its type is [`PENDING`] or [`IN_PROGRESS`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResizeCondition {
    /// Why the resize is not complete; empty while it is in progress without an error.
    pub(crate) reason: String,
    pub(crate) message: String,
    /// `observedGeneration`; 0 if the API server does not count the generations of pods.
    pub(crate) generation: i64,
    /// `lastTransitionTime`: since when the condition has this reason.
    pub(crate) since: Timestamp,
    /// `lastProbeTime`: when the agent last evaluated the resize.
    pub(crate) probed: Timestamp,
}

impl ResizeCondition {
    fn new(reason: &str, message: &str, generation: i64, before: Option<&Self>) -> Self {
        let now = Timestamp::now();
        let same = before.filter(|before| before.reason == reason);
        Self {
            reason: reason.to_owned(),
            message: message.to_owned(),
            generation,
            since: same.map_or(now, |before| before.since),
            probed: now,
        }
    }
}

/// The conditions about the resize of a pod: it is not granted yet, or not carried out yet. Both can be set: a further resize may
/// be deferred while an earlier one is in progress.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ResizeConditions {
    /// `PodResizePending`.
    pub(crate) pending: Option<ResizeCondition>,
    /// `PodResizeInProgress`.
    pub(crate) progress: Option<ResizeCondition>,
}

impl ResizeConditions {
    /// The conditions in a pod's status, which an earlier agent has reported.
    pub(crate) fn reported(status: &PodStatus) -> Self {
        let of = |kind: &str| {
            let mut all = status.conditions.iter().flatten();
            let found = all.find(|condition| condition.type_ == kind)?;
            let since = found.last_transition_time.as_ref();
            let since = since.map_or_else(Timestamp::now, |time| time.0);
            let probed = found.last_probe_time.as_ref();
            Some(ResizeCondition {
                reason: found.reason.clone().unwrap_or_default(),
                message: found.message.clone().unwrap_or_default(),
                generation: found.observed_generation.unwrap_or(0),
                since,
                probed: probed.map_or(since, |time| time.0),
            })
        };
        Self {
            pending: of(PENDING),
            progress: of(IN_PROGRESS),
        }
    }
}

/// Type of the condition of a pod that requests other resources than are allocated to it.
pub(crate) const PENDING: &str = "PodResizePending";
/// Type of the condition of a pod whose containers do not have the allocated resources yet.
pub(crate) const IN_PROGRESS: &str = "PodResizeInProgress";
/// Reason of a pending resize that does not fit on the node now.
const DEFERRED: &str = "Deferred";
/// Reason of a resize in progress that the runtime or the kernel refused.
const ERROR: &str = "Error";

/// A pod of the node, and what is allocated to it.
struct Entry {
    /// The pod as the API server has it, with the desired resources.
    pod: Arc<Pod>,
    allocated: Allocation,
    /// The requests that count against the node: the allocated ones, or those that containers still run with if they are larger.
    reserved: Sizes,
    resizes: ResizeConditions,
    /// Whether this agent has evaluated the desired resources.
    decided: bool,
    /// Notifies the pod's worker.
    news: Arc<Notify>,
}

impl Entry {
    fn node(&self) -> Option<&str> {
        self.pod.spec.as_ref()?.node_name.as_deref()
    }

    /// Whether the pod requests other resources than are allocated to it.
    fn waits(&self) -> bool {
        !self.allocated.is_of(&self.pod)
    }

    fn generation(&self) -> i64 {
        self.pod.metadata.generation.unwrap_or(0)
    }
}

/// The pods of a node, or of all simulated nodes of a process.
#[derive(Default)]
struct Pods {
    all: HashMap<String, Entry>,
    /// UIDs of the pods whose desired resources are not the allocated ones.
    waiting: HashSet<String>,
    /// All pods are known. Before that, it is unknown what is left for a resize.
    complete: bool,
}

/// The resources that are allocated to the pods of a node, or of all simulated nodes of a process.
pub(crate) struct Allocations {
    /// What nodes have that are not in `by_node`.
    allocatable: Sizes,
    by_node: AllocatableByNode,
    pods: Mutex<Pods>,
}

impl Allocations {
    /// No allocations yet. `allocatable` is what nodes have that are not in `by_node`.
    pub(crate) fn new(allocatable: Sizes, by_node: AllocatableByNode) -> Self {
        Self {
            allocatable,
            by_node,
            pods: Mutex::default(),
        }
    }

    /// Adds a pod with the resources that are allocated to it, by this agent or an earlier one.
    pub(crate) fn admit(
        &self,
        pod: &Arc<Pod>,
        allocated: Allocation,
        reserved: Sizes,
        resizes: ResizeConditions,
        news: &Arc<Notify>,
    ) {
        let entry = Entry {
            pod: Arc::clone(pod),
            allocated,
            reserved,
            resizes,
            decided: false,
            news: Arc::clone(news),
        };
        let uid = pod.uid().unwrap_or_default();
        let mut pods = self.pods.lock();
        if entry.waits() {
            pods.waiting.insert(uid.clone());
        }
        pods.all.insert(uid, entry);
    }

    /// The pod with the allocated resources in place of the desired ones: what is to run.
    pub(crate) fn allocated(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        let pods = self.pods.lock();
        let entry = pods
            .all
            .get(pod.metadata.uid.as_deref().unwrap_or_default());
        entry.map_or_else(|| Arc::clone(pod), |entry| entry.allocated.applied_to(pod))
    }

    /// Ends the resize of a pod that is being deleted. Returns the pod with the allocated resources.
    pub(crate) fn leave(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let mut pods = self.pods.lock();
        let Some(entry) = pods.all.get_mut(uid) else {
            return Arc::clone(pod);
        };
        let pod = entry.allocated.applied_to(pod);
        // Its desired resources do not matter any more.
        entry.pod = Arc::clone(&pod);
        entry.resizes.pending = None;
        pods.waiting.remove(uid);
        pod
    }

    /// Takes a new version of a pod, which may request other resources, and grants or defers them. Returns the pod with the
    /// allocated resources. All pods of the node must have been admitted.
    pub(crate) fn update(&self, pod: &Arc<Pod>) -> (Arc<Pod>, Vec<ResizeEvent>) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let mut pods = self.pods.lock();
        pods.complete = true;
        let Some(entry) = pods.all.get_mut(uid) else {
            return (Arc::clone(pod), Vec::new());
        };
        let before = std::mem::replace(&mut entry.pod, Arc::clone(pod));
        if !entry.waits() {
            entry.resizes.pending = None;
            pods.waiting.remove(uid);
            return (Arc::clone(pod), Vec::new());
        }
        // A deferred resize is tried again when another pod releases resources.
        let same = Allocation::of(&before).is_of(pod);
        let known = std::mem::replace(&mut entry.decided, true) && same;
        pods.waiting.insert(uid.to_owned());
        let events = match known {
            true => Vec::new(),
            false => self.try_resizes(&mut pods, Some(uid)),
        };
        let entry = pods.all.get(uid);
        let pod = entry.map_or_else(|| Arc::clone(pod), |entry| entry.allocated.applied_to(pod));
        (pod, events)
    }

    /// The conditions about the resize of a pod.
    pub(crate) fn resizes(&self, uid: &str) -> ResizeConditions {
        let pods = self.pods.lock();
        pods.all
            .get(uid)
            .map_or_else(ResizeConditions::default, |entry| entry.resizes.clone())
    }

    /// Takes the progress of a resize: whether the containers of the pod have the allocated resources, and the requests that count
    /// against the node. Nothing changes if `pod` has other allocated resources: a grant since then has notified the worker.
    pub(crate) fn settle(&self, pod: &Pod, settled: bool, reserved: Sizes) -> Vec<ResizeEvent> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let mut pods = self.pods.lock();
        let entry = pods.all.get_mut(uid);
        let Some(entry) = entry.filter(|entry| entry.allocated.is_of(pod)) else {
            return Vec::new();
        };
        let mut events = Vec::new();
        match (settled, entry.resizes.progress.take()) {
            (true, Some(done)) => {
                events.push(ResizeEvent::completed(&entry.pod, done.generation));
            }
            (true, None) => {}
            (false, before) => {
                let begun = || ResizeCondition::new("", "", entry.generation(), None);
                entry.resizes.progress = Some(before.unwrap_or_else(begun));
            }
        }
        events.extend(self.reserve(&mut pods, uid, reserved));
        events
    }

    /// Takes an error of a resize: the containers of the pod could not get the allocated resources. Nothing changes if `pod` has
    /// other allocated resources.
    pub(crate) fn fail(&self, pod: &Pod, error: &str) -> Vec<ResizeEvent> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let mut pods = self.pods.lock();
        let entry = pods.all.get_mut(uid);
        let Some(entry) = entry.filter(|entry| entry.allocated.is_of(pod)) else {
            return Vec::new();
        };
        let before = entry.resizes.progress.as_ref();
        let generation = before.map_or_else(|| entry.generation(), |it| it.generation);
        if before.is_some_and(|it| it.reason == ERROR && it.message == error) {
            return Vec::new();
        }
        entry.resizes.progress = Some(ResizeCondition::new(ERROR, error, generation, before));
        vec![ResizeEvent::failed(&entry.pod, generation, error)]
    }

    /// Releases the resources of a pod that has ended. It is not resized any more.
    pub(crate) fn end(&self, uid: &str) -> Vec<ResizeEvent> {
        let mut pods = self.pods.lock();
        let Some(entry) = pods.all.get_mut(uid) else {
            return Vec::new();
        };
        entry.resizes = ResizeConditions::default();
        // Nothing is left to be granted.
        entry.allocated = Allocation::of(&entry.pod);
        pods.waiting.remove(uid);
        self.reserve(&mut pods, uid, Sizes::default())
    }

    /// Removes a pod, and tries the deferred resizes of others.
    pub(crate) fn remove(&self, uid: &str) -> Vec<ResizeEvent> {
        let mut pods = self.pods.lock();
        pods.waiting.remove(uid);
        match pods.all.remove(uid) {
            Some(_) => self.try_resizes(&mut pods, None),
            None => Vec::new(),
        }
    }

    fn reserve(&self, pods: &mut Pods, uid: &str, now: Sizes) -> Vec<ResizeEvent> {
        let Some(entry) = pods.all.get_mut(uid) else {
            return Vec::new();
        };
        let before = std::mem::replace(&mut entry.reserved, now);
        match now.cpu < before.cpu || now.memory < before.memory {
            true => self.try_resizes(pods, Some(uid)),
            false => Vec::new(),
        }
    }

    /// Tries all resizes that are not granted. Notifies the workers of pods other than `own` whose conditions change.
    fn try_resizes(&self, pods: &mut Pods, own: Option<&str>) -> Vec<ResizeEvent> {
        if !pods.complete {
            return Vec::new();
        }
        let waiting = pods.waiting.iter();
        let mut waiting: Vec<_> = waiting
            .filter_map(|uid| Some((order(pods.all.get(uid)?), uid.clone())))
            .collect();
        waiting.sort();
        let mut events = Vec::new();
        for (_, uid) in waiting {
            let refused = self.refusal(&pods.all, &uid);
            let granted = refused.is_none();
            let Some(entry) = pods.all.get_mut(&uid) else {
                continue;
            };
            let before = entry.resizes.clone();
            events.extend(match refused {
                None => Some(grant(entry)),
                Some(refusal) => defer(entry, refusal),
            });
            if own != Some(uid.as_str()) && entry.resizes != before {
                entry.news.notify_one();
            }
            if granted {
                pods.waiting.remove(&uid);
            }
        }
        events
    }

    /// Why the requests of a pod do not fit on its node: the kubelet's reason and message.
    fn refusal(&self, pods: &HashMap<String, Entry>, uid: &str) -> Option<(String, String)> {
        let entry = pods.get(uid)?;
        if !grows(entry) {
            return None;
        }
        let wanted = requests(&entry.pod, &Default::default());
        let others = pods
            .iter()
            .filter(|(other, of_other)| other.as_str() != uid && of_other.node() == entry.node());
        let mut used = Sizes::default();
        for (_, other) in others {
            used.cpu = used.cpu.saturating_add(other.reserved.cpu);
            used.memory = used.memory.saturating_add(other.reserved.memory);
        }
        let allocatable = entry.node().and_then(|node| self.by_node.get(node));
        let allocatable = allocatable.unwrap_or(&self.allocatable);
        let checks = [
            ("cpu", wanted.cpu, used.cpu, allocatable.cpu),
            ("memory", wanted.memory, used.memory, allocatable.memory),
        ];
        let short = |(_, wanted, used, allocatable): &(&str, i64, i64, i64)| {
            *wanted > 0 && *wanted > allocatable.saturating_sub(*used)
        };
        let (name, wanted, used, allocatable) = checks.into_iter().find(short)?;
        let message = format!(
            "Node didn't have enough resource: {name}, requested: {wanted}, used: {used}, capacity: {allocatable}"
        );
        Some((format!("OutOf{name}"), message))
    }
}

/// Whether a pod requests more than is allocated to it.
fn grows(entry: &Entry) -> bool {
    let none = Default::default();
    let wanted = requests(&entry.pod, &none);
    let now = requests(&entry.allocated.applied_to(&entry.pod), &none);
    wanted.cpu > now.cpu || wanted.memory > now.memory
}

/// The sort key of the order in which resizes are tried.
fn order(entry: &Entry) -> (bool, Reverse<i32>, bool, Timestamp) {
    let spec = entry.pod.spec.as_ref();
    let priority = spec.and_then(|spec| spec.priority).unwrap_or(0);
    let status = entry.pod.status.as_ref();
    let class = status.and_then(|status| status.qos_class.as_deref());
    let since = entry.resizes.pending.as_ref();
    let since = since.map_or(Timestamp::MAX, |pending| pending.since);
    let not_guaranteed = class != Some("Guaranteed");
    (grows(entry), Reverse(priority), not_guaranteed, since)
}

fn grant(entry: &mut Entry) -> ResizeEvent {
    entry.allocated = Allocation::of(&entry.pod);
    // The containers keep what they have until they are resized.
    let wanted = requests(&entry.pod, &Default::default());
    entry.reserved = entry.reserved.max(wanted);
    let generation = entry.generation();
    entry.resizes = ResizeConditions {
        pending: None,
        // The error of an earlier resize does not count for this one.
        progress: Some(ResizeCondition::new("", "", generation, None)),
    };
    ResizeEvent::started(&entry.pod, generation)
}

/// Defers a resize; there is an event only if it was not deferred before.
fn defer(entry: &mut Entry, (reason, message): (String, String)) -> Option<ResizeEvent> {
    let generation = entry.generation();
    let before = entry.resizes.pending.as_ref();
    let known = before.is_some_and(|it| it.reason == DEFERRED && it.generation == generation);
    if known && before.is_some_and(|it| it.message == message) {
        return None;
    }
    let pending = ResizeCondition::new(DEFERRED, &message, generation, before);
    entry.resizes.pending = Some(pending);
    (!known).then(|| ResizeEvent::deferred(&entry.pod, generation, &reason, &message))
}
