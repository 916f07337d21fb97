//! What a request has of a priority level: a place in a queue, then seats. Dropped, it passes them on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::FlowControl;
use super::seats::{Running, Ticket};

/// The right to be served, until it is dropped.
pub enum Seat {
    /// Not counted.
    Free,
    /// One of the requests in flight.
    InFlight(#[allow(dead_code, reason = "counts while it lives")] OwnedSemaphorePermit),
    /// Seats of a priority level.
    Level(#[allow(dead_code, reason = "counts while it lives")] Taken),
}

/// Seats of a priority level.
pub struct Taken {
    pub(super) control: Arc<FlowControl>,
    pub(super) running: Running,
    /// How long the seats are taken after the request has been answered.
    pub(super) after: Duration,
    pub(super) since: Instant,
    /// The metric that receives how long the request has had its seats.
    pub(super) executed: Histogram,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let (control, running, after) = (self.control.clone(), self.running, self.after);
        self.executed.observe(self.since.elapsed().as_secs_f64());
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if !after.is_zero() => {
                runtime.spawn(async move {
                    tokio::time::sleep(after).await;
                    control.finish(running);
                });
            }
            _ => control.finish(running),
        }
    }
}

/// A request in a queue. Dropped, it leaves the queue, or frees the seats that it was given at the last moment.
pub(super) struct Place {
    pub(super) control: Arc<FlowControl>,
    pub(super) ticket: Ticket,
    pub(super) started: oneshot::Receiver<Running>,
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
