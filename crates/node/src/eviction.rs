//! Reclaims what the node is short of: first what it does not need itself, then what pods use, one pod at a time. What is short and
//! which pod goes first is decided elsewhere ([`crate::pressure`], [`rank`]); this is the work.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::disk::Used;
use crate::events::Kind;
use crate::images::CollectionRequest;
use crate::pods::storage::Storage;
use crate::pods::{Evicted, Node, Update, has_ended, is_critical};
use crate::pressure::{Decider, Observations, Places, Reclaim, Resource, observe};
use crate::runtime::{Measured, RuntimeError, Written};
use rank::{Candidate, ContainerUse, Layout, PodUse, Remains};

mod rank;

/// How long the end of an evicted pod is waited for, as by a kubelet.
const CLEANED_UP: Duration = Duration::from_secs(30);
/// What a pod gets to end at least, and with a hard threshold at most.
const LEAST_GRACE: Duration = Duration::from_secs(1);

/// A pod that is being evicted.
struct Ending {
    ended: CancellationToken,
    update: watch::Sender<Update>,
}

impl Ending {
    /// Waits until its containers have ended, or it is gone.
    async fn end(&self) {
        tokio::select! {
            () = self.ended.cancelled() => {}
            () = self.update.closed() => {}
        }
    }
}

/// Watches over the resources of a node.
pub(crate) struct Evictions {
    node: Arc<Node>,
    decider: Decider,
    places: Places,
    /// Removes unused images, if the node has images.
    images: mpsc::Sender<CollectionRequest>,
}

impl Evictions {
    pub(crate) fn new(node: &Arc<Node>, images: mpsc::Sender<CollectionRequest>) -> Self {
        let root = &node.config.root_dir;
        let (own, complete) = (root.join("images"), node.runtime.complete().is_some());
        let places = Places {
            node: root.clone(),
            images: (!complete).then(|| match own.is_dir() {
                true => own,
                false => root.clone(),
            }),
            containers: (!complete).then(|| root.join("containers")),
        };
        Self {
            node: Arc::clone(node),
            decider: Decider::new(&node.config.eviction),
            places,
            images,
        }
    }

    /// Observes the node, so that its conditions are right before a pod is admitted.
    pub(crate) fn look(&mut self) {
        if self.node.config.eviction.is_on() {
            let observed = observe(&self.places);
            self.decide(&observed);
        }
    }

    /// Reclaims resources until the agent ends.
    pub(crate) async fn run(mut self) {
        if !self.node.config.eviction.is_on() {
            return std::future::pending().await;
        }
        loop {
            match self.synchronize().await {
                // What it used has to be free again before the next one is chosen.
                Some(ending) => {
                    let _ = tokio::time::timeout(CLEANED_UP, ending.end()).await;
                }
                None => tokio::time::sleep(self.node.config.eviction.period).await,
            }
        }
    }

    /// One round. Returns the pod that was evicted.
    async fn synchronize(&mut self) -> Option<Ending> {
        self.find_disks().await;
        let observed = self.observe().await?;
        let reclaim = self.decide(&observed)?;
        let name = reclaim.resource().name();
        let message = format!("Attempting to reclaim {name}");
        let (events, node) = (&self.node.events, &self.node.config.node_name);
        events.node(node, Kind::Warning, "EvictionThresholdMet", message);
        tracing::warn!(resource = name, "attempting to reclaim");
        let layout = self.layout();
        if self.reclaim_remains(layout.remains(reclaim.signal)).await {
            return None;
        }
        let mut candidates = self.candidates(reclaim.resource()).await;
        let parts = layout.parts(reclaim.signal);
        rank::rank(&mut candidates, reclaim.resource(), parts);
        let evicted = candidates
            .iter()
            .find_map(|candidate| self.evict(&reclaim, candidate));
        if evicted.is_none() {
            tracing::error!(resource = name, "no pod can be evicted");
        }
        evicted
    }

    /// Where a runtime has its images, once it tells.
    async fn find_disks(&mut self) {
        let Some(complete) = self.node.runtime.complete() else {
            return;
        };
        if self.places.images.is_some() {
            return;
        }
        match complete.disks().await {
            Ok(disks) => {
                self.places.images = Some(disks.images);
                self.places.containers = disks.containers;
            }
            Err(error) => tracing::debug!(%error, "the disk of the images is not known yet"),
        }
    }

    async fn observe(&self) -> Option<Observations> {
        let places = self.places.clone();
        // A file system of the network may take long.
        tokio::task::spawn_blocking(move || observe(&places))
            .await
            .ok()
    }

    fn decide(&mut self, observed: &Observations) -> Option<Reclaim> {
        let (pressed, reclaim) = self.decider.decide(observed, Instant::now());
        self.node.pressed.send_if_modified(|known| {
            let changed = *known != pressed;
            *known = pressed;
            changed
        });
        reclaim
    }

    fn layout(&self) -> Layout {
        match (
            self.places.has_image_disk(),
            self.places.splits_containers(),
        ) {
            (false, _) => Layout::One,
            (true, false) => Layout::Images,
            (true, true) => Layout::ImagesWithoutContainers,
        }
    }

