//! Wall-clock time as a value that tests can control.

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

    /// The time now as API objects carry it.
    pub fn time(&self) -> Time {
        Time(self.now())
    }

    /// The time now with microseconds, as Leases carry it.
    pub fn micro_time(&self) -> MicroTime {
        MicroTime(self.now())
    }
}

/// The time as API objects write it, with seconds.
pub fn rfc3339(at: Timestamp) -> String {
    jiff::fmt::strtime::format("%Y-%m-%dT%H:%M:%SZ", at).unwrap_or_else(|_| at.to_string())
}

/// A time later by a duration, or earlier if that is negative; beyond the range of times its end. Objects hold the times and
/// durations of their authors.
pub fn shifted(at: Timestamp, by: jiff::SignedDuration) -> Timestamp {
    // Only units of the calendar are errors.
    at.saturating_add(by).unwrap_or(at)
}

/// How long from `now` until `at`; zero if it has passed.
pub fn until(now: Timestamp, at: Timestamp) -> std::time::Duration {
    std::time::Duration::try_from(at.duration_since(now)).unwrap_or_default()
}

/// How long ago `at` was; zero if it is in the future.
pub fn since(now: Timestamp, at: Timestamp) -> std::time::Duration {
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
