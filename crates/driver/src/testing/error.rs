//! What fails in a test.

use super::PATIENCE;
use crate::Failure;

/// What failed in a test.
#[derive(Debug, thiserror::Error)]
pub enum TestError {
    /// The node cannot be set up.
    #[error("set up the node: {0}")]
    SetUp(Failure),
    /// The driver did not start.
    #[error("start the driver: {0}")]
    Start(Failure),
    /// The driver was not registered, or its devices were not published, in time.
    #[error("{what} did not happen within {PATIENCE:?}: {why}")]
    Timeout {
        /// What was waited for.
        what: &'static str,
        /// What is known about the reason.
        why: String,
    },
    /// No driver runs.
    #[error("no driver is registered")]
    NoDriver,
    /// A call of the driver failed: the text that reaches the pod's events.
    #[error("{0}")]
    Driver(String),
    /// The answer of the driver, or its CDI files, are of no use to a kubelet.
    #[error("{0}")]
    Answer(String),
    /// The API refuses an object of the test.
    #[error("{0}")]
    Api(String),
}
