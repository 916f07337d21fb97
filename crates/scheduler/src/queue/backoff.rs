//! How long a pod waits after a failed attempt.

use std::time::Duration;

/// Backoff after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure; doubles with every further one.
    pub initial: Duration,
    /// The upper limit, however often the pod failed.
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(1),
            max: Duration::from_secs(10),
        }
    }
}

impl Backoff {
    pub(super) fn after(&self, failures: u32) -> Duration {
        if failures == 0 {
            return Duration::ZERO;
        }
        let factor = 1u32.checked_shl(failures - 1).unwrap_or(u32::MAX);
        self.initial.saturating_mul(factor).min(self.max)
    }
}
