//! Time as a value that tests can control: the wall clock, and a monotonic clock for deadlines.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use tokio::time::Instant;

/// A source of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The system's clock.
    System,
    /// A fixed start that moves with tokio's clock, which tests can pause and advance.
    Tokio {
        /// The time at `start`.
        base: Timestamp,
        /// When the clock was created.
        start: Instant,
    },
}

impl Clock {
    /// A clock that starts at `base` and follows tokio's (possibly paused) clock.
    pub fn tokio(base: Timestamp) -> Self {
        Self::Tokio {
            base,
            start: Instant::now(),
        }
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::now(),
            Self::Tokio { base, start } => {
                let passed = i64::try_from(start.elapsed().as_nanos()).unwrap_or(i64::MAX);
                shifted(*base, jiff::SignedDuration::from_nanos(passed))
            }
        }
    }

    /// The current time in the type of API objects, with seconds.
    pub fn time(&self) -> Time {
        Time(self.now())
    }

    /// The current time with microseconds, in the type of Leases.
    pub fn micro_time(&self) -> MicroTime {
        MicroTime(self.now())
    }
}

/// A clock for deadlines: milliseconds since an arbitrary time; it also runs while the machine sleeps.
#[derive(Debug, Clone)]
pub(crate) struct Monotonic {
    /// Tests run on tokio's clock.
    tokio: Option<tokio::time::Instant>,
}

impl Monotonic {
    pub(crate) fn new(clock: &Clock) -> Self {
        Self {
            tokio: match clock {
                Clock::System => None,
                Clock::Tokio { start, .. } => Some(*start),
            },
        }
    }

    pub(crate) fn millis(&self) -> u64 {
        match self.tokio {
            Some(start) => u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
            None => {
                // CLOCK_BOOTTIME counts the time a machine sleeps, CLOCK_MONOTONIC does not.
                let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
                let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
                let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
                seconds * 1000 + nanos / 1_000_000
            }
        }
    }
}

/// Whole milliseconds, for sums with [`Monotonic::millis`].
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The time in the format of API objects, with seconds.
pub fn rfc3339(at: Timestamp) -> String {
    jiff::fmt::strtime::format("%Y-%m-%dT%H:%M:%SZ", at).unwrap_or_else(|_| at.to_string())
}

/// Adds a duration, which may be negative, to a time; saturates at the limits of the type, because times and durations
/// in objects can have any value.
pub fn shifted(at: Timestamp, by: jiff::SignedDuration) -> Timestamp {
    // Only units of the calendar are errors.
    at.saturating_add(by).unwrap_or(at)
}

/// The time from `now` until `at`; zero if `at` has passed.
pub fn until(now: Timestamp, at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default()
}

/// The time since `at`; zero if `at` is in the future.
pub fn since(now: Timestamp, at: Timestamp) -> Duration {
    until(at, now)
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn no_duration_leads_out_of_time() {
        let now = Timestamp::UNIX_EPOCH;
        let second = SignedDuration::from_secs(1);
        assert_eq!(shifted(now, second).as_second(), 1);
        assert_eq!(shifted(now, -second).as_second(), -1);
        assert_eq!(shifted(Timestamp::MAX, second), Timestamp::MAX);
        assert_eq!(shifted(now, SignedDuration::MAX), Timestamp::MAX);
        assert_eq!(shifted(now, SignedDuration::MIN), Timestamp::MIN);
    }
}
