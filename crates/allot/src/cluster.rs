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
mod start;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allot_node::ImageMode;
use anyhow::{anyhow, bail};
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::SetOnce;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use crate::clusters::default_directory;
use crate::clusters::record::{Process, Record};
use crate::{apiserver, bounds, gpus};
pub use kinds::{Driver, Runtime};
use network::PodNetworks;
pub use place::ClusterDirectory;
use place::{end_containers, removed};
use progress::Progress;

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
    /// Directories with CDI files, the last one first in priority, for a single node; when absent one below the node's, with --runtime
    /// cri /etc/cdi and /var/run/cdi, where runtimes look. Drivers write to the last one
    #[arg(long, value_name = "DIR")]
    pub cdi_dir: Vec<PathBuf>,
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
    /// The API server, to which the dashboard is added.
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
    /// Directory of the store, keys and logs.
    pub directory: PathBuf,
    /// The temporary directory of a cluster in memory.
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
        // Without its directory the cluster cannot be started again. A temporary directory is removed when it is dropped.
        self.network.remove_if(!self.directory.exists());
    }
}
