//! A whole cluster in one process: API server, controllers, scheduler, nodes and the example driver. `allot up` runs it
//! permanently, `allot demo` demonstrates it.
//!
//! The components use an in-process client for the API server, so they run unchanged against any other Kubernetes; only
//! the driver is a separate process.

mod children;
mod driver;
mod hardware;
mod kinds;
pub mod network;
mod place;
pub mod progress;
mod ready;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use allot_apiserver::admission::plugins::Plugin;
use allot_apiserver::identity::{MASTERS, User};
use allot_controllers::{Config as Controllers, Controller};
use allot_node::{Config as Node, ImageMode, RuntimeKind};
use anyhow::{anyhow, bail};
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::SetOnce;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use crate::clusters::default_directory;
use crate::clusters::record::{Process, Record};
use crate::component::read_scheduler_config;
use crate::{apiserver, bounds, gpus};
pub use kinds::{Driver, Runtime};
use network::PodNetworks;
pub use place::ClusterDirectory;
use place::{end_containers, removed};
use progress::Progress;

/// Longest path of a Unix socket that Linux takes, with its final NUL.
const SOCKET_PATH_MAX: usize = 108;

/// The longest socket path below a node's directory.
const LONGEST_SOCKET: &str = "plugins_registry/gpu.example.com-reg.sock";

/// How long components may take to finish before the process ends without them.
const GRACE: Duration = Duration::from_secs(10);

/// What to run.
#[derive(Debug, clap::Args)]
#[group(id = "cluster")]
pub struct Args {
    #[command(flatten)]
    pub apiserver: apiserver::Args,
    /// How many nodes to run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = bounds::within(bounds::NODES))]
    pub nodes: usize,
    /// How containers run: as processes in namespaces of their own, not at all, or by a container runtime
    #[arg(long, value_enum, default_value_t = Runtime::Auto)]
    pub runtime: Runtime,
    /// Where the container runtime listens, with --runtime cri
    #[arg(long, value_name = "unix:///PATH", default_value = allot_node::CRI_ENDPOINT)]
    pub cri_endpoint: String,
    #[command(flatten)]
    pub network: network::Args,
    /// Where the files of containers come from: auto (their image, or the host's files if its registry cannot be
    /// reached and the pod names a command), require (always their image) or host (always the host's files)
    #[arg(long, env = "ALLOT_IMAGES", default_value = "auto")]
    pub images: ImageMode,
    /// File with mirrors, plain-HTTP registries and certificates of registries; docs/images.md has its form
    #[arg(long, value_name = "FILE")]
    pub registries: Option<PathBuf>,
    /// Switch on what dynamic resource allocation needs in the emulated release: its feature gate and API version
    #[arg(long)]
    pub dra: bool,
    /// The driver to start on every node; default: gpu if the release serves devices, else none
    #[arg(long, value_enum, value_name = "DRIVER")]
    pub driver: Option<Driver>,
    #[command(flatten)]
    pub gpus: gpus::Flags,
    /// Hardware to model: names from `allot hardware list`, or files; =N for the number of nodes, + for several on a node
    #[arg(long, value_name = "MODEL[+MODEL][=N]", value_delimiter = ',')]
    pub hardware: Vec<String>,
    /// Start no driver; the same as --driver none
    #[arg(long, conflicts_with = "driver")]
    pub no_driver: bool,
    /// Name of the test driver, with --driver test; default: test-driver.cdi.k8s.io
    #[arg(long, value_name = "NAME")]
    pub drivername: Option<String>,
    /// KubeSchedulerConfiguration file
    #[arg(long, value_name = "FILE")]
    pub scheduler_config: Option<PathBuf>,
    /// Controllers to run: `*` for all, names, `-name` to leave one out
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "*",
        allow_hyphen_values = true
    )]
    pub controllers: Vec<String>,
}

impl Args {
    /// A cluster in memory on a port that the system picks.
    pub fn temporary() -> anyhow::Result<Self> {
        #[derive(clap::Parser)]
        struct Parsed {
            #[command(flatten)]
            args: Args,
        }
        // The demonstration needs no network.
        let flags = "allot --in-memory --listen 127.0.0.1:0 --images host".split(' ');
        Ok(<Parsed as clap::Parser>::try_parse_from(flags)?.args)
    }
}

