//! A work queue: each key is handled by one worker at a time, with exponential back-off after
//! failures.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Back-off after failures, client-go's defaults.
const FIRST_WAIT: Duration = Duration::from_millis(5);
const LONGEST_WAIT: Duration = Duration::from_secs(1000);
/// All failures together: this many at once, and then one per [`BUCKET_PERIOD`].
const BUCKET_SIZE: u32 = 100;
const BUCKET_PERIOD: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct State<K> {
    ready: VecDeque<K>,
    /// In `ready`, or to be put there when its worker is done.
    dirty: HashSet<K>,
    working: HashSet<K>,
    /// Not before a time; entries that `due` does not confirm are void.
    later: BinaryHeap<Reverse<(Instant, K)>>,
    due: HashMap<K, Instant>,
    failures: HashMap<K, u32>,
    adds: u64,
    retries: u64,
    /// The time at which the token bucket is full again.
    bucket: Instant,
}

/// The controller's work queue: each key is handled by one worker at a time, and retried with a growing delay.
#[derive(Debug)]
pub(super) struct Queue<K> {
    state: Mutex<State<K>>,
    changed: Notify,
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                ready: VecDeque::new(),
                dirty: HashSet::new(),
                working: HashSet::new(),
                later: BinaryHeap::new(),
                due: HashMap::new(),
                failures: HashMap::new(),
                adds: 0,
                retries: 0,
                bucket: Instant::now(),
            }),
            changed: Notify::new(),
        }
    }

    /// To be worked on now; once, however often it is added.
    pub(super) fn add(&self, key: K) {
        add(&mut self.state.lock(), key);
        self.changed.notify_one();
    }

    /// To be worked on after a while; the earlier of two times counts.
    pub(super) fn add_after(&self, key: K, wait: Duration) {
        let at = Instant::now() + wait;
        let mut state = self.state.lock();
        if state.due.get(&key).is_some_and(|known| *known <= at) {
            return;
        }
        state.due.insert(key.clone(), at);
        state.later.push(Reverse((at, key)));
        drop(state);
        self.changed.notify_one();
    }

    /// To be worked on again after a failure.
    pub(super) fn retry(&self, key: K) {
        let wait = {
            let mut state = self.state.lock();
            state.retries += 1;
            let failures = state.failures.entry(key.clone()).or_default();
            let own = FIRST_WAIT.saturating_mul(1 << (*failures).min(20));
            *failures += 1;
            let now = Instant::now();
            state.bucket = state.bucket.max(now) + BUCKET_PERIOD;
            let shared = (state.bucket - now).saturating_sub(BUCKET_PERIOD * BUCKET_SIZE);
            own.min(LONGEST_WAIT).max(shared)
        };
        self.add_after(key, wait);
    }

    /// It went well: the next failure is the first.
    pub(super) fn forget(&self, key: &K) {
        self.state.lock().failures.remove(key);
    }

    /// The next key. [`Queue::done`] has to follow.
    pub(super) async fn next(&self) -> K {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let wake = {
                let mut state = self.state.lock();
                let now = Instant::now();
                while let Some(Reverse((at, _))) = state.later.peek() {
                    if *at > now {
                        break;
                    }
                    // Peeked a moment ago.
                    let Some(Reverse((at, key))) = state.later.pop() else {
                        break;
                    };
                    if state.due.get(&key) == Some(&at) {
                        state.due.remove(&key);
                        add(&mut state, key);
                    }
                }
                if let Some(key) = state.ready.pop_front() {
                    state.dirty.remove(&key);
                    state.working.insert(key.clone());
                    if !state.ready.is_empty() {
                        self.changed.notify_one();
                    }
                    return key;
                }
                state.later.peek().map(|Reverse((at, _))| *at)
            };
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
        }
    }

    /// Metrics in the Prometheus text format, with client-go's names for queues.
    pub(super) fn metrics(&self, name: &str) -> String {
        let state = self.state.lock();
        let depth = state.ready.len() as u64;
        let working = state.working.len() as u64;
        let metrics = [
            (
                "workqueue_adds_total",
                "counter",
                "Additions to the queue",
                state.adds,
            ),
            (
                "workqueue_retries_total",
                "counter",
                "Additions after a failure",
                state.retries,
            ),
            ("workqueue_depth", "gauge", "Keys that wait", depth),
            (
                "workqueue_unfinished_work",
                "gauge",
                "Keys that are worked on",
                working,
            ),
        ];
        let metrics = metrics.map(|(metric, kind, help, value)| {
            format!("# HELP {metric} {help}\n# TYPE {metric} {kind}\n{metric}{{name={name:?}}} {value}\n")
        });
        metrics.concat()
    }

    /// The worker has finished a key; it is queued again if it was added meanwhile.
    pub(super) fn done(&self, key: &K) {
        let mut state = self.state.lock();
        state.working.remove(key);
        if state.dirty.contains(key) {
            state.ready.push_back(key.clone());
            drop(state);
            self.changed.notify_one();
        }
    }
}

fn add<K: Clone + Eq + Hash>(state: &mut State<K>, key: K) {
    if !state.dirty.insert(key.clone()) {
        return;
    }
    state.adds += 1;
    if !state.working.contains(&key) {
        state.ready.push_back(key);
    }
}
