//! The plugin EventRateLimit: how many events a server, namespace, user or source may create or change.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::time::Instant;

use allot_apimachinery::Status;
use allot_apimachinery::field::joined;
use parking_lot::Mutex;
use serde_json::Value;

use super::{Attributes, Operation};
use crate::config::{EventLimit, EventLimitKind};
use crate::error::Result;
use crate::object::text;

/// The state of the limits.
#[derive(Default)]
pub(crate) struct EventLimits(Vec<Limiter>);

struct Limiter {
    limit: EventLimit,
    /// Keys contain what clients write, at any length: only their hashes are kept.
    hasher: RandomState,
    buckets: Mutex<Buckets>,
}

/// The buckets of the keys that were used last.
#[derive(Default)]
struct Buckets {
    known: HashMap<u64, Bucket>,
    /// The keys by their last use.
    used: BTreeMap<u64, u64>,
    uses: u64,
}

/// Permits at most `burst` events at once and `qps` of them a second.
struct Bucket {
    tokens: f64,
    at: Instant,
    used: u64,
}

impl EventLimits {
    /// With these limits, none of them used so far.
    pub fn new(limits: &[EventLimit]) -> Self {
        let limiter = |limit: &EventLimit| Limiter {
            limit: *limit,
            hasher: RandomState::new(),
            buckets: Mutex::default(),
        };
        EventLimits(limits.iter().map(limiter).collect())
    }

    /// Counts an event for every limit.
    ///
    /// # Errors
    /// 429 with the limits that are reached.
    pub fn check(&self, attributes: &Attributes<'_>, event: &Value, now: Instant) -> Result<()> {
        let written = matches!(attributes.operation, Operation::Create | Operation::Update);
        if !written || attributes.dry_run || !attributes.resource.is("", "events") {
            return Ok(());
        }
        let mut reached = Vec::new();
        for limiter in &self.0 {
            let kind = limiter.limit.kind;
            let key = key(kind, attributes, event);
            if !limiter.accepts(&key, now) {
                let name = kind.name();
                reached.push(format!("limit reached on type {name} for key {key}"));
            }
        }
        let Some(why) = joined(&reached) else {
            return Ok(());
        };
        let message = format!("Too many requests: {why}");
        Err(Status::failure(429, "TooManyRequests", message).into())
    }
}

/// What an event is counted by.
fn key(kind: EventLimitKind, attributes: &Attributes<'_>, event: &Value) -> String {
    match kind {
        EventLimitKind::Server => String::new(),
        EventLimitKind::Namespace => attributes.namespace.to_owned(),
        EventLimitKind::User => attributes.user.name.clone(),
        EventLimitKind::SourceAndObject => [
            ["source", "component"],
            ["source", "host"],
            ["involvedObject", "kind"],
            ["involvedObject", "namespace"],
            ["involvedObject", "name"],
            ["involvedObject", "uid"],
            ["involvedObject", "apiVersion"],
        ]
        .map(|path| text(event, &path))
        .concat(),
    }
}

impl Limiter {
    fn accepts(&self, key: &str, now: Instant) -> bool {
        let hash = self.hasher.hash_one(key);
        let (qps, burst) = (f64::from(self.limit.qps), f64::from(self.limit.burst));
        let mut buckets = self.buckets.lock();
        let Buckets { known, used, uses } = &mut *buckets;
        *uses += 1;
        if known.len() >= self.limit.cache_size
            && !known.contains_key(&hash)
            && let Some((_, oldest)) = used.pop_first()
        {
            known.remove(&oldest);
        }
        let bucket = known.entry(hash).or_insert(Bucket {
            tokens: burst,
            at: now,
            used: 0,
        });
        used.remove(&bucket.used);
        bucket.used = *uses;
        used.insert(*uses, hash);
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.tokens = (bucket.tokens + passed * qps).min(burst);
        bucket.at = now;
        let accepted = bucket.tokens >= 1.0;
        if accepted {
            bucket.tokens -= 1.0;
        }
        accepted
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn limiter(cache_size: usize) -> Limiter {
        let limit = EventLimit {
            kind: EventLimitKind::User,
            qps: 2,
            burst: 3,
            cache_size,
        };
        EventLimits::new(&[limit]).0.remove(0)
    }

    #[test]
    fn a_burst_is_accepted_and_then_so_many_a_second() {
        let (limiter, start) = (limiter(10), Instant::now());
        let accepted = |now| (0..9).filter(|_| limiter.accepts("a", now)).count();
        assert_eq!(accepted(start), 3);
        assert_eq!(accepted(start + Duration::from_millis(1500)), 3);
        assert_eq!(accepted(start + Duration::from_millis(2000)), 1);
        // Another key has its own.
        assert!(limiter.accepts("b", start));
    }

    #[test]
    fn the_key_that_was_used_longest_ago_is_forgotten() {
        let (limiter, now) = (limiter(2), Instant::now());
        let accepted = |key: &str| (0..9).filter(|_| limiter.accepts(key, now)).count();
        assert_eq!([accepted("a"), accepted("b"), accepted("a")], [3, 3, 0]);
        // In the place of "b".
        assert_eq!([accepted("c"), accepted("a"), accepted("b")], [3, 0, 3]);
        let buckets = limiter.buckets.lock();
        assert_eq!((buckets.known.len(), buckets.used.len()), (2, 2));
    }
}
