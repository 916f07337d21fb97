//! The `Retry-After` of rejected requests.
//!
//! As in kube-apiserver: the time of a level doubles, up to half a minute, while it keeps rejecting many requests, and
//! decreases by a second at a time when it rejects few. It changes at most once a second, and increases at most once in
//! the time that was sent to clients, because only then can they be back.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// The longest `Retry-After`, in seconds.
const LONGEST: u64 = 32;
/// So many refused requests for each second of the present time are many.
const MANY: u64 = 3;

/// The refused requests of all levels.
#[derive(Default)]
pub(super) struct Refused(Mutex<FxHashMap<Arc<str>, Level>>);

/// The refused requests of one level.
struct Level {
    /// The second of the last one.
    second: u64,
    /// How many there were in that second.
    count: u64,
    /// Earlier seconds and their numbers, oldest first.
    history: VecDeque<(u64, u64)>,
    /// The current `Retry-After`.
    retry_after: u64,
    /// When it went up last.
    raised: Option<u64>,
}

impl Refused {
    /// Counts a rejected request of a level in the given second; returns its `Retry-After`.
    pub(super) fn count(&self, level: &Arc<str>, second: u64) -> u64 {
        let mut levels = self.0.lock();
        let level = levels.entry(level.clone()).or_insert_with(|| Level {
            second,
            count: 0,
            history: VecDeque::new(),
            retry_after: 1,
            raised: None,
        });
        level.count(second);
        level.retry_after
    }

    /// Drops levels that no longer exist.
    pub(super) fn retain(&self, exists: impl Fn(&str) -> bool) {
        self.0.lock().retain(|name, _| exists(name));
    }
}

impl Level {
    fn count(&mut self, second: u64) {
        if second == self.second {
            self.count += 1;
            return;
        }
        self.history.push_back((self.second, self.count));
        // Older seconds are never read.
        let oldest = (2 * self.retry_after).min(LONGEST);
        while let Some((at, _)) = self.history.front()
            && second.saturating_sub(*at) > oldest
        {
            self.history.pop_front();
        }
        (self.second, self.count) = (second, 1);
        self.adapt(second);
    }

    /// Adapts the time to the rejections of the seconds before this one.
    fn adapt(&mut self, second: u64) {
        let time = self.retry_after;
        let recent = self.history.iter().rev();
        let refused: u64 = recent
            .take_while(|(at, _)| second.saturating_sub(*at) <= time)
            .map(|(_, count)| count)
            .sum();
        let may_rise = self
            .raised
            .is_none_or(|raised| second.saturating_sub(raised) >= time);
        if may_rise && refused >= MANY * time {
            self.retry_after = (2 * time).min(LONGEST);
            self.raised = Some(second);
        } else if refused < time && time > 1 {
            self.retry_after -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rejects this many requests in a second; returns the `Retry-After` of the last one.
    fn refuse(refused: &Refused, second: u64, count: u64) -> u64 {
        let level = Arc::from("level");
        let mut told = 0;
        for _ in 0..count {
            told = refused.count(&level, second);
        }
        told
    }

    #[test]
    fn the_time_doubles_while_much_is_refused() {
        let refused = Refused::default();
        assert_eq!(refuse(&refused, 0, 10), 1);
        // Ten in the second before.
        assert_eq!(refuse(&refused, 1, 10), 2);
        // The time was increased a second ago, and clients were sent a `Retry-After` of two seconds.
        assert_eq!(refuse(&refused, 2, 10), 2);
        let told: Vec<u64> = (3..100)
            .map(|second| refuse(&refused, second, 200))
            .collect();
        assert!(told.is_sorted(), "{told:?}");
        for wanted in [4, 8, 16, 32] {
            assert!(told.contains(&wanted), "{wanted}: {told:?}");
        }
        assert_eq!(told.last(), Some(&32));
    }

    #[test]
    fn the_time_goes_down_by_a_second_at_a_time() {
        let refused = Refused::default();
        let up: Vec<u64> = (0..8).map(|second| refuse(&refused, second, 50)).collect();
        assert_eq!(up.last(), Some(&8));
        // One in a hundred seconds is few.
        let down: Vec<u64> = (1..10).map(|it| refuse(&refused, it * 100, 1)).collect();
        assert_eq!(down, [7, 6, 5, 4, 3, 2, 1, 1, 1]);
    }

    #[test]
    fn levels_are_counted_apart() {
        let refused = Refused::default();
        for second in 0..4 {
            refuse(&refused, second, 50);
        }
        assert_eq!(refused.count(&Arc::from("other"), 4), 1);
        refused.retain(|name| name == "other");
        assert_eq!(refuse(&refused, 5, 1), 1);
    }
}
