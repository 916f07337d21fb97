//! Errors of the SDK.

use std::path::PathBuf;

/// Whatever a driver wants to report.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Why a plugin cannot be started, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A builder option is missing or contradicts another one.
    #[error("{0}")]
    Config(String),
    /// A socket or directory cannot be used.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// Where.
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
    /// The checkpoint is damaged. Starting anyway would prepare claims a second time.
    #[error("checkpoint {path}: {reason}; drain the node and remove the file", path = .path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
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

/// What [`crate::Driver::handle_error`] is told. All of these are tried again.
#[derive(Debug, thiserror::Error)]
pub enum BackgroundError {
    /// The published resources contradict themselves; nothing is written until other ones are published.
    #[error("pool validation failed: {0}")]
    InvalidResources(String),
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
}
