//! The resources that the pods of a node have been allocated, and the resizes that wait.
//!
//! A pod that runs may ask for other resources. It gets them if they fit beside those of the other pods. Otherwise the resize is
//! deferred: the pod keeps what it has, and the resize is tried again when another pod has given something back. Deferred
//! resizes are tried in the kubelet's order: those that ask for no more, then by priority, class and age.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::ResourceExt;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::resources::{Allocation, Sizes, requests};
pub(crate) use told::{Told, tell};

#[cfg(test)]
mod tests;
mod told;

/// What a node has for its pods.
pub(crate) type Rooms = HashMap<String, Sizes>;

/// A condition about a resize.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resize {
    /// Empty for one that goes well.
    pub(crate) reason: String,
    pub(crate) message: String,
    /// Generation of the pod that it is about; 0 if the API server does not count generations.
    pub(crate) generation: i64,
    /// When the reason was another one last.
    pub(crate) since: Timestamp,
    /// When it was found to be so.
    pub(crate) probed: Timestamp,
}

impl Resize {
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

/// The resize of a pod: not granted yet, or on its way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Resizes {
    /// `PodResizePending`.
    pub(crate) pending: Option<Resize>,
    /// `PodResizeInProgress`.
    pub(crate) progress: Option<Resize>,
}

