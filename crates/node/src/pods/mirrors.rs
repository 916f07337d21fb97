//! Mirror pods: what the API server shows of static pods.
//!
//! A static pod runs whether or not it has a mirror. Mirrors that were deleted are created again; those of no static pod are
//! removed and never run.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node as NodeObject, Pod};
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Node;
use crate::error::api_message;
use crate::events::Kind;
use crate::rules;

/// The annotation of a mirror pod: the hash of its static pod.
const MIRROR: &str = allot_model::validate::pod::MIRROR_ANNOTATION;
/// First and longest pause after a request that failed.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
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

    /// Mirrors to delete, by UID, and static pods that need one.
    fn compare(&self, node: &Node) -> (Vec<(String, Mirror)>, Vec<Arc<Pod>>) {
        let (known, pods) = (self.known.lock(), node.pods.lock());
        let excess = known.iter().filter(|(_, mirror)| {
            // Until the containers have ended, the mirror of a removed manifest stays.
            let of = pods.get(&mirror.hash).filter(|entry| entry.is_static());
            mirror.ending || !of.is_some_and(|entry| mirror.is_of(&entry.update.borrow().pod))
        });
        let excess = excess.map(|(uid, mirror)| (uid.clone(), mirror.clone()));
        let run = pods.values().filter(|entry| entry.is_static());
        let run = run.map(|entry| entry.update.borrow().clone());
        let missing = run.filter(|update| {
            !update.deleted && !known.values().any(|mirror| mirror.is_of(&update.pod))
        });
        let missing = missing.map(|update| update.pod);
        (excess.collect(), missing.collect())
    }
}

/// Creates the mirrors of static pods, and deletes those of others.
pub(crate) async fn keep(node: Arc<Node>) {
    node.synced.wait().await;
    let mut pause = RETRY.0;
    loop {
        let (excess, missing) = node.mirrors.compare(&node);
        let mut failed = false;
        for (uid, mirror) in excess {
            failed |= !in_time(&mirror.name, remove(&node, uid, &mirror)).await;
        }
        for pod in missing {
            failed |= !in_time(&pod.name_any(), create(&node, &pod)).await;
        }
        tokio::select! {
            () = node.mirrors.changed.notified() => {}
            () = tokio::time::sleep(pause), if failed => pause = (pause * 2).min(RETRY.1),
            () = node.shutdown.cancelled() => return,
        }
        if !failed {
            pause = RETRY.0;
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
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: Some(uid),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match api.delete(&mirror.name, &params).await {
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
