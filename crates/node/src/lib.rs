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

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use kube::Client;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

mod boot;
mod claims;
mod cni;
mod config;
mod disk;
mod error;
mod events;
mod eviction;
mod fleet;
mod frames;
#[doc(hidden)]
pub mod fuzzing;
mod hooks;
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
mod register;
pub mod remains;
mod resource_api;
mod rules;
mod runtime;
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
pub use nri::check_nri;
pub use plugins::{ANY_OTHER, REGISTERED_DRIVERS, UNHEALTHY};
pub use pressure::{EVICTION_HARD, Eviction, Reclaims, ThresholdError, Thresholds};
pub use sysctls::Sysctls;

use events::{Kind, Recorder};
use plugins::Plugins;
use pods::Node;
use runtime::{Cri, CriSettings, DynRuntime, Process, Simulated};

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

/// The parts of a node that its tasks share.
struct Parts {
    node: Arc<Node>,
    plugins: Arc<Plugins>,
    api: Arc<resource_api::ResourceApi>,
}

async fn assemble(
    client: Client,
    config: &Config,
    runtime: &DynRuntime,
    sandboxes: Arc<pods::Sandboxes>,
    shutdown: CancellationToken,
    workers: TaskTracker,
) -> Result<Parts, Error> {
    let simulated = config.runtime == RuntimeKind::Simulated;
    let plugins = Arc::new(Plugins::of(config.clone()));
    let api = Arc::new(resource_api::ResourceApi::new(client.clone()));
    let claims = claims::Claims::new(
        Arc::clone(&api),
        Arc::clone(&plugins),
        config.root_dir.join("dra_manager_state"),
        simulated,
    )?;
    let events = Recorder::new(client.clone(), config.node_name.clone());
    let nri = nri::Nri::of(config, runtime, &events, shutdown.clone())?;
    let images = open_images(&client, config, &**runtime, &events).await?;
    let node = Arc::new(Node {
        client: client.clone(),
        runtime: Arc::clone(runtime),
        images,
        delegated: images::Delegated::of(runtime, client.clone(), events.clone(), config)?
            .map(Arc::new),
        claims,
        allocations: pods::Allocations::new(
            register::allocatable(config),
            pods::AllocatableByNode::new(),
        ),
        events,
        pressed: Default::default(),
        services: pods::Services::new(client, config.api_server),
        sandboxes,
        nri,
        pods: Default::default(),
        mirrors: Default::default(),
        ended: Default::default(),
        synced: Default::default(),
        manifests_known: Default::default(),
        shutdown,
        workers,
        config: config.clone(),
    });
    Ok(Parts { node, plugins, api })
}

/// Starts what keeps the node from running short of something.
fn keep_resources(node: &Arc<Node>, tasks: &mut JoinSet<()>) {
    let (collections, requests) = mpsc::channel(1);
    let mut evictions = eviction::Evictions::new(node, collections);
    evictions.look();
    tasks.spawn(evictions.run());
    let garbage = node.images.as_ref().map(|images| images.garbage());
    let delegated = node.delegated.as_ref().map(|images| images.garbage());
    if let Some(images) = garbage.or(delegated) {
        let wanted = &node.config.images;
        tasks.spawn(images::collect(
            images,
            wanted.collection.clone(),
            wanted.collection_period,
            requests,
            node.events.clone(),
            node.config.node_name.clone(),
        ));
    }
}

