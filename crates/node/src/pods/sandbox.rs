//! Pods with a network of their own: a namespace, and in it the interface that CNI plugins create.
//!
//! What plugins are asked is recorded before they are asked, and removed after they have undone it: an agent that is killed
//! at any moment leaves nothing that the next one does not find. A record has the configuration that was used: the next
//! agent may have another one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::network;
use crate::cni::{self, Attachment, Client, Network};
use crate::config::NetworkSettings;
use crate::error::PathError;
use crate::runtime::Condition;
use crate::spec::{self, Isolation};
use condition::{initial, not_ready, shared};
use error::{NetworkError, SandboxError};
use plugin_args::{args, capabilities};
use pod_locks::PodLocks;

mod condition;
mod error;
mod plugin_args;
mod pod_locks;
#[cfg(test)]
mod tests;

pub(super) use plugin_args::has_host_ports;

/// Where the records of pods are, below the directory of a node.
pub(crate) const RECORDS: &str = "cni/pods";

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

/// A pod in a network, on disk.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Record {
    network: Network,
    pod: Attachment,
    /// Where its plugins were; the next agent may look elsewhere.
    #[serde(default)]
    bin_dirs: Vec<PathBuf>,
}

/// What is known of a pod.
#[derive(Debug, Clone)]
enum Known {
    /// ADD was called, and its result is not known: DEL comes first. `None` if the file is damaged.
    Begun(Option<Box<Record>>),
    /// It has these addresses.
    Open(Box<Record>, Vec<IpAddr>),
    /// It had them; the status of a pod that has ended keeps them.
    Closed(Vec<IpAddr>),
    /// It was started by an agent that gave it the host's network, and stays there.
    Shared,
}

impl Known {
    /// Whether plugins were asked, and have not undone it.
    fn is_to_be_undone(&self) -> bool {
        matches!(self, Self::Begun(_) | Self::Open(..))
    }
}

