//! The pod loop: one worker task per pod.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use allot_apimachinery::quantity::Quantity;
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use tokio::sync::{Notify, SetOnce, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::claims::Claims;
use crate::config::Config;
use crate::events::Recorder;
use crate::images::{Delegated, Images};
use crate::manifests::is_hash;
use crate::memory::Memory;
use crate::nri::Nri;
use crate::pressure::Pressed;
use crate::runtime::{Condition, DynRuntime, Found};
use static_pods::StaticPods;

mod adjust;
mod allocations;
mod certificates;
mod env;
mod etc;
mod garbage;
mod handler;
mod launch;
mod lifecycle;
mod limits;
mod message;
mod mirrors;
pub(crate) mod network;
mod probes;
mod record;
mod resources;
mod runs;
mod sandbox;
mod security;
mod services;
mod source;
mod state;
mod static_pods;
mod status;
pub(crate) mod storage;
mod trust_bundles;
mod volumes;
mod watched;
mod worker;

pub(crate) use allocations::{AllocatableByNode, Allocations};
pub(crate) use certificates::Certificates;
pub(crate) use mirrors::{Mirrors, keep as keep_mirrors};
pub(crate) use resources::{Sizes, requests};
pub(crate) use sandbox::{RECORDS as NETWORK_RECORDS, Sandboxes, leave as leave_networks};
pub(crate) use services::Services;
pub(crate) use source::{PodEvent, source};
pub(crate) use state::ContainerState;
pub(crate) use static_pods::source as static_source;
pub(crate) use status::{has_ended, log_path};
pub(crate) use trust_bundles::TrustBundles;
pub(crate) use volumes::unmount_all;

/// Removes a directory that containers wrote to. It may hold millions of files: other pods do not wait for it.
async fn remove_tree(directory: PathBuf) {
    let path = directory.clone();
    let removing = tokio::task::spawn_blocking(move || allot_images::remove_tree(&path));
    let removed = removing.await.map_err(std::io::Error::other);
    if let Err(error) = removed.and_then(|removed| removed)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(directory = %directory.display(), %error, "was not removed");
    }
}

/// An update for the worker of a pod.
#[derive(Debug, Clone)]
pub(crate) struct Update {
    pub(crate) pod: Arc<Pod>,
    /// The object was deleted from the API server, or the manifest from the node.
    pub(crate) deleted: bool,
    /// The node reclaims what the pod uses.
    pub(crate) evicted: Option<Evicted>,
}

impl Update {
    /// Whether the containers of the pod are to end.
    fn is_ending(&self) -> bool {
        let deleted = self.deleted || self.pod.metadata.deletion_timestamp.is_some();
        deleted || self.evicted.is_some()
    }
}

/// The reason of evicted pods, and of those that are rejected under pressure.
pub(crate) const EVICTED: &str = "Evicted";

/// The eviction of a pod by its node.
#[derive(Debug, Clone)]
pub(crate) struct Evicted {
    /// The kubelet's message.
    pub(crate) message: String,
    /// What containers get to end at most.
    pub(crate) grace: Duration,
    /// Cancelled when the containers have ended and the claims are unprepared.
    pub(crate) ended: CancellationToken,
}

/// From which priority on pods are critical to the system.
const CRITICAL: i32 = 2_000_000_000;

/// Whether a pod of the API server is never evicted, and admitted under pressure. So are all static pods.
pub(crate) fn is_critical(pod: &Pod) -> bool {
    let priority = pod.spec.as_ref().and_then(|spec| spec.priority);
    priority.is_some_and(|priority| priority >= CRITICAL)
}

/// Everything that workers share.
pub(crate) struct Node {
    pub(crate) client: Client,
    pub(crate) config: Config,
    pub(crate) runtime: DynRuntime,
    /// `None` if containers run from the host's files only.
    pub(crate) images: Option<Arc<Images>>,
    /// Those of a runtime that gets images by itself.
    pub(crate) delegated: Option<Arc<Delegated>>,
    pub(crate) claims: Claims,
    /// The CPU and memory that are allocated to pods.
    pub(crate) allocations: Allocations,
    pub(crate) events: Recorder,
    /// What the node is short of.
    pub(crate) pressed: watch::Sender<Pressed>,
    pub(crate) services: Services,
    pub(crate) certificates: Certificates,
    pub(crate) trust_bundles: TrustBundles,
    /// Networks of pods; unused if the runtime makes them.
    pub(crate) sandboxes: Arc<Sandboxes>,
    /// Plugins that adjust containers, if the node has a socket for them.
    pub(crate) nri: Option<Arc<Nri>>,
    /// Pods by UID, for the HTTPS API and PodResources.
    pub(crate) pods: Mutex<HashMap<String, Entry>>,
    pub(crate) mirrors: Mirrors,
    /// The worker of a static pod has ended.
    pub(crate) ended: Notify,
    pub(crate) shutdown: CancellationToken,
    /// Whether the manifests of static pods were read. Before that, what is of no known pod may be of one of them.
    pub(crate) manifests_known: AtomicBool,
    /// The workers of pods.
    pub(crate) workers: TaskTracker,
    /// Set once every pod that the API server and the manifests had at the start was seen. Manifests that cannot be read
    /// are not waited for.
    pub(crate) synced: SetOnce<()>,
}

