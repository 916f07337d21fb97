//! Registered DRA drivers: finds registration sockets, registers their plugins, and keeps the connections.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use allot_apimachinery::names::is_subdomain;
use allot_model::limits::DRIVER_NAME;
use allot_protos::registration::registration_client::RegistrationClient;
use allot_protos::registration::{InfoRequest, PluginInfo, RegistrationStatus};
use allot_protos::{DRA_PLUGIN_TYPE, service_name, transport};
use futures::StreamExt;
use inotify::WatchMask;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tonic::transport::Channel;

use crate::config::Config;
use crate::events::shorten;
use crate::resource_api::ResourceApi;
use crate::watching;

pub(crate) mod health;
mod resources;
mod simulated;
mod slices;
#[cfg(test)]
mod tests;

pub(crate) use resources::publish;
pub use simulated::UNHEALTHY;
pub(crate) use simulated::{
    follow_health, keep_slices, remove_other_slices, remove_slices_of_real_drivers,
    remove_slices_unless,
};
pub use slices::{ANY_OTHER, REGISTERED_DRIVERS};
pub(crate) use slices::{announce, clean_at_start, clean_when_gone};

const GET_INFO_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of what a plugin says about itself: a name, a path and a few versions. It is repeated in errors.
const LARGEST_INFO: usize = 64 << 10;
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(5);
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
    pub(crate) channel: Channel,
    connected: AtomicBool,
    /// Which of the classic versions it has, as far as was found out.
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

    fn add(&self, plugin: Arc<Plugin>) -> Result<(), String> {
        let mut all = self.by_driver.lock();
        let plugins = all.entry(plugin.driver.clone()).or_default();
        if plugins
            .iter()
            .any(|other| other.endpoint == plugin.endpoint)
        {
            return Err(format!(
                "endpoint {} already registered for DRA driver plugin {}",
                plugin.endpoint.display(),
                plugin.driver
            ));
        }
        self.seen.lock().insert(plugin.driver.clone());
        let classic = plugin.service == Service::Classic;
        if classic
            && plugins
                .iter()
                .any(|other| other.service == Service::Classic)
        {
            return Err(format!(
                "RegisterPlugin for DRA plugin {:?} failed. Another plugin with the same name is already registered \
                 with a higher supported version: {:?}",
                plugin.driver,
                service_name::DRA_CLASSIC
            ));
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

/// Identity of a socket file: a new one at the same path is another registration.
type Inode = (u64, u64, i64, i64);

/// Watches the registration directory until dropped.
pub(crate) async fn watch(directory: PathBuf, plugins: Arc<Plugins>, api: Arc<ResourceApi>) {
    // Which plugins are welcome depends on the release of the cluster.
    let classic = loop {
        match api.served().await {
            Ok(served) => break served.classic.is_some(),
            Err(error) => tracing::warn!(%error, "discovering API versions"),
        }
        tokio::time::sleep(RECONCILE).await;
    };
    plugins.classic.store(classic, Ordering::Relaxed);
    let mut registered: HashMap<PathBuf, (Inode, Result<Arc<Plugin>, String>)> = HashMap::new();
    let mut changes = changes(&directory);
    loop {
        let found = sockets(&directory);
        registered.retain(|path, (inode, plugin)| {
            let keep = found.get(path) == Some(inode);
            if let Ok(plugin) = plugin
                && !keep
            {
                tracing::info!(driver = plugin.driver, socket = %path.display(), "driver plugin is gone");
                plugins.remove(plugin);
            }
            keep
        });
        for (path, inode) in found {
            let before = registered.get(&path).map(|(_, plugin)| plugin);
            if matches!(before, Some(Ok(_))) {
                continue;
            }
            let plugin = register(&path, &plugins).await;
            match &plugin {
                Ok(plugin) => {
                    tracing::info!(driver = plugin.driver, socket = %path.display(), "driver plugin registered");
                }
                // A driver that was killed leaves its socket, perhaps for good.
                Err(error) if matches!(before, Some(Err(told)) if told == error) => {}
                Err(error) => {
                    tracing::warn!(socket = %path.display(), error, "driver plugin was not registered");
                }
            }
            registered.insert(path, (inode, plugin));
        }
        let failed = registered.values().any(|(_, plugin)| plugin.is_err());
        match &mut changes {
            Some(changes) if !failed => {
                changes.next().await;
            }
            Some(changes) => {
                let _ = tokio::time::timeout(RECONCILE, changes.next()).await;
            }
            None => tokio::time::sleep(RECONCILE).await,
        }
    }
}

/// Ticks when the directory changes; `None` if the kernel grants no more watches.
fn changes(directory: &Path) -> Option<impl futures::Stream<Item = ()> + Unpin + use<>> {
    let mask = WatchMask::CREATE | WatchMask::DELETE | WatchMask::MOVE;
    match watching::changes(directory, mask) {
        Ok(changes) => Some(changes),
        Err(error) => {
            // Of many nodes in one process each meets with it.
            static TOLD: Once = Once::new();
            TOLD.call_once(|| {
                tracing::warn!(
                    directory = %directory.display(), %error,
                    "the kernel gives no more inotify instances, so that directories of plugins are looked at every second: raise fs.inotify.max_user_instances (and max_user_watches), for example `sysctl fs.inotify.max_user_instances=1024`"
                );
            });
            None
        }
    }
}

fn sockets(directory: &Path) -> BTreeMap<PathBuf, Inode> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let metadata = entry.metadata().ok()?;
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            let inode = (
                metadata.dev(),
                metadata.ino(),
                metadata.ctime(),
                metadata.ctime_nsec(),
            );
            (metadata.file_type().is_socket() && !hidden).then(|| (entry.path(), inode))
        })
        .collect()
}

