//! Registration of plugins: finds their sockets, gets the list of their services, and notifies them of the result.

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
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
use tonic::transport::Channel;

use super::{AddError, Plugin, Plugins, RECONCILE, Service, health, monitor};
use crate::error::{AtPath as _, PathError};
use crate::events::shorten;
use crate::resource_api::ResourceApi;
use crate::watching;

const GET_INFO_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of the information of a plugin: a name, a path and a few versions. Errors repeat it.
const LARGEST_INFO: usize = 64 << 10;
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a plugin is not registered. The texts that plugins get are the kubelet's.
#[derive(Debug, thiserror::Error)]
pub(super) enum RegistrationError {
    /// Nothing listens on the socket.
    #[error("failed to dial {}: {}", .socket.display(), root_cause(.source))]
    Dial {
        socket: PathBuf,
        source: tonic::transport::Error,
    },
    /// The plugin does not respond.
    #[error("failed to get plugin info: no answer in time")]
    NoInfoInTime,
    /// The plugin returned an error.
    #[error("failed to get plugin info: {0}")]
    NoInfo(#[source] Box<tonic::Status>),
    /// A plugin that does not learn of its registration may stay idle.
    #[error("failed to notify the plugin of its registration")]
    NotNotified,
    /// A plugin for something else than DRA.
    #[error(
        "RegisterPlugin error -- no handler registered for plugin type: {kind} at socket {}",
        .socket.display()
    )]
    Type { kind: String, socket: PathBuf },
    /// It has no service that this node calls.
    #[error("RegisterPlugin error -- plugin validation failed with err: {0}")]
    Service(#[from] ServiceError),
    /// It is in conflict with another plugin.
    #[error("RegisterPlugin error -- plugin registration failed with err: {0}")]
    Add(#[from] AddError),
}

/// Why a plugin's list of services cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ServiceError {
    /// The plugin names no driver.
    #[error("DRA driver name is empty")]
    NoName,
    /// The plugin's driver has a name that no object of the API can have; a long one is cut.
    #[error("DRA driver name {0:?} is not a DNS subdomain of at most {most} characters", most = DRIVER_NAME)]
    Name(String),
    /// The list is empty.
    #[error(
        "{}: empty list of supported gRPC services (aka supported versions)",
        invalid_versions(.driver, .endpoint)
    )]
    NoServices { driver: String, endpoint: PathBuf },
    /// The list has none of the services that this node calls.
    #[error(
        "{}: none of services supported by the plugin ({}) are supported by the kubelet ({})",
        invalid_versions(.driver, .endpoint),
        quoted(.services),
        quoted(&[service_name::DRA_V1, service_name::DRA_V1BETA1])
    )]
    Unsupported {
        driver: String,
        endpoint: PathBuf,
        services: Vec<String>,
    },
}

/// The outer errors only say that a connection failed.
fn root_cause(error: &tonic::transport::Error) -> String {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |e| e.source());
    causes.last().map(ToString::to_string).unwrap_or_default()
}

fn invalid_versions(driver: &str, endpoint: &Path) -> String {
    format!(
        "invalid supported gRPC versions of DRA driver plugin {driver} at endpoint {}",
        endpoint.display()
    )
}

fn quoted(names: &[impl AsRef<str>]) -> String {
    let quoted = names.iter().map(|name| format!("{:?}", name.as_ref()));
    quoted.collect::<Vec<_>>().join(", ")
}

/// Identity of a socket file: a new one at the same path is another registration.
type Inode = (u64, u64, i64, i64);

/// The sockets that were found in the registration directory, each with the result of its registration.
type Registered = HashMap<PathBuf, (Inode, Result<Arc<Plugin>, RegistrationError>)>;

/// Deregisters the plugins whose sockets are gone.
fn deregister_gone(
    registered: &mut Registered,
    found: &BTreeMap<PathBuf, Inode>,
    plugins: &Arc<Plugins>,
) {
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
}

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
    let mut registered = Registered::new();
    let mut changes = changes(&directory);
    let mut unreadable = false;
    loop {
        // What cannot be read is not empty: the plugins stay, and the directory is read again.
        let found = match sockets(&directory) {
            Ok(found) => {
                unreadable = false;
                deregister_gone(&mut registered, &found, &plugins);
                found
            }
            Err(error) => {
                if !std::mem::replace(&mut unreadable, true) {
                    tracing::warn!(%error, "the registration directory of driver plugins cannot be read");
                }
                BTreeMap::new()
            }
        };
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
                Err(error) if matches!(before, Some(Err(told)) if told.to_string() == error.to_string()) =>
                    {}
                Err(error) => {
                    tracing::warn!(socket = %path.display(), %error, "driver plugin was not registered");
                }
            }
            registered.insert(path, (inode, plugin));
        }
        let failed = unreadable || registered.values().any(|(_, plugin)| plugin.is_err());
        match &mut changes {
            Some(changes) if !failed => {
                changes.next().await;
            }
            Some(changes) => {
                // A change and the end of the time are both reasons to list the directory again.
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

/// The sockets in the registration directory; none if it does not exist.
///
/// # Errors
/// The directory, or a file in it, cannot be read: what is in it is unknown.
pub(super) fn sockets(directory: &Path) -> Result<BTreeMap<PathBuf, Inode>, PathError> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        entries => entries.at(directory)?,
    };
    let mut found = BTreeMap::new();
    for entry in entries {
        let entry = entry.at(directory)?;
        // A link to a socket is as good as one, as with a kubelet.
        let metadata = match std::fs::metadata(entry.path()) {
            // It was removed after the directory was read, so there is no such socket any more.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            // A link that leads nowhere hides no others.
            Err(_) if entry.file_type().is_ok_and(|it| it.is_symlink()) => continue,
            metadata => metadata.at(&entry.path())?,
        };
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        let inode = (
            metadata.dev(),
            metadata.ino(),
            metadata.ctime(),
            metadata.ctime_nsec(),
        );
        if metadata.file_type().is_socket() && !hidden {
            found.insert(entry.path(), inode);
        }
    }
    Ok(found)
}

