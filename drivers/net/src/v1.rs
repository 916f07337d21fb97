//! The network driver for `resource.k8s.io/v1`: publishes the node's network interfaces as devices and attaches an interface
//! to the pod's network namespace for each allocated device.
//!
//! [`inventory`] discovers the node's interfaces; [`parameters`] parses the opaque parameters; `driver` plans interfaces
//! and allocates addresses from [`pools`]; [`attach`], a hook of the container runtime, creates the interface once the
//! namespace exists; `release` restores it; `status` reports it in the claim's status; `reclaim` releases addresses of nodes
//! that are gone.
//!
//! Invariants:
//! - every resource is recorded before it is used and can be found again after a restart: addresses in the pool's status,
//!   interfaces by their [`identity`], which a pod cannot change, plans in files;
//! - an address belongs to one device of one claim, from before the interface gets it until after the interface is gone;
//! - no interface is created on the node itself: it is created in the pod's namespace and removed with that namespace.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allot_driver::{Controls, Error, KUBELET_TIMEOUT, Plugin, Pool, Resources, StatusQueue};
use allot_netlink::Changes;
use futures::StreamExt;
use inotify::{Inotify, WatchMask};
use k8s_openapi::api::resource::v1::Device;
use kube::Client;
use tokio_util::sync::CancellationToken;

pub mod attach;
mod driver;
#[cfg(test)]
mod harness;
mod held;
pub mod identity;
pub mod inventory;
pub mod parameters;
pub mod plan;
pub mod pools;
mod reclaim;
mod release;
mod status;
mod store;
mod text;
mod webhook;

use driver::Interfaces;
use held::Held;
use inventory::Selection;
use plan::Plans;
use store::Pools;

pub use webhook::webhook;

/// Name of the driver and of its DeviceClass.
pub const DRIVER_NAME: &str = "net.allot.dev";
/// Kind of the driver's CDI devices.
pub const CDI_KIND: &str = "net.allot.dev/interface";
/// Annotation of a CDI device whose pods need their own network namespace. Runtimes that always create one for each pod
/// can ignore it.
pub const POD_NETWORK: &str = "allot.dev/network-namespace";

/// Polling interval for properties without change notifications from the kernel, such as the speed.
const RESYNC: Duration = Duration::from_secs(60);
/// Debounce interval, as interface changes arrive in bursts.
const DEBOUNCE: Duration = Duration::from_millis(200);

/// Configuration of the driver.
#[derive(Debug, Clone)]
pub struct Config {
    /// Name of the node.
    pub node_name: String,
    /// The kubelet's root directory.
    pub kubelet_dir: PathBuf,
    /// Directory for CDI files.
    pub cdi_dir: PathBuf,
    /// Selects the interfaces to publish.
    pub selection: Selection,
    /// Hook program for container runtimes; when unset, a copy of this binary in the driver's directory.
    pub hook: Option<PathBuf>,
    /// How long to wait for the kubelet's directory at the start.
    pub kubelet_timeout: Duration,
}

impl Config {
    /// A configuration for the hardware of this machine, with all paths below the kubelet's root directory.
    pub fn new(node_name: impl Into<String>, kubelet_dir: impl Into<PathBuf>) -> Self {
        let kubelet_dir = kubelet_dir.into();
        Self {
            node_name: node_name.into(),
            cdi_dir: kubelet_dir.join("cdi"),
            kubelet_dir,
            selection: Selection::default(),
            hook: None,
            kubelet_timeout: KUBELET_TIMEOUT,
        }
    }

    /// Directory for the driver's files.
    pub fn directory(&self) -> PathBuf {
        self.kubelet_dir.join("plugins").join(DRIVER_NAME)
    }
}

