//! Static pods: which of the pods in the node's files run.
//!
//! A changed manifest is a pod with another UID. It starts when the containers of the former one have ended, because both
//! have the same name, and may need the same ports and directories.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use inotify::WatchMask;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::ResourceExt;
use tokio::sync::mpsc;

use super::{Node, Origin, PodEvent, Update, start};
use crate::manifests::{self, Manifests, full_name, is_hash};
use crate::runtime::Found;
use crate::watching;

/// How often the files are read without a change that the kernel reports: the kubelet's `fileCheckFrequency`.
const PERIOD: Duration = Duration::from_secs(20);
/// When the agent saw a static pod first.
const SEEN: &str = "kubernetes.io/config.seen";

/// Reads the manifests at the start and when they change, and sends the pods. If they cannot be read, the pods stay as they
/// are.
pub(crate) async fn source(path: PathBuf, node: String, sender: mpsc::Sender<PodEvent>) {
    let mut known: Option<Manifests> = None;
    let mut told = None;
    loop {
        // Before the files are read, so that no change is missed. A directory that was replaced is watched again.
        let directory = match path.is_dir() {
            true => &path,
            false => path.parent().unwrap_or(&path),
        };
        // Files that are being written are not read: their creation is no change, but for that of the path itself.
        let mask = WatchMask::CLOSE_WRITE | WatchMask::DELETE | WatchMask::MOVE;
        let itself = match path.exists() {
            true => WatchMask::DELETE_SELF | WatchMask::MOVE_SELF,
            false => WatchMask::CREATE,
        };
        let mut changes = watching::changes(directory, mask | itself);
        let (of, name) = (path.clone(), node.clone());
        let read = tokio::task::spawn_blocking(move || manifests::read(&of, &name)).await;
        let fault = match read {
            Ok(Ok(read)) => {
                let before = known.as_ref().map(|known| &known.faults);
                for (file, fault) in &read.faults {
                    if before.and_then(|before| before.get(file)) != Some(fault) {
                        tracing::error!(file = %file.display(), fault, "manifest of a static pod is not used");
                    }
                }
                if known.as_ref().is_none_or(|known| known.pods != read.pods) {
                    let event = PodEvent::Static(read.pods.clone());
                    if sender.send(event).await.is_err() {
                        return;
                    }
                }
                known = Some(read);
                None
            }
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(fault) = fault.as_ref().filter(|fault| told.as_ref() != Some(*fault)) {
            tracing::error!(path = %path.display(), fault, "manifests of static pods cannot be read");
            if known.is_none() && sender.send(PodEvent::Unreadable).await.is_err() {
                return;
            }
        }
        told = fault;
        match &mut changes {
            Ok(changes) => {
                let _ = tokio::time::timeout(PERIOD, watching::next(changes)).await;
            }
            Err(_) => tokio::time::sleep(PERIOD).await,
        }
    }
}

/// The static pods that should run.
pub(super) struct StaticPods {
    wanted: Vec<Pod>,
    /// Whether it was tried to read the files.
    looked: bool,
}

impl StaticPods {
    /// Of a node that has a path for manifests, or has none.
    pub(super) fn of(node: &Node) -> Self {
        let none = node.config.pod_manifest_path.is_none();
        node.manifests_known.store(none, Ordering::Release);
        Self {
            wanted: Vec::new(),
            looked: none,
        }
    }

    /// Whether there is no reason to wait for them.
    pub(super) fn were_looked_for(&self) -> bool {
        self.looked
    }

    /// What the files define is not known: what runs continues.
    pub(super) fn cannot_be_read(&mut self) {
        self.looked = true;
    }

    /// The files define these pods now.
    pub(super) fn replace(
        &mut self,
        node: &Arc<Node>,
        pods: Vec<Pod>,
        found: &mut HashMap<String, Vec<Found>>,
    ) {
        let kept: HashSet<String> = pods.iter().filter_map(ResourceExt::uid).collect();
        for (uid, entry) in node.pods.lock().iter() {
            if entry.is_static() && !kept.contains(uid) {
                entry.update.send_modify(|update| update.deleted = true);
            }
        }
        // Manifests that were changed or removed while no agent ran.
        let left = found
            .keys()
            .filter(|uid| is_hash(uid) && !kept.contains(*uid));
        for uid in left.cloned().collect::<Vec<_>>() {
            let recovered = found.remove(&uid).unwrap_or_default();
            let Some(owner) = recovered.first().map(|found| &found.owner) else {
                continue;
            };
            let pod = Pod {
                metadata: ObjectMeta {
                    name: Some(owner.pod_name.clone()),
                    namespace: Some(owner.pod_namespace.clone()),
                    uid: Some(uid),
                    ..ObjectMeta::default()
                },
                ..Pod::default()
            };
            let update = Update {
                pod: Arc::new(pod),
                deleted: true,
                evicted: None,
            };
            start(node, update, Origin::File, recovered);
        }
        self.wanted = pods;
        self.start(node, found);
        // After the start: what has a worker by now is in use.
        node.manifests_known.store(true, Ordering::Release);
        node.mirrors.changed.notify_one();
        self.looked = true;
    }

    /// Starts the pods whose names are free.
    pub(super) fn start(&self, node: &Arc<Node>, found: &mut HashMap<String, Vec<Found>>) {
        let taken: HashSet<String> = {
            let pods = node.pods.lock();
            let pods = pods.values().filter(|entry| entry.is_static());
            pods.map(|entry| full_name(&entry.update.borrow().pod))
                .collect()
        };
        for pod in &self.wanted {
            if taken.contains(&full_name(pod)) {
                continue;
            }
            let mut pod = pod.clone();
            let now = Timestamp::now();
            pod.metadata.creation_timestamp = Some(Time(now));
            pod.annotations_mut()
                .insert(SEEN.to_owned(), now.to_string());
            let recovered = found.remove(&pod.uid().unwrap_or_default());
            let update = Update {
                pod: Arc::new(pod),
                deleted: false,
                evicted: None,
            };
            start(node, update, Origin::File, recovered.unwrap_or_default());
        }
    }
}
