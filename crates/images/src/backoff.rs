//! The kubelet's back-off for images: 10 seconds after the first failure, doubled up to 5 minutes.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The first pause.
pub const INITIAL: Duration = Duration::from_secs(10);
/// The longest pause.
pub const MAX: Duration = Duration::from_secs(300);
/// Most keys that are remembered; the oldest is forgotten beyond that.
const MAX_KEYS: usize = 100_000;

/// Back-off by key. The caller passes the time, so that nothing here waits.
#[derive(Debug)]
pub struct Backoff {
    initial: Duration,
    max: Duration,
    entries: HashMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    pause: Duration,
    updated: Instant,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new(INITIAL, MAX)
    }
}

impl Backoff {
    /// Pauses that begin with `initial` and grow to `max`.
    pub fn new(initial: Duration, max: Duration) -> Self {
        Self {
            initial,
            max,
            entries: HashMap::new(),
        }
    }

    /// The rest of the back-off since the last failure; `None` outside of a back-off.
    pub fn left(&self, key: &str, now: Instant) -> Option<Duration> {
        let entry = self.entries.get(key)?;
        let passed = now.saturating_duration_since(entry.updated);
        entry
            .pause
            .checked_sub(passed)
            .filter(|left| !left.is_zero())
    }

    /// Notes a failure: the pause begins, or is doubled if the last failure is less than twice the longest pause ago.
    pub fn fail(&mut self, key: &str, now: Instant) {
        let pause = match self.entries.get(key) {
            Some(entry) if !self.is_old(entry, now) => (entry.pause * 2).min(self.max),
            _ => self.initial,
        };
        if self.entries.len() >= MAX_KEYS && !self.entries.contains_key(key) {
            self.collect(now);
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.updated);
            if let Some(oldest) = oldest
                .map(|(key, _)| key.clone())
                .filter(|_| self.entries.len() >= MAX_KEYS)
            {
                self.entries.remove(&oldest);
            }
        }
        let entry = Entry {
            pause,
            updated: now,
        };
        self.entries.insert(key.to_owned(), entry);
    }

    /// Forgets keys whose last failure is long ago.
    pub fn collect(&mut self, now: Instant) {
        let max = self.max;
        self.entries
            .retain(|_, entry| now.saturating_duration_since(entry.updated) <= max * 2);
    }

    fn is_old(&self, entry: &Entry, now: Instant) -> bool {
        now.saturating_duration_since(entry.updated) > self.max * 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_are_forgotten() {
        let start = Instant::now();
        let mut backoff = Backoff::default();
        let mut now = start;
        assert_eq!(backoff.left("a", now), None);
        for seconds in [10, 20, 40, 80, 160, 300, 300] {
            backoff.fail("a", now);
            let pause = Duration::from_secs(seconds);
            assert_eq!(backoff.left("a", now), Some(pause));
            assert_eq!(backoff.left("b", now), None);
            now += pause;
            assert_eq!(backoff.left("a", now), None);
        }
        now += Duration::from_secs(601);
        backoff.fail("a", now);
        assert_eq!(backoff.left("a", now), Some(INITIAL));
        backoff.collect(now + Duration::from_secs(601));
        assert!(backoff.entries.is_empty());
    }

    #[test]
    fn the_number_of_remembered_images_is_limited() {
        let now = Instant::now();
        let mut backoff = Backoff::default();
        for index in 0..MAX_KEYS + 10 {
            if index == MAX_KEYS {
                assert_eq!(backoff.entries.len(), MAX_KEYS);
            }
            backoff.fail(&index.to_string(), now);
        }
        assert_eq!(backoff.entries.len(), MAX_KEYS);
    }
}