/// Starts everything that a node does, and waits for `shutdown`.
async fn serve(parts: Parts, tasks: &mut JoinSet<()>) -> Result<(), Error> {
    let Parts { node, plugins, api } = parts;
    let (client, config, runtime) = (&node.client, &node.config, &node.runtime);
    let (events, shutdown) = (&node.events, &node.shutdown);
    let simulated = config.runtime == RuntimeKind::Simulated;
    let (sender, receiver) = mpsc::channel(256);
    keep_resources(&node, tasks);
    // Static pods do not wait for the API server.
    tasks.spawn(pods::dispatch(Arc::clone(&node), receiver));
    if let Some(path) = config.pod_manifest_path.clone() {
        let name = config.node_name.clone();
        tasks.spawn(pods::static_source(path, name, sender.clone()));
    }
    if let (Some(path), Some(nri)) = (&config.nri_socket, node.nri.clone()) {
        // Neither do their plugins.
        let listener = nri::Listener::bind(path).await?;
        tasks.spawn(nri.serve(listener));
    }
    tasks.spawn({
        let node = Arc::clone(&node);
        async move { node.sandboxes.follow(node.config.heartbeat).await }
    });
    let port = server::start(&node, HashSet::new(), tasks).await?;
    // The Node says from the beginning how the network of its pods is.
    let looked = tokio::time::timeout(LONGEST, node.sandboxes.looked());
    tokio::select! {
        // The Node is not ready while plugins take longer.
        _ = looked => {}
        () = shutdown.cancelled() => return Ok(()),
    }
    let mut machine = register::Machine {
        runtime: Arc::clone(runtime),
        condition: node.condition(),
        pressed: node.pressed.subscribe(),
        port,
    };
    let facts = machine.facts();
    if config.plugins {
        tasks.spawn(podresources::serve(Arc::clone(&node))?);
        // Before any driver can publish: slices that are published from now on stay. Slices of simulated drivers are
        // not published again.
        tokio::select! {
            () = plugins::clean_at_start(client, &config.node_name), if !simulated => {}
            () = std::future::ready(()), if simulated => {}
            () = shutdown.cancelled() => return Ok(()),
        }
        let (name, grace) = (config.node_name.clone(), config.slice_grace);
        tasks.spawn(plugins::watch(
            config.registry_dir(),
            Arc::clone(&plugins),
            Arc::clone(&api),
        ));
        tasks.spawn(plugins::clean_when_gone(
            client.clone(),
            name,
            Arc::clone(&plugins),
            grace,
        ));
    }
    let object = tokio::select! {
        result = register::register(client, config, &facts) => result?,
        () = shutdown.cancelled() => return Ok(()),
    };
    if simulated {
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        let slices = config.slices.as_ref().map(|slices| slices.of(uid));
        let slices = slices.unwrap_or_default();
        tokio::select! {
            () = async {
                plugins::keep_slices(client, &slices).await;
                plugins::remove_other_slices(client, &config.node_name, &slices).await;
            } => {}
            () = shutdown.cancelled() => return Ok(()),
        }
        tasks.spawn(plugins::follow_health(
            client.clone(),
            Some(format!("spec.nodeName={}", config.node_name)),
            Arc::clone(&plugins),
        ));
    }
    // Set already if a configuration is run again.
    let _ = config.registered.set(());
    events.node(&object, Kind::Normal, "Starting", "Starting kubelet.");
    for limitation in facts.limitations.iter().filter(|_| !simulated) {
        events.node(
            &object,
            Kind::Warning,
            "IsolationNotApplied",
            limitation.clone(),
        );
    }
    if config.plugins {
        let (client, name) = (client.clone(), config.node_name.clone());
        tasks.spawn(plugins::publish(
            client.clone(),
            object.clone(),
            Arc::clone(&plugins),
        ));
        tasks.spawn(plugins::announce(
            client,
            name,
            Arc::clone(&plugins),
            simulated,
        ));
    }
    tasks.spawn(register::heartbeat(
        client.clone(),
        config.clone(),
        machine,
        node.images.clone(),
        object,
    ));
    tasks.spawn(pods::keep_mirrors(Arc::clone(&node)));
    let selector = format!("spec.nodeName={}", config.node_name);
    tasks.spawn(pods::source(client.clone(), selector, |_| true, sender));
    tracing::info!(node = config.node_name, root = %config.root_dir.display(), runtime = runtime.name(), "node is up");
    tokio::select! {
        () = shutdown.cancelled() => {}
        // No task ends on its own; if one panics, so does the node.
        Some(Err(error)) = tasks.join_next() => if error.is_panic() { std::panic::resume_unwind(error.into_panic()) },
    }
    Ok(())
}

/// How long a node waits for a container runtime or plugins, at its start and at its end. What is away keeps what it has.
const LONGEST: Duration = Duration::from_secs(10);