    /// Removes what the node does not need; true if nothing is short any longer.
    async fn reclaim_remains(&self, remains: Remains) -> bool {
        if remains == Remains::default() {
            return false;
        }
        if remains.containers {
            self.node.remove_ended().await;
        }
        if remains.images {
            let (sender, done) = oneshot::channel();
            // There is nothing to remove if nothing collects images.
            if self.images.send(sender).await.is_ok() {
                let _ = done.await;
            }
        }
        let observed = self.observe().await;
        observed.is_some_and(|observed| self.decider.is_resolved(&observed))
    }

    /// The pods that run and are not ending yet, with what they use.
    async fn candidates(&self, resource: Resource) -> Vec<Candidate> {
        let on_disk = resource.is_on_disk();
        let (mut measured, mut written) = (Vec::new(), Vec::new());
        match on_disk {
            true => written = known(self.node.runtime.written(None).await),
            false => measured = known(self.node.runtime.usage().await),
        }
        let pods: Vec<(Arc<Pod>, Vec<String>)> = {
            let entries = self.node.pods.lock();
            let entries = entries.values().filter_map(|entry| {
                let update = entry.update.borrow();
                let ending = update.deleted || update.evicted.is_some() || has_ended(&update.pod);
                let pod = self.node.allocations.allocated(&update.pod);
                let containers = entry.containers.lock();
                let running = containers.iter().filter(|(_, it)| it.running().is_some());
                let running = running.map(|(name, _)| name.clone()).collect();
                (!ending && !entry.is_static()).then_some((pod, running))
            });
            entries.collect()
        };
        let node = Arc::clone(&self.node);
        let measuring = tokio::task::spawn_blocking(move || {
            let (mut measured, mut written) = (
                by_pod(measured, |it| &it.pod_uid),
                by_pod(written, |it| &it.pod_uid),
            );
            let all = pods.into_iter().map(|(pod, running)| {
                let uid = pod.uid().unwrap_or_default();
                let disk = match on_disk {
                    true => Storage::measure(&pod, &node.config.root_dir, &node.pod_dir(&uid)),
                    false => Storage::default(),
                };
                let figures = measured.remove(&uid).unwrap_or_default();
                let roots = written.remove(&uid).unwrap_or_default();
                let usage = usage_of(&running, &figures, &roots, &disk);
                Candidate { pod, usage }
            });
            all.collect()
        });
        measuring.await.unwrap_or_default()
    }

    /// Evicts a pod, unless it is critical.
    fn evict(&self, reclaim: &Reclaim, candidate: &Candidate) -> Option<Ending> {
        let pod = &candidate.pod;
        if is_critical(pod) {
            tracing::warn!(pod = pod.name_any(), "a critical pod is not evicted");
            return None;
        }
        let message = rank::message(reclaim, candidate);
        let evicted = Evicted {
            grace: reclaim.grace.unwrap_or_default().max(LEAST_GRACE),
            ended: CancellationToken::new(),
            message,
        };
        let ended = evicted.ended.clone();
        let entries = self.node.pods.lock();
        let entry = entries.get(&pod.uid()?)?;
        tracing::warn!(pod = pod.name_any(), message = evicted.message, "evicting");
        let signal = reclaim.signal.name();
        self.node.claims.measures().evicted(signal);
        entry
            .update
            .send_modify(|update| update.evicted = Some(evicted));
        Some(Ending {
            ended,
            update: entry.update.clone(),
        })
    }
}

/// What was measured; nothing if the runtime does not answer.
fn known<T>(measured: Result<Vec<T>, RuntimeError>) -> Vec<T> {
    measured.unwrap_or_else(|error| {
        tracing::warn!(%error, "containers were not measured");
        Vec::new()
    })
}

fn by_pod<T>(all: Vec<T>, uid: fn(&T) -> &String) -> HashMap<String, Vec<T>> {
    let mut by_pod: HashMap<String, Vec<T>> = HashMap::new();
    for one in all {
        by_pod.entry(uid(&one).clone()).or_default().push(one);
    }
    by_pod
}

/// What a pod uses; `None` if none of its containers runs.
fn usage_of(
    running: &[String],
    figures: &[Measured],
    roots: &[Written],
    disk: &Storage,
) -> Option<PodUse> {
    let containers = running.iter().map(|name| {
        let figures = figures.iter().find(|it| it.container == *name);
        let figures = figures.map(|it| &it.figures);
        let root = roots.iter().find(|it| it.container == *name);
        ContainerUse {
            memory: figures.and_then(|it| it.working_set),
            processes: figures.and_then(|it| it.processes).unwrap_or(0),
            root: root.map_or_else(Used::default, |it| it.used),
            logs: disk.logs_of(name),
            name: name.clone(),
        }
    });
    let containers: Vec<ContainerUse> = containers.collect();
    (!containers.is_empty()).then(|| PodUse {
        volumes: disk.of_pod(),
        containers,
    })
}
