//! Pods with a network of their own: a namespace, and in it the interface that CNI plugins create.
//!
//! What plugins are asked is recorded before they are asked, and removed after they have undone it: an agent that is killed
//! at any moment leaves nothing that the next one does not find. A record has the configuration that was used: the next
//! agent may have another one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::cni::{self, Client};
use crate::config::NetworkSettings;
use crate::runtime::Condition;
use crate::spec::Isolation;
use condition::{initial, shared};
use pod_locks::PodLocks;
use record::{Known, Records};

mod attach;
mod condition;
mod error;
mod plugin_args;
mod pod_locks;
mod record;
#[cfg(test)]
mod tests;

pub(super) use plugin_args::has_host_ports;
pub(crate) use record::RECORDS;

/// Why a pod has no sandbox yet: reason and message of the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Obstacle {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Obstacle {
    pub(super) fn failed(error: impl std::fmt::Display) -> Self {
        Self {
            reason: "FailedCreatePodSandBox",
            message: format!("Failed to create pod sandbox: {error}"),
        }
    }
}

/// The networks of a node's pods.
pub(crate) struct Sandboxes {
    settings: NetworkSettings,
    client: Client,
    records: Records,
    /// Why pods share the network of the host, if they do.
    shared: Option<String>,
    known: Mutex<HashMap<String, Known>>,
    /// Taken while the network of a pod is made or removed.
    locks: PodLocks,
    /// UIDs of pods that an earlier agent gave their network.
    earlier: Vec<String>,
    condition: watch::Sender<Condition>,
}

impl Sandboxes {
    /// For a node whose containers are isolated in a certain way, with what earlier agents left.
    pub(crate) fn open(root: &Path, settings: &NetworkSettings, isolation: Isolation) -> Self {
        let shared = shared(settings, isolation);
        let records = Records::of(root);
        let known = records.read();
        let condition = initial(shared.as_ref());
        let open = known.iter().filter(|(_, it)| matches!(it, Known::Open(..)));
        let earlier = open.map(|(uid, _)| uid.clone()).collect();
        Self {
            client: Client::new(settings.bin_dirs.clone()),
            settings: settings.clone(),
            records,
            shared,
            known: Mutex::new(known),
            locks: PodLocks::default(),
            earlier,
            condition: watch::Sender::new(condition),
        }
    }

    /// For nodes without containers.
    pub(crate) fn none() -> Self {
        let settings = NetworkSettings::default();
        Self::open(Path::new("/nonexistent"), &settings, Isolation::None)
    }

    /// Whether a pod gets a network of its own.
    fn wanted(&self, pod: &Pod) -> bool {
        let spec = pod.spec.as_ref();
        self.shared.is_none() && spec.and_then(|spec| spec.host_network) != Some(true)
    }

    /// Addresses of a pod with a network of its own; none if it has none yet. `None` for a pod in the host's network.
    pub(super) fn addresses(&self, pod: &Pod) -> Option<Vec<IpAddr>> {
        match self.known.lock().get(uid(pod)) {
            Some(Known::Open(_, addresses) | Known::Closed(addresses)) => {
                return Some(addresses.clone());
            }
            Some(Known::Begun(_)) => return Some(Vec::new()),
            Some(Known::Shared) => return None,
            None => {}
        }
        // Reported by an earlier agent if the pod has ended.
        self.wanted(pod).then(|| {
            let status = pod.status.as_ref();
            let reported = status.and_then(|status| status.pod_ips.as_ref());
            let reported = reported.into_iter().flatten();
            reported.filter_map(|it| it.ip.parse().ok()).collect()
        })
    }

    /// Whether a pod is in a network of its own now.
    pub(super) fn is_open(&self, pod: &Pod) -> bool {
        matches!(self.known.lock().get(uid(pod)), Some(Known::Open(..)))
    }

    /// Name servers of the network of a pod, if it has its own.
    pub(super) fn servers(&self, pod: &Pod) -> Vec<IpAddr> {
        match self.known.lock().get(uid(pod)) {
            Some(Known::Open(record, _)) => {
                let result = record.pod.result.as_ref();
                result.map_or_else(Vec::new, cni::servers)
            }
            _ => Vec::new(),
        }
    }

    /// UIDs of pods that plugins were asked about, and have not undone.
    pub(crate) fn known(&self) -> Vec<String> {
        let known = self.known.lock();
        let open = known.iter().filter(|(_, it)| it.is_to_be_undone());
        open.map(|(uid, _)| uid.clone()).collect()
    }

    /// Whether plugins were asked about a pod, and have not undone it.
    pub(super) fn is_known(&self, uid: &str) -> bool {
        let known = self.known.lock();
        known.get(uid).is_some_and(Known::is_to_be_undone)
    }

    /// UIDs of pods that an earlier agent gave their network.
    pub(super) fn earlier(&self) -> &[String] {
        &self.earlier
    }

    /// Whether pods can get a network; notified of changes.
    pub(crate) fn condition(&self) -> watch::Receiver<Condition> {
        self.condition.subscribe()
    }

    /// Takes a pod over whose containers run.
    pub(super) fn adopt(&self, pod: &Pod) {
        let mut known = self.known.lock();
        known.entry(uid(pod).to_owned()).or_insert(Known::Shared);
    }

    /// Whether a plugin of the pod's network opens ports of the host.
    pub(super) fn opens_ports(&self, pod: &Pod) -> bool {
        match self.known.lock().get(uid(pod)) {
            Some(Known::Open(record, _)) => record.network.declares("portMappings"),
            _ => true,
        }
    }
}

/// Takes all networks of the pods of a node away, by its directory. Returns how many, and failures.
pub(crate) async fn leave(root: &Path) -> (usize, Vec<String>) {
    let mut settings = NetworkSettings::default();
    // That of the cluster's bridge; another one would be asked for what it did not do.
    let own = root.join("cni/net.d");
    if own.is_dir() {
        settings.conf_dir = own;
    }
    let all = Sandboxes::open(root, &settings, Isolation::None);
    let (mut done, mut failed) = (0, Vec::new());
    for uid in all.known() {
        match all.detach(&uid, &root.join("pods").join(&uid)).await {
            Ok(()) => done += 1,
            Err(error) => failed.push(error.to_string()),
        }
    }
    (done, failed)
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}