/// The socket file exists a moment before its process listens on it.
async fn dial(socket: &Path) -> Result<Channel, RegistrationError> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        match transport::connect(socket).await {
            Ok(channel) => return Ok(channel),
            Err(_) if attempt < 5 => tokio::time::sleep(Duration::from_millis(10 * attempt)).await,
            Err(source) => {
                let socket = socket.to_owned();
                return Err(RegistrationError::Dial { socket, source });
            }
        }
    }
}

async fn register(socket: &Path, plugins: &Arc<Plugins>) -> Result<Arc<Plugin>, RegistrationError> {
    let channel = dial(socket).await?;
    let mut client = RegistrationClient::new(channel).max_decoding_message_size(LARGEST_INFO);
    let info = tokio::time::timeout(GET_INFO_TIMEOUT, client.get_info(InfoRequest {}))
        .await
        .map_err(|_| RegistrationError::NoInfoInTime)?
        .map_err(|status| RegistrationError::NoInfo(Box::new(status)))?
        .into_inner();
    let result = accept(socket, info, plugins).await;
    let status = RegistrationStatus {
        plugin_registered: result.is_ok(),
        error: result
            .as_ref()
            .err()
            .map(ToString::to_string)
            .unwrap_or_default(),
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
            Err(RegistrationError::NotNotified)
        }
        (Err(error), _) => Err(error),
    }
}

pub(super) async fn accept(
    socket: &Path,
    info: PluginInfo,
    plugins: &Plugins,
) -> Result<Arc<Plugin>, RegistrationError> {
    if info.r#type != DRA_PLUGIN_TYPE {
        return Err(RegistrationError::Type {
            kind: info.r#type,
            socket: socket.to_owned(),
        });
    }
    let endpoint = if info.endpoint.is_empty() {
        socket.to_owned()
    } else {
        plugins.endpoint(Path::new(&info.endpoint))
    };
    let classic = plugins.classic.load(Ordering::Relaxed);
    let service = choose(&info, &endpoint, classic)?;
    let (channel, open) = transport::connect_watched(&endpoint);
    let plugin = Arc::new(Plugin {
        driver: info.name,
        channel,
        open,
        endpoint,
        service,
        connected: AtomicBool::new(true),
        version: AtomicUsize::new(0),
        gone: tokio_util::sync::CancellationToken::new(),
    });
    plugins.add(Arc::clone(&plugin))?;
    Ok(plugin)
}

/// The first supported service of the plugin's list: the plugin's order decides.
pub(super) fn choose(
    info: &PluginInfo,
    endpoint: &Path,
    classic: bool,
) -> Result<Service, ServiceError> {
    if info.name.is_empty() {
        return Err(ServiceError::NoName);
    }
    // The rule of the API: no claim and no slice can name another driver.
    let named = info.name.len() <= DRIVER_NAME && is_subdomain(&info.name.to_lowercase());
    if !named {
        return Err(ServiceError::Name(shorten(info.name.clone())));
    }
    if info.supported_versions.is_empty() {
        return Err(ServiceError::NoServices {
            driver: info.name.clone(),
            endpoint: endpoint.to_owned(),
        });
    }
    let known = |name: &String| match name.as_str() {
        service_name::DRA_V1 => Some(Service::V1),
        service_name::DRA_V1BETA1 => Some(Service::V1beta1),
        // Any version 1: it is not the version of the service.
        version if classic && version.starts_with("1.") => Some(Service::Classic),
        _ => None,
    };
    let found = info.supported_versions.iter().find_map(known);
    found.ok_or_else(|| ServiceError::Unsupported {
        driver: info.name.clone(),
        endpoint: endpoint.to_owned(),
        services: info.supported_versions.clone(),
    })
}
