//! A cache of answers, each for a time. Their number is bounded; the size of one has to be bounded where it is made.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// The most answers, as in upstream's cache.
const MOST: usize = 8192;

/// What was asked, reduced: questions may hold tokens, and be long.
pub(crate) type Key = [u8; 32];

/// The key of the parts of a question. `salt` is random, so that the keys of tokens can not be computed elsewhere.
pub(crate) fn key<'a>(salt: &[u8], parts: impl IntoIterator<Item = &'a [u8]>) -> Key {
    let mut hash = Sha256::new_with_prefix(salt);
    for part in parts {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// Answers by question. When the cache is full, the oldest is evicted.
pub(crate) struct AnswerCache<T> {
    most: usize,
    inner: Mutex<Inner<T>>,
}

struct Inner<T> {
    known: HashMap<Key, (Instant, T)>,
    /// Each known key once, in the order in which they came.
    order: VecDeque<Key>,
}

impl<T: Clone> AnswerCache<T> {
    pub(crate) fn new() -> Self {
        AnswerCache::holding(MOST)
    }

    /// One of at most so many answers.
    pub(crate) fn holding(most: usize) -> Self {
        AnswerCache {
            most,
            inner: Mutex::new(Inner {
                known: HashMap::new(),
                order: VecDeque::new(),
            }),
        }
    }

    /// The answer, if its time is not over.
    pub(crate) fn get(&self, key: &Key) -> Option<T> {
        let inner = self.inner.lock();
        let (until, answer) = inner.known.get(key)?;
        (Instant::now() < *until).then(|| answer.clone())
    }

    /// Adds an answer for a time, which may be none.
    pub(crate) fn insert(&self, key: Key, answer: T, time: Duration) {
        let Some(until) = Instant::now().checked_add(time) else {
            return;
        };
        if time.is_zero() {
            return;
        }
        let mut inner = self.inner.lock();
        if inner.known.insert(key, (until, answer)).is_some() {
            return;
        }
        inner.order.push_back(key);
        if inner.order.len() > self.most
            && let Some(oldest) = inner.order.pop_front()
        {
            inner.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn of(number: u32) -> Key {
        key(b"", [number.to_le_bytes().as_slice()])
    }

    #[test]
    fn the_oldest_answer_is_evicted() {
        let cache = AnswerCache::holding(3);
        for number in 0..5 {
            cache.insert(of(number), number, HOUR);
        }
        // One that is known is replaced: none is evicted.
        cache.insert(of(3), 33, HOUR);
        let found: Vec<_> = (0..5).map(|number| cache.get(&of(number))).collect();
        assert_eq!(found, [None, None, Some(2), Some(33), Some(4)]);
        let inner = cache.inner.lock();
        assert_eq!((inner.known.len(), inner.order.len()), (3, 3));
    }

    #[test]
    fn an_answer_without_time_is_not_added_and_one_whose_time_is_over_not_told() {
        let cache = AnswerCache::holding(3);
        cache.insert(of(1), 1, Duration::ZERO);
        cache.insert(of(2), 2, Duration::from_nanos(1));
        while cache.get(&of(2)).is_some() {}
        assert_eq!(cache.get(&of(1)), None);
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        let of = |parts: [&str; 2]| key(b"salt", parts.map(str::as_bytes));
        assert_ne!(of(["ab", "c"]), of(["a", "bc"]));
        assert_ne!(key(b"a", [b"x".as_slice()]), key(b"b", [b"x".as_slice()]));
    }
}
