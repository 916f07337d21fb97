//! Elapsed time and new identifiers, which decisions need in addition to their inputs.
//!
//! The core reads neither a clock nor a random number generator itself (clippy.toml bans both there), so that a run can be
//! replayed: with [`Sources::replayable`], the same inputs lead to the same actions, identifiers included.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Where the core takes elapsed time and identifiers from.
#[derive(Debug, Clone, Default)]
pub enum Sources {
    /// The monotonic clock and random UUIDs.
    #[default]
    System,
    /// A source with constant time and sequential identifiers.
    Replayable(Arc<AtomicU64>),
}

impl Sources {
    /// Sources for simulations and tests. Durations in metrics are zero, and `filterTimeout` never expires.
    pub fn replayable() -> Self {
        Self::Replayable(Arc::default())
    }

    /// The time since some instant before the first call; it never decreases. The core measures the durations of its
    /// metrics and `filterTimeout` with it.
    #[allow(clippy::disallowed_methods, reason = "this is the clock of the core")]
    pub fn elapsed(&self) -> Duration {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        match self {
            Self::System => ORIGIN.get_or_init(Instant::now).elapsed(),
            Self::Replayable(_) => Duration::ZERO,
        }
    }

    /// A new share ID of a device with multiple allocations (KEP-5075): a UUID that no other allocation has.
    #[allow(
        clippy::disallowed_methods,
        reason = "this is where identifiers come from"
    )]
    pub fn share_id(&self) -> String {
        match self {
            Self::System => uuid::Uuid::new_v4().to_string(),
            Self::Replayable(last) => {
                let number = last.fetch_add(1, Ordering::Relaxed) + 1;
                uuid::Builder::from_random_bytes(u128::from(number).to_be_bytes())
                    .into_uuid()
                    .to_string()
            }
        }
    }
}

/// Configurations are compared by kind of source; replayable ones do not compare their position.
impl PartialEq for Sources {
    fn eq(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replayable_sources_repeat_themselves() {
        let ids = |sources: Sources| [sources.share_id(), sources.clone().share_id()];
        let first = ids(Sources::replayable());
        assert_eq!(first, ids(Sources::replayable()));
        assert_ne!(first[0], first[1], "clones count together");
        assert_eq!(
            uuid::Uuid::parse_str(&first[0])
                .expect("a UUID")
                .get_version_num(),
            4
        );
        assert_eq!(Sources::replayable().elapsed(), Duration::ZERO);
    }

    #[test]
    fn system_sources_go_on() {
        let before = Sources::System.elapsed();
        assert!(before <= Sources::System.elapsed());
        assert_ne!(Sources::System.share_id(), Sources::System.share_id());
    }
}
