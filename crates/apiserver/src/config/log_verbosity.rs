//! The verbosity of the log, which belongs to the process and not to the server.

use std::fmt;
use std::sync::Arc;

/// Changes the verbosity of the log of the process, as klog counts it: 0 for the least, the more the higher.
#[derive(Clone)]
pub struct LogVerbosity(Arc<dyn Fn(u32) -> Result<(), String> + Send + Sync>);

impl LogVerbosity {
    /// Calls `set` for each change.
    pub fn new(set: impl Fn(u32) -> Result<(), String> + Send + Sync + 'static) -> Self {
        LogVerbosity(Arc::new(set))
    }

    /// # Errors
    /// The log cannot be changed.
    pub(crate) fn set(&self, verbosity: u32) -> Result<(), String> {
        (self.0)(verbosity)
    }
}

impl fmt::Debug for LogVerbosity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogVerbosity")
    }
}
