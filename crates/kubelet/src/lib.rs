//! The kubelet's side of DRA drivers for tests: it finds registration sockets, registers drivers, and calls their DRA and health
//! services, as a kubelet's plugin manager does. The conformance kit tries drivers with it, and
//! `allot_driver::testing` gives it to the tests of drivers on the SDK.
//!
//! Invariants:
//! - what a kubelet would refuse about a registration is refused, with the kubelet's time limits;
//! - every call has a deadline, and a driver that accepts no connections is not waited for.
//!
//! It must not depend on pods, and not on the SDK: the kit tries drivers without it.
//!
//! ```no_run
//! # async fn example() -> Result<(), String> {
//! use allot_kubelet::{CALL_LIMIT, ClaimRef, Kubelet};
//!
//! let mut kubelet = Kubelet::new("/var/lib/kubelet/plugins_registry".as_ref());
//! kubelet.start();
//! let plugin = kubelet.registered(None, 0).await;
//! let claim = ClaimRef { namespace: "default".into(), name: "led".into(), uid: "1f2e".into() };
//! let answers = plugin.prepare(plugin.version(), &[claim], CALL_LIMIT).await?;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use allot_protos::registration::registration_client::RegistrationClient;
use allot_protos::registration::{InfoRequest, PluginInfo, RegistrationStatus};
use allot_protos::{DRA_PLUGIN_TYPE, transport};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::transport::Channel;

mod calls;

pub use calls::{Answers, ClaimRef, Device, Outcome, Version, health_messages};

/// The time after which a kubelet cancels a call of the DRA service.
pub const CALL_LIMIT: Duration = Duration::from_secs(45);
/// How often the directory is listed.
const SCAN: Duration = Duration::from_millis(25);
/// The kubelet's limits for the two registration calls.
const GET_INFO: Duration = Duration::from_secs(1);
const NOTIFY: Duration = Duration::from_secs(5);
/// How often a failed registration is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// A plugin that is registered.
#[derive(Debug, Clone)]
pub struct Plugin {
    /// What it said about itself.
    pub info: PluginInfo,
    /// The socket of its registration service.
    pub socket: PathBuf,
    /// The socket of its DRA service.
    pub endpoint: PathBuf,
    /// The connection to the DRA service.
    pub channel: Channel,
    /// Counts registrations, from 1.
    pub number: u64,
}

/// Identity of a socket file.
type Inode = (u64, u64, i64, i64);

type Seen = BTreeMap<PathBuf, (Inode, Result<Plugin, RegistrationError>)>;

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<Seen>,
    /// How many plugins were registered.
    count: watch::Sender<u64>,
    /// Changes after each attempt to register a plugin, when its result can be seen.
    attempts: watch::Sender<u64>,
    refuse: AtomicBool,
    refused: watch::Sender<u64>,
}

/// Watches the registration directory while it runs; forgets everything when it stops.
#[derive(Debug)]
pub struct Kubelet {
    directory: PathBuf,
    shared: Arc<Shared>,
    task: Option<JoinHandle<()>>,
}

