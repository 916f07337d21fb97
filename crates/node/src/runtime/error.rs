//! Errors of container runtimes.

use super::cri::{CallError, TranslateError};
use crate::error::{PathError, api_message};

/// An error of a container runtime. Messages about calls have the format of Go's gRPC clients.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The runtime cannot run containers now; the text is that of [`super::Condition::ready`].
    #[error("{0}")]
    NotReady(String),
    /// The runtime refused a call, or did not respond to it.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The API server does not return the RuntimeClass of a pod.
    #[error("failed to get sandbox runtime: {}", api_message(.0))]
    RuntimeClass(#[source] Box<kube::Error>),
    /// The pod has a setting that this node refuses.
    #[error(transparent)]
    Pod(#[from] TranslateError),
    /// A directory for the runtime cannot be created.
    #[error(transparent)]
    Directory(#[from] PathError),
    /// The runtime does not report the file system of its images.
    #[error("the runtime does not tell where its images are")]
    NoImageDirectory,
    /// The container has ended.
    #[error("container not running")]
    NotRunning,
    /// The cgroup of a container does not take a limit.
    #[error(transparent)]
    Limit(PathError),
    /// All containers of a pod together use more memory than its limit would be: the kernel would kill them.
    #[error(
        "cannot decrease memory limits: attempting to set pod memory limit ({limit}) below current usage ({used})"
    )]
    PodMemory {
        /// The limit in bytes.
        limit: i64,
        /// The usage in bytes.
        used: u64,
    },
    /// A task of the node ended early, such as the one that measures containers.
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
}