/// Ends the tasks, and what an ephemeral node runs.
async fn end(
    config: &Config,
    runtime: &dyn runtime::Runtime,
    sandboxes: &pods::Sandboxes,
    mut tasks: JoinSet<()>,
    workers: TaskTracker,
) {
    /// How long a worker may take with what it has begun, such as the start of a container.
    const BEGUN: Duration = Duration::from_secs(2);
    tasks.shutdown().await;
    if config.ephemeral {
        workers.close();
        let _ = tokio::time::timeout(BEGUN, workers.wait()).await;
        stop_all(runtime).await;
        let directory = config.root_dir.join("pods");
        let known = sandboxes.known();
        let detaching = known.iter().map(|uid| {
            let directory = directory.join(uid);
            async move {
                if let Err(error) = sandboxes.detach(uid, &directory).await {
                    tracing::warn!(pod = uid, %error, "the network of a pod was not removed");
                }
            }
        });
        let detached = tokio::time::timeout(LONGEST, futures::future::join_all(detaching)).await;
        if detached.is_err() {
            tracing::warn!("networks of pods were not removed: plugins did not end in time");
        }
        let pods = std::fs::read_dir(directory);
        for pod in pods.into_iter().flatten().flatten() {
            pods::unmount_all(&pod.path());
            if let Some(uid) = pod.file_name().to_str() {
                runtime.forget_pod(uid).await;
            }
        }
    }
}

/// Stops every container.
async fn stop_all(runtime: &dyn runtime::Runtime) {
    const GRACE: Duration = Duration::from_secs(2);
    let Ok(found) = tokio::time::timeout(LONGEST, runtime.recover()).await else {
        return tracing::warn!("containers were not stopped: the container runtime is away");
    };
    let stops = found.into_iter().map(|container| async move {
        runtime.stop(container.running.id.clone(), GRACE).await;
        runtime.remove(&container.running.id);
    });
    futures::future::join_all(stops).await;
    if tokio::time::timeout(LONGEST, runtime.settled())
        .await
        .is_err()
    {
        tracing::warn!("containers that had ended were not all removed");
    }
    if let Some(complete) = runtime.complete() {
        let known = complete.known();
        let closing = known.iter().map(|uid| complete.close(uid));
        let closed = tokio::time::timeout(LONGEST, futures::future::join_all(closing)).await;
        if closed.is_err() {
            tracing::warn!("pods were not ended: the container runtime is away");
        }
    }
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

/// The images of the node, if its containers run from images.
async fn open_images(
    client: &Client,
    config: &Config,
    runtime: &dyn runtime::Runtime,
    events: &Recorder,
) -> Result<Option<Arc<images::Images>>, Error> {
    let plain = runtime.isolation() == shim::spec::Isolation::None;
    match config.images.mode {
        ImageMode::Host => return Ok(None),
        _ if config.runtime == RuntimeKind::Simulated => return Ok(None),
        // It gets images by itself.
        _ if config.runtime == RuntimeKind::Cri => return Ok(None),
        // A plain process uses the files of the host, independent of its image.
        ImageMode::Auto if plain => return Ok(None),
        ImageMode::Require if plain => {
            return Err(Error::Images(
                "containers cannot run from images on this machine, because namespaces are not permitted".into(),
            ));
        }
        ImageMode::Auto | ImageMode::Require => {}
    }
    let (client, events) = (client.clone(), events.clone());
    let images = images::Images::open(config, client, events, runtime.lays_layers()).await?;
    Ok(Some(Arc::new(images)))
}

async fn make_runtime(config: &Config) -> Result<DynRuntime, Error> {
    Ok(match config.runtime {
        RuntimeKind::Simulated => Arc::new(Simulated::default()),
        RuntimeKind::Cri => {
            let settings = CriSettings {
                endpoint: config.cri_endpoint.clone(),
                directory: config.root_dir.clone(),
                cdi_dirs: config.cdi_dirs(),
                logs: config.logs.clone(),
            };
            Arc::new(Cri::new(settings).map_err(|error| Error::Runtime(error.into()))?)
        }
        RuntimeKind::Auto | RuntimeKind::Process => {
            Arc::new(Process::new(config.root_dir.join("containers"), config.shim.clone()).await?)
        }
    })
}
