//! The open connections: the longest idle one is closed for a new one.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

use crate::shares::largest;
use crate::unread::{Account, Pool, Unread};

/// How often the log reports that there are too many.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// All open connections.
pub struct Connections {
    limit: usize,
    unread: Arc<Pool>,
    next: AtomicU64,
    open: Mutex<HashMap<u64, Arc<Connection>>>,
    last_logged: Mutex<Option<Instant>>,
}

/// One connection, as its requests see it.
pub struct Connection {
    /// The other end.
    pub peer: SocketAddr,
    /// Ends it at once.
    pub abort: CancellationToken,
    /// The bytes of answers that it has not sent.
    pub(crate) unread: Arc<Unread>,
    /// Whose share of the connections it is, as of its last request.
    owner: Mutex<Arc<str>>,
    requests: Mutex<Requests>,
}

struct Requests {
    active: usize,
    /// It goes on as a stream, which ends by itself.
    upgraded: bool,
    /// When the last one ended, or the connection was opened.
    since: Instant,
    /// When the first bytes of an incomplete request head arrived.
    head: Option<Instant>,
}

impl Connection {
    /// A request on it, as a value to hold until its answer has been sent.
    pub fn request(self: &Arc<Self>) -> InFlight {
        let mut requests = self.requests.lock();
        requests.active += 1;
        requests.head = None;
        drop(requests);
        InFlight(self.clone())
    }

    /// Notes whose request came on it.
    pub fn used_by(&self, owner: &str) -> Arc<str> {
        let mut noted = self.owner.lock();
        if &**noted != owner {
            *noted = owner.into();
        }
        noted.clone()
    }

    fn owner(&self) -> Arc<str> {
        self.owner.lock().clone()
    }

    /// Where answers to a user count until they are sent. Those to a client that has proven no identity count for the user
    /// of the connection's last request that did.
    pub(crate) fn account(&self, owner: Option<Arc<str>>) -> Account {
        Account {
            unread: self.unread.clone(),
            owner: owner.unwrap_or_else(|| self.owner()),
        }
    }

    /// Marks an upgraded connection: it is never idle again, and keeps its slot until its stream ends.
    pub fn upgraded(&self) {
        let mut requests = self.requests.lock();
        requests.active += 1;
        requests.upgraded = true;
    }

    /// Bytes were received; between requests they are the start of the next one.
    pub fn received(&self) {
        let mut requests = self.requests.lock();
        if requests.active == 0 && requests.head.is_none() {
            requests.head = Some(Instant::now());
        }
    }

    /// For how long the head of a request has been on its way.
    pub fn head_for(&self) -> Option<Duration> {
        self.requests.lock().head.map(|head| head.elapsed())
    }

    /// For how long it has had no request, if it has none.
    pub fn idle_for(&self) -> Option<Duration> {
        self.idle_since().map(|since| since.elapsed())
    }

    /// Since when it has had no request, if it has none.
    fn idle_since(&self) -> Option<Instant> {
        let requests = self.requests.lock();
        (requests.active == 0).then_some(requests.since)
    }
}

/// Counts as a request as long as it lives.
pub struct InFlight(Arc<Connection>);

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut requests = self.0.requests.lock();
        requests.active -= 1;
        requests.since = Instant::now();
    }
}

/// A connection's place among the others until it is dropped.
pub struct ConnectionSlot {
    all: Arc<Connections>,
    id: u64,
    /// The state that the streams of the connection report to.
    pub connection: Arc<Connection>,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.all.open.lock().remove(&self.id);
    }
}

impl Connections {
    /// At most `limit` connections, which share the pool `unread`.
    pub fn new(limit: usize, unread: Arc<Pool>) -> Arc<Self> {
        Arc::new(Connections {
            limit: limit.max(1),
            unread,
            next: AtomicU64::new(0),
            open: Mutex::default(),
            last_logged: Mutex::default(),
        })
    }

    /// A slot for a new connection. If there are too many, the one that has been idle for the longest time is closed, or
    /// if all are busy the newest of the user that has more than a quarter of them; `None` if there is none.
    pub fn admit(self: &Arc<Self>, peer: SocketAddr) -> Option<ConnectionSlot> {
        let full = self.open.lock().len() >= self.limit;
        if full {
            self.log_closed(&format!("there are {} connections", self.limit));
            if !self.evict() && !self.evict_busy() {
                return None;
            }
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let abort = CancellationToken::new();
        let connection = Arc::new(Connection {
            peer,
            unread: Unread::new(self.unread.clone(), abort.clone()),
            abort,
            owner: Mutex::new("".into()),
            requests: Mutex::new(Requests {
                active: 0,
                upgraded: false,
                since: Instant::now(),
                head: None,
            }),
        });
        self.open.lock().insert(id, connection.clone());
        let all = self.clone();
        Some(ConnectionSlot {
            all,
            id,
            connection,
        })
    }

    /// Ends the connection that has been idle for the longest time; false if there is none.
    pub fn evict(&self) -> bool {
        let mut open = self.open.lock();
        // Instants are compared, not durations: each duration would be measured at another time.
        let idle = open
            .iter()
            .filter_map(|(id, connection)| Some((connection.idle_since()?, *id)));
        let Some((_, id)) = idle.min() else {
            return false;
        };
        if let Some(connection) = open.remove(&id) {
            connection.abort.cancel();
        }
        true
    }

    /// Ends the newest connection of the user that has the most, if that is more than a quarter of all: a
    /// user that keeps all of them busy must not lock out the others. Those that go on as streams are left: they
    /// would not end, and no longer be counted. False if there is no such user.
    fn evict_busy(&self) -> bool {
        let mut open = self.open.lock();
        let owners: Vec<(u64, Arc<str>)> = open
            .iter()
            .filter(|(_, connection)| !connection.requests.lock().upgraded)
            .map(|(id, connection)| (*id, connection.owner()))
            .collect();
        // Those without a proven identity are one owner: busy ones have answers that their client does not take.
        let Some(most) = largest(owners.iter().map(|(_, owner)| &**owner), self.limit) else {
            return false;
        };
        let newest = owners
            .iter()
            .filter(|(_, owner)| &**owner == most)
            .map(|(id, _)| *id);
        if let Some(connection) = newest.max().and_then(|id| open.remove(&id)) {
            connection.abort.cancel();
        }
        true
    }

    /// Logs the closed or rejected connection, rate-limited.
    pub fn log_closed(&self, why: &str) {
        let mut last_logged = self.last_logged.lock();
        if last_logged.is_none_or(|last_logged| last_logged.elapsed() >= LOG_INTERVAL) {
            *last_logged = Some(Instant::now());
            tracing::warn!(
                "{why}: idle connections are closed for new ones, or those of a user with more than a quarter of them, \
                 or the new one is refused; see --max-connections and the limit on open files"
            );
        }
    }

    /// The number of open connections.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.open.lock().len()
    }
}