/// The networks of a node's pods.
pub(crate) struct Sandboxes {
    settings: NetworkSettings,
    client: Client,
    /// Where records are.
    directory: PathBuf,
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
        let directory = root.join(RECORDS);
        let mut known = HashMap::new();
        for entry in std::fs::read_dir(&directory)
            .into_iter()
            .flatten()
            .flatten()
        {
            let name = entry.file_name();
            let Some(uid) = name.to_str().and_then(|name| name.strip_suffix(".json")) else {
                continue;
            };
            let state = match spec::read::<Record>(&entry.path()) {
                Err(error) => {
                    tracing::warn!(%error, "a record of a pod's network is damaged");
                    Known::Begun(None)
                }
                Ok(record) => match addresses_of(&record) {
                    Some(addresses) => Known::Open(Box::new(record), addresses),
                    None => Known::Begun(Some(Box::new(record))),
                },
            };
            known.insert(uid.to_owned(), state);
        }
        let condition = initial(shared.as_ref());
        let open = known.iter().filter(|(_, it)| matches!(it, Known::Open(..)));
        let earlier = open.map(|(uid, _)| uid.clone()).collect();
        Self {
            client: Client::new(settings.bin_dirs.clone()),
            settings: settings.clone(),
            directory,
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

    fn file(&self, uid: &str) -> PathBuf {
        self.directory.join(format!("{uid}.json"))
    }

    /// Takes a pod over whose containers run.
    pub(super) fn adopt(&self, pod: &Pod) {
        let mut known = self.known.lock();
        known.entry(uid(pod).to_owned()).or_insert(Known::Shared);
    }

    /// Gives a pod its network, unless it has it. `directory` is the pod's.
    ///
    /// # Errors
    /// Nothing is left of the attempt, or it is recorded.
    pub(super) async fn attach(&self, pod: &Pod, directory: &Path) -> Result<(), Obstacle> {
        let uid = uid(pod);
        let _lock = self.locks.take(uid).await;
        let before = self.known.lock().get(uid).cloned();
        match before {
            Some(Known::Open(..)) if network::of(directory).is_some() => return Ok(()),
            // An earlier attempt failed, or the machine was started again.
            Some(Known::Begun(_) | Known::Open(..)) => {
                let undone = self.undo(uid, directory).await;
                undone.map_err(Obstacle::failed)?;
                self.forget(uid);
            }
            Some(Known::Closed(_)) => self.forget(uid),
            Some(Known::Shared) => return Ok(()),
            None => {}
        }
        if !self.wanted(pod) {
            return Ok(());
        }
        let failed = |source: NetworkError| {
            let uid = uid.to_owned();
            Obstacle::failed(SandboxError::Attach { uid, source })
        };
        let capabilities =
            capabilities(pod).map_err(|text| failed(NetworkError::Annotation(text)))?;
        let network = cni::find(&self.settings.conf_dir).map_err(|error| not_ready(&error))?;
        let namespace = network::ensure(directory).map_err(|error| failed(error.into()))?;
        let mut record = Record {
            pod: Attachment {
                id: uid.to_owned(),
                namespace: Some(namespace),
                args: args(pod),
                capabilities,
                result: None,
            },
            network,
            bin_dirs: self.settings.bin_dirs.clone(),
        };
        self.write(uid, &record)
            .map_err(|error| failed(error.into()))?;
        let begun = Known::Begun(Some(Box::new(record.clone())));
        self.known.lock().insert(uid.to_owned(), begun);
        let added = self.client.add(&record.network, &record.pod).await;
        let added = added.map_err(NetworkError::from).and_then(|result| {
            record.pod.result = Some(result);
            let addresses = addresses_of(&record).filter(|all| !all.is_empty());
            let addresses = addresses.ok_or(NetworkError::NoAddress)?;
            self.write(uid, &record)?;
            Ok(addresses)
        });
        match added {
            Ok(addresses) => {
                let open = Known::Open(Box::new(record), addresses);
                self.known.lock().insert(uid.to_owned(), open);
                Ok(())
            }
            Err(error) => {
                // What the plugins before the failed one did is undone at once if possible, and otherwise before the next try.
                match self.undo(uid, directory).await {
                    Ok(()) => self.forget(uid),
                    Err(error) => {
                        let name = pod.name_any();
                        tracing::warn!(
                            pod = name,
                            %error,
                            "the network of a pod is not removed yet"
                        );
                    }
                }
                Err(failed(error))
            }
        }
    }

    /// Takes the network of a pod away, whose containers have ended. `directory` is the pod's.
    ///
    /// # Errors
    /// A plugin failed; the record is kept, and it can be tried again.
    pub(crate) async fn detach(&self, uid: &str, directory: &Path) -> Result<(), SandboxError> {
        let _lock = self.locks.take(uid).await;
        self.undo(uid, directory).await
    }

    /// Detaches and forgets a pod if it still `is_gone` once it has the lock: a static pod may be put back meanwhile.
    ///
    /// # Errors
    /// As [`Self::detach`].
    pub(super) async fn detach_gone(
        &self,
        uid: &str,
        directory: &Path,
        is_gone: impl Fn() -> bool + Send,
    ) -> Result<(), SandboxError> {
        let _lock = self.locks.take(uid).await;
        if !is_gone() {
            return Ok(());
        }
        self.undo(uid, directory).await?;
        self.forget(uid);
        Ok(())
    }

    /// As [`Self::detach`], with the lock that the caller has.
    async fn undo(&self, uid: &str, directory: &Path) -> Result<(), SandboxError> {
        let before = self.known.lock().get(uid).cloned();
        let (record, addresses) = match before {
            None | Some(Known::Closed(_) | Known::Shared) => {
                network::remove(directory);
                return Ok(());
            }
            Some(Known::Open(record, addresses)) => (Some(record), addresses),
            Some(Known::Begun(record)) => (record, Vec::new()),
        };
        let failed = |source: NetworkError| {
            let uid = uid.to_owned();
            SandboxError::Detach { uid, source }
        };
        let mut record = match record {
            Some(record) => *record,
            // Plugins find most by the ID alone. Without a configuration the record is kept.
            None => Record {
                network: cni::find(&self.settings.conf_dir)
                    .map_err(|error| failed(error.into()))?,
                pod: Attachment {
                    id: uid.to_owned(),
                    ..Attachment::default()
                },
                bin_dirs: Vec::new(),
            },
        };
        // After a restart of the machine there is a file, and no namespace.
        record.pod.namespace = network::of(directory);
        let client = self.client_of(&record);
        let deleted = client.delete(&record.network, &record.pod).await;
        deleted.map_err(|error| failed(error.into()))?;
        network::remove(directory);
        match std::fs::remove_file(self.file(uid)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed(error.into()));
            }
            _ => {}
        }
        let closed = Known::Closed(addresses);
        self.known.lock().insert(uid.to_owned(), closed);
        Ok(())
    }

    /// Forgets a pod whose network was taken away.
    pub(crate) fn forget(&self, uid: &str) {
        let mut known = self.known.lock();
        if matches!(known.get(uid), Some(Known::Closed(_) | Known::Shared)) {
            known.remove(uid);
        }
    }

    /// Asks the plugins whether a pod still is as they left it.
    ///
    /// # Errors
    /// It is not.
    pub(super) async fn check(&self, uid: &str) -> Result<(), cni::Error> {
        let known = self.known.lock().get(uid).cloned();
        let Some(Known::Open(record, _)) = known else {
            return Ok(());
        };
        let client = self.client_of(&record);
        let checked = client.check(&record.network, &record.pod).await;
        // Its network may have been removed meanwhile.
        let is_open = matches!(self.known.lock().get(uid), Some(Known::Open(..)));
        match checked {
            Err(error) if is_open => Err(error),
            _ => Ok(()),
        }
    }

    /// Looks for plugins where they were when the pod got its network, and then where they are now.
    fn client_of(&self, record: &Record) -> Client {
        let mut client = self.client.clone();
        let now = std::mem::replace(&mut client.bin_dirs, record.bin_dirs.clone());
        let new = now.into_iter().filter(|it| !record.bin_dirs.contains(it));
        client.bin_dirs.extend(new);
        client
    }

    /// Whether a plugin of the pod's network opens ports of the host.
    pub(super) fn opens_ports(&self, pod: &Pod) -> bool {
        match self.known.lock().get(uid(pod)) {
            Some(Known::Open(record, _)) => record.network.declares("portMappings"),
            _ => true,
        }
    }

    fn write(&self, uid: &str, record: &Record) -> Result<(), PathError> {
        spec::write(&self.file(uid), record)
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

/// `None` if plugins have not answered yet.
fn addresses_of(record: &Record) -> Option<Vec<IpAddr>> {
    record.pod.result.as_ref().map(cni::addresses)
}