/// Runs the driver until `shutdown`.
///
/// # Errors
/// Startup failed, or one of the servers failed.
pub async fn run(client: Client, config: Config, shutdown: CancellationToken) -> Result<(), Error> {
    let directory = config.directory();
    let io = |source| Error::Io {
        path: directory.clone(),
        source,
    };
    let hook = match &config.hook {
        Some(hook) => hook.clone(),
        None => driver::install_hook(&directory).map_err(io)?,
    };
    let plans = Plans::new(directory.join("attachments"));
    std::fs::create_dir_all(plans.directory()).map_err(io)?;
    let held = Arc::new(Held::default());
    let status = StatusQueue::default();
    let (pools, reclaimer) = (Pools::new(client.clone()), client.clone());
    let interfaces = Interfaces {
        node: config.node_name.clone(),
        selection: config.selection.clone(),
        plans: plans.clone(),
        hook,
        pools: Pools::new(client.clone()),
        held: Arc::clone(&held),
        status: status.clone(),
    };
    let builder = Plugin::builder(DRIVER_NAME, interfaces)
        .client(client)
        .node_name(&config.node_name)
        .kubelet_dir(&config.kubelet_dir)
        .cdi_dir(&config.cdi_dir)
        .cdi_kind(CDI_KIND)
        .kubelet_timeout(config.kubelet_timeout);
    let plugin = tokio::select! {
        started = builder.start() => started?,
        () = shutdown.cancelled() => return Ok(()),
    };
    let controls = plugin.controls();
    let stop = shutdown.child_token();
    let work = async {
        tokio::select! {
            published = publish(&controls, &config, &held) => published,
            watched = watch_outcomes(&plans, &status) => watched,
            () = status.run(&controls) => Ok(()),
            () = reclaim::run(&pools, &reclaimer, &config.node_name) => Ok(()),
            () = stop.cancelled() => Ok(()),
        }
    };
    let mut result = Ok(());
    let ended = plugin.wait_until(async { result = work.await }).await;
    result.map_err(io).and(ended)
}

/// Keeps the published devices in sync with the node's interfaces.
async fn publish(controls: &Controls, config: &Config, held: &Held) -> std::io::Result<()> {
    let mut changes = Changes::watch()?;
    let mut published: Option<Vec<Device>> = None;
    loop {
        match inventory::discover(&config.selection) {
            Ok(found) => {
                let devices = held.complete(found);
                if published.as_ref() != Some(&devices) {
                    tracing::info!(
                        node = config.node_name,
                        interfaces = devices.len(),
                        "publishing"
                    );
                    let pool = Pool::new(devices.clone());
                    let resources = Resources::pool(&config.node_name, pool);
                    controls.publish(resources).map_err(std::io::Error::other)?;
                    published = Some(devices);
                }
            }
            Err(error) => tracing::warn!(%error, "cannot list the interfaces of this machine"),
        }
        tokio::select! {
            () = held.changed.notified() => {}
            changed = changes.next() => {
                changed?;
                tokio::time::sleep(DEBOUNCE).await;
            }
            () = tokio::time::sleep(RESYNC) => {}
        }
    }
}

/// Watches for outcomes recorded by hooks.
async fn watch_outcomes(plans: &Plans, status: &StatusQueue) -> std::io::Result<()> {
    let inotify = Inotify::init()?;
    inotify
        .watches()
        .add(plans.directory(), WatchMask::MOVED_TO)?;
    let mut events = inotify.into_event_stream(vec![0; 4096])?;
    // Outcomes that were recorded before the watch started.
    for uid in plans.claims() {
        report_outcome(plans, &uid, status);
    }
    while let Some(event) = events.next().await {
        let event = event?;
        let name = event.name.unwrap_or_default().into_string();
        if let Some(uid) = name.ok().as_deref().and_then(Plans::claim_of) {
            report_outcome(plans, uid, status);
        }
    }
    Ok(())
}

fn report_outcome(plans: &Plans, uid: &str, status: &StatusQueue) {
    if let Ok(Some(plan)) = plans.read(uid) {
        status::report(status, plans, &plan.claim);
    }
}
