//! Events about pods, written with low priority: while bindings are in progress they wait, and those that have waited for
//! long are written one at a time, so that events do not delay bindings. When too many wait, further ones are dropped.
//! At the end those that wait are written, as far as that takes a second at most.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::ObjectReference;
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::*;
use crate::actions::Rejected;
use crate::dra::conditions::Pending;

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
/// So long the events that wait at the end may take.
const LAST: Duration = Duration::from_secs(1);

/// An event to write.
#[derive(Debug, Clone)]
pub struct PendingEvent {
    controller: String,
    regarding: ObjectReference,
    related: Option<ObjectReference>,
    warning: bool,
    reason: &'static str,
    action: &'static str,
    text: String,
}

fn reference(pod: &PodInfo) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(pod.key.namespace.to_string()),
        name: Some(pod.key.name.to_string()),
        uid: Some(pod.uid.to_string()),
        resource_version: pod.pod.metadata.resource_version.clone(),
        ..ObjectReference::default()
    }
}

impl PendingEvent {
    fn about(pod: &PodInfo, reason: &'static str, action: &'static str, text: String) -> Self {
        Self {
            controller: crate::pod::scheduler_name(&pod.pod).to_owned(),
            regarding: reference(pod),
            related: None,
            warning: false,
            reason,
            action,
            text,
        }
    }

    pub(super) fn scheduled(pod: &PodInfo, node: &str) -> Self {
        Self::about(
            pod,
            "Scheduled",
            "Binding",
            format!("Successfully assigned {} to {node}", pod.key),
        )
    }

    pub(super) fn failed_scheduling(rejected: &Rejected) -> Self {
        let note = Self::about(
            &rejected.pod,
            "FailedScheduling",
            "Scheduling",
            crate::message::explained(&rejected.message, rejected.explanation.as_deref()),
        );
        Self {
            warning: true,
            ..note
        }
    }

    /// Upstream's text, then which condition of which device it is.
    pub(super) fn waits_for_conditions(pod: &PodInfo, node: &str, pending: &[Pending]) -> Self {
        const SHOWN: usize = 5;
        let mut text = format!("waiting for binding conditions for device on node {node}");
        for (
            index,
            Pending {
                device, condition, ..
            },
        ) in pending.iter().take(SHOWN).enumerate()
        {
            let separator = if index == 0 { ": " } else { ", " };
            text += &format!("{separator}{condition} of {device}");
        }
        if pending.len() > SHOWN {
            text += &format!(" and {} more", pending.len() - SHOWN);
        }
        Self::about(pod, "BindingConditionsPending", "Scheduling", text)
    }

    /// Upstream records no event for a pod that is not tried because its claim does not exist.
    pub(super) fn lacks_claim(pod: &PodInfo, text: String) -> Self {
        let note = Self::about(pod, "FailedScheduling", "Scheduling", text);
        Self {
            warning: true,
            ..note
        }
    }

    pub(super) fn preempted(preemptor: &PodInfo, victim: &PodInfo, node: &str) -> Self {
        let text = format!("Preempted by pod {} on node {node}", preemptor.uid);
        Self::preempted_with(preemptor, victim, text)
    }

    /// The victim was in PreBind, and was not deleted.
    pub(super) fn preempted_in_memory(preemptor: &PodInfo, victim: &PodInfo, node: &str) -> Self {
        let uid = &preemptor.uid;
        let text = format!("Preempted by pod {uid} on node {node} (in kube-scheduler memory).");
        Self::preempted_with(preemptor, victim, text)
    }

    fn preempted_with(preemptor: &PodInfo, victim: &PodInfo, text: String) -> Self {
        let note = Self::about(victim, "Preempted", "Preempting", text);
        let controller = crate::pod::scheduler_name(&preemptor.pod).to_owned();
        Self {
            controller,
            related: Some(match preemptor.key.namespace == victim.key.namespace {
                true => reference(preemptor),
                // Users that may read the victim's events must not learn names from another namespace.
                false => ObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    uid: Some(preemptor.uid.to_string()),
                    ..ObjectReference::default()
                },
            }),
            ..note
        }
    }
}

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

    /// How many events were dropped.
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
mod tests {
    use serde_json::Value;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
    use tokio::task::JoinHandle;

    use super::*;

    struct Fixture {
        recorder: Recorder,
        /// When events were written, and their bodies.
        written: UnboundedReceiver<(Instant, Value)>,
        stop: CancellationToken,
        writing: JoinHandle<()>,
    }

    impl Fixture {
        fn new() -> Self {
            let (sent, written) = unbounded_channel();
            let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
                let sent = sent.clone();
                async move {
                    let body = request.into_body().collect_bytes().await.expect("a body");
                    let body: Value = serde_json::from_slice(&body).expect("JSON");
                    let _ = sent.send((Instant::now(), body));
                    let answer = http::Response::new(kube::client::Body::from(b"{}".to_vec()));
                    Ok::<_, std::convert::Infallible>(answer)
                }
            });
            let stop = CancellationToken::new();
            let (recorder, writing) = Recorder::new(Client::new(service, "ns"), stop.clone());
            Self {
                recorder,
                written,
                stop,
                writing: tokio::spawn(writing),
            }
        }

        async fn next(&mut self) -> (Instant, Value) {
            self.written.recv().await.expect("an event")
        }
    }

    fn bound() -> PendingEvent {
        let pod = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"containers": []}});
        let pod = serde_json::from_value(pod).expect("a pod");
        PendingEvent::scheduled(&PodInfo::new(Arc::new(pod)), "n")
    }

    #[tokio::test(start_paused = true)]
    async fn events_wait_for_bindings_but_not_for_ever() {
        let mut it = Fixture::new();
        let (begin, busy) = (Instant::now(), it.recorder.pause());
        it.recorder.note(bound());
        let noted = jiff::Timestamp::now();
        let (first, event) = it.next().await;
        assert!(first - begin >= PATIENCE);
        let time = event["eventTime"].as_str().expect("a time");
        let time: jiff::Timestamp = time.parse().expect("a time");
        assert!(time <= noted, "{time} is after {noted}");
        it.recorder.note(bound());
        tokio::time::sleep(PATIENCE / 2).await;
        let free = Instant::now();
        drop(busy);
        let (second, _) = it.next().await;
        assert_eq!(second, free);
        it.stop.cancel();
        it.writing.await.expect("no panic");
    }

    #[tokio::test(start_paused = true)]
    async fn many_events_do_not_wait() {
        let mut it = Fixture::new();
        let (begin, _busy) = (Instant::now(), it.recorder.pause());
        it.recorder.note(bound());
        // It waits already when the others come.
        tokio::time::sleep(Duration::from_secs(1)).await;
        for _ in 0..=MANY {
            it.recorder.note(bound());
        }
        let (first, _) = it.next().await;
        assert!(first - begin < PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_events_are_written_at_the_end() {
        let mut it = Fixture::new();
        let (begin, _busy) = (Instant::now(), it.recorder.pause());
        for _ in 0..3 * PARALLEL {
            it.recorder.note(bound());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        it.stop.cancel();
        it.writing.await.expect("no panic");
        assert!(begin.elapsed() < PATIENCE);
        let mut count = 0;
        while it.written.try_recv().is_ok() {
            count += 1;
        }
        assert_eq!(count, 3 * PARALLEL);
    }

    #[test]
    fn events_of_pods_with_long_names_have_names() {
        let stamp = jiff::Timestamp::now();
        assert!(event_name("p", stamp).starts_with("p."));
        let of_long = event_name(&"p".repeat(240), stamp);
        assert_eq!(of_long.len(), 36, "{of_long}");
    }
}
