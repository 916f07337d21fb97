//! Events about pods, written with low priority: while bindings are in progress they wait, and those that have waited for
//! long are written one at a time, so that events do not delay bindings. When too many wait, further ones are dropped.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::ObjectReference;
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel};
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

/// Takes events over; cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    sender: Sender<(Instant, PendingEvent)>,
    dropped: Arc<AtomicU64>,
    work: Arc<Work>,
}

/// More important work.
#[derive(Debug, Default)]
struct Work {
    count: AtomicUsize,
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
    pub fn note(&self, note: PendingEvent) {
        if self.sender.try_send((Instant::now(), note)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many events were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

async fn write(
    client: Client,
    mut notes: Receiver<(Instant, PendingEvent)>,
    work: Arc<Work>,
    shutdown: CancellationToken,
) {
    let writes = Writes::new(client);
    // The last text per pod and reason: a repetition is suppressed for a while.
    let mut said: FxHashMap<(String, &'static str), (String, Instant)> = FxHashMap::default();
    let mut under_way = tokio::task::JoinSet::new();
    let mut next = None;
    loop {
        let is_busy = work.count.load(Ordering::Relaxed) > 0;
        let limit = if is_busy { 1 } else { PARALLEL };
        let is_free = under_way.len() < limit;
        // Nothing is due while there is nothing to write.
        let due = next
            .as_ref()
            .map(|(at, _)| match is_busy && notes.len() < MANY {
                true => *at + PATIENCE,
                false => *at,
            });
        let due = due.unwrap_or_else(Instant::now);
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            Some(_) = under_way.join_next() => continue,
            () = work.ended.notified() => continue,
            note = notes.recv(), if next.is_none() => match note {
                Some(note) => {
                    next = Some(note);
                    continue;
                }
                None => return,
            },
            () = tokio::time::sleep_until(due), if next.is_some() && is_free => {}
        }
        let Some((_, note)) = next.take() else {
            continue;
        };
        let uid = note.regarding.uid.clone().unwrap_or_default();
        if note.reason == "Scheduled" {
            said.remove(&(uid, "FailedScheduling"));
        } else {
            if said.len() > BACKLOG {
                said.clear();
            }
            let (of, now) = ((uid, note.reason), Instant::now());
            let is_new = |(text, at): &(String, Instant)| *text != note.text || *at + AGAIN <= now;
            if !said.get(&of).is_none_or(is_new) {
                continue;
            }
            said.insert(of, (note.text.clone(), now));
        }
        let writes = writes.clone();
        under_way.spawn(async move {
            if let Err(error) = write_one(&writes, &note).await {
                tracing::debug!(
                    error = text(&error),
                    reason = note.reason,
                    "cannot write event"
                );
            }
        });
    }
}

async fn write_one(writes: &Writes, note: &PendingEvent) -> Result<(), kube::Error> {
    let namespace = note.regarding.namespace.as_deref().unwrap_or("default");
    let stamp = jiff::Timestamp::now();
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
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn events_wait_for_bindings_but_not_for_ever() {
        let (sent, mut requests) = tokio::sync::mpsc::unbounded_channel();
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            let _ = sent.send(Instant::now());
            let answer = http::Response::new(kube::client::Body::from(b"{}".to_vec()));
            async { Ok::<_, std::convert::Infallible>(answer) }
        });
        let stop = CancellationToken::new();
        let (recorder, writing) = Recorder::new(Client::new(service, "ns"), stop.clone());
        let writing = tokio::spawn(writing);
        let pod = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"containers": []}});
        let pod = serde_json::from_value(pod).expect("a pod");
        let bound = PendingEvent::scheduled(&PodInfo::new(Arc::new(pod)), "n");
        let (begin, busy) = (Instant::now(), recorder.pause());
        recorder.note(bound.clone());
        let first = requests.recv().await.expect("an event");
        assert!(first - begin >= PATIENCE);
        recorder.note(bound);
        tokio::time::sleep(PATIENCE / 2).await;
        let free = Instant::now();
        drop(busy);
        let second = requests.recv().await.expect("an event");
        assert_eq!(second, free);
        stop.cancel();
        writing.await.expect("no panic");
    }

    #[test]
    fn events_of_pods_with_long_names_have_names() {
        let stamp = jiff::Timestamp::now();
        assert!(event_name("p", stamp).starts_with("p."));
        let of_long = event_name(&"p".repeat(240), stamp);
        assert_eq!(of_long.len(), 36, "{of_long}");
    }
}
