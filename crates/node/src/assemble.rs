//! The parts of a node: what it is made of before it starts.

use std::sync::Arc;

use kube::Client;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{Config, ImageMode, RuntimeKind};
use crate::error::Error;
use crate::events::Recorder;
use crate::plugins::Plugins;
use crate::pods::Node;
use crate::resource_api::ResourceApi;
use crate::runtime::{Cri, CriSettings, DynRuntime, Process, Runtime, Simulated};
use crate::shim::spec::Isolation;
use crate::{claims, images, nri, pods, register};

/// The parts of a node that its tasks share.
pub(crate) struct Parts {
    pub(crate) node: Arc<Node>,
    pub(crate) plugins: Arc<Plugins>,
    pub(crate) api: Arc<ResourceApi>,
}

/// Creates a node.
///
/// # Errors
/// A directory that cannot be used, or a damaged checkpoint.
pub(crate) async fn assemble(
    client: Client,
    config: &Config,
    runtime: &DynRuntime,
    sandboxes: Arc<pods::Sandboxes>,
    shutdown: CancellationToken,
    workers: TaskTracker,
) -> Result<Parts, Error> {
    let simulated = config.runtime == RuntimeKind::Simulated;
    let plugins = Arc::new(Plugins::of(config.clone()));
    let api = Arc::new(ResourceApi::new(client.clone()));
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
        certificates: pods::Certificates::new(client.clone(), config.node_name.clone()),
        trust_bundles: pods::TrustBundles::new(client.clone()),
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

/// The images of the node, if its containers run from images.
async fn open_images(
    client: &Client,
    config: &Config,
    runtime: &dyn Runtime,
    events: &Recorder,
) -> Result<Option<Arc<images::Images>>, Error> {
    let plain = runtime.isolation() == Isolation::None;
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

/// The runtime of the node's containers.
///
/// # Errors
/// Its directory or its helper cannot be used.
pub(crate) async fn make_runtime(config: &Config) -> Result<DynRuntime, Error> {
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
