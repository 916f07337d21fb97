//! How a node is set up.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use allot_images::{Limits, Registries, Timeouts, backoff};
use serde_json::Value;
use tokio::sync::SetOnce;

use crate::error::Error;
use crate::pressure::Eviction;
use crate::rules;
use crate::sysctls::Sysctls;

mod network;

pub use network::{CNI_BIN_DIRS, CNI_CONF_DIR, NetworkSettings, PodNetwork};

/// What runs the containers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RuntimeKind {
    /// [`RuntimeKind::Process`], with as much isolation as the kernel permits.
    #[default]
    Auto,
    /// Containers are processes of this host.
    Process,
    /// Containers are only pretended.
    Simulated,
    /// Containers are those of a runtime behind the container runtime interface, such as containerd.
    Cri,
}

impl std::str::FromStr for RuntimeKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "process" => Ok(Self::Process),
            "simulated" => Ok(Self::Simulated),
            "cri" => Ok(Self::Cri),
            _ => Err(format!(
                "unknown runtime {text:?}: expected auto, process, simulated or cri"
            )),
        }
    }
}

/// Where containerd listens.
pub const CRI_ENDPOINT: &str = "unix:///run/containerd/containerd.sock";
/// Where container runtimes look for CDI files, in rising priority.
const RUNTIME_CDI: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];

/// The directory of a kubelet on other nodes.
const KUBELET: &str = "/var/lib/kubelet";
/// Directories of CDI files on other nodes.
const CDI: [&str; 3] = ["/etc/cdi", "/var/run/cdi", "/run/cdi"];

/// The source of container images.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ImageMode {
    /// From images. A container that names a command runs from the host's files, with a Warning event, when the registry
    /// of its image cannot be reached.
    Auto,
    /// From images, as at a kubelet.
    Require,
    /// An allow-list of the host's files. No registry is contacted.
    #[default]
    Host,
}

impl std::str::FromStr for ImageMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "require" => Ok(Self::Require),
            "host" => Ok(Self::Host),
            _ => Err(format!(
                "unknown source of images {text:?}: expected auto, require or host"
            )),
        }
    }
}

/// How a node gets the images of its containers. They are stored below `<root_dir>/images`.
#[derive(Debug, Clone)]
pub struct Images {
    /// The source of container images.
    pub mode: ImageMode,
    /// Mirrors, plain HTTP and authorities.
    pub registries: Registries,
    /// Bounds for what registries send.
    pub limits: Limits,
    /// Deadlines for what registries do.
    pub timeouts: Timeouts,
    /// The first pause after a pull that failed, and the longest.
    pub pauses: (Duration, Duration),
    /// When images that no container uses are removed.
    pub collection: allot_images::collect::Policy,
    /// Period of the image garbage collection.
    pub collection_period: Duration,
}

impl Default for Images {
    fn default() -> Self {
        Self {
            mode: ImageMode::default(),
            registries: Registries::default(),
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            pauses: (backoff::INITIAL, backoff::MAX),
            collection: allot_images::collect::Policy::default(),
            // As a kubelet.
            collection_period: Duration::from_secs(300),
        }
    }
}

/// Certificates of the node's HTTPS API (logs, exec, attach, port-forward).
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// CA certificates (PEM) that verify client certificates. Without them the ones are used that the cluster publishes
    /// in the config map `kube-system/extension-apiserver-authentication`, if the agent may list and watch it.
    pub client_ca_pem: Option<Vec<u8>>,
    /// A file with them instead, whose changes count at once.
    pub client_ca_file: Option<PathBuf>,
    /// Serving certificate (PEM); self-signed, as by a kubelet, when absent.
    pub cert_pem: Option<Vec<u8>>,
    /// Its key.
    pub key_pem: Option<Vec<u8>>,
}

/// ResourceSlices of a simulated node whose drivers are simulated as well: a function of the UID of the Node that
/// returns objects of `resource.k8s.io/v1`. They carry the label [`HARDWARE`], by which a later run recognises them.
#[derive(Clone)]
pub struct SimulatedSlices(Arc<MakeSlices>);

/// Creates the slices for the UID of a Node.
type MakeSlices = dyn Fn(&str) -> Vec<Value> + Send + Sync;

/// Label of ResourceSlices that belong to no driver but to a hardware model of a node; its value is the model's name.
pub const HARDWARE: &str = "allot.dev/hardware";

