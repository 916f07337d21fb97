//! The node resource interface (NRI), as containerd has it: programs on the node, called plugins, connect to a socket, are told of
//! pods and containers, and adjust the containers that are created. DRA drivers use it to move network interfaces and to pin CPUs.
//!
//! Invariants:
//! - whatever is told or asked is told to one plugin after the other, in the order of their indexes, and one event at a time;
//! - what a plugin requests is in force when the container starts, or else the container is not started, and an event names the
//!   plugin and the field;
//! - a plugin that does not answer in time is closed, and containers go on without it. It may connect again, and is then told all
//!   pods and containers;
//! - a plugin is as powerful as root of the node: only root and the agent's user can connect.
//!
//! [`frames`] has the form of what is sent, [`connection`] calls in both directions, [`plugin`] one plugin, [`listen`] the socket,
//! [`events`] what is told and asked, [`merge`] what several plugins request together, and [`apply`] how it is carried out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use allot_protos::nri::{Container, ContainerState, PodSandbox};
use parking_lot::Mutex;
use prost::Message as _;
use tokio::sync::{MutexGuard, OwnedRwLockReadGuard, RwLock, Semaphore, SetOnce, watch};
use tokio_util::sync::CancellationToken;

use crate::boot;
use crate::config::{Config, RuntimeKind};
use crate::error::Error;
use crate::events::Recorder;
use crate::runtime::{DynRuntime, Found};
use crate::spec::{self, ContainerSpec, Exit, Isolation};

mod apply;
mod connection;
mod describe;
mod events;
mod frames;
mod listen;
mod merge;
mod owners;
mod plugin;
mod resources;
#[cfg(test)]
mod tests;

pub(crate) use describe::{Facts, sandbox};
pub(crate) use listen::Listener;
pub(crate) use merge::Adjustments;
use plugin::Plugin;

/// How long a plugin may take to register, and to answer: upstream's defaults.
const REGISTRATION: Duration = Duration::from_secs(5);
const REQUEST: Duration = Duration::from_secs(2);
/// How long a plugin that joins waits for containers that are being started.
const JOIN: Duration = Duration::from_secs(30);
/// How long the updates that plugins request at once may take altogether: the kernel may have to reclaim memory for each.
const UPDATE: Duration = Duration::from_secs(5);
/// Connections at the same time.
const MOST_PLUGINS: usize = 32;

/// The service of plugins, by its name in calls.
const PLUGIN_SERVICE: &str = "nri.pkg.api.v1alpha1.Plugin";
/// The service of the agent.
const RUNTIME_SERVICE: &str = "nri.pkg.api.v1alpha1.Runtime";

/// Name of the record about a pod that plugins know, in the pod's directory.
const RECORD: &str = "nri-sandbox";

/// Where a container is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Created,
    Running,
    Stopped,
}

struct KnownContainer {
    container: Container,
    pod: String,
    stage: Stage,
    /// How it ends, once it runs.
    exit: Option<watch::Receiver<Option<Exit>>>,
}

impl KnownContainer {
    fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        let state = match stage {
            Stage::Created => ContainerState::ContainerCreated,
            Stage::Running => ContainerState::ContainerRunning,
            Stage::Stopped => ContainerState::ContainerStopped,
        };
        self.container.state = state as i32;
    }
}

struct KnownPod {
    sandbox: PodSandbox,
    stopped: bool,
}

/// What plugins are sent when they connect.
#[derive(Default)]
struct Known {
    pods: BTreeMap<String, KnownPod>,
    containers: BTreeMap<String, KnownContainer>,
}

/// The plugins of a node.
pub(crate) struct Nri {
    config: Config,
    runtime: DynRuntime,
    recorder: Recorder,
    shutdown: CancellationToken,
    /// In their order. Whatever is told or asked holds this lock.
    plugins: tokio::sync::Mutex<Vec<Arc<Plugin>>>,
    known: Mutex<Known>,
    /// Held for reading while a container is started or changed, and for writing while a plugin joins.
    plugin_sync: Arc<RwLock<()>>,
    /// Set when the containers of an earlier agent are known.
    adopted: SetOnce<()>,
    places: Arc<Semaphore>,
}

