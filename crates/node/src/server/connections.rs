//! Limits of the HTTPS API's connections and their idle time.
//!
//! A client that is not authorized can open connections faster than they time out. Connections without an authorized
//! request form a queue: if it is full, the oldest is closed for the newest, so that a client with a certificate, which
//! needs milliseconds, gets through. The limits apply to the process, which may run several nodes, and follow from its
//! limit of open files: the rest is for the API server, stores and containers of the same process.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a client may take for the handshake, and again for the head of each request.
pub(super) const HEAD: Duration = Duration::from_secs(10);
/// How long a connection of an authorized client is kept for its next request.
const IDLE: Duration = Duration::from_secs(90);

/// A permit for a connection to a port of a pod; `None` if this process has as many as it may have.
pub(super) fn forwarded() -> Option<OwnedSemaphorePermit> {
    Arc::clone(&BOUNDS.forwarded).try_acquire_owned().ok()
}

/// The bounds of this process.
static BOUNDS: LazyLock<Arc<Bounds>> = LazyLock::new(|| {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
    Arc::new(Bounds::new(usize::try_from(files).unwrap_or(usize::MAX)))
});

struct Bounds {
    waiting: Mutex<VecDeque<(u64, CancellationToken)>>,
    most_waiting: usize,
    known: Arc<Semaphore>,
    /// Connections to ports of pods: a client opens many over one of its own.
    forwarded: Arc<Semaphore>,
    next: AtomicU64,
}

impl Bounds {
    fn new(files: usize) -> Self {
        Self {
            waiting: Mutex::default(),
            most_waiting: (files / 8).clamp(4, 512),
            known: Arc::new(Semaphore::new((files / 4).clamp(8, 4096))),
            forwarded: Arc::new(Semaphore::new((files / 8).clamp(4, 4096))),
            next: AtomicU64::new(0),
        }
    }
}

/// State of a connection.
pub(super) struct Connection {
    bounds: Arc<Bounds>,
    id: u64,
    /// Set when the connection is closed in favour of another.
    closed: CancellationToken,
    /// There once a request was allowed.
    permit: Mutex<Option<OwnedSemaphorePermit>>,
    requests: AtomicUsize,
    last: Mutex<Instant>,
}

impl Connection {
    /// Registers a new connection, for which another may be closed.
    pub(super) fn open() -> Arc<Self> {
        Self::within(Arc::clone(&BOUNDS))
    }

    fn within(bounds: Arc<Bounds>) -> Arc<Self> {
        let id = bounds.next.fetch_add(1, Ordering::Relaxed);
        let closed = CancellationToken::new();
        {
            let mut waiting = bounds.waiting.lock();
            while waiting.len() >= bounds.most_waiting {
                if let Some((_, oldest)) = waiting.pop_front() {
                    oldest.cancel();
                }
            }
            waiting.push_back((id, closed.clone()));
        }
        Arc::new(Self {
            bounds,
            id,
            closed,
            permit: Mutex::default(),
            requests: AtomicUsize::new(0),
            last: Mutex::new(Instant::now()),
        })
    }

    /// A request was authorized: the connection leaves the queue. Returns whether there may be one more such
    /// connection.
    pub(super) fn is_known(&self) -> bool {
        let mut permit = self.permit.lock();
        if permit.is_none() {
            *permit = Arc::clone(&self.bounds.known).try_acquire_owned().ok();
            if permit.is_some() {
                self.leave();
            }
        }
        permit.is_some()
    }

    fn leave(&self) {
        let mut waiting = self.bounds.waiting.lock();
        if let Some(at) = waiting.iter().position(|(id, _)| *id == self.id) {
            waiting.remove(at);
        }
    }

    /// A request that is under way until the answer is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        self.requests.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    /// When the connection has been idle for too long; `None` while a request is in progress.
    fn deadline(&self) -> Option<Instant> {
        if self.requests.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let known = self.permit.lock().is_some();
        Some(*self.last.lock() + if known { IDLE } else { HEAD })
    }

    /// Waits until the connection has been idle for too long or is closed in favour of another.
    pub(super) async fn ended(&self) {
        let idle = async {
            loop {
                match self.deadline() {
                    None => tokio::time::sleep(HEAD).await,
                    Some(end) if end <= Instant::now() => return,
                    Some(end) => tokio::time::sleep_until(end).await,
                }
            }
        };
        tokio::select! {
            () = self.closed.cancelled() => {}
            () = idle => {}
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.permit.get_mut().is_none() {
            self.leave();
        }
    }
}

/// A request that is under way.
pub(super) struct Busy(Arc<Connection>);

impl Drop for Busy {
    fn drop(&mut self) {
        *self.0.last.lock() = Instant::now();
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_oldest_stranger_makes_way() {
        let bounds = Arc::new(Bounds::new(64));
        let open = || Connection::within(Arc::clone(&bounds));
        let client = open();
        assert!(client.is_known());
        let strangers: Vec<_> = (0..bounds.most_waiting).map(|_| open()).collect();
        let newest = open();
        strangers[0].ended().await;
        assert!(!strangers[1].closed.is_cancelled());
        assert!(!client.closed.is_cancelled());
        // An unauthorized connection that becomes authorized leaves the queue.
        assert!(strangers[1].is_known());
        drop(newest);
        assert_eq!(bounds.waiting.lock().len(), bounds.most_waiting - 2);
        drop(strangers);
        assert!(bounds.waiting.lock().is_empty());
    }

    #[tokio::test]
    async fn known_clients_have_a_bound_too() {
        let bounds = Arc::new(Bounds::new(64));
        let most = bounds.known.available_permits();
        let open = || Connection::within(Arc::clone(&bounds));
        let clients: Vec<_> = (0..most).map(|_| open()).collect();
        assert!(clients.iter().all(|client| client.is_known()));
        let late = open();
        assert!(!late.is_known());
        drop(clients);
        assert!(late.is_known());
    }

    #[test]
    fn idle_connections_end_and_busy_ones_do_not() {
        let bounds = Arc::new(Bounds::new(64));
        let connection = Connection::within(Arc::clone(&bounds));
        let opened = *connection.last.lock();
        assert_eq!(connection.deadline(), Some(opened + HEAD));
        assert!(connection.is_known());
        assert_eq!(connection.deadline(), Some(opened + IDLE));
        let busy = connection.begin();
        assert_eq!(connection.deadline(), None);
        drop(busy);
        let last = *connection.last.lock();
        assert!(last >= opened);
        assert_eq!(connection.deadline(), Some(last + IDLE));
    }
}
