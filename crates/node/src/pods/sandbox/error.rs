//! Errors of pod networks.

use super::super::network;
use crate::cni;
use crate::error::PathError;

/// Why the network of a pod was not set up or removed; the texts are the kubelet's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SandboxError {
    /// The pod with this UID has no network yet.
    #[error("failed to setup network for sandbox {uid:?}: {source}")]
    Attach { uid: String, source: NetworkError },
    /// The network of the pod with this UID was not removed.
    #[error("failed to destroy network for sandbox {uid:?}: {source}")]
    Detach { uid: String, source: NetworkError },
}

/// The step that failed for the network of a pod.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetworkError {
    /// A CNI plugin failed, or the configuration cannot be used.
    #[error(transparent)]
    Cni(#[from] cni::Error),
    /// The network namespace cannot be created.
    #[error(transparent)]
    Namespace(#[from] network::NamespaceError),
    /// The record cannot be written.
    #[error(transparent)]
    Write(#[from] PathError),
    /// The record cannot be removed.
    #[error(transparent)]
    Remove(#[from] std::io::Error),
    /// A bandwidth annotation of the pod is invalid.
    #[error("{0}")]
    Annotation(String),
    /// The plugins did not report an address.
    #[error("the result has no address of the pod")]
    NoAddress,
}
