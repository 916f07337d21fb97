//! Events about pods, written with low priority: while bindings are in progress they wait, and those that have waited for
//! long are written one at a time, so that events do not delay bindings. When too many wait, further ones are dropped.
//! At shutdown the waiting events are written, for a second at most.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::*;

mod pending;

pub use pending::PendingEvent;

/// Limit of waiting events.
const BACKLOG: usize = 8192;
/// An API server keeps events for an hour: an event that still holds is repeated before that.
const AGAIN: Duration = Duration::from_secs(20 * 60);
/// How many events are written concurrently when there is no other work.
const PARALLEL: usize = 8;

/// So long an event waits for the end of other work.
const PATIENCE: Duration = Duration::from_secs(30);
/// With so many waiting events no event waits any longer.
const MANY: usize = BACKLOG / 4 * 3;
/// How long it may take at shutdown to write the events that wait.
const LAST: Duration = Duration::from_secs(1);

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

/// More important work.
#[derive(Debug, Default)]
struct Work {
    count: AtomicUsize,
    /// It ended, or too many events wait for that.
    ended: Notify,
}

/// More important work is in progress until this is dropped.
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

    /// Marks that more important work is in progress.
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
        } else if self.sender.max_capacity() - self.sender.capacity() >= MANY {
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
        said: FxHashMap::default(),
        under_way: JoinSet::new(),
    };
    let mut next: Option<Noted> = None;
    loop {
        let is_busy = work.count.load(Ordering::Relaxed) > 0;
        let limit = if is_busy { 1 } else { PARALLEL };
        let is_free = writing.under_way.len() < limit;
        let patience = match is_busy && notes.len() < MANY {
            true => PATIENCE,
            false => Duration::ZERO,
        };
        // Nothing is due while there is nothing to write.
        let due = next.as_ref().map(|noted| noted.at + patience);
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
            () = tokio::time::sleep_until(due), if next.is_some() && is_free => {
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
    if tokio::time::timeout(LAST, rest).await.is_err() {
        tracing::debug!("not all events were written before the end");
    }
}

/// The writes of events.
struct Writing {
    writes: Writes,
    /// The last text per pod and reason: a repetition is suppressed for a while.
    said: FxHashMap<(String, &'static str), (String, Instant)>,
    under_way: JoinSet<()>,
}

impl Writing {
    /// Starts to write an event, unless it repeats another.
    fn begin(&mut self, noted: Noted) {
        let Noted { stamp, event, .. } = noted;
        let uid = event.regarding.uid.clone().unwrap_or_default();
        if event.reason == "Scheduled" {
            self.said.remove(&(uid, "FailedScheduling"));
        } else {
            if self.said.len() > BACKLOG {
                self.said.clear();
            }
            let (of, now) = ((uid, event.reason), Instant::now());
            let is_new = |(text, at): &(String, Instant)| *text != event.text || *at + AGAIN <= now;
            if !self.said.get(&of).is_none_or(is_new) {
                return;
            }
            self.said.insert(of, (event.text.clone(), now));
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