impl SimulatedSlices {
    /// Slices from a function.
    pub fn new(make: impl Fn(&str) -> Vec<Value> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    pub(crate) fn of(&self, node_uid: &str) -> Vec<Value> {
        (self.0)(node_uid)
    }
}

impl std::fmt::Debug for SimulatedSlices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SimulatedSlices")
    }
}

/// When a container's log is rotated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLimits {
    /// Bytes from which on a log is put aside: the kubelet's `containerLogMaxSize`.
    pub size: u64,
    /// Files of a container, with the current one: the kubelet's `containerLogMaxFiles`; at least two.
    pub files: usize,
    /// How often sizes are looked at: the kubelet's `containerLogMonitorInterval`.
    pub period: Duration,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self {
            size: rules::LOG_SIZE,
            files: rules::LOG_FILES,
            period: Duration::from_secs(10),
        }
    }
}

/// A node.
#[derive(Debug, Clone)]
pub struct Config {
    /// Name of the Node object.
    pub node_name: String,
    /// State of the node: plugin sockets, checkpoints, volumes, logs. Keep the path short, socket paths have at most
    /// 107 bytes.
    pub root_dir: PathBuf,
    /// What runs the containers.
    pub runtime: RuntimeKind,
    /// The source of container images.
    pub images: Images,
    /// Where the runtime listens, for [`RuntimeKind::Cri`].
    pub cri_endpoint: String,
    /// When container logs are rotated, with [`RuntimeKind::Cri`]; other runtimes have the defaults.
    pub logs: LogLimits,
    /// Where CDI files are looked for, in rising priority. Empty means `<root_dir>/cdi` only; with [`RuntimeKind::Cri`], where
    /// container runtimes look.
    pub cdi_dirs: Vec<PathBuf>,
    /// Address of the HTTPS API; port 0 picks one. `None`: not served.
    pub listen: Option<SocketAddr>,
    /// Certificates of the HTTPS API.
    pub tls: Tls,
    /// Program and first arguments of the container helper. Empty means this executable with `node-shim`.
    pub shim: Vec<OsString>,
    /// Additional labels of the Node.
    pub labels: BTreeMap<String, String>,
    /// Capacity that differs from what the host has, as quantities by resource name.
    pub capacity: BTreeMap<String, String>,
    /// Manifests of static pods: a directory or a file. The pods also run while the API server is away.
    pub pod_manifest_path: Option<PathBuf>,
    /// Socket to which NRI plugins connect. `None`: there is none. Who can connect to it is as powerful as root.
    pub nri_socket: Option<PathBuf>,
    /// The kernel parameters that pods may set.
    pub sysctls: Sysctls,
    /// How many processes and threads all containers of a pod may have together: the kubelet's `podPidsLimit`. `None`: as many as
    /// the machine has for containers. Without effect with [`RuntimeKind::Cri`].
    pub pod_pids_limit: Option<i64>,
    /// When the Node is under pressure, and pods are evicted; by default never.
    pub eviction: Eviction,
    /// The address in the Node's status.
    pub address: IpAddr,
    /// Address at which containers reach the API server. `None`: the cluster IP of `default/kubernetes`, as on a node
    /// whose network forwards service addresses.
    pub api_server: Option<SocketAddr>,
    /// The networks of pods, but for [`RuntimeKind::Cri`].
    pub network: NetworkSettings,
    /// Whether drivers can register. A simulated node of a large cluster has none.
    pub plugins: bool,
    /// What the simulated drivers of a simulated node publish.
    pub slices: Option<SimulatedSlices>,
    /// How often the Lease is renewed; its duration is four times that.
    pub heartbeat: Duration,
    /// How often volumes are compared with the config maps, secrets and tokens that they show.
    pub sync_frequency: Duration,
    /// Whether the node's containers are stopped when it stops.
    pub ephemeral: bool,
    /// How long a driver may be away until its ResourceSlices are deleted.
    pub slice_grace: Duration,
    /// First and longest pause between attempts to set up a pod: its volumes, claims and sandbox. What an attempt waits for, such as
    /// the registration of a driver, ends the pause.
    pub setup_backoff: (Duration, Duration),
    /// Set once the Node has the address of this run; after a restart it was ready before that.
    pub registered: Arc<SetOnce<()>>,
}

