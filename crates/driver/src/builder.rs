//! Options of a plugin, and how it is started.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use allot_cdi::ContainerEdits;

use crate::{Driver, Plugin};

pub use kubelet::KUBELET_TIMEOUT;

/// Configures a plugin; created by [`Plugin::builder`]. The defaults are those of the upstream Go helper.
pub struct Builder<D> {
    driver_name: String,
    driver: D,
    client: Option<kube::Client>,
    node_name: Option<String>,
    node_uid: Option<String>,
    cluster_pool: Option<String>,
    registrar_dir: PathBuf,
    data_dir: Option<PathBuf>,
    cdi_dir: PathBuf,
    cdi_kind: Option<String>,
    cdi_common: ContainerEdits,
    metadata: bool,
    rolling_update: Option<String>,
    serialize: bool,
    checkpoint: bool,
    v1: bool,
    v1beta1: bool,
    diagnostics: Option<SocketAddr>,
    taint_unhealthy: Option<String>,
    injected_failures: bool,
    kubelet_timeout: Duration,
}

impl<D> std::fmt::Debug for Builder<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("driver_name", &self.driver_name)
            .finish_non_exhaustive()
    }
}

impl Plugin {
    /// Starts to describe a plugin for `driver_name`, such as `gpu.example.com`.
    pub fn builder<D: Driver>(driver_name: impl Into<String>, driver: D) -> Builder<D> {
        Builder::new(driver_name.into(), driver)
    }
}

impl<D: Driver> Builder<D> {
    pub(crate) fn new(driver_name: String, driver: D) -> Self {
        Self {
            driver_name,
            driver,
            client: None,
            node_name: None,
            node_uid: None,
            cluster_pool: None,
            registrar_dir: "/var/lib/kubelet/plugins_registry".into(),
            data_dir: None,
            cdi_dir: "/var/run/cdi".into(),
            cdi_kind: None,
            cdi_common: ContainerEdits::default(),
            metadata: false,
            rolling_update: None,
            serialize: true,
            checkpoint: true,
            v1: true,
            v1beta1: true,
            diagnostics: None,
            taint_unhealthy: None,
            injected_failures: false,
            kubelet_timeout: KUBELET_TIMEOUT,
        }
    }

    /// Access to the API server. Required.
    #[must_use]
    pub fn client(mut self, client: kube::Client) -> Self {
        self.client = Some(client);
        self
    }

    /// The node this process runs on. Required for publishing devices of the node.
    #[must_use]
    pub fn node_name(mut self, name: impl Into<String>) -> Self {
        self.node_name = Some(name.into());
        self
    }

    /// UID of the Node object, the owner of the slices. Looked up if not set.
    #[must_use]
    pub fn node_uid(mut self, uid: impl Into<String>) -> Self {
        self.node_uid = Some(uid.into());
        self
    }

    /// Publish only this one pool, for devices that are not local to a node. Its slices are owned by the node that is
    /// set with [`Builder::node_name`], and have no owner without one.
    #[must_use]
    pub fn cluster_pool(mut self, pool: impl Into<String>) -> Self {
        self.cluster_pool = Some(pool.into());
        self
    }

    /// The kubelet's root directory: sets the registration directory and the plugin's data directory below it.
    /// Default `/var/lib/kubelet`.
    #[must_use]
    pub fn kubelet_dir(mut self, directory: impl AsRef<Path>) -> Self {
        let directory = directory.as_ref();
        self.registrar_dir = directory.join("plugins_registry");
        self.data_dir = Some(directory.join("plugins").join(&self.driver_name));
        self
    }

