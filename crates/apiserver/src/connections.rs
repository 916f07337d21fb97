//! The open connections: the longest idle one is closed for a new one.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

use crate::identity::ANONYMOUS;
use crate::shares::PART;
use crate::unread::{Account, Pool, Unread};

#[cfg(test)]
mod tests;

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
    /// The user of its last request that has proven an identity.
    owner: Mutex<Arc<str>>,
    requests: Mutex<Requests>,
}

struct Requests {
    active: usize,
    /// Whose they are. Those of strangers are not among them.
    owners: HashMap<Arc<str>, usize>,
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
        InFlight {
            connection: self.clone(),
            owner: OnceLock::new(),
        }
    }

    /// As [`Connection::request`] for an answer to a user, if its request has proven one.
    pub(crate) fn request_of(self: &Arc<Self>, owner: Option<&Arc<str>>) -> InFlight {
        let request = self.request();
        if let Some(owner) = owner {
            request.count_for(owner);
        }
        request
    }

    /// Notes whose request came on it.
    fn used_by(&self, owner: &str) -> Arc<str> {
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
pub struct InFlight {
    /// The connection that it came on.
    pub connection: Arc<Connection>,
    /// Whose it is, once that is proven.
    owner: OnceLock<Arc<str>>,
}

impl InFlight {
    /// Notes whose request it is: from now on the connection is also that user's.
    pub fn belongs_to(&self, owner: &str) -> Arc<str> {
        let owner = self.connection.used_by(owner);
        self.count_for(&owner);
        owner
    }

    /// Anonymous users are strangers as well: every user can be one besides.
    fn count_for(&self, owner: &Arc<str>) {
        if &**owner != ANONYMOUS && self.owner.set(owner.clone()).is_ok() {
            let mut requests = self.connection.requests.lock();
            *requests.owners.entry(owner.clone()).or_default() += 1;
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut requests = self.connection.requests.lock();
        if let Some(owner) = self.owner.get()
            && let Some(own) = requests.owners.get_mut(owner)
        {
            *own -= 1;
            if *own == 0 {
                requests.owners.remove(owner);
            }
        }
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
    /// if all are busy the newest of a user that keeps more than a quarter of them busy; `None` if there is none.
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
                owners: HashMap::new(),
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

    /// Ends the newest connection of the user that keeps the most busy, if that is more than a quarter of all: a user that
    /// keeps all of them busy must not lock out the others. A connection counts for every user that has a request on it,
    /// and ends only if all of these have too many: what one user does on a connection that it has in common with others,
    /// such as that of a proxy, ends none of their requests. Strangers, who prove no identity, are one user, and
    /// keep no connection from being ended. Those that go on as streams are left: they would not end, and no longer
    /// be counted. False if there is none to end.
    fn evict_busy(&self) -> bool {
        let mut open = self.open.lock();
        let owners: Vec<(u64, Vec<Arc<str>>)> = open
            .iter()
            .filter_map(|(id, connection)| {
                let requests = connection.requests.lock();
                let owners = requests.owners.keys().cloned().collect();
                (!requests.upgraded).then_some((*id, owners))
            })
            .collect();
        let mut shares: HashMap<&str, usize> = HashMap::new();
        for (_, owners) in &owners {
            for owner in names(owners) {
                *shares.entry(owner).or_default() += 1;
            }
        }
        let part = (self.limit / PART).max(1);
        let shares = &shares;
        let ends = owners.iter().filter_map(|(id, owners)| {
            let shares = names(owners).map(|owner| shares[owner]);
            let all_have_too_many = shares.clone().all(|share| share > part);
            all_have_too_many.then(|| (shares.max(), *id))
        });
        let Some((_, id)) = ends.max() else {
            return false;
        };
        if let Some(connection) = open.remove(&id) {
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

/// The users of a connection; strangers where there is no other.
fn names(owners: &[Arc<str>]) -> impl Iterator<Item = &str> + Clone {
    let strangers = owners.is_empty().then_some("");
    owners.iter().map(|owner| &**owner).chain(strangers)
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