impl Kubelet {
    /// One that has not started; `directory` is its `plugins_registry`.
    pub fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            shared: Arc::default(),
            task: None,
        }
    }

    /// Begins to look for sockets; nothing happens when it does so already.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(&mut self) {
        if self.task.is_none() {
            let work = watch_directory(self.directory.clone(), Arc::clone(&self.shared));
            self.task = Some(tokio::spawn(work));
        }
    }

    /// Ends, and forgets all plugins.
    pub async fn stop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            let _ = task.await;
        }
        self.shared.seen.lock().clear();
    }

    /// Whether plugins are notified that their registration failed.
    pub fn refuse(&self, on: bool) {
        self.shared.refuse.store(on, Ordering::Relaxed);
    }

    /// How many registrations succeeded so far.
    pub fn registrations(&self) -> u64 {
        *self.shared.count.borrow()
    }

    /// How many were refused so far.
    pub fn refusals(&self) -> u64 {
        *self.shared.refused.borrow()
    }

    /// The registration of a driver, or of any driver, that a kubelet uses: the newest with a running process, else the
    /// newest.
    pub fn plugin(&self, driver: Option<&str>) -> Option<Plugin> {
        let seen = self.shared.seen.lock();
        let plugins = seen.values().filter_map(|(_, result)| result.as_ref().ok());
        let mut plugins: Vec<&Plugin> = plugins
            .filter(|plugin| driver.is_none_or(|driver| plugin.info.name == driver))
            .collect();
        plugins.sort_by_key(|plugin| std::cmp::Reverse(plugin.number));
        let alive = |plugin: &&&Plugin| is_listening(&plugin.endpoint);
        let found = match plugins.len() {
            // The error of a call is more informative.
            0 | 1 => plugins.first(),
            _ => plugins.iter().find(alive).or(plugins.first()),
        };
        found.map(|plugin| (*plugin).clone())
    }

    /// Waits for a plugin that [`Kubelet::plugin`] finds, registered after the first `before` registrations.
    pub async fn registered(&self, driver: Option<&str>, before: u64) -> Plugin {
        let mut attempts = self.shared.attempts.subscribe();
        loop {
            attempts.borrow_and_update();
            let found = self.plugin(driver);
            if let Some(plugin) = found.filter(|plugin| plugin.number > before) {
                return plugin;
            }
            if attempts.changed().await.is_err() {
                // The sender is in `self`.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Why sockets are not registered, one line each.
    pub fn problems(&self) -> Vec<String> {
        let seen = self.shared.seen.lock();
        let line =
            |(path, (_, result)): (&PathBuf, &(Inode, Result<Plugin, RegistrationError>))| {
                let error = result.as_ref().err()?;
                Some(format!("{}: {error}", path.display()))
            };
        seen.iter().filter_map(line).collect()
    }

    /// The drivers that are registered.
    pub fn drivers(&self) -> BTreeSet<String> {
        let seen = self.shared.seen.lock();
        let plugins = seen.values().filter_map(|(_, result)| result.as_ref().ok());
        plugins.map(|plugin| plugin.info.name.clone()).collect()
    }

    /// All sockets of the directory, with or without a listener.
    pub fn sockets(&self) -> Vec<PathBuf> {
        sockets(&self.directory).into_keys().collect()
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

async fn watch_directory(directory: PathBuf, shared: Arc<Shared>) {
    let mut next_try: BTreeMap<PathBuf, tokio::time::Instant> = BTreeMap::new();
    loop {
        let found = sockets(&directory);
        shared
            .seen
            .lock()
            .retain(|path, (inode, _)| found.get(path) == Some(&*inode));
        for (path, inode) in found {
            let known = shared
                .seen
                .lock()
                .get(&path)
                .map(|(_, result)| result.is_ok());
            let now = tokio::time::Instant::now();
            match known {
                Some(true) => continue,
                Some(false) if next_try.get(&path).is_some_and(|at| now < *at) => continue,
                _ => {}
            }
            let result = register(&path, &shared).await;
            next_try.insert(path.clone(), tokio::time::Instant::now() + RETRY);
            let registered = result.is_ok();
            // Counted before it can be seen.
            if registered {
                shared.count.send_modify(|count| *count += 1);
            }
            shared.seen.lock().insert(path, (inode, result));
            shared.attempts.send_modify(|count| *count += 1);
        }
        tokio::time::sleep(SCAN).await;
    }
}

/// Whether a process listens on a socket. One that does not accept has a full queue: a connection would wait for it.
fn is_listening(socket: &Path) -> bool {
    let connect = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let address = SocketAddrUnix::new(socket)?;
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        net::connect(&socket, &address)
    };
    matches!(connect(), Ok(()) | Err(Errno::AGAIN))
}

/// As in a kubelet: names with a leading dot are skipped, directories are searched, symbolic links to directories are not.
fn sockets(directory: &Path) -> BTreeMap<PathBuf, Inode> {
    let mut found = BTreeMap::new();
    let mut directories = vec![(directory.to_owned(), 0)];
    while let Some((directory, depth)) = directories.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            let Ok(metadata) = std::fs::metadata(entry.path()) else {
                continue;
            };
            if hidden {
                continue;
            }
            if metadata.is_dir() {
                // A link may lead anywhere, where other programs have their sockets.
                let is_below = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if is_below && depth < 3 {
                    directories.push((entry.path(), depth + 1));
                }
            } else if metadata.file_type().is_socket() {
                let times = (metadata.ctime(), metadata.ctime_nsec());
                let inode = (metadata.dev(), metadata.ino(), times.0, times.1);
                found.insert(entry.path(), inode);
            }
        }
    }
    found
}

/// Why a plugin is not registered: what the kubelet would log.
#[derive(Debug, thiserror::Error)]
enum RegistrationError {
    #[error("no connection in time")]
    ConnectTimeout,
    #[error("cannot connect: {}", calls::root(.0))]
    Connect(tonic::transport::Error),
    /// The method, and its time limit.
    #[error("{0} was not answered within {1:?}")]
    NoAnswer(&'static str, Duration),
    /// The method, and the gRPC status that answered it.
    #[error("{0}: {text}", text = calls::status_text(.1))]
    Call(&'static str, Box<tonic::Status>),
    #[error("refused for a test")]
    Refused,
    #[error("plugin type {0:?} is not {expected:?}", expected = DRA_PLUGIN_TYPE)]
    Type(String),
    #[error("DRA driver name is empty")]
    NoName,
    /// The names of the services, comma-separated.
    #[error("none of the offered services ({0}) is known")]
    Services(String),
}

async fn register(socket: &Path, shared: &Shared) -> Result<Plugin, RegistrationError> {
    let connected = tokio::time::timeout(GET_INFO, transport::connect(socket)).await;
    let channel = connected
        .map_err(|_| RegistrationError::ConnectTimeout)?
        .map_err(RegistrationError::Connect)?;
    let mut client = RegistrationClient::new(channel);
    let info = tokio::time::timeout(GET_INFO, client.get_info(InfoRequest {}))
        .await
        .map_err(|_| RegistrationError::NoAnswer("GetInfo", GET_INFO))?
        .map_err(|status| RegistrationError::Call("GetInfo", Box::new(status)))?
        .into_inner();
    let verdict = match shared.refuse.load(Ordering::Relaxed) {
        true => Err(RegistrationError::Refused),
        false => accept(socket, &info),
    };
    let status = RegistrationStatus {
        plugin_registered: verdict.is_ok(),
        error: verdict
            .as_ref()
            .err()
            .map(ToString::to_string)
            .unwrap_or_default(),
    };
    let told = tokio::time::timeout(NOTIFY, client.notify_registration_status(status)).await;
    if verdict.is_err() {
        shared.refused.send_modify(|count| *count += 1);
    }
    let endpoint = verdict?;
    told.map_err(|_| RegistrationError::NoAnswer("NotifyRegistrationStatus", NOTIFY))?
        .map_err(|status| RegistrationError::Call("NotifyRegistrationStatus", Box::new(status)))?;
    Ok(Plugin {
        info,
        socket: socket.to_owned(),
        channel: transport::connect_lazy(&endpoint),
        endpoint,
        number: *shared.count.borrow() + 1,
    })
}

/// The kubelet's checks; returns the path of the service.
fn accept(socket: &Path, info: &PluginInfo) -> Result<PathBuf, RegistrationError> {
    if info.r#type != DRA_PLUGIN_TYPE {
        return Err(RegistrationError::Type(info.r#type.clone()));
    }
    if info.name.is_empty() {
        return Err(RegistrationError::NoName);
    }
    if Version::offered(info).is_empty() {
        let offered = info.supported_versions.join(", ");
        return Err(RegistrationError::Services(offered));
    }
    Ok(match info.endpoint.is_empty() {
        true => socket.to_owned(),
        false => PathBuf::from(&info.endpoint),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// The attack: a link in the registration directory, and sockets of other programs are dialled.
    #[test]
    fn regression_links_to_directories_are_not_followed() {
        let (registry, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let foreign = UnixListener::bind(other.path().join("foreign.sock")).unwrap();
        std::os::unix::fs::symlink(other.path(), registry.path().join("link")).unwrap();
        std::os::unix::fs::symlink(registry.path(), registry.path().join("loop")).unwrap();
        let below = registry.path().join("driver");
        std::fs::create_dir(&below).unwrap();
        let own = UnixListener::bind(below.join("reg.sock")).unwrap();
        let found: Vec<PathBuf> = sockets(registry.path()).into_keys().collect();
        assert_eq!(found, [below.join("reg.sock")]);
        drop((foreign, own));
    }

    /// A driver that accepted no connections stopped the kit, whatever its time limits were.
    #[test]
    fn regression_a_full_queue_of_connections_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        assert!(!is_listening(&path));
        let listener = UnixListener::bind(&path).unwrap();
        net::listen(&listener, 1).unwrap();
        for _ in 0..9 {
            assert!(is_listening(&path));
        }
        drop(listener);
        assert!(!is_listening(&path));
    }
}