/// No plugin joins while this exists: each is notified of a container's creation, its start and its updates as a whole, or else
/// finds the container among those that there are. As `BlockPluginSync` of upstream's runtime adaptation.
#[must_use]
pub(crate) struct PluginSyncBlock(#[expect(dead_code, reason = "held")] OwnedRwLockReadGuard<()>);

/// Checks that a node with this runtime can have a socket for plugins.
///
/// # Errors
/// The reason, for the user of the flag.
pub fn check_nri(runtime: RuntimeKind, nodes: usize) -> Result<(), Error> {
    let reason = match runtime {
        RuntimeKind::Cri => {
            "with --runtime cri the container runtime has a socket of its own; configure it there"
        }
        RuntimeKind::Simulated => "--runtime simulated has no containers that could be adjusted",
        RuntimeKind::Auto | RuntimeKind::Process if nodes > 1 => {
            "it is for one node: plugins would not know which node a container is of"
        }
        RuntimeKind::Auto | RuntimeKind::Process => return Ok(()),
    };
    Err(Error::Nri(reason.to_owned()))
}

impl Nri {
    /// The plugins of a node, if it has a socket for them.
    ///
    /// # Errors
    /// Plugins are not possible on this node.
    pub(crate) fn of(
        config: &Config,
        runtime: &DynRuntime,
        recorder: &Recorder,
        shutdown: CancellationToken,
    ) -> Result<Option<Arc<Self>>, Error> {
        if config.nri_socket.is_none() {
            return Ok(None);
        }
        check_nri(config.runtime, 1)?;
        if runtime.isolation() != Isolation::Namespaces {
            let reason = "containers can only be adjusted by an agent that runs as root and may create namespaces";
            return Err(Error::Nri(reason.to_owned()));
        }
        let this = Self {
            config: config.clone(),
            runtime: Arc::clone(runtime),
            recorder: recorder.clone(),
            shutdown,
            plugins: tokio::sync::Mutex::default(),
            known: Mutex::default(),
            plugin_sync: Arc::default(),
            adopted: SetOnce::new(),
            places: Arc::new(Semaphore::new(MOST_PLUGINS)),
        };
        this.read_records();
        Ok(Some(Arc::new(this)))
    }

    fn record_of(&self, uid: &str) -> PathBuf {
        self.config.root_dir.join("pods").join(uid).join(RECORD)
    }

    /// Reads which pods an earlier agent has told, since the machine was started.
    fn read_records(&self) {
        let pods = std::fs::read_dir(self.config.root_dir.join("pods"));
        for pod in pods.into_iter().flatten().flatten() {
            let Some(sandbox) = read_record(&pod.path().join(RECORD)) else {
                continue;
            };
            let known = KnownPod {
                sandbox,
                stopped: false,
            };
            let uid = pod.file_name().to_string_lossy().into_owned();
            self.known.lock().pods.insert(uid, known);
        }
    }

    /// Records that plugins were told about a pod: the next agent does not repeat it.
    fn write_record(&self, sandbox: &PodSandbox) {
        let path = self.record_of(&sandbox.id);
        let bytes = [boot::id().as_bytes(), b"\n", &sandbox.encode_to_vec()].concat();
        let directory = path.parent().unwrap_or(Path::new("/"));
        let written = std::fs::create_dir_all(directory)
            .and_then(|()| allot_cdi::file::write_atomic(&path, &bytes, 0o600));
        if let Err(error) = written {
            tracing::warn!(path = %path.display(), %error, "the record of a pod was not written");
        }
    }

    /// Takes over the containers that an earlier agent has started. Plugins that connect are notified of them.
    pub(crate) fn adopt(self: &Arc<Self>, found: &[Found]) {
        for Found { running, .. } in found {
            let directory = self.config.root_dir.join("containers").join(&running.id);
            let Ok(mut spec) = spec::read::<ContainerSpec>(&directory.join(spec::SPEC)) else {
                continue;
            };
            spec.id.clone_from(&running.id);
            let ended = running.exit.borrow().is_some();
            let uid = &spec.owner.pod_uid;
            if ended && !self.known.lock().pods.contains_key(uid) {
                // Plugins were told that its pod has ended, or never knew it.
                continue;
            }
            let mut entry = KnownContainer {
                container: describe::container(&spec),
                pod: spec.owner.pod_uid.clone(),
                stage: Stage::Created,
                exit: Some(running.exit.clone()),
            };
            let started = running.started.as_nanosecond();
            entry.container.started_at = i64::try_from(started).unwrap_or_default();
            entry.container.pid = self.pid_of(&running.id);
            entry.enter(if ended {
                Stage::Stopped
            } else {
                Stage::Running
            });
            {
                let mut known = self.known.lock();
                let uid = spec.owner.pod_uid.clone();
                // That of an agent without plugins; its worker adds the rest.
                known.pods.entry(uid).or_insert_with(|| KnownPod {
                    sandbox: describe::sandbox_of(&spec.owner),
                    stopped: false,
                });
                known.containers.insert(running.id.clone(), entry);
            }
            self.watch(running.id.clone(), running.exit.clone());
        }
        let _ = self.adopted.set(());
    }

    /// Has plugins wait that join.
    pub(crate) async fn block_plugin_sync(&self) -> PluginSyncBlock {
        PluginSyncBlock(Arc::clone(&self.plugin_sync).read_owned().await)
    }

    /// The process of a container, as the helper has recorded it.
    fn pid_of(&self, id: &str) -> u32 {
        let directory = self.config.root_dir.join("containers").join(id);
        let state = spec::read::<spec::State>(&directory.join(spec::STATE));
        state.map_or(0, |state| u32::try_from(state.pid).unwrap_or_default())
    }

    /// Updates what is known of a pod, if plugins were told about it. Its resources are those that plugins were told: they are
    /// told of others when these are in force.
    pub(crate) fn know(&self, mut sandbox: PodSandbox) {
        let updated = match self.known.lock().pods.get_mut(&sandbox.id) {
            Some(known) => {
                let told = known.sandbox.linux.as_mut();
                if let Some(resources) = told.and_then(|linux| linux.pod_resources.clone()) {
                    sandbox.linux.get_or_insert_default().pod_resources = Some(resources);
                }
                let differs = known.sandbox != sandbox;
                known.sandbox.clone_from(&sandbox);
                differs && !known.stopped
            }
            None => false,
        };
        if updated {
            self.write_record(&sandbox);
        }
    }

    /// UIDs of the pods that plugins were told about.
    pub(crate) fn pods(&self) -> Vec<String> {
        self.known.lock().pods.keys().cloned().collect()
    }

    /// Carries out what plugins have requested for a container.
    ///
    /// # Errors
    /// What cannot be carried out, with the plugin.
    pub(crate) fn apply(
        &self,
        wanted: &Adjustments,
        spec: &mut ContainerSpec,
    ) -> Result<(), String> {
        let enforced = self.runtime.enforces_limits();
        let applied = apply::apply(wanted, &self.config, enforced, spec);
        applied.map_err(|error| error.to_string())
    }

    /// Waits until it is the turn of an event. Plugins that are closed are gone.
    async fn turn(&self) -> MutexGuard<'_, Vec<Arc<Plugin>>> {
        let mut plugins = self.plugins.lock().await;
        plugins.retain(|plugin| !plugin.connection.is_closed());
        plugins
    }
}

/// A record of this run of the machine.
fn read_record(path: &Path) -> Option<PodSandbox> {
    const LARGEST: u64 = 8 << 20;
    let bytes = allot_cdi::file::read_bounded(path, LARGEST).ok()?;
    let rest = bytes.strip_prefix(boot::id().as_bytes())?;
    PodSandbox::decode(rest.strip_prefix(b"\n")?).ok()
}
