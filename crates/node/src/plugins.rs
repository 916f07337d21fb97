//! Registered DRA drivers: finds registration sockets, registers their plugins, and keeps the connections.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use allot_protos::service_name;
use allot_protos::transport::Connected;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tonic::transport::Channel;
use tower::Service as _;

use crate::config::Config;

pub(crate) mod health;
mod registration;
mod resources;
mod simulated;
mod slices;
#[cfg(test)]
mod tests;

pub(crate) use registration::watch;
pub(crate) use resources::publish;
pub use simulated::UNHEALTHY;
pub(crate) use simulated::{
    follow_health, keep_slices, remove_other_slices, remove_slices_of_real_drivers,
    remove_slices_unless,
};
pub use slices::{ANY_OTHER, REGISTERED_DRIVERS};
pub(crate) use slices::{announce, clean_at_start, clean_when_gone};

/// How often failed registrations are retried, and the directory is listed if the kernel reports no changes.
const RECONCILE: Duration = Duration::from_secs(1);

/// Versions of the DRA service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    V1,
    V1beta1,
    /// One of v1alpha1 to v1alpha4, which are told apart by trying.
    Classic,
}

/// A registered plugin of a driver.
#[derive(Debug)]
pub(crate) struct Plugin {
    pub(crate) driver: String,
    pub(crate) endpoint: PathBuf,
    pub(crate) service: Service,
    /// For all calls: drivers see one client.
    pub(crate) channel: Channel,
    /// Whether it is connected.
    open: Connected,
    connected: AtomicBool,
    /// Which of the classic versions it has, as far as is known.
    version: AtomicUsize,
    /// Ends its background tasks.
    gone: tokio_util::sync::CancellationToken,
}

impl Plugin {
    pub(crate) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// The number of a classic version, for the caller.
    pub(crate) fn version(&self) -> usize {
        self.version.load(Ordering::Relaxed)
    }

    pub(crate) fn set_version(&self, number: usize) {
        self.version.store(number, Ordering::Relaxed);
    }
}

/// The registered plugins. Several of one driver are allowed: that is how drivers are updated without a gap.
#[derive(Debug, Default)]
pub(crate) struct Plugins {
    by_driver: Mutex<BTreeMap<String, Vec<Arc<Plugin>>>>,
    /// Drivers that had a plugin at any time.
    seen: Mutex<BTreeSet<String>>,
    /// A plugin registered, unregistered, connected or disconnected.
    pub(crate) changed: Notify,
    /// The API server has claims for plugins of 1.31 and before.
    pub(crate) classic: AtomicBool,
    /// Health of the drivers' devices.
    pub(crate) health: health::Health,
    /// The node that the plugins are of; none in tests of this module.
    node: Option<Config>,
}

/// Why there is no plugin for a driver.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PluginError {
    /// The allocation result names no driver.
    #[error("DRA driver name is empty")]
    NoName,
    /// No plugin of the driver is registered.
    #[error("DRA driver {0} is not registered")]
    NotRegistered(String),
}

/// Why a plugin cannot be registered besides the others; the texts are the kubelet's.
#[derive(Debug, thiserror::Error)]
enum AddError {
    /// The driver has a plugin with the same endpoint.
    #[error("endpoint {} already registered for DRA driver plugin {driver}", .endpoint.display())]
    Endpoint { driver: String, endpoint: PathBuf },
    /// Two plugins of a driver have a service of 1.31 or before.
    #[error(
        "RegisterPlugin for DRA plugin {0:?} failed. Another plugin with the same name is already registered with a \
         higher supported version: {version:?}",
        version = service_name::DRA_CLASSIC
    )]
    Classic(String),
}

impl Plugins {
    /// The plugins of a node; empty at first.
    pub(crate) fn of(node: Config) -> Self {
        Self {
            node: Some(node),
            ..Self::default()
        }
    }

    /// The path of a plugin's socket. A plugin in a container names the path that it sees there, which is the usual one
    /// of a kubelet.
    fn endpoint(&self, told: &Path) -> PathBuf {
        let own = self.node.as_ref().map(|node| node.own_path(told));
        own.filter(|own| own.exists())
            .unwrap_or_else(|| told.to_owned())
    }