/// A stream that reports received data to its connection.
pub struct CountedStream<S> {
    /// The stream that is read and written.
    pub stream: S,
    /// The connection to notify.
    pub noted: Option<Arc<Connection>>,
    /// The slot of the connection. It outlives the requests, since an upgrade moves the stream.
    #[allow(dead_code, reason = "is given up when it is dropped")]
    pub place: Arc<ConnectionSlot>,
}

impl<S: AsyncRead + Unpin> AsyncRead for CountedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before
            && let Some(connection) = &self.noted
        {
            connection.received();
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CountedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(limit: usize) -> Arc<Connections> {
        Connections::new(limit, Pool::new(0))
    }

    const PEER: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);

    #[test]
    fn the_longest_idle_one_makes_room() {
        let all = connections(2);
        let first = all.admit(PEER).unwrap();
        let second = all.admit(PEER).unwrap();
        let busy = first.connection.request();
        // The first is older, but busy.
        let third = all.admit(PEER).unwrap();
        assert!(second.connection.abort.is_cancelled());
        assert!(!first.connection.abort.is_cancelled());
        let also_busy = third.connection.request();
        first.connection.used_by("a");
        third.connection.used_by("b");
        assert!(all.admit(PEER).is_none());
        drop(busy);
        drop(also_busy);
        assert!(all.admit(PEER).is_some());
        assert!(first.connection.abort.is_cancelled());
        drop((first, second, third));
        assert_eq!(all.count(), 0);
    }

    /// One user with as many watches as there may be connections locked out all others.
    #[test]
    fn regression_busy_connections_of_one_user_make_room() {
        let all = connections(8);
        let open: Vec<_> = (0..8).map(|_| all.admit(PEER).unwrap()).collect();
        let busy: Vec<_> = open.iter().map(|it| it.connection.request()).collect();
        for (at, place) in open.iter().enumerate() {
            let owner = if at % 2 == 0 {
                "eve"
            } else {
                ["a", "b", "c", "d"][at / 2]
            };
            place.connection.used_by(owner);
        }
        let ended = || -> Vec<usize> {
            let ended = |at: &usize| open[*at].connection.abort.is_cancelled();
            (0..8).filter(ended).collect()
        };
        // Eve has four of eight, and keeps a quarter.
        let mut more = Vec::new();
        for expected in [&[6][..], &[4, 6]] {
            let new = all.admit(PEER).unwrap();
            let request = new.connection.request();
            more.push((new, request));
            assert_eq!(ended(), expected);
        }
        assert!(all.admit(PEER).is_none());
        drop((open, busy, more));
        assert_eq!(all.count(), 0);
    }

    /// Connections whose requests prove no identity had no owner.
    #[test]
    fn regression_busy_connections_of_strangers_make_room() {
        let all = connections(4);
        let open: Vec<_> = (0..4).map(|_| all.admit(PEER).unwrap()).collect();
        let busy: Vec<_> = open.iter().map(|it| it.connection.request()).collect();
        open[0].connection.used_by("jane");
        let new = all.admit(PEER).unwrap();
        let ended: Vec<bool> = (open.iter())
            .map(|it| it.connection.abort.is_cancelled())
            .collect();
        assert_eq!(ended, [false, false, false, true]);
        drop((open, busy, new));
    }

    #[test]
    fn an_upgraded_connection_keeps_its_place_until_its_stream_ends() {
        let all = connections(1);
        let place = Arc::new(all.admit(PEER).unwrap());
        let stream = CountedStream {
            stream: tokio::io::empty(),
            noted: None,
            place: place.clone(),
        };
        place.connection.upgraded();
        drop(place);
        assert!(all.admit(PEER).is_none());
        drop(stream);
        assert!(all.admit(PEER).is_some());
    }

    #[test]
    fn a_head_is_on_its_way_until_it_is_a_request() {
        let all = connections(1);
        let connection = all.admit(PEER).unwrap().connection.clone();
        assert!(connection.head_for().is_none());
        connection.received();
        assert!(connection.head_for().is_some());
        let request = connection.request();
        // Its body.
        connection.received();
        assert!(connection.head_for().is_none());
        drop(request);
        assert!(connection.head_for().is_none());
    }
}