impl Config {
    /// The same with absolute paths of its directories.
    pub(crate) fn absolute(mut self) -> Result<Self, Error> {
        let network = &mut self.network;
        let paths = [&mut self.root_dir, &mut network.conf_dir].into_iter();
        let paths = paths.chain(&mut network.bin_dirs);
        let paths = paths.chain(&mut self.pod_manifest_path);
        for path in paths.chain(&mut self.nri_socket) {
            *path = std::path::absolute(&*path).map_err(|source| Error::Io {
                path: path.clone(),
                source,
            })?;
        }
        Ok(self)
    }

    /// A node with the defaults.
    pub fn new(node_name: impl Into<String>, root_dir: impl Into<PathBuf>) -> Self {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Self {
            node_name: node_name.into(),
            root_dir: root_dir.into(),
            runtime: RuntimeKind::Auto,
            images: Images::default(),
            cri_endpoint: CRI_ENDPOINT.into(),
            logs: LogLimits::default(),
            cdi_dirs: Vec::new(),
            listen: Some(SocketAddr::new(address, 0)),
            tls: Tls::default(),
            shim: Vec::new(),
            labels: BTreeMap::new(),
            capacity: BTreeMap::new(),
            pod_manifest_path: None,
            nri_socket: None,
            sysctls: Sysctls::default(),
            pod_pids_limit: None,
            eviction: Eviction::default(),
            address,
            api_server: None,
            network: NetworkSettings::default(),
            plugins: true,
            slices: None,
            heartbeat: Duration::from_secs(10),
            sync_frequency: Duration::from_secs(60),
            ephemeral: false,
            slice_grace: Duration::from_secs(30),
            setup_backoff: (Duration::from_millis(500), Duration::from_secs(10)),
            registered: Arc::default(),
        }
    }

    /// Maps a kubelet's path on other nodes to this node: the directories of a kubelet, in which charts of drivers look
    /// for sockets and create theirs, and those with CDI files. Other paths are not changed.
    pub fn own_path(&self, path: &Path) -> PathBuf {
        if let Ok(rest) = path.strip_prefix(KUBELET) {
            return self.root_dir.join(rest);
        }
        let dirs = self.cdi_dirs();
        // Of several the last one counts most.
        let (Some(own), Some(rest)) = (
            dirs.last(),
            CDI.iter().find_map(|dir| path.strip_prefix(dir).ok()),
        ) else {
            return path.to_owned();
        };
        let known = dirs.iter().any(|dir| path.starts_with(dir));
        if known {
            path.to_owned()
        } else {
            own.join(rest)
        }
    }

    /// Directory of the drivers' registration sockets.
    pub fn registry_dir(&self) -> PathBuf {
        self.root_dir.join("plugins_registry")
    }

    /// Directory of the drivers' own data and sockets.
    pub fn plugins_dir(&self) -> PathBuf {
        self.root_dir.join("plugins")
    }

    /// The CDI directories in effect.
    pub fn cdi_dirs(&self) -> Vec<PathBuf> {
        match (self.cdi_dirs.is_empty(), self.runtime) {
            (false, _) => self.cdi_dirs.clone(),
            (true, RuntimeKind::Cri) => RUNTIME_CDI.map(PathBuf::from).to_vec(),
            (true, _) => vec![self.root_dir.join("cdi")],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_a_kubelet_are_those_of_the_node() {
        let mut config = Config::new("n", "/data/n");
        let check = |config: &Config, path: &str, expected: &str| {
            assert_eq!(config.own_path(Path::new(path)), Path::new(expected));
        };
        check(&config, "/var/lib/kubelet/plugins/d", "/data/n/plugins/d");
        check(&config, "/var/lib/kubelet", "/data/n/");
        check(&config, "/var/lib/kubelets", "/var/lib/kubelets");
        check(&config, "/var/run/cdi", "/data/n/cdi/");
        check(&config, "/etc/cdi/a.json", "/data/n/cdi/a.json");
        check(&config, "/etc/cdis", "/etc/cdis");
        check(&config, "/dev/null", "/dev/null");
        config.cdi_dirs = vec!["/etc/cdi".into(), "/srv/cdi".into()];
        check(&config, "/etc/cdi/a.json", "/etc/cdi/a.json");
        check(&config, "/var/run/cdi", "/srv/cdi/");
        config.root_dir = "/var/lib/kubelet".into();
        check(
            &config,
            "/var/lib/kubelet/plugins",
            "/var/lib/kubelet/plugins",
        );
    }
}