impl Resizes {
    /// Those that an earlier agent reported.
    pub(crate) fn reported(status: &PodStatus) -> Self {
        let of = |kind: &str| {
            let mut all = status.conditions.iter().flatten();
            let found = all.find(|condition| condition.type_ == kind)?;
            let since = found.last_transition_time.as_ref();
            let since = since.map_or_else(Timestamp::now, |time| time.0);
            let probed = found.last_probe_time.as_ref();
            Some(Resize {
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

/// Condition of a pod that asks for resources which it has not been allocated.
pub(crate) const PENDING: &str = "PodResizePending";
/// Condition of a pod whose containers do not have yet what it has been allocated.
pub(crate) const IN_PROGRESS: &str = "PodResizeInProgress";
/// Reason of a resize that does not fit now.
const DEFERRED: &str = "Deferred";
/// Reason of a resize that the runtime or the kernel refused.
const ERROR: &str = "Error";

/// A pod of the node.
struct Entry {
    /// As it is in the API.
    pod: Arc<Pod>,
    allocated: Allocation,
    /// What it takes from the node: by its allocation, and by its containers as long as they have more.
    reserved: Sizes,
    resizes: Resizes,
    /// Whether what it asks for was looked at by this agent.
    decided: bool,
    /// Notifies its worker.
    news: Arc<Notify>,
}

impl Entry {
    fn node(&self) -> Option<&str> {
        self.pod.spec.as_ref()?.node_name.as_deref()
    }

    fn waits(&self) -> bool {
        !self.allocated.is_of(&self.pod)
    }

    fn generation(&self) -> i64 {
        self.pod.metadata.generation.unwrap_or(0)
    }
}

/// The pods of a node, or of simulated ones.
#[derive(Default)]
struct Pods {
    all: HashMap<String, Entry>,
    /// UIDs of those that ask for something else than they have been allocated.
    waiting: HashSet<String>,
    /// All pods were seen. Before that, it is not known what is left for a resize.
    complete: bool,
}

/// What the pods of a node have been allocated.
pub(crate) struct Allocations {
    /// Of the nodes that are not in `rooms`.
    room: Sizes,
    rooms: Rooms,
    pods: Mutex<Pods>,
}

impl Allocations {
    /// Of nodes with so much for their pods. `room` is for those that are not in `rooms`.
    pub(crate) fn new(room: Sizes, rooms: Rooms) -> Self {
        Self {
            room,
            rooms,
            pods: Mutex::default(),
        }
    }

    /// A pod that the node has, and what it has been allocated.
    pub(crate) fn admit(
        &self,
        pod: &Arc<Pod>,
        allocated: Allocation,
        reserved: Sizes,
        resizes: Resizes,
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

    /// A pod as it is to run: with what it has been allocated.
    pub(crate) fn allocated(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        let pods = self.pods.lock();
        let entry = pods
            .all
            .get(pod.metadata.uid.as_deref().unwrap_or_default());
        entry.map_or_else(|| Arc::clone(pod), |entry| entry.allocated.applied_to(pod))
    }

    /// A pod is being deleted, and is not resized any longer. Returns it with what it has been allocated.
    pub(crate) fn leave(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let mut pods = self.pods.lock();
        let Some(entry) = pods.all.get_mut(uid) else {
            return Arc::clone(pod);
        };
        let pod = entry.allocated.applied_to(pod);
        // What it asks for does not matter any longer.
        entry.pod = Arc::clone(&pod);
        entry.resizes.pending = None;
        pods.waiting.remove(uid);
        pod
    }

    /// A pod may ask for other resources than before. Returns the pod as it is to run. All pods have to be known.
    pub(crate) fn ask(&self, pod: &Arc<Pod>) -> (Arc<Pod>, Vec<Told>) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let mut pods = self.pods.lock();
        pods.complete = true;
        let Some(entry) = pods.all.get_mut(uid) else {
            return (Arc::clone(pod), Vec::new());
        };
        let same = Allocation::of(&entry.pod).is_of(pod);
        entry.pod = Arc::clone(pod);
        if !entry.waits() {
            entry.resizes.pending = None;
            pods.waiting.remove(uid);
            return (Arc::clone(pod), Vec::new());
        }
        // What was refused is tried again when there is more room.
        let known = std::mem::replace(&mut entry.decided, true) && same;
        pods.waiting.insert(uid.to_owned());
        let told = match known {
            true => Vec::new(),
            false => self.decide(&mut pods, Some(uid)),
        };
        let entry = pods.all.get(uid);
        let pod = entry.map_or_else(|| Arc::clone(pod), |entry| entry.allocated.applied_to(pod));
        (pod, told)
    }

    /// The resize of a pod.
    pub(crate) fn resizes(&self, uid: &str) -> Resizes {
        let pods = self.pods.lock();
        pods.all
            .get(uid)
            .map_or_else(Resizes::default, |entry| entry.resizes.clone())
    }

    /// Whether the containers of a pod have what it has been allocated, and what the pod takes from the node with that. Nothing
    /// changes if more has been granted meanwhile: its worker is notified, and does not have that yet.
    pub(crate) fn settle(&self, pod: &Pod, settled: bool, reserved: Sizes) -> Vec<Told> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let mut pods = self.pods.lock();
        let entry = pods.all.get_mut(uid);
        let Some(entry) = entry.filter(|entry| entry.allocated.is_of(pod)) else {
            return Vec::new();
        };
        let mut told = Vec::new();
        match (settled, entry.resizes.progress.take()) {
            (true, Some(done)) => {
                told.push(Told::completed(&entry.pod, done.generation));
            }
            (true, None) => {}
            (false, before) => {
                let begun = || Resize::new("", "", entry.generation(), None);
                entry.resizes.progress = Some(before.unwrap_or_else(begun));
            }
        }
        told.extend(self.reserve(&mut pods, uid, reserved));
        told
    }

    /// The containers of a pod could not be given what it has been allocated. Nothing changes if that is another amount by now.
    pub(crate) fn fail(&self, pod: &Pod, error: &str) -> Vec<Told> {
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
        entry.resizes.progress = Some(Resize::new(ERROR, error, generation, before));
        vec![Told::failed(&entry.pod, generation, error)]
    }

    /// A pod has ended: it takes nothing any longer, and is not resized.
    pub(crate) fn end(&self, uid: &str) -> Vec<Told> {
        let mut pods = self.pods.lock();
        let Some(entry) = pods.all.get_mut(uid) else {
            return Vec::new();
        };
        entry.resizes = Resizes::default();
        // What it asks for does not matter any longer.
        entry.allocated = Allocation::of(&entry.pod);
        pods.waiting.remove(uid);
        self.reserve(&mut pods, uid, Sizes::default())
    }

    /// A pod is gone.
    pub(crate) fn remove(&self, uid: &str) -> Vec<Told> {
        let mut pods = self.pods.lock();
        pods.waiting.remove(uid);
        match pods.all.remove(uid) {
            Some(_) => self.decide(&mut pods, None),
            None => Vec::new(),
        }
    }

    fn reserve(&self, pods: &mut Pods, uid: &str, now: Sizes) -> Vec<Told> {
        let Some(entry) = pods.all.get_mut(uid) else {
            return Vec::new();
        };
        let before = std::mem::replace(&mut entry.reserved, now);
        match now.cpu < before.cpu || now.memory < before.memory {
            true => self.decide(pods, Some(uid)),
            false => Vec::new(),
        }
    }

    /// Tries all resizes that wait. Notifies the workers of other pods than `own` for which something changed.
    fn decide(&self, pods: &mut Pods, own: Option<&str>) -> Vec<Told> {
        if !pods.complete {
            return Vec::new();
        }
        let waiting = pods.waiting.iter();
        let mut waiting: Vec<_> = waiting
            .filter_map(|uid| Some((turn(pods.all.get(uid)?), uid.clone())))
            .collect();
        waiting.sort();
        let mut told = Vec::new();
        for (_, uid) in waiting {
            let refused = self.refusal(&pods.all, &uid);
            let granted = refused.is_none();
            let Some(entry) = pods.all.get_mut(&uid) else {
                continue;
            };
            let before = entry.resizes.clone();
            told.extend(match refused {
                None => Some(grant(entry)),
                Some(refusal) => refuse(entry, refusal),
            });
            if own != Some(uid.as_str()) && entry.resizes != before {
                entry.news.notify_one();
            }
            if granted {
                pods.waiting.remove(&uid);
            }
        }
        told
    }

    /// Why a pod cannot have what it asks for: the kubelet's reason, and the message.
    fn refusal(&self, pods: &HashMap<String, Entry>, uid: &str) -> Option<(String, String)> {
        let entry = pods.get(uid)?;
        if !grows(entry) {
            return None;
        }
        let wanted = requests(&entry.pod, &Default::default());
        let others = pods
            .iter()
            .filter(|(other, entry_of)| other.as_str() != uid && entry_of.node() == entry.node());
        let mut used = Sizes::default();
        for (_, other) in others {
            used.cpu = used.cpu.saturating_add(other.reserved.cpu);
            used.memory = used.memory.saturating_add(other.reserved.memory);
        }
        let room = entry.node().and_then(|node| self.rooms.get(node));
        let room = room.unwrap_or(&self.room);
        let checks = [
            ("cpu", wanted.cpu, used.cpu, room.cpu),
            ("memory", wanted.memory, used.memory, room.memory),
        ];
        let short = |(_, wanted, used, room): &(&str, i64, i64, i64)| {
            *wanted > 0 && *wanted > room.saturating_sub(*used)
        };
        let (name, wanted, used, room) = checks.into_iter().find(short)?;
        let message = format!(
            "Node didn't have enough resource: {name}, requested: {wanted}, used: {used}, capacity: {room}"
        );
        Some((format!("OutOf{name}"), message))
    }
}

/// Whether a pod asks for more than it has been allocated.
fn grows(entry: &Entry) -> bool {
    let none = Default::default();
    let wanted = requests(&entry.pod, &none);
    let now = requests(&entry.allocated.applied_to(&entry.pod), &none);
    wanted.cpu > now.cpu || wanted.memory > now.memory
}

/// The place of a resize in the order in which they are tried.
fn turn(entry: &Entry) -> (bool, Reverse<i32>, bool, Timestamp) {
    let spec = entry.pod.spec.as_ref();
    let priority = spec.and_then(|spec| spec.priority).unwrap_or(0);
    let status = entry.pod.status.as_ref();
    let class = status.and_then(|status| status.qos_class.as_deref());
    let since = entry.resizes.pending.as_ref();
    let since = since.map_or(Timestamp::MAX, |pending| pending.since);
    let others = class != Some("Guaranteed");
    (grows(entry), Reverse(priority), others, since)
}

fn grant(entry: &mut Entry) -> Told {
    entry.allocated = Allocation::of(&entry.pod);
    // Its containers still have what they had.
    let wanted = requests(&entry.pod, &Default::default());
    entry.reserved = entry.reserved.max(wanted);
    let generation = entry.generation();
    entry.resizes = Resizes {
        pending: None,
        // Errors of an earlier resize are over.
        progress: Some(Resize::new("", "", generation, None)),
    };
    Told::started(&entry.pod, generation)
}

/// Nothing is told about what was refused before.
fn refuse(entry: &mut Entry, (reason, message): (String, String)) -> Option<Told> {
    let generation = entry.generation();
    let before = entry.resizes.pending.as_ref();
    let known = before.is_some_and(|it| it.reason == DEFERRED && it.generation == generation);
    if known && before.is_some_and(|it| it.message == message) {
        return None;
    }
    let pending = Resize::new(DEFERRED, &message, generation, before);
    entry.resizes.pending = Some(pending);
    (!known).then(|| Told::deferred(&entry.pod, generation, &reason, &message))
}
