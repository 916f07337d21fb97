//! What a request has of a priority level: a place in a queue, then seats. Dropped, it passes them on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::FlowControl;
use super::exempt::Exempt;
use super::kinds::InPhase;
use super::metrics::Counted;
use super::seats::{Running, Ticket};

/// The right to be served, until it is dropped.
pub enum Seat {
    /// Not counted.
    Free,
    /// One of the requests in flight.
    InFlight(
        #[allow(dead_code, reason = "counts while it lives")] OwnedSemaphorePermit,
        #[allow(dead_code, reason = "counts while it lives")] InPhase,
    ),
    /// Without a limit.
    Exempt(#[allow(dead_code, reason = "counts while it lives")] Exempted),
    /// Seats of a priority level.
    Level(#[allow(dead_code, reason = "counts while it lives")] Taken),
}

/// A request that runs, as its schema counts it.
pub(super) struct Execution {
    counted: Arc<Counted>,
    watch: bool,
    seats: i64,
    since: Instant,
    _phase: InPhase,
}

impl Execution {
    /// It begins.
    pub(super) fn new(counted: Arc<Counted>, watch: bool, seats: usize, phase: InPhase) -> Self {
        let seats = i64::try_from(seats).unwrap_or(i64::MAX);
        counted.dispatched.inc();
        counted.executing.inc();
        counted.executing_seats.inc_by(seats);
        Execution {
            counted,
            watch,
            seats,
            since: Instant::now(),
            _phase: phase,
        }
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        let executed = match self.watch {
            true => &self.counted.begun,
            false => &self.counted.executed,
        };
        executed.observe(self.since.elapsed().as_secs_f64());
        self.counted.executing.dec();
    }
}

/// A request of an exempt level.
pub struct Exempted {
    pub(super) control: Arc<FlowControl>,
    pub(super) level: Arc<Exempt>,
    pub(super) execution: Execution,
}

impl Drop for Exempted {
    fn drop(&mut self) {
        self.level.end(self.control.now());
        let execution = &self.execution;
        execution.counted.executing_seats.dec_by(execution.seats);
    }
}

/// Seats of a priority level.
pub struct Taken {
    pub(super) control: Arc<FlowControl>,
    pub(super) running: Running,
    /// How long the seats are taken after the request has been answered.
    pub(super) after: Duration,
    pub(super) execution: Execution,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let (control, running, after) = (self.control.clone(), self.running, self.after);
        let (counted, seats) = (self.execution.counted.clone(), self.execution.seats);
        let finish = move || {
            control.finish(running);
            counted.executing_seats.dec_by(seats);
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if !after.is_zero() => {
                runtime.spawn(async move {
                    tokio::time::sleep(after).await;
                    finish();
                });
            }
            _ => finish(),
        }
    }
}

/// A request that waits, as its schema counts it.
pub(super) struct Wait {
    counted: Arc<Counted>,
    seats: i64,
    _phase: InPhase,
}

impl Wait {
    /// It begins.
    pub(super) fn new(counted: Arc<Counted>, seats: usize, phase: InPhase) -> Self {
        let seats = i64::try_from(seats).unwrap_or(i64::MAX);
        counted.waiting.inc();
        counted.waiting_seats.inc_by(seats);
        Wait {
            counted,
            seats,
            _phase: phase,
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.counted.waiting.dec();
        self.counted.waiting_seats.dec_by(self.seats);
    }
}

/// A request in a queue. Dropped, it leaves the queue, or frees the seats that it was given at the last moment.
pub(super) struct Place {
    pub(super) control: Arc<FlowControl>,
    pub(super) ticket: Ticket,
    pub(super) started: oneshot::Receiver<Running>,
    #[allow(dead_code, reason = "counts while it lives")]
    pub(super) wait: Wait,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.control.state.lock();
        if state.waiting.remove(&self.ticket.id()).is_some() {
            state.seats.cancel(self.ticket, self.control.now());
            self.control.dispatch(&mut state);
        } else if let Ok(running) = self.started.try_recv() {
            state.seats.finish(running, self.control.now());
            self.control.dispatch(&mut state);
        }
    }
}
