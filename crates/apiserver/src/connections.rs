//! The open connections: the longest idle one is closed for a new one.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::AsyncRead;
use tokio_util::io::InspectReader;
use tokio_util::sync::CancellationToken;

use crate::identity::ANONYMOUS;
use crate::shares::part_of;
use crate::unread::{Account, Pool, Unread};

#[cfg(test)]
mod tests;

/// Whose a connection is that only strangers use.
const STRANGERS: &str = "";
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
    /// It continues as a stream, which ends by itself.
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

    /// Notes whose request came on it.
    fn used_by(&self, owner: &str) -> Arc<str> {
        let mut noted = self.owner.lock();
        if &**noted != owner {
            *noted = owner.into();
        }
        noted.clone()
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
    pub fn belongs_to(&self, owner: &str) {
        let owner = self.connection.used_by(owner);
        let is_new = self.owner.set(owner.clone()).is_ok();
        // Anonymous users are strangers as well: every user can be one besides.
        if is_new && &*owner != ANONYMOUS {
            let mut requests = self.connection.requests.lock();
            *requests.owners.entry(owner).or_default() += 1;
        }
    }

    /// Where its answer counts until it is sent: for its user. An answer to a client that has proven no identity counts for
    /// the user of the connection's last request that did.
    pub(crate) fn account(&self) -> Account {
        let owner = self.owner.get().cloned();
        Account {
            unread: self.connection.unread.clone(),
            owner: owner.unwrap_or_else(|| self.connection.owner.lock().clone()),
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
                let mut owners: Vec<Arc<str>> = requests.owners.keys().cloned().collect();
                if owners.is_empty() {
                    owners.push(STRANGERS.into());
                }
                (!requests.upgraded).then_some((*id, owners))
            })
            .collect();
        let mut shares: HashMap<&str, usize> = HashMap::new();
        for owner in owners.iter().flat_map(|(_, owners)| owners) {
            *shares.entry(owner).or_default() += 1;
        }
        let ends = owners.iter().filter_map(|(id, owners)| {
            let shares = owners.iter().map(|owner| shares[&**owner]);
            let all_have_too_many = shares.clone().min()? > part_of(self.limit);
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

/// The stream of a connection, which notes when the head of a request begins to arrive if it `reports`. The stream keeps the
/// slot of the connection: it outlives the requests, since an upgrade moves it.
pub fn counted<S: AsyncRead>(
    stream: S,
    slot: Arc<ConnectionSlot>,
    reports: bool,
) -> InspectReader<S, impl FnMut(&[u8])> {
    InspectReader::new(stream, move |received| {
        if reports && !received.is_empty() {
            slot.connection.received();
        }
    })
}
