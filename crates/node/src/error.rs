//! Why a node cannot run, and errors that several modules have.

use std::io;
use std::path::{Path, PathBuf};

pub(crate) use allot_reflector::api_message;

/// Reasons to stop the agent. Everything else is retried.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory cannot be used.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The images of the node cannot be used.
    #[error("images: {0}")]
    Images(String),
    /// The container runtime cannot be used.
    #[error(transparent)]
    Runtime(Box<dyn std::error::Error + Send + Sync>),
    /// The node has no socket for NRI plugins.
    #[error("--nri-socket: {0}")]
    Nri(String),
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

/// Whether a webhook or a policy refused a request, and not the API server itself. They refuse with any code, also with those
/// of an invalid object, and may permit it later.
#[must_use]
pub fn is_refused_by_admission(status: &kube::core::Status) -> bool {
    // Texts of kube-apiserver, of which there are no others.
    let texts = ["AdmissionPolicy '", "admission webhook "];
    texts.iter().any(|text| status.message.contains(text))
}

/// A file or directory that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}", path = .path.display())]
pub struct PathError {
    /// The path.
    pub path: PathBuf,
    /// The failed operation, or what is wrong with the content.
    pub source: io::Error,
}

/// Adds the path to the error of an operation.
pub(crate) trait AtPath<T> {
    fn at(self, path: &Path) -> Result<T, PathError>;
}

impl<T, E: Into<io::Error>> AtPath<T> for Result<T, E> {
    fn at(self, path: &Path) -> Result<T, PathError> {
        self.map_err(|error| PathError {
            path: path.to_owned(),
            source: error.into(),
        })
    }
}