/// Where a pod is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The API server.
    Api,
    /// A manifest on the node: a static pod.
    File,
}

/// A pod with a worker.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) origin: Origin,
    pub(crate) update: watch::Sender<Update>,
    /// Its containers by name, kept up to date by the worker.
    pub(crate) containers: Arc<Mutex<HashMap<String, ContainerState>>>,
}

impl Entry {
    pub(crate) fn is_static(&self) -> bool {
        self.origin == Origin::File
    }
}

impl Node {
    /// Directory of a pod's volumes.
    pub(crate) fn pod_dir(&self, uid: &str) -> PathBuf {
        self.config.root_dir.join("pods").join(uid)
    }

    /// Forgets a container that has ended, or that was never started.
    fn remove_container(&self, id: &str) {
        if let Some(nri) = &self.nri {
            nri.removed(id);
        }
        self.runtime.remove(id);
        if let Some(images) = &self.images {
            images.release(id);
        }
    }

    /// Removes containers that have ended, or that were never started. Their directories may hold millions of files, so that
    /// this is done apart; the result can be awaited.
    fn discard_containers(self: &Arc<Self>, ids: Vec<String>) -> JoinHandle<()> {
        let node = Arc::clone(self);
        tokio::task::spawn_blocking(move || ids.iter().for_each(|id| node.remove_container(id)))
    }

    /// Removes containers that have ended, and waits for it.
    async fn remove_containers(self: &Arc<Self>, ids: Vec<String>) {
        if let Err(error) = self.discard_containers(ids).await {
            tracing::warn!(%error, "containers were not removed");
        }
    }

    /// Removes the containers of all pods that have ended. Their logs stay.
    pub(crate) async fn remove_ended(self: &Arc<Self>) {
        let ended: Vec<String> = {
            let pods = self.pods.lock();
            let ended = pods.values().flat_map(|entry| {
                let containers = entry.containers.lock();
                let ids = containers
                    .values()
                    .flat_map(|it| it.ended_ids().map(str::to_owned));
                ids.collect::<Vec<_>>()
            });
            ended.collect()
        };
        self.remove_containers(ended).await;
    }

    /// Addresses of a pod; those of the node where it shares the node's network. None while its network is not made.
    pub(crate) fn addresses(&self, pod: &Pod) -> Vec<String> {
        let uid = pod.uid().unwrap_or_default();
        let own = match self.runtime.complete() {
            Some(complete) => Some(complete.addresses(&uid)).filter(|own| !own.is_empty()),
            None => self.sandboxes.addresses(pod),
        };
        match own {
            None => vec![self.config.address.to_string()],
            Some(own) => own.iter().map(ToString::to_string).collect(),
        }
    }

    /// Whether a pod has a network of its own.
    pub(crate) fn has_own_network(&self, pod: &Pod) -> bool {
        match self.runtime.complete() {
            Some(complete) => !complete
                .addresses(&pod.uid().unwrap_or_default())
                .is_empty(),
            None => self.sandboxes.is_open(pod),
        }
    }

    /// How the runtime is, and the network of the pods; `None` where pods are simulated.
    pub(crate) fn condition(&self) -> Option<watch::Receiver<Condition>> {
        match self.runtime.complete() {
            Some(complete) => Some(complete.condition()),
            None => (!self.pretends()).then(|| self.sandboxes.condition()),
        }
    }

    /// Whether a UID may be that of a static pod that is not known yet.
    fn may_be_static(&self, uid: &str) -> bool {
        is_hash(uid) && !self.manifests_known.load(Ordering::Acquire)
    }

    /// Whether a pod is from a manifest on the node.
    pub(crate) fn is_static(&self, pod: &Pod) -> bool {
        let pods = self.pods.lock();
        let entry = pods.get(pod.metadata.uid.as_deref().unwrap_or_default());
        entry.is_some_and(Entry::is_static)
    }

    /// Bytes of memory of the node; 0 if the kernel does not report them.
    fn memory(&self) -> i64 {
        let told = self.config.capacity.get("memory");
        let told = told.and_then(|text| text.parse::<Quantity>().ok());
        let of_machine = || Memory::read().map_or(0, |memory| memory.total as i64);
        told.map_or_else(of_machine, |it| it.value())
    }

    /// Whether containers are only simulated, so that their environment and files are not used.
    pub(crate) fn pretends(&self) -> bool {
        self.runtime.name() == "simulated"
    }

