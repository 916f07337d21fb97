//! Bodies with a minimum pace of their readers.
//!
//! A connection polls for the next chunk of a body when it has buffer space. A client that does not read therefore
//! blocks its body, and with it a snapshot of a collection, a seat among the requests in flight, and a share of the
//! budget for answers. A task beside the body detects that and releases all of them.

use std::io;
use std::sync::Arc;
use std::sync::Weak;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Content, Held};
use crate::answers::Counters;
use crate::limits::{BURST, CHUNK};
use crate::unread::{Account, Stream};

/// The pace of a reader.
pub(crate) struct ReadDeadlines {
    /// Longest time in which the reader takes nothing of the available content.
    pub stall: Duration,
    /// The deadline for the whole body, if the answer is not long-running.
    pub until: Option<Instant>,
    /// Ends the connection, if its client still does not read after the body has ended.
    pub connection: Option<CancellationToken>,
    /// Where its pieces are counted, unless they count for a budget already.
    pub account: Option<Account>,
    /// The counters to update.
    pub counters: Arc<Counters>,
}

pub(super) struct MonitoredBody {
    state: Mutex<State>,
    stream: Option<Stream>,
    counters: Arc<Counters>,
}

struct State {
    /// `None` after the end.
    content: Option<Content>,
    held: Vec<Held>,
    /// The number of pieces that the reader has received.
    taken: u64,
    /// Of a complete body, those since others had their turn.
    burst: usize,
    /// The reader waits for the content, not the other way round.
    waiting: bool,
    /// The reader has lost the rest.
    given_up: bool,
}

/// Ends the task that monitors a body together with the body.
pub(super) struct Watchdog(AbortHandle);

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(super) fn start(
    content: Content,
    held: Vec<Held>,
    pace: ReadDeadlines,
) -> (Arc<MonitoredBody>, Watchdog) {
    let paced = Arc::new(MonitoredBody {
        stream: pace.account.as_ref().map(Stream::of),
        counters: pace.counters.clone(),
        state: Mutex::new(State {
            content: Some(content),
            held,
            taken: 0,
            burst: 0,
            waiting: false,
            given_up: false,
        }),
    });
    let task = tokio::spawn(watch(Arc::downgrade(&paced), pace));
    (paced, Watchdog(task.abort_handle()))
}

impl MonitoredBody {
    pub(super) fn poll_next(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, io::Error>>> {
        let mut state = self.state.lock();
        let state = &mut *state;
        if state.given_up {
            let late = io::Error::new(io::ErrorKind::TimedOut, "the client did not read");
            return Poll::Ready(Some(Err(late)));
        }
        if let (Some(stream), Some(_)) = (&self.stream, &state.content)
            && stream.poll_room(context).is_pending()
        {
            // The client does not read what is available.
            state.waiting = false;
            return Poll::Pending;
        }
        let next = match &mut state.content {
            None => Poll::Ready(None),
            // Others get their turn, as with answers that are made in pieces.
            Some(Content::Whole(Some(_))) if state.burst == BURST => {
                state.burst = 0;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Some(Content::Whole(Some(bytes))) if bytes.len() > CHUNK => {
                state.burst += 1;
                Poll::Ready(Some(Ok(bytes.split_to(CHUNK))))
            }
            Some(content) => content.poll_next(context),
        };
        let next = match (next, &self.stream) {
            (Poll::Ready(Some(Ok(bytes))), Some(stream)) => {
                Poll::Ready(Some(Ok(stream.count(bytes))))
            }
            (next, _) => next,
        };
        state.waiting = next.is_pending();
        match &next {
            Poll::Ready(Some(Ok(bytes))) => {
                state.taken += 1;
                self.counters.sent(bytes.len());
            }
            Poll::Ready(_) => {
                state.content = None;
                state.held.clear();
            }
            Poll::Pending => {}
        }
        next
    }

    /// Remaining bytes, if known.
    pub(super) fn left(&self) -> Option<u64> {
        let state = self.state.lock();
        match &state.content {
            // The body must not look complete.
            None if state.given_up => None,
            None => Some(0),
            Some(content) => content.left(),
        }
    }
}

async fn watch(paced: Weak<MonitoredBody>, pace: ReadDeadlines) {
    let mut seen = 0;
    loop {
        let next = Instant::now() + pace.stall;
        tokio::time::sleep_until(pace.until.map_or(next, |until| until.min(next))).await;
        let Some(paced) = paced.upgrade() else { return };
        let mut state = paced.state.lock();
        let late = pace.until.is_some_and(|until| until <= Instant::now());
        if late || !state.waiting && state.taken == seen {
            state.given_up = true;
            let content = state.content.take();
            let held = std::mem::take(&mut state.held);
            drop(state);
            drop((content, held));
            break;
        }
        seen = state.taken;
    }
    pace.counters.abandoned();
    // The end is seen when the client takes the content of the connection's buffers, or never.
    tokio::time::sleep(pace.stall).await;
    if let Some(connection) = pace.connection {
        connection.cancel();
    }
}
