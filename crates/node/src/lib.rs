//! The node agent: what a kubelet is to Kubernetes, for DRA. It registers its Node, finds drivers, prepares the claims of pods,
//! runs their containers with the devices they were given, and reports what happens.
//!
//! Invariants:
//! - a claim is prepared before the first container of its pod starts and unprepared after the last one ended, and
//!   before the pod is reported as terminated;
//! - the state on disk (claim checkpoint, container state) is enough to continue after a crash at any moment;
//! - the status of a pod is patched, never replaced: fields of others survive;
//! - namespaces are entered by a helper process with one thread ([`shim`]), never by forking this one.
//!
//! It must not depend on the API server's or the store's code, nor on any particular driver.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use tokio_util::sync::CancellationToken;
//!
//! let client = kube::Client::try_default().await?;
//! let config = allot_node::Config::new("node-1", "/var/lib/allot/n1");
//! allot_node::run(client, config, CancellationToken::new()).await?;
//! # Ok(())
//! # }
//! ```

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

mod assemble;
mod boot;
mod capacity;
mod claims;
mod cni;
mod config;
mod disk;
mod end;
mod error;
mod events;
mod eviction;
mod fleet;
mod frames;
#[doc(hidden)]
pub mod fuzzing;
mod hooks;
mod huge_pages;
mod images;
mod interfaces;
mod manifests;
mod memory;
mod metrics;
mod nri;
mod oci;
mod plugins;
mod podresources;
mod pods;
mod pressure;
mod processes;
mod rdt;
mod register;
pub mod remains;
mod resource_api;
mod rules;
mod runtime;
mod serve;
mod server;
pub mod shim;
mod spdy;
pub mod spec;
mod sysctls;
mod watching;

pub use cni::{Bridge, BridgeError, RangeError, Ranges, remove_bridge};
pub use config::{
    CNI_BIN_DIRS, CNI_CONF_DIR, CRI_ENDPOINT, Config, HARDWARE, ImageMode, Images, LogLimits,
    NetworkSettings, PodNetwork, RuntimeKind, SimulatedSlices, Tls,
};
pub use error::{Error, PathError, is_refused_by_admission};
pub use huge_pages::go_without as go_without_huge_pages;
pub use nri::check_nri;
pub use plugins::{ANY_OTHER, REGISTERED_DRIVERS, UNHEALTHY};
pub use pressure::{EVICTION_HARD, Eviction, Reclaims, ThresholdError, Thresholds};
pub use sysctls::Sysctls;

use assemble::{assemble, make_runtime};
use end::end;
use serve::serve;

/// The socket of the container runtime at an endpoint, which is `unix:///PATH` or a path.
///
/// # Errors
/// The endpoint is something else.
pub fn cri_socket(endpoint: &str) -> Result<std::path::PathBuf, Error> {
    runtime::cri_socket(endpoint).map_err(|error| Error::Runtime(error.into()))
}

/// Runs one node until `shutdown`. Containers keep running after that, and the next run adopts them, unless the node is
/// [ephemeral](Config::ephemeral).
///
/// # Errors
/// What cannot be retried: a directory that cannot be used, a damaged checkpoint, a Node that the API server refuses.
pub async fn run(client: Client, config: Config, shutdown: CancellationToken) -> Result<(), Error> {
    let io = |path: &std::path::Path, source| Error::Io {
        path: path.to_owned(),
        source,
    };
    let config = config.absolute()?;
    let mut directories = vec![
        config.registry_dir(),
        config.plugins_dir(),
        config.root_dir.join("pod-resources"),
    ];
    directories.extend(config.cdi_dirs());
    for directory in directories {
        std::fs::create_dir_all(&directory).map_err(|source| io(&directory, source))?;
    }
    // Tokens and secrets in volumes are for pods only.
    let pods = config.root_dir.join("pods");
    let made = allot_cdi::file::create_private_dir(&pods, 0o750);
    made.map_err(|source| io(&pods, source))?;
    let runtime = make_runtime(&config).await?;
    // Its own, so that an error ends the workers of pods as well.
    let stop = shutdown.child_token();
    let (workers, mut tasks) = (TaskTracker::new(), JoinSet::new());
    let mut network = config.network.clone();
    if runtime.complete().is_some() {
        // Such a runtime connects pods itself, so that the agent does not call the plugins as well.
        network.mode = PodNetwork::Host;
    }
    let sandboxes = pods::Sandboxes::open(&config.root_dir, &network, runtime.isolation());
    let sandboxes = Arc::new(sandboxes);
    let served = async {
        let networks = Arc::clone(&sandboxes);
        let parts = assemble(
            client,
            &config,
            &runtime,
            networks,
            stop.clone(),
            workers.clone(),
        )
        .await?;
        serve(parts, &mut tasks).await
    };
    // However it ends, nothing of an ephemeral node is left.
    let served = AssertUnwindSafe(served).catch_unwind().await;
    stop.cancel();
    end(&config, &*runtime, &sandboxes, tasks, workers).await;
    served.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs several nodes in this process; the first error ends all. Simulated nodes without plugins share one agent, so that
/// thousands of them are possible.
///
/// # Errors
/// See [`run`].
pub async fn run_fleet(
    client: Client,
    nodes: Vec<Config>,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let alike = |config: &Config| config.runtime == RuntimeKind::Simulated && !config.plugins;
    if nodes.len() > 1 && nodes.iter().all(alike) {
        return fleet::run(client, nodes, shutdown).await;
    }
    // The others end in order too, so that no container of an ephemeral node is left.
    let stop = shutdown.child_token();
    let runs = nodes.into_iter().map(|config| {
        let (run, stop) = (run(client.clone(), config, stop.clone()), stop.clone());
        async move { run.await.inspect_err(|_| stop.cancel()) }
    });
    futures::future::join_all(runs).await.into_iter().collect()
}
