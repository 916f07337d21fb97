//! Requests that run or wait, mutating ones and others: `apiserver_flowcontrol_read_vs_write_current_requests`.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::is_mutating;
use super::seats::{ShownTiming, Timing};

/// Upstream's upper bounds.
const BOUNDS: [f64; 15] = [
    0.0, 0.001, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0,
];

/// The number of requests of one kind in one phase over time, as a part of a limit.
#[derive(Debug)]
pub(super) struct Phase {
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    requests: usize,
    limit: usize,
    since: Instant,
    timing: Timing,
}

impl Phase {
    fn new(limit: usize) -> Arc<Self> {
        let since = Instant::now();
        Arc::new(Phase {
            now: Mutex::new(Now {
                requests: 0,
                limit,
                since,
                timing: Timing::new(&BOUNDS),
            }),
        })
    }

    fn change(&self, change: impl FnOnce(&mut Now)) {
        let mut now = self.now.lock();
        let moment = Instant::now();
        let passed = moment.duration_since(now.since);
        let part = now.requests as f64 / now.limit.max(1) as f64;
        now.timing.pass(passed.as_secs_f64(), part);
        now.since = moment;
        change(&mut now);
    }

    /// Shows for how long there were how many requests, up to now.
    pub(super) fn show(&self, shown: &ShownTiming) {
        self.change(|now| shown.show(&now.timing));
    }
}

/// Counts a request in a phase while it lives.
#[derive(Debug)]
pub struct InPhase(Arc<Phase>);

impl Drop for InPhase {
    fn drop(&mut self) {
        self.0.change(|now| now.requests -= 1);
    }
}

/// All kinds and phases.
#[derive(Debug)]
pub(super) struct Kinds {
    executing: [Arc<Phase>; 2],
    waiting: [Arc<Phase>; 2],
}

impl Kinds {
    /// With the limits of requests that run: others, and mutating ones.
    pub(super) fn new(read_only: usize, mutating: usize) -> Self {
        Kinds {
            executing: [Phase::new(read_only), Phase::new(mutating)],
            waiting: [Phase::new(0), Phase::new(0)],
        }
    }

    /// Both kinds share the seats and the places in queues of priority levels.
    pub(super) fn set_limits(&self, executing: usize, waiting: usize) {
        for (phases, limit) in [(&self.executing, executing), (&self.waiting, waiting)] {
            for phase in phases {
                phase.change(|now| now.limit = limit);
            }
        }
    }

    /// A request with this verb runs.
    pub(super) fn execute(&self, verb: &str) -> InPhase {
        enter(&self.executing, verb)
    }

    /// A request with this verb waits.
    pub(super) fn wait(&self, verb: &str) -> InPhase {
        enter(&self.waiting, verb)
    }

    /// All of them with the values of the labels `phase` and `request_kind`.
    pub(super) fn all(&self) -> impl Iterator<Item = (&'static str, &'static str, &Phase)> {
        let phases = [("executing", &self.executing), ("waiting", &self.waiting)];
        phases
            .into_iter()
            .flat_map(|(phase, [read_only, mutating])| {
                [
                    (phase, "readOnly", &**read_only),
                    (phase, "mutating", &**mutating),
                ]
            })
    }
}

fn enter(phases: &[Arc<Phase>; 2], verb: &str) -> InPhase {
    let phase = &phases[usize::from(is_mutating(verb))];
    phase.change(|now| now.requests += 1);
    InPhase(phase.clone())
}
