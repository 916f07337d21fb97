//! Why a node cannot run.

use std::path::PathBuf;

/// Reasons to stop the agent. Everything else is retried.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory cannot be used.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The claim checkpoint is damaged: continuing could give devices to two pods.
    #[error(
        "could not initialize checkpoint manager, please drain node and remove DRA state file, path: {path}: {reason}",
        path = .path.display()
    )]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The images of the node cannot be used.
    #[error("images: {0}")]
    Images(String),
    /// The container runtime cannot be used.
    #[error("{0}")]
    Runtime(String),
    /// The container helper does not work.
    #[error("container helper {program:?}: {reason}")]
    Shim {
        /// The program.
        program: String,
        /// What happened.
        reason: String,
    },
    /// The HTTPS API cannot be served.
    #[error("kubelet API: {0}")]
    Serve(String),
    /// The API server refuses the node for good.
    #[error("node {name:?} cannot be registered: {}", api_message(source))]
    Register {
        /// Name of the node.
        name: String,
        /// Why.
        source: Box<kube::Error>,
    },
}

/// The message of an API error without the wrapping.
pub(crate) fn api_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