/// A running cluster.
pub struct Cluster {
    /// URL of the API server.
    pub url: String,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// The API server, for what is served beside the API.
    pub server: allot_apiserver::Server,
    /// The addresses under which clients reach it.
    pub reached: Vec<SocketAddr>,
    /// A client in this process, with every right.
    pub client: Client,
    /// How many nodes are waited for after their registration.
    nodes: usize,
    /// Every namespace gets an account for its pods.
    accounts_are_made: bool,
    /// Set as each node can be reached.
    registered: Vec<Arc<SetOnce<()>>>,
    driver: Option<children::Driver>,
    /// How many nodes have ResourceSlices that are written after their registration.
    published: usize,
    /// Threads of the components: long decisions must not delay the API server's connections.
    threads: Threads,
    components: JoinSet<anyhow::Result<()>>,
    /// Names of the components that have not ended.
    alive: Arc<Mutex<BTreeSet<&'static str>>>,
    stop_components: CancellationToken,
    api: tokio::task::JoinHandle<std::io::Result<()>>,
    stop_api: CancellationToken,
    progress: Progress,
    /// Where its store, keys and logs are.
    pub directory: PathBuf,
    /// Holds what a cluster in memory needs on disk.
    scratch: Option<tempfile::TempDir>,
    network: PodNetworks,
    /// Holds a directory that was named for a cluster in memory; the store holds that of another one.
    _lock: Option<allot_store::DirectoryLock>,
}

/// A runtime that is shut down without waiting, which is the only way inside of another one.
struct Threads(Option<tokio::runtime::Runtime>);