/// The socket file exists a moment before its process listens on it.
async fn dial(socket: &Path) -> Result<Channel, String> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        match transport::connect(socket).await {
            Ok(channel) => return Ok(channel),
            Err(_) if attempt < 5 => tokio::time::sleep(Duration::from_millis(10 * attempt)).await,
            Err(error) => {
                // The outer errors only say that a connection failed.
                let causes =
                    std::iter::successors(Some(&error as &dyn std::error::Error), |e| e.source());
                let cause = causes.last().map(ToString::to_string).unwrap_or_default();
                return Err(format!("failed to dial {}: {cause}", socket.display()));
            }
        }
    }
}

async fn register(socket: &Path, plugins: &Arc<Plugins>) -> Result<Arc<Plugin>, String> {
    let channel = dial(socket).await?;
    let mut client = RegistrationClient::new(channel).max_decoding_message_size(LARGEST_INFO);
    let info = tokio::time::timeout(GET_INFO_TIMEOUT, client.get_info(InfoRequest {}))
        .await
        .map_err(|_| "failed to get plugin info: no answer in time".to_owned())?
        .map_err(|status| format!("failed to get plugin info: {status}"))?
        .into_inner();
    let result = accept(socket, info, plugins).await;
    let status = RegistrationStatus {
        plugin_registered: result.is_ok(),
        error: result.as_ref().err().cloned().unwrap_or_default(),
    };
    let told =
        tokio::time::timeout(NOTIFY_TIMEOUT, client.notify_registration_status(status)).await;
    match (result, told) {
        (Ok(plugin), Ok(Ok(_))) => {
            tokio::spawn(monitor(Arc::clone(&plugin), Arc::clone(plugins)));
            tokio::spawn(health::follow(Arc::clone(&plugin), Arc::clone(plugins)));
            Ok(plugin)
        }
        // A plugin that does not learn of its registration may stay idle.
        (Ok(plugin), _) => {
            plugins.remove(&plugin);
            Err("failed to notify the plugin of its registration".into())
        }
        (Err(error), _) => Err(error),
    }
}

