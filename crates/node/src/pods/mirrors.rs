//! Mirror pods: what the API server shows of static pods.
//!
//! A static pod runs whether or not it has a mirror. Mirrors that were deleted are created again; those of no static pod are
//! removed and never run.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use allot_client::delete;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod};
use kube::api::PostParams;
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Node;
use crate::error::api_message;
use crate::events::Kind;
use crate::rules;

/// The annotation of a mirror pod: the hash of its static pod.
const MIRROR: &str = allot_model::validate::pod::MIRROR_ANNOTATION;
/// First and longest pause after a request that failed.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// Maximum number of requests at the same time.
const TOGETHER: usize = 8;
/// Deadline of a request.
const DEADLINE: Duration = Duration::from_secs(30);

/// The mirror pods that the API server has of this node.
#[derive(Debug, Default)]
pub(crate) struct Mirrors {
    /// By UID.
    known: Mutex<HashMap<String, Mirror>>,
    /// A mirror or the worker of a static pod is new or gone.
    pub(super) changed: Notify,
}

#[derive(Debug, Clone)]
struct Mirror {
    namespace: String,
    name: String,
    /// The UID of its static pod.
    hash: String,
    /// A client has deleted it.
    ending: bool,
}

impl Mirror {
    fn is_of(&self, pod: &Pod) -> bool {
        pod.namespace().as_deref() == Some(&*self.namespace) && pod.name_any() == self.name
    }
}

/// Whether a pod of the API is the mirror of a static pod, or claims to be one.
pub(super) fn is_mirror(pod: &Pod) -> bool {
    pod.annotations().contains_key(MIRROR)
}

impl Mirrors {
    /// The UID of the pod to which the status of a static pod is written.
    pub(super) fn uid_of(&self, pod: &Pod) -> Option<String> {
        let (known, hash) = (self.known.lock(), pod.uid()?);
        let mut known = known.iter();
        let found = known.find(|(_, it)| it.is_of(pod) && it.hash == hash && !it.ending);
        found.map(|(uid, _)| uid.clone())
    }

    /// The API server has this mirror pod.
    pub(super) fn applied(&self, node: &Node, pod: &Pod) {
        let mirror = Mirror {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            hash: pod.annotations().get(MIRROR).cloned().unwrap_or_default(),
            ending: pod.metadata.deletion_timestamp.is_some(),
        };
        let uid = pod.uid().unwrap_or_default();
        let before = self.known.lock().insert(uid, mirror.clone());
        if before.is_none_or(|before| before.ending != mirror.ending) {
            self.wake(node, &mirror);
        }
    }

    /// A pod was deleted from the API server.
    pub(super) fn deleted(&self, node: &Node, uid: &str) {
        let removed = self.known.lock().remove(uid);
        if let Some(removed) = removed {
            self.wake(node, &removed);
        }
    }

    /// Only these pods exist.
    pub(super) fn keep_only(&self, node: &Node, uids: &HashSet<String>) {
        let known: Vec<String> = self.known.lock().keys().cloned().collect();
        for uid in known.iter().filter(|uid| !uids.contains(*uid)) {
            self.deleted(node, uid);
        }
        self.changed.notify_one();
    }

    /// The static pod has to write its status to another pod, or to none.
    fn wake(&self, node: &Node, mirror: &Mirror) {
        if let Some(entry) = node.pods.lock().get(&mirror.hash)
            && entry.is_static()
        {
            entry.update.send_modify(|_| {});
        }
        self.changed.notify_one();
    }

    /// Mirrors to delete, and static pods that need one.
    fn compare(&self, node: &Node) -> Vec<Work> {
        let manifests_known = node.manifests_known.load(Ordering::Acquire);
        let (known, pods) = (self.known.lock(), node.pods.lock());
        let excess = known.iter().filter(|(_, mirror)| {
            // Until the containers have ended, the mirror of a removed manifest stays.
            let of = pods.get(&mirror.hash).filter(|entry| entry.is_static());
            let run = of.is_some_and(|entry| mirror.is_of(&entry.update.borrow().pod));
            mirror.ending || (manifests_known && !run)
        });
        let excess = excess.map(|(uid, mirror)| Work::Remove(uid.clone(), mirror.clone()));
        let run = pods.values().filter(|entry| entry.is_static());
        let run = run.map(|entry| entry.update.borrow().clone());
        let missing = run.filter(|update| {
            !update.deleted && !known.values().any(|mirror| mirror.is_of(&update.pod))
        });
        let missing = missing.map(|update| Work::Create(update.pod));
        excess.chain(missing).collect()
    }
}

/// What has to be done with a mirror.
enum Work {
    /// To delete it, by its UID.
    Remove(String, Mirror),
    /// To create that of a static pod.
    Create(Arc<Pod>),
}

impl Work {
    /// A UID: that of the mirror, or of the static pod.
    fn key(&self) -> String {
        match self {
            Self::Remove(uid, _) => uid.clone(),
            Self::Create(pod) => pod.uid().unwrap_or_default(),
        }
    }