    /// Directory of the registration socket. It is not created: a kubelet does that, and watches it.
    #[must_use]
    pub fn registrar_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.registrar_dir = directory.into();
        self
    }

    /// Directory of the service socket and the checkpoint; created when missing. Default
    /// `/var/lib/kubelet/plugins/<driver name>`.
    #[must_use]
    pub fn data_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(directory.into());
        self
    }

    /// Directory of the CDI files. Default `/var/run/cdi`.
    #[must_use]
    pub fn cdi_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.cdi_dir = directory.into();
        self
    }

    /// `vendor/class` of the CDI devices; required for drivers that return edits. Both have at least two characters:
    /// container runtimes crash on shorter ones, and [`Builder::start`] refuses them.
    #[must_use]
    pub fn cdi_kind(mut self, kind: impl Into<String>) -> Self {
        self.cdi_kind = Some(kind.into());
        self
    }

    /// Edits for every container that uses a device of this driver.
    #[must_use]
    pub fn cdi_common(mut self, edits: ContainerEdits) -> Self {
        self.cdi_common = edits;
        self
    }

    /// Whether containers get files with metadata of their devices (see [`crate::metadata`]); default false. Needs a
    /// driver name that begins with a letter, since it becomes the vendor of CDI devices.
    #[must_use]
    pub fn device_metadata(mut self, on: bool) -> Self {
        self.metadata = on;
        self
    }

    /// Two instances may run at the same time while one replaces the other; `instance` (the pod's UID) distinguishes
    /// their sockets. Needs a kubelet of 1.33 or later.
    #[must_use]
    pub fn rolling_update(mut self, instance: impl Into<String>) -> Self {
        self.rolling_update = Some(instance.into());
        self
    }

    /// Whether calls of the driver exclude each other; default true. Without it those for different claims run at the same
    /// time.
    #[must_use]
    pub fn serialize(mut self, on: bool) -> Self {
        self.serialize = on;
        self
    }

    /// Whether prepared claims are stored on disk; default true. Without it the driver itself must be idempotent.
    #[must_use]
    pub fn checkpoint(mut self, on: bool) -> Self {
        self.checkpoint = on;
        self
    }

    /// Which versions of the DRA service to offer; default both.
    #[must_use]
    pub fn services(mut self, v1: bool, v1beta1: bool) -> Self {
        (self.v1, self.v1beta1) = (v1, v1beta1);
        self
    }

    /// Serves `/healthz`, `/readyz` (whether a kubelet accepted the driver) and `/metrics` over plain HTTP at
    /// `address`. It is unauthenticated and exposes no names of claims or pods; default none. Port 0 picks a free one,
    /// which [`Plugin::diagnostics_address`] returns.
    #[must_use]
    pub fn diagnostics(mut self, address: SocketAddr) -> Self {
        self.diagnostics = Some(address);
        self
    }

    /// Taints the devices that [`Driver::health`] reports as unhealthy with the key `<driver name>/unhealthy`, for as long as
    /// they are. `NoSchedule` keeps new pods away, `NoExecute` also evicts those that use them; default: no taint.
    #[must_use]
    pub fn taint_unhealthy(mut self, effect: impl Into<String>) -> Self {
        self.taint_unhealthy = Some(effect.into());
        self
    }

    /// Lets users try failures of the devices: those that `allot hardware fail` writes into the annotation
    /// [`INJECTED_FAILURES`](crate::INJECTED_FAILURES) of the Node are tainted, unhealthy or not published. Devices of a driver
    /// without [`Driver::health`] are reported as healthy otherwise. For a driver of devices that are not real; needs the
    /// right to watch its Node.
    #[must_use]
    pub fn injected_failures(mut self, heed: bool) -> Self {
        self.injected_failures = heed;
        self
    }

    /// How long [`Builder::start`] waits for the registration directory, which a kubelet creates when it starts: the machine
    /// may start both at the same time. Default [`KUBELET_TIMEOUT`]; zero: it must exist already.
    #[must_use]
    pub fn kubelet_timeout(mut self, timeout: Duration) -> Self {
        self.kubelet_timeout = timeout;
        self
    }
}

mod background;
mod kubelet;
mod lock;
mod sockets;
mod start;
#[cfg(test)]
mod tests;
