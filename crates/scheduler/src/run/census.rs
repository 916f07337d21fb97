//! Counts of devices by pool and state for the metrics, on another thread.

use std::time::Duration;

use crate::core::Core;

/// How often devices are counted for the metrics, while there are changes.
const CENSUS: Duration = Duration::from_secs(5);

/// When devices are counted, which happens on another thread.
#[derive(Default)]
pub(super) struct Census {
    /// When the last count began, after the start.
    last: Option<Duration>,
    /// There were changes since the last count.
    pub(super) is_old: bool,
    running: Option<tokio::task::JoinHandle<()>>,
}

impl Census {
    /// The time of the next count; `None` without changes since the last one.
    pub(super) fn due(&self) -> Option<Duration> {
        self.is_old
            .then(|| self.last.map_or(Duration::ZERO, |last| last + CENSUS))
    }

    /// Counts if it is time, and the last count has ended.
    pub(super) fn count(&mut self, core: &Core, now: Duration) {
        let busy = self.running.as_ref().is_some_and(|it| !it.is_finished());
        if self.due().is_none_or(|due| due > now) {
            return;
        }
        self.last = Some(now);
        if !busy {
            self.is_old = false;
            self.running = Some(tokio::task::spawn_blocking(core.census()));
        }
    }
}