    /// Returns the key, and whether it succeeded.
    async fn carry_out(self, node: &Node) -> (String, bool) {
        let key = self.key();
        let done = match self {
            Self::Remove(uid, mirror) => in_time(&mirror.name, remove(node, uid, &mirror)).await,
            Self::Create(pod) => in_time(&pod.name_any(), create(node, &pod)).await,
        };
        (key, done)
    }
}

/// The pauses before a request is repeated, each by itself: its length, and its end.
#[derive(Debug, Default)]
struct Pauses(HashMap<String, (Duration, Instant)>);

impl Pauses {
    fn note(&mut self, key: String, succeeded: bool, now: Instant) {
        let before = self.0.get(&key).map_or(Duration::ZERO, |(pause, _)| *pause);
        let (pause, end) = match succeeded {
            // The watch has not told it yet.
            true => (Duration::ZERO, now + RETRY.0),
            false => {
                let pause = (before * 2).clamp(RETRY.0, RETRY.1);
                (pause, now + pause)
            }
        };
        self.0.insert(key, (pause, end));
    }

    fn is_over(&self, key: &str, now: Instant) -> bool {
        self.0.get(key).is_none_or(|(_, end)| *end <= now)
    }

    /// When the next of those ends that have not ended yet.
    fn next(&self, now: Instant) -> Option<Instant> {
        let ends = self.0.values().map(|(_, end)| *end);
        ends.filter(|end| *end > now).min()
    }
}

/// Creates the mirrors of static pods, and deletes those of others.
pub(crate) async fn keep(node: Arc<Node>) {
    node.synced.wait().await;
    let mut pauses = Pauses::default();
    let mut under_way = FuturesUnordered::new();
    let mut keys = HashSet::new();
    loop {
        let all = node.mirrors.compare(&node);
        let wanted: HashSet<String> = all.iter().map(Work::key).collect();
        pauses.0.retain(|key, _| wanted.contains(key));
        let now = Instant::now();
        for work in all {
            let key = work.key();
            if under_way.len() < TOGETHER && pauses.is_over(&key, now) && keys.insert(key) {
                under_way.push(work.carry_out(&node));
            }
        }
        let next = pauses.next(now);
        tokio::select! {
            Some((key, succeeded)) = under_way.next() => {
                keys.remove(&key);
                pauses.note(key, succeeded, Instant::now());
            }
            () = node.mirrors.changed.notified() => {}
            () = tokio::time::sleep_until(next.unwrap_or(now)), if next.is_some() => {}
            () = node.shutdown.cancelled() => return,
        }
    }
}

/// Whether a request succeeded; why not is logged.
async fn in_time(pod: &str, request: impl Future<Output = Result<(), kube::Error>>) -> bool {
    let error = match tokio::time::timeout(DEADLINE, request).await {
        Ok(Ok(())) => return true,
        Ok(Err(error)) => api_message(&error),
        Err(_) => "the API server did not answer in time".to_owned(),
    };
    tracing::warn!(pod, error, "mirror pod");
    false
}

async fn remove(node: &Node, uid: String, mirror: &Mirror) -> Result<(), kube::Error> {
    let api: Api<PartialObjectMeta<Pod>> = Api::namespaced(node.client.clone(), &mirror.namespace);
    match api.delete(&mirror.name, &delete::by_uid_now(uid)).await {
        // The watch will tell.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        result => result.map(drop),
    }
}

async fn create(node: &Node, pod: &Pod) -> Result<(), kube::Error> {
    let nodes: Api<NodeObject> = Api::all(node.client.clone());
    let name = &node.config.node_name;
    let object = nodes.get_metadata(name).await?;
    let mut mirror = pod.clone();
    let metadata = &mut mirror.metadata;
    metadata.creation_timestamp = None;
    let hash = metadata.uid.take().unwrap_or_default();
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(MIRROR.to_owned(), hash);
    // Nodes may create pods that they own, and no others.
    let uid = object.uid().unwrap_or_default();
    metadata.owner_references = Some(vec![rules::owned_by_node(name.clone(), uid)]);
    let namespace = pod.namespace().unwrap_or_default();
    let api: Api<Pod> = Api::namespaced(node.client.clone(), &namespace);
    let created = api.create(&PostParams::default(), &mirror).await;
    // One of that name may be on its way here.
    if let Err(kube::Error::Api(status)) = &created
        && status.code != 409
    {
        let message = format!("Failed to create the mirror pod: {}", status.message);
        let events = &node.events;
        events.pod(pod, None, Kind::Warning, "FailedMirrorPod", message);
    }
    created.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mirror that is refused is not written again for each change of another one.
    #[test]
    fn regression_mirrors_pause_each_by_itself() {
        let mut pauses = Pauses::default();
        let mut now = Instant::now();
        for expected in [1, 2, 4, 8, 10, 10] {
            pauses.note("refused".to_owned(), false, now);
            let pause = Duration::from_secs(expected);
            assert_eq!(pauses.next(now), Some(now + pause));
            assert!(!pauses.is_over("refused", now));
            assert!(pauses.is_over("other", now));
            now += pause;
            assert!(pauses.is_over("refused", now));
        }
        assert_eq!(pauses.next(now), None);
        pauses.note("refused".to_owned(), true, now);
        pauses.note("refused".to_owned(), false, now);
        assert_eq!(pauses.next(now), Some(now + RETRY.0));
    }
}