async fn accept(socket: &Path, info: PluginInfo, plugins: &Plugins) -> Result<Arc<Plugin>, String> {
    if info.r#type != DRA_PLUGIN_TYPE {
        return Err(format!(
            "RegisterPlugin error -- no handler registered for plugin type: {} at socket {}",
            info.r#type,
            socket.display()
        ));
    }
    let endpoint = if info.endpoint.is_empty() {
        socket.to_owned()
    } else {
        plugins.endpoint(Path::new(&info.endpoint))
    };
    let classic = plugins.classic.load(Ordering::Relaxed);
    let service = choose(&info, &endpoint, classic).map_err(|error| {
        format!("RegisterPlugin error -- plugin validation failed with err: {error}")
    })?;
    let plugin = Arc::new(Plugin {
        driver: info.name,
        channel: transport::connect_lazy(&endpoint),
        endpoint,
        service,
        connected: AtomicBool::new(true),
        version: AtomicUsize::new(0),
        gone: tokio_util::sync::CancellationToken::new(),
    });
    plugins.add(Arc::clone(&plugin)).map_err(|error| {
        format!("RegisterPlugin error -- plugin registration failed with err: {error}")
    })?;
    Ok(plugin)
}

/// The first supported service of the plugin's list: the plugin's order decides.
fn choose(info: &PluginInfo, endpoint: &Path, classic: bool) -> Result<Service, String> {
    let context = format!(
        "invalid supported gRPC versions of DRA driver plugin {} at endpoint {}",
        info.name,
        endpoint.display()
    );
    if info.name.is_empty() {
        return Err("DRA driver name is empty".into());
    }
    // The rule of the API: no claim and no slice can name another driver.
    let named = info.name.len() <= DRIVER_NAME && is_subdomain(&info.name.to_lowercase());
    if !named {
        return Err(format!(
            "DRA driver name {:?} is not a DNS subdomain of at most {DRIVER_NAME} characters",
            shorten(info.name.clone())
        ));
    }
    if info.supported_versions.is_empty() {
        return Err(format!(
            "{context}: empty list of supported gRPC services (aka supported versions)"
        ));
    }
    let known = |name: &String| match name.as_str() {
        service_name::DRA_V1 => Some(Service::V1),
        service_name::DRA_V1BETA1 => Some(Service::V1beta1),
        // Any version 1: it is not the version of the service.
        version if classic && version.starts_with("1.") => Some(Service::Classic),
        _ => None,
    };
    info.supported_versions.iter().find_map(known).ok_or_else(|| {
        let ours = [service_name::DRA_V1, service_name::DRA_V1BETA1].map(|name| format!("{name:?}")).join(", ");
        let theirs: Vec<String> = info.supported_versions.iter().map(|name| format!("{name:?}")).collect();
        format!(
            "{context}: none of services supported by the plugin ({}) are supported by the kubelet ({ours})",
            theirs.join(", ")
        )
    })
}

/// Detects the end of the plugin's process by a connection without requests, which breaks then. The HTTP/2 preface is
/// exchanged, because a gRPC server in Go does not stop before every connection has done that.
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
    let watch = async {
        loop {
            match greet(&plugin.endpoint).await {
                Ok((idle, connection)) => {
                    set(true);
                    let _ = connection.await;
                    drop(idle);
                }
                Err(_) => {
                    set(false);
                    tokio::time::sleep(RECONCILE).await;
                }
            }
        }
    };
    tokio::select! {
        () = watch => {}
        () = plugin.gone.cancelled() => {}
    }
}

type Idle = hyper::client::conn::http2::SendRequest<String>;

/// Opens a connection for no requests; the future ends when the connection does.
async fn greet(
    socket: &Path,
) -> Result<(Idle, impl Future<Output = hyper::Result<()>>), Box<dyn std::error::Error + Send + Sync>>
{
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let stream = tokio::net::UnixStream::connect(socket).await?;
    let io = TokioIo::new(stream);
    Ok(hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await?)
}