    /// The pod of that name, the newest if an older one still terminates.
    pub(crate) fn find(&self, namespace: &str, name: &str) -> Option<(Arc<Pod>, Entry)> {
        let pods = self.pods.lock();
        let found = pods
            .values()
            .map(|entry| (Arc::clone(&entry.update.borrow().pod), entry.clone()));
        found
            .filter(|(pod, _)| {
                pod.namespace().as_deref() == Some(namespace) && pod.name_any() == name
            })
            .max_by_key(|(pod, _)| pod.metadata.creation_timestamp.as_ref().map(|time| time.0))
    }
}

/// Gives every pod its worker; ends when the source does.
pub(crate) async fn dispatch(node: Arc<Node>, mut events: mpsc::Receiver<PodEvent>) {
    let mut found: HashMap<String, Vec<Found>> = HashMap::new();
    let recovered = node.runtime.recover().await;
    if let Some(nri) = &node.nri {
        nri.adopt(&recovered);
    }
    if let Some(images) = &node.images {
        let ids = recovered.iter().map(|found| found.running.id.clone());
        images.release_others(&ids.collect());
    }
    for container in recovered {
        found
            .entry(container.owner.pod_uid.clone())
            .or_default()
            .push(container);
    }
    let mut own = StaticPods::of(&node);
    let mut listed = false;
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            () = node.ended.notified() => {
                own.start(&node, &mut found);
                continue;
            }
        };
        match event {
            None => return,
            Some(PodEvent::Applied(pod)) => apply(&node, pod, &mut found),
            Some(PodEvent::Deleted(pod)) => delete(&node, &pod.uid().unwrap_or_default()),
            Some(PodEvent::Synced(uids)) => {
                let uids: HashSet<String> = uids.into_iter().collect();
                // The watch was broken: deletions may have been missed.
                let known: Vec<String> = {
                    let pods = node.pods.lock();
                    let known = pods.iter().filter(|(_, entry)| !entry.is_static());
                    known.map(|(uid, _)| uid.clone()).collect()
                };
                for uid in known.iter().filter(|uid| !uids.contains(*uid)) {
                    delete(&node, uid);
                }
                node.mirrors.keep_only(&node, &uids);
                listed = true;
            }
            Some(PodEvent::Static(pods)) => own.replace(&node, pods, &mut found),
            Some(PodEvent::Unreadable) => own.cannot_be_read(),
        }
        if listed && own.were_looked_for() && node.synced.set(()).is_ok() {
            let orphans = found.extract_if(|uid, _| !node.may_be_static(uid));
            let orphans = orphans.collect();
            tokio::spawn(garbage::collect(Arc::clone(&node), orphans));
        }
    }
}

fn apply(node: &Arc<Node>, pod: Pod, found: &mut HashMap<String, Vec<Found>>) {
    if mirrors::is_mirror(&pod) {
        return node.mirrors.applied(node, &pod);
    }
    let uid = pod.uid().unwrap_or_default();
    let update = Update {
        pod: Arc::new(pod),
        deleted: false,
        evicted: None,
    };
    if let Some(entry) = node.pods.lock().get(&uid) {
        entry.update.send_modify(|known| {
            known.pod = Arc::clone(&update.pod);
            known.deleted = false;
        });
        return;
    }
    let recovered = found.remove(&uid).unwrap_or_default();
    start(node, update, Origin::Api, recovered);
}

/// Gives a pod its worker, with the containers of it that an earlier agent started.
fn start(node: &Arc<Node>, update: Update, origin: Origin, recovered: Vec<Found>) {
    let uid = update.pod.uid().unwrap_or_default();
    let (sender, receiver) = watch::channel(update);
    let containers = Arc::default();
    node.pods.lock().insert(
        uid.clone(),
        Entry {
            origin,
            update: sender,
            containers: Arc::clone(&containers),
        },
    );
    let of_file = origin == Origin::File;
    if of_file {
        node.mirrors.changed.notify_one();
    }
    let node = Arc::clone(node);
    // Here and not in the task: once all pods were seen, the running containers are known.
    let worker = worker::Worker::new(Arc::clone(&node), origin, receiver, containers, recovered);
    let workers = node.workers.clone();
    workers.spawn(async move {
        worker.run().await;
        // Before another worker can be started for it.
        let events = node.allocations.remove(&uid);
        node.pods.lock().remove(&uid);
        // When the agent stops, all workers end, and no resize is carried out any more.
        if !node.shutdown.is_cancelled() {
            allocations::record_events(&node.events, events);
        }
        if of_file {
            node.ended.notify_one();
            node.mirrors.changed.notify_one();
        }
    });
}

fn delete(node: &Arc<Node>, uid: &str) {
    if let Some(entry) = node.pods.lock().get(uid) {
        entry.update.send_modify(|update| update.deleted = true);
    }
    node.mirrors.deleted(node, uid);
}