    /// The plugin to use for a driver: the newest that is connected, else the newest.
    pub(crate) fn get(&self, driver: &str) -> Result<Arc<Plugin>, PluginError> {
        if driver.is_empty() {
            return Err(PluginError::NoName);
        }
        let plugins = self.by_driver.lock();
        let plugins = plugins.get(driver).map(Vec::as_slice).unwrap_or_default();
        let best = plugins
            .iter()
            .rev()
            .find(|plugin| plugin.is_connected())
            .or_else(|| plugins.last());
        best.cloned()
            .ok_or_else(|| PluginError::NotRegistered(driver.to_owned()))
    }

    /// Drivers with a plugin that is connected.
    pub(crate) fn connected(&self) -> Vec<String> {
        let plugins = self.by_driver.lock();
        let any = plugins
            .iter()
            .filter(|(_, plugins)| plugins.iter().any(|plugin| plugin.is_connected()));
        any.map(|(driver, _)| driver.clone()).collect()
    }

    /// Drivers that had a plugin at any time.
    pub(crate) fn seen(&self) -> BTreeSet<String> {
        self.seen.lock().clone()
    }

    /// Whether a driver had a plugin at any time.
    pub(crate) fn was_seen(&self, driver: &str) -> bool {
        self.seen.lock().contains(driver)
    }

    /// Plugins with a service of 1.31 or before.
    fn of_classic_service(&self) -> Vec<Arc<Plugin>> {
        let plugins = self.by_driver.lock();
        let plugins = plugins.values().flatten();
        plugins
            .filter(|plugin| plugin.service == Service::Classic)
            .cloned()
            .collect()
    }

    fn add(&self, plugin: Arc<Plugin>) -> Result<(), AddError> {
        let mut all = self.by_driver.lock();
        let plugins = all.entry(plugin.driver.clone()).or_default();
        if plugins
            .iter()
            .any(|other| other.endpoint == plugin.endpoint)
        {
            return Err(AddError::Endpoint {
                driver: plugin.driver.clone(),
                endpoint: plugin.endpoint.clone(),
            });
        }
        self.seen.lock().insert(plugin.driver.clone());
        let classic = plugin.service == Service::Classic;
        if classic
            && plugins
                .iter()
                .any(|other| other.service == Service::Classic)
        {
            return Err(AddError::Classic(plugin.driver.clone()));
        }
        plugins.push(plugin);
        drop(all);
        self.changed.notify_waiters();
        Ok(())
    }

    fn remove(&self, plugin: &Arc<Plugin>) {
        plugin.gone.cancel();
        let mut all = self.by_driver.lock();
        if let Some(plugins) = all.get_mut(&plugin.driver) {
            plugins.retain(|other| !Arc::ptr_eq(other, plugin));
            if plugins.is_empty() {
                all.remove(&plugin.driver);
            }
        }
        drop(all);
        self.changed.notify_waiters();
    }
}

/// Detects the end of the plugin's process by that of its connection, which is opened here, and again when it has ended.
async fn monitor(plugin: Arc<Plugin>, plugins: Arc<Plugins>) {
    let set = |connected: bool| {
        if plugin.connected.swap(connected, Ordering::Relaxed) != connected {
            tracing::info!(
                driver = plugin.driver,
                connected,
                "driver plugin connection"
            );
            plugins.changed.notify_waiters();
        }
    };
    let mut open = plugin.open.clone();
    let watch = async {
        loop {
            let is_open = tokio::select! {
                biased;
                () = open.wait(true) => true,
                answered = greet(plugin.channel.clone()) => answered,
            };
            if is_open {
                set(true);
                open.wait(false).await;
            } else {
                set(false);
                tokio::time::sleep(RECONCILE).await;
            }
        }
    };
    tokio::select! {
        () = watch => {}
        () = plugin.gone.cancelled() => {}
    }
}

/// Has a channel connect by the request that every gRPC server answers, also one that lacks the service. Returns whether it did.
async fn greet(mut channel: Channel) -> bool {
    let request = http::Request::post("/grpc.health.v1.Health/Check")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(tonic::body::Body::empty());
    let Ok(request) = request else { return false };
    let ready = std::future::poll_fn(|cx| channel.poll_ready(cx)).await;
    ready.is_ok() && channel.call(request).await.is_ok()
}
