//! Errors about an image.

use crate::digest::{Digest, InvalidDigest};

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an image is not available. The texts end up in events and in the status of containers, so that they name the image
/// or the entry that is at fault, and never repeat what a server sent beyond its error codes.
///
/// Errors are cloned to all callers that wait for the same pull.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The text is not a name of an image.
    #[error("couldn't parse image name {name:?}: {reason}")]
    InvalidName {
        /// The input.
        name: String,
        /// Upstream's words for the fault.
        reason: String,
    },
    /// The text is not a digest that can be checked.
    #[error(transparent)]
    InvalidDigest(#[from] InvalidDigest),
    /// The registry has no such repository, tag or digest.
    #[error("{0}: not found")]
    NotFound(String),
    /// The registry requires credentials, or others than those given.
    #[error("{0}: authorization failed: {1}")]
    Unauthorized(String, String),
    /// The registry cannot be reached or does not speak the protocol. A node may use the host's files instead.
    #[error("registry {0} is unavailable: {1}")]
    Unreachable(String, String),
    /// A server answered with a status that is none of the above.
    #[error("unexpected status from {0}: {1}")]
    Status(String, String),
    /// A deadline of [`crate::Timeouts`] has passed.
    #[error("timed out after {1:?}: {0}")]
    Timeout(String, std::time::Duration),
    /// The content does not match its digest.
    #[error("content of {expected} has digest {actual}")]
    Corrupt {
        /// The digest in the manifest.
        expected: Digest,
        /// The digest of the received content.
        actual: Digest,
    },
    /// The length of the content does not match its descriptor.
    #[error("content of {digest} is not {expected} bytes long")]
    Size {
        /// The digest in the manifest.
        digest: Digest,
        /// The length in the manifest.
        expected: u64,
    },
    /// More than [`crate::Limits`] permits.
    #[error("{0}")]
    TooLarge(String),
    /// A manifest, an index or a configuration that cannot be used.
    #[error("invalid image: {0}")]
    InvalidImage(String),
    /// No image for this machine in an index.
    #[error("no match for platform in manifest: not found (wanted {0})")]
    Platform(String),
    /// An entry of a layer that would leave the root, or is otherwise refused.
    #[error("layer entry {entry:?} is refused: {reason}")]
    Layer {
        /// The entry's path, shortened.
        entry: String,
        /// The reason.
        reason: String,
    },
    /// A file that describes registries, or a secret, that cannot be used.
    #[error("{0}")]
    Config(String),
    /// An error of the file system: full, read-only, and so on.
    #[error("{0}: {1}")]
    Io(String, std::sync::Arc<std::io::Error>),
    /// The work was cancelled because no caller waits for it.
    #[error("cancelled")]
    Cancelled,
    /// An error of the container runtime that has the images.
    #[error("{message}")]
    Runtime {
        /// The runtime's message.
        message: String,
        /// Whether the runtime did not answer, so that it may have done what was requested of it.
        unanswered: bool,
    },
    /// A fault of this program.
    #[error("internal error: {0}")]
    Internal(String),
}

impl Error {
    /// An error of the file system with the failed operation.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |error| Self::Io(what, std::sync::Arc::new(error))
    }

    /// An error of a system call with the failed operation.
    pub(crate) fn os(what: impl Into<String>) -> impl FnOnce(rustix::io::Errno) -> Self {
        let what = what.into();
        move |error| Self::Io(what, std::sync::Arc::new(error.into()))
    }

    /// Whether the registry could not be reached at all, in which case the image may exist.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable(..) | Self::Timeout(..))
    }

    /// Whether an image may be present in spite of this error of its pull.
    pub fn is_undecided(&self) -> bool {
        match self {
            Self::Runtime { unanswered, .. } => *unanswered,
            Self::Internal(_) => true,
            _ => false,
        }
    }

    /// Whether another attempt would have no use for what was downloaded: the image is at fault, or there is no space for it.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Corrupt { .. }
            | Self::Size { .. }
            | Self::TooLarge(_)
            | Self::InvalidImage(_)
            | Self::Platform(_)
            | Self::Layer { .. } => true,
            other => other.is_full(),
        }
    }

    /// Whether the disk is full, or the user's quota is used up.
    pub fn is_full(&self) -> bool {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Self::Io(_, error) if matches!(error.kind(), StorageFull | QuotaExceeded))
    }
}
