//! Priority levels that are exempt: nothing waits there, and their requests are only counted.

use std::sync::Arc;

use parking_lot::Mutex;

use super::seats::{Demand, LevelSpec, Numbers, Use, note_use};

/// What an exempt level has.
#[derive(Debug)]
pub(super) struct Exempt(Mutex<State>);

#[derive(Debug)]
struct State {
    spec: LevelSpec,
    /// Requests that run. Each has one seat.
    executing: usize,
    usage: Use,
    demand: Demand,
    synced: f64,
}

impl Exempt {
    /// Nothing runs there at first.
    pub(super) fn new(spec: LevelSpec, now: f64) -> Arc<Self> {
        Arc::new(Exempt(Mutex::new(State {
            spec,
            executing: 0,
            usage: Use::default(),
            demand: Demand::default(),
            synced: now,
        })))
    }

    /// Another configuration; what runs there goes on.
    pub(super) fn configure(&self, spec: LevelSpec) {
        self.0.lock().spec = spec;
    }

    /// A request begins.
    pub(super) fn begin(&self, now: f64) {
        let mut state = self.0.lock();
        state.sync(now);
        state.executing += 1;
    }

    /// A request has ended.
    pub(super) fn end(&self, now: f64) {
        let mut state = self.0.lock();
        state.sync(now);
        state.executing -= 1;
    }

    /// What it has at the moment, for metrics.
    pub(super) fn numbers(&self, now: f64, total: usize) -> Numbers {
        let mut state = self.0.lock();
        state.sync(now);
        let spec = &state.spec;
        Numbers {
            name: spec.name.clone(),
            nominal: spec.nominal,
            lower: spec.nominal - spec.lendable,
            upper: spec.nominal.saturating_add(spec.borrowable).min(total),
            current: state.executing.max(spec.nominal - spec.lendable),
            usage: state.usage.clone(),
            demand: state.demand,
            fair: None,
        }
    }
}

impl State {
    fn sync(&mut self, now: f64) {
        let passed = (now - self.synced).max(0.0);
        self.synced = now;
        self.demand.pass(passed, self.executing as f64);
        let requests = (self.executing, 0);
        note_use(&mut self.usage, &self.spec, passed, requests, requests);
    }
}