impl Threads {
    fn new() -> anyhow::Result<Self> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.enable_all().thread_name("components").build()?;
        Ok(Self(Some(runtime)))
    }

    fn handle(&self) -> &tokio::runtime::Handle {
        let runtime = self.0.as_ref();
        runtime.expect("taken when dropped only").handle()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Cluster {
    /// Starts everything and returns as soon as the API server answers; [`Cluster::ready`] waits
    /// for the rest.
    pub async fn start(args: Args) -> anyhow::Result<Self> {
        Self::start_at(ClusterDirectory::of(&args)?, args, Progress::default()).await
    }

    /// The same at a place that was chosen before.
    pub async fn start_at(
        place: ClusterDirectory,
        mut args: Args,
        progress: Progress,
    ) -> anyhow::Result<Self> {
        let ClusterDirectory { directory, scratch } = place;
        // A cluster that cannot be started again must leave no containers behind.
        let ephemeral = scratch.is_some();
        let hardware = hardware::read(&mut args)?;
        progress.step("starting: the API server");
        let nodes = node_directories(&directory, args.nodes)?;
        args.apiserver.data_dir = Some(directory.clone());
        let classic = matches!(args.driver, Some(Driver::Test | Driver::Net));
        driver::check_flags(&args, hardware.is_some())?;
        let cri = args.runtime == Runtime::Cri;
        anyhow::ensure!(
            !cri || args.nodes <= 1,
            "--runtime cri is for one node: a container runtime has one set of CDI files"
        );
        anyhow::ensure!(
            !cri || args.hardware.is_empty(),
            "--hardware is not possible with --runtime cri: start `allot driver model` beside it"
        );
        if cri {
            kinds::runtime_listens(&args.cri_endpoint).await?;
        }
        if args.dra {
            args.apiserver.switch_on_dra(classic)?;
        }
        let registries = args.registries.as_deref();
        let registries = registries.map(allot_images::Registries::read).transpose()?;
        let registries = registries.unwrap_or_default();
        let controllers = Controllers::embedded().select(&args.controllers)?;
        args.apiserver.accounts_are_made = controllers
            .controllers
            .contains(&Controller::ServiceAccount);
        let protection = [
            Controller::ClaimProtection,
            Controller::VolumeProtection,
            Controller::ClassProtection,
        ];
        let runs = |controller: &Controller| controllers.controllers.contains(controller);
        if !protection.iter().all(runs) {
            args.apiserver
                .leave_unprotected(Plugin::StorageObjectInUseProtection);
        }
        if !runs(&Controller::PodGroupProtection) {
            args.apiserver.leave_unprotected(Plugin::PodGroupProtection);
        }
        // Invalid flags are rejected before anything is opened.
        let features = args.apiserver.features()?;
        args.apiserver.serve_kinds_of(&features);
        let scheduling = read_scheduler_config(args.scheduler_config.as_deref(), features.clone())?;

        // Another cluster may run there, whose kubeconfig would be replaced.
        let lock = (args.apiserver.in_memory && !ephemeral)
            .then(|| allot_store::DirectoryLock::take(&directory))
            .transpose()?;
        let network = PodNetworks::open(&args, &directory, ephemeral).await?;
        args.apiserver.pod_gateway = network.gateway();
        let (stop_api, stop_components) = (CancellationToken::new(), CancellationToken::new());
        let running = apiserver::start(&args.apiserver, stop_api.clone()).await?;
        running.server.check_policy_types();
        let as_user = |name: &str, agent: &'static str| {
            let service = running.server.client_service(User::new(name, [MASTERS]));
            Client::new(service.with_agent(agent), "default")
        };
        let mut cluster = Self {
            url: running.url,
            kubeconfig: running.kubeconfig,
            server: running.server.clone(),
            reached: running.reached,
            client: as_user("kubernetes-admin", "allot"),
            // Nodes that share an agent are ready as soon as they are registered.
            nodes: match hardware::drivers_can_register(&args) {
                true => args.nodes,
                false => 0,
            },
            accounts_are_made: args.apiserver.accounts_are_made,
            registered: Vec::new(),
            driver: None,
            published: 0,
            threads: Threads::new()?,
            components: JoinSet::new(),
            alive: Arc::default(),
            stop_components: stop_components.clone(),
            api: running.task,
            stop_api,
            progress,
            directory,
            scratch,
            network,
            _lock: lock,
        };

        let client = as_user("system:kube-scheduler", "allot-scheduler");
        cluster.spawn("scheduler", |stop| {
            allot_scheduler::run(client, scheduling, stop)
        });
        let client = as_user("system:kube-controller-manager", "allot-controllers");
        let config = Controllers {
            root_ca: Some(running.authority.certificate().to_owned()),
            ..controllers
        };
        cluster.spawn("controllers", |stop| {
            allot_controllers::run(client, config, stop)
        });
        let (driver, hardware) = driver::choose(&cluster.client, &args, hardware).await?;
        let hardware = hardware.map(Arc::new);
        if !nodes.is_empty() {
            let simulated = args.runtime == Runtime::Simulated;
            let plugins = hardware::drivers_can_register(&args);
            let fleet = nodes
                .iter()
                .enumerate()
                .map(|(number, (name, root))| {
                    let mut config =
                        node_config(name, root, args.runtime.into(), &running.authority)?;
                    config.cri_endpoint.clone_from(&args.cri_endpoint);
                    cluster
                        .network
                        .equip(number, running.address, &mut config)?;
                    config.ephemeral = ephemeral;
                    config.images.mode = args.images;
                    config.images.registries = registries.clone();
                    config.plugins = plugins;
                    if let Some(hardware) = &hardware {
                        hardware::equip(hardware, number, simulated, &mut config)?;
                    }
                    anyhow::Ok(config)
                })
                .collect::<anyhow::Result<Vec<_>>>()?;
            cluster.registered = fleet.iter().map(|node| node.registered.clone()).collect();
            let client = as_user("system:nodes", "allot-node");
            cluster.spawn("nodes", |stop| allot_node::run_fleet(client, fleet, stop));
            if let Some(hardware) = hardware.filter(|_| !simulated) {
                cluster.published = hardware::equipped(&hardware, args.nodes);
                let drivers = hardware::Drivers {
                    client: as_user("system:nodes", "allot-driver"),
                    fleet: hardware,
                    nodes: nodes.clone(),
                    registered: cluster.registered.clone(),
                };
                cluster.spawn("hardware", |stop| drivers.run(stop));
            }
        }
        cluster.driver = driver;
        if let Some(driver) = cluster.driver.clone() {
            // Where the runtime looks, which is not below the node's directory.
            let mut kubelet = Node::new("", "/");
            kubelet.runtime = args.runtime.into();
            let cdi = kubelet.cdi_dirs().pop().filter(|_| cri);
            let children = children::Drivers::new(driver, &cluster.kubeconfig, nodes, cdi);
            cluster.spawn("driver", |stop| children.run(stop));
        }
        Ok(cluster)
    }

    fn spawn<F, E>(&mut self, name: &'static str, start: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<anyhow::Error>,
    {
        let stop = self.stop_components.clone();
        let work = start(stop.clone());
        let alive = self.alive.clone();
        alive.lock().insert(name);
        self.components.spawn_on(
            async move {
                let result = work.await;
                alive.lock().remove(name);
                match result {
                    Err(error) => Err(error.into().context(format!("the {name} failed"))),
                    Ok(()) if stop.is_cancelled() => Ok(()),
                    Ok(()) => Err(anyhow!("the {name} ended unexpectedly")),
                }
            },
            self.threads.handle(),
        );
    }

    /// Waits until every node is ready, every driver has published its devices, and pods have an account.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        let waited = async {
            // A Node of an earlier run is ready before anything listens.
            futures::future::join_all(self.registered.iter().map(|node| node.wait())).await;
            if self.accounts_are_made {
                ready::wait_for_account(&self.client, &self.progress).await?;
            }
            let driver = self.driver.as_ref();
            ready::wait(&self.client, self.nodes, driver, &self.progress).await?;
            ready::wait_for_slices(&self.client, self.published, &self.progress).await
        };
        let result = tokio::select! {
            result = waited => result,
            failed = self.components.join_next() => failed.map_or(Ok(()), |joined| joined?),
        };
        self.progress.clear();
        result
    }

    /// The record of the cluster for other commands.
    #[must_use]
    pub fn record(&self) -> Record {
        Record {
            name: None,
            data_dir: self.directory.clone(),
            temporary: self.scratch.is_some(),
            process: Process::current(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            server: self.url.clone(),
            kubeconfig: self.kubeconfig.clone(),
            merged_into: None,
            nodes: self.nodes,
            log: None,
            dashboard: None,
            started: jiff::Timestamp::now(),
            ready: false,
        }
    }

    /// Runs until `shutdown` or until a component fails, then stops everything: first the clients of the API server,
    /// the API server last.
    pub async fn run(mut self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let outcome = tokio::select! {
            () = shutdown.cancelled() => Ok(()),
            failed = self.components.join_next() => match failed {
                Some(joined) => joined?,
                None => bail!("every component ended"),
            },
            served = &mut self.api => {
                served??;
                bail!("the API server ended unexpectedly")
            }
            () = removed(self.directory.clone()) => {
                let directory = self.directory.clone();
                self.stop().await;
                end_containers(directory.clone()).await;
                bail!("the data directory {} was removed", directory.display())
            }
        };
        self.stop().await;
        outcome
    }

    /// Stops everything.
    pub async fn stop(mut self) {
        self.stop_components.cancel();
        let finished = tokio::time::timeout(GRACE, async {
            while let Some(joined) = self.components.join_next().await {
                if let Ok(Err(error)) = joined {
                    tracing::warn!("{error:#}");
                }
            }
        });
        if finished.await.is_err() {
            let late: Vec<_> = self.alive.lock().iter().copied().collect();
            let (late, seconds) = (late.join(", "), GRACE.as_secs());
            tracing::warn!("not finished within {seconds}s, ending without: {late}");
        }
        self.components.abort_all();
        self.stop_api.cancel();
        let _ = tokio::time::timeout(GRACE, self.api).await;
        // Without its directory it cannot be started again either. That of a temporary one goes when it is dropped.
        self.network.remove_if(!self.directory.exists());
    }
}

/// Name and directory of every node.
fn node_directories(directory: &Path, count: usize) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let nodes: Vec<_> = (0..count)
        .map(|index| {
            let name = format!("node-{index}");
            let root = directory.join("nodes").join(&name);
            (name, root)
        })
        .collect();
    if let Some((_, root)) = nodes.last() {
        let length = root.join(LONGEST_SOCKET).as_os_str().len() + 1;
        if length > SOCKET_PATH_MAX {
            bail!(
                "the data directory {} is too deep: Unix sockets below it would have a path of {length} bytes, \
                 {SOCKET_PATH_MAX} are possible; choose a shorter --data-dir",
                directory.display()
            );
        }
    }
    Ok(nodes)
}

fn node_config(
    name: &str,
    root: &Path,
    runtime: RuntimeKind,
    authority: &allot_apiserver::pki::Authority,
) -> anyhow::Result<Node> {
    let shim: Vec<OsString> = vec![std::env::current_exe()?.into(), "node-shim".into()];
    let mut config = Node::new(name, root);
    config.runtime = runtime;
    config.shim = shim;
    config.listen = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    config.tls.client_ca_pem = Some(authority.certificate().as_bytes().to_vec());
    Ok(config)
}

#[cfg(test)]
mod tests;
