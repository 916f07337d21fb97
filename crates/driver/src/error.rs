//! Errors of the SDK.

use std::path::PathBuf;

/// Any error of a driver.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Why a plugin cannot be started, or had to stop. `{:?}` prints the readable text as well: `main` uses it for errors.
#[derive(thiserror::Error)]
pub enum Error {
    /// A builder option is missing or contradicts another one.
    #[error("{0}")]
    Config(String),
    /// A socket or directory cannot be used.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The directory in which a kubelet looks for plugins does not exist: no kubelet uses it.
    #[error(
        "{path}: no such directory. In it a kubelet or node agent finds the sockets of its drivers: start that first, \
         or tell the driver the root directory that it uses (`plugins_registry` is below it)",
        path = .0.display()
    )]
    NoKubelet(PathBuf),
    /// Another process uses the data directory. Two instances would take each other's sockets away.
    #[error(
        "{path}: another instance of this driver is running{by}; stop it first, or use Builder::rolling_update for both",
        path = .path.display()
    )]
    Busy {
        /// The lock file.
        path: PathBuf,
        /// ` (process N)` if known.
        by: String,
    },
    /// The address of [`crate::Builder::diagnostics`] cannot be listened on.
    #[error("listen on {address}: {source}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The certificate of a server cannot be used.
    #[error("certificate: {path}: {reason}", path = .path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// [`crate::Driver::restore`] refused to start with the claims of earlier processes.
    #[error("restore prepared claims: {source}")]
    Restore {
        /// What the driver said.
        source: Failure,
    },
    /// A CDI file cannot be written.
    #[error(transparent)]
    Cdi(#[from] allot_cdi::Error),
    /// A gRPC server failed after it had started.
    #[error("{what} failed: {source}")]
    Serve {
        /// `DRA gRPC server` or `registrar gRPC server`.
        what: &'static str,
        /// Why.
        source: tonic::transport::Error,
    },
}

impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// An error for [`crate::Driver::handle_error`]. All of these are retried, migrations at the next start.
#[derive(Debug, thiserror::Error)]
pub enum BackgroundError {
    /// The published resources are contradictory; nothing is written until other ones are published.
    #[error("pool validation failed: {0}")]
    InvalidResources(#[from] InvalidResources),
    /// The API server did not take or give slices.
    #[error("processing ResourceSlice objects: {0}")]
    Sync(String),
    /// The API server stored less than it was sent.
    #[error(
        "pool {pool:?}, slice #{slice}: some fields were dropped by the apiserver, probably because these features \
         are disabled: {features}"
    )]
    DroppedFields {
        /// The pool.
        pool: String,
        /// Index of the slice in the pool.
        slice: usize,
        /// Names of the features, or `unknown`.
        features: String,
    },
    /// The state of a prepared claim could not be migrated.
    #[error("claim {claim}: migrate state of version {version}: {source}")]
    State {
        /// The claim.
        claim: crate::ClaimRef,
        /// The version of the state.
        version: u32,
        /// What the driver said.
        source: Failure,
    },
}

/// Published resources that the API server would accept, although the scheduler could not use them. The texts are
/// those of upstream's `resourceslice` controller.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum InvalidResources {
    /// With a cluster pool, there is another pool than that one.
    #[error(
        "ReconcilePoolWithName={name:?}, but found {pools} pools; expected exactly one pool with this name"
    )]
    OtherPools {
        /// The name of the cluster pool.
        name: String,
        /// The number of published pools.
        pools: usize,
    },
    /// Two counter sets of a pool have the same name.
    #[error("found duplicate counter set {set:?} in pool {pool:?}")]
    DuplicateCounterSet {
        /// The name of the counter set.
        set: String,
        /// The name of the pool.
        pool: String,
    },
    /// Two devices of a pool have the same name, perhaps in different slices.
    #[error("found duplicate device {device:?} in pool {pool:?}")]
    DuplicateDevice {
        /// The name of the device.
        device: String,
        /// The name of the pool.
        pool: String,
    },
    /// A device consumes counters of a set that its pool does not have.
    #[error("counter set {set:?} referenced by device {device:?} not found")]
    UnknownCounterSet {
        /// The name of the counter set.
        set: String,
        /// The name of the device.
        device: String,
    },
    /// A device consumes a counter that its counter set does not have.
    #[error("counter {counter:?} referenced by device {device:?} not found in counter set {set:?}")]
    UnknownCounter {
        /// The name of the counter.
        counter: String,
        /// The name of the device.
        device: String,
        /// The name of the counter set.
        set: String,
    },
}
