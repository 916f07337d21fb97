//! Events about pods, written with low priority so that they do not delay bindings: events wait while bindings are written,
//! and those that have waited long are written one at a time. When too many wait, further ones are dropped. At shutdown
//! the waiting events are written, for at most a second.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::*;

mod pending;

pub use pending::PendingEvent;

/// Limit of waiting events; further ones are dropped.
const BACKLOG: usize = 8192;
/// How soon an event with an equal text may be repeated. An API server keeps events for an hour, so that an event which
/// still holds is renewed before it expires.
const REPEAT_AFTER: Duration = Duration::from_secs(20 * 60);
/// How many events are written concurrently when there is no other work.
const PARALLEL: usize = 8;

/// How long an event waits for more important writes to end.
const MAX_DELAY: Duration = Duration::from_secs(30);
/// From this number of waiting events on, events no longer wait for more important writes.
const NO_DELAY_FROM: usize = BACKLOG / 4 * 3;
/// How long the waiting events are written at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// An event with the moment at which it was noted.
struct Noted {
    at: Instant,
    /// The same moment, for the event's text.
    stamp: jiff::Timestamp,
    event: PendingEvent,
}

/// Takes events over; cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    sender: Sender<Noted>,
    dropped: Arc<AtomicU64>,
    work: Arc<Work>,
}

/// More important writes: those of bindings.
#[derive(Debug, Default)]
struct Work {
    count: AtomicUsize,
    /// Notified when they have all ended, or when too many events wait for that.
    ended: Notify,
}

/// A guard: more important writes are in progress until it is dropped.
#[derive(Debug)]
pub struct Busy(Arc<Work>);

impl Drop for Busy {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.ended.notify_one();
        }
    }
}

impl Recorder {
    /// A recorder and the task that writes its events until `shutdown`.
    pub fn new(
        client: Client,
        shutdown: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (sender, receiver) = channel(BACKLOG);
        let work = Arc::<Work>::default();
        (
            Self {
                sender,
                dropped: Arc::default(),
                work: work.clone(),
            },
            write(client, receiver, work, shutdown),
        )
    }

    /// Makes events wait until the guard is dropped.
    pub fn pause(&self) -> Busy {
        self.work.count.fetch_add(1, Ordering::Relaxed);
        Busy(self.work.clone())
    }

    /// Queues an event, or drops it when too many wait.
    pub fn note(&self, event: PendingEvent) {
        let noted = Noted {
            at: Instant::now(),
            stamp: jiff::Timestamp::now(),
            event,
        };
        if self.sender.try_send(noted).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        } else if self.sender.max_capacity() - self.sender.capacity() >= NO_DELAY_FROM {
            self.work.ended.notify_one();
        }
    }

    /// The number of events that were dropped because too many waited.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

async fn write(
    client: Client,
    mut notes: Receiver<Noted>,
    work: Arc<Work>,
    shutdown: CancellationToken,
) {
    let mut writing = Writing {
        writes: Writes::new(client),
        written: FxHashMap::default(),
        under_way: JoinSet::new(),
    };
    let mut next: Option<Noted> = None;
    loop {
        let is_busy = work.count.load(Ordering::Relaxed) > 0;
        let limit = if is_busy { 1 } else { PARALLEL };
        let has_capacity = writing.under_way.len() < limit;
        let delay = match is_busy && notes.len() < NO_DELAY_FROM {
            true => MAX_DELAY,
            false => Duration::ZERO,
        };
        // Nothing is due while there is nothing to write.
        let due = next.as_ref().map(|noted| noted.at + delay);
        let due = due.unwrap_or_else(Instant::now);
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(_) = writing.under_way.join_next() => {}
            () = work.ended.notified() => {}
            note = notes.recv(), if next.is_none() => match note {
                Some(note) => next = Some(note),
                None => break,
            },
            () = tokio::time::sleep_until(due), if next.is_some() && has_capacity => {
                if let Some(noted) = next.take() {
                    writing.begin(noted);
                }
            }
        }
    }
    let rest = async {
        while let Some(noted) = next.take().or_else(|| notes.try_recv().ok()) {
            writing.begin(noted);
            if writing.under_way.len() >= PARALLEL {
                writing.under_way.join_next().await;
            }
        }
        while writing.under_way.join_next().await.is_some() {}
    };
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, rest).await.is_err() {
        tracing::debug!("not all events were written before the end");
    }
}

/// The writes of events.
struct Writing {
    writes: Writes,
    /// The last text per pod and reason: a repetition is suppressed for a while.
    written: FxHashMap<(String, &'static str), (String, Instant)>,
    under_way: JoinSet<()>,
}

impl Writing {
    /// Starts to write an event, unless it repeats another.
    fn begin(&mut self, noted: Noted) {
        let Noted { stamp, event, .. } = noted;
        let uid = event.regarding.uid.clone().unwrap_or_default();
        if event.reason == "Scheduled" {
            self.written.remove(&(uid, "FailedScheduling"));
        } else {
            if self.written.len() > BACKLOG {
                self.written.clear();
            }
            let (of, now) = ((uid, event.reason), Instant::now());
            let is_new =
                |(text, at): &(String, Instant)| *text != event.text || *at + REPEAT_AFTER <= now;
            if !self.written.get(&of).is_none_or(is_new) {
                return;
            }
            self.written.insert(of, (event.text.clone(), now));
        }
        let writes = self.writes.clone();
        self.under_way.spawn(async move {
            if let Err(error) = write_one(&writes, &event, stamp).await {
                tracing::debug!(
                    error = api_message(&error),
                    reason = event.reason,
                    "cannot write event"
                );
            }
        });
    }
}

async fn write_one(
    writes: &Writes,
    note: &PendingEvent,
    stamp: jiff::Timestamp,
) -> Result<(), kube::Error> {
    let namespace = note.regarding.namespace.as_deref().unwrap_or("default");
    let name = note.regarding.name.as_deref().unwrap_or_default();
    let unique = event_name(name, stamp);
    let body = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": unique, "namespace": namespace},
        "eventTime": stamp.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
        "type": if note.warning { "Warning" } else { "Normal" },
        "reason": note.reason,
        "action": note.action,
        "note": truncated(&note.text, 1024),
        "regarding": note.regarding,
        "related": note.related,
        "reportingController": note.controller,
        "reportingInstance": format!("{}-{}", note.controller, allot_election::host_name()),
    });
    let url = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    writes.send_only(Method::POST, &url, &body).await
}

/// A unique event name. A pod name that is too long is left out, as in upstream.
fn event_name(pod: &str, stamp: jiff::Timestamp) -> String {
    const LONGEST: usize = 253;
    let unique = format!("{:x}{:04x}", stamp.as_nanosecond(), rand::random::<u16>());
    let name = format!("{pod}.{unique}");
    match name.len() > LONGEST {
        true => uuid::Uuid::new_v4().to_string(),
        false => name,
    }
}

/// A text that is too long ends in dots, as kube-scheduler's do.
fn truncated(text: &str, limit: usize) -> std::borrow::Cow<'_, str> {
    const DOTS: &str = " ...";
    if text.len() <= limit {
        return text.into();
    }
    let end = text.floor_char_boundary(limit - DOTS.len());
    format!("{}{DOTS}", &text[..end]).into()
}

#[cfg(test)]
mod tests;
