//! Events about objects, within client-go's limits: an event that repeats is counted in place, events that differ only in
//! their message become one, and an object has a burst of events and then one in five minutes.
//!
//! The scheduler has a recorder of its own: it writes `events.k8s.io/v1`, and its events wait for bindings.

use std::collections::HashMap;
use std::sync::Arc;

use allot_apimachinery::truncate;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

#[cfg(test)]
mod tests;

/// Event burst per source and object (`defaultSpamBurst` of client-go).
const BURST: f64 = 25.0;
/// After the burst: one event in this many seconds (`defaultSpamQPS`).
const REFILL_SECONDS: f64 = 300.0;
/// Different messages with the same reason on one object before they are folded into one (`defaultAggregateMaxEvents`).
const FOLD_AFTER: usize = 10;
/// How long similar events are remembered for folding (`defaultAggregateIntervalInSeconds`).
const FOLD_SECONDS: i64 = 600;
/// How long an event is counted in place: an API server keeps it for an hour.
const COUNTED_SECONDS: i64 = 3600;
/// Limit of remembered objects and events (`maxLruCacheEntries`); all of them are forgotten when it is exceeded.
const REMEMBERED: usize = 4096;
/// Limit of events that wait to be written; further ones are dropped.
const BACKLOG: usize = 1024;
/// Longest message in bytes: the limit of a note in `events.k8s.io/v1`.
pub const LONGEST_MESSAGE: usize = 1024;

/// The `type` of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// Something that is expected to happen.
    Normal,
    /// Something that a user may have to act on.
    Warning,
}

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// What reports events: `source` of an event.
#[derive(Debug, Clone)]
struct Source {
    component: Arc<str>,
    host: Option<Arc<str>>,
}

#[derive(Debug, Clone)]
struct Note {
    source: Source,
    about: ObjectReference,
    level: Level,
    reason: String,
    action: String,
    message: String,
    at: Timestamp,
}

/// Writes events in the background; cheap to clone. Never blocks and never fails the caller.
#[derive(Clone)]
pub struct Recorder {
    sender: mpsc::Sender<Note>,
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    source: Source,
}

/// A reference to an object, for events.
pub fn reference<K: Resource<DynamicType = ()>>(obj: &K) -> ObjectReference {
    obj.object_ref(&())
}

impl Recorder {
    /// A recorder, and the future that writes its events until `shutdown`, or until all recorders are dropped. `now` is
    /// the clock of the events' times.
    pub fn new(
        client: Client,
        now: impl Fn() -> Timestamp + Send + Sync + 'static,
        component: impl Into<Arc<str>>,
        shutdown: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (sender, receiver) = mpsc::channel(BACKLOG);
        let recorder = Self {
            sender,
            now: Arc::new(now),
            source: Source {
                component: component.into(),
                host: None,
            },
        };
        (recorder, write(client, receiver, shutdown))
    }

    /// The same recorder under another component's name.
    pub fn component(&self, name: &str) -> Self {
        let source = Source {
            component: name.into(),
            host: self.source.host.clone(),
        };
        Self {
            source,
            ..self.clone()
        }
    }

    /// The same recorder for events that are reported by a node.
    pub fn host(&self, name: &str) -> Self {
        let source = Source {
            component: self.source.component.clone(),
            host: Some(name.into()),
        };
        Self {
            source,
            ..self.clone()
        }
    }

    /// Records an event about an object. Never waits: if too many events wait to be written, it is dropped.
    pub fn event(&self, about: ObjectReference, level: Level, reason: &str, message: String) {
        self.action(about, level, reason, "", message);
    }

    /// Records an event with the action that was taken or refused.
    pub fn action(
        &self,
        about: ObjectReference,
        level: Level,
        reason: &str,
        action: &str,
        message: String,
    ) {
        let note = Note {
            source: self.source.clone(),
            about,
            level,
            reason: reason.to_owned(),
            action: action.to_owned(),
            message: truncate(message, LONGEST_MESSAGE),
            at: (self.now)(),
        };
        if self.sender.try_send(note).is_err() {
            tracing::debug!(reason, "event dropped: the queue is full");
        }
    }
}

/// What happens to an event that a component records: written, merged with an earlier one, or dropped.
#[derive(Debug, PartialEq)]
enum Verdict {
    Drop,
    Create {
        message: String,
    },
    Count {
        name: String,
        count: i32,
        message: String,
    },
}

#[derive(Default)]
struct Correlator {
    buckets: HashMap<String, (f64, Timestamp)>,
    seen: HashMap<String, (String, i32, Timestamp)>,
    similar: HashMap<String, (Vec<String>, Timestamp)>,
}

impl Correlator {
    fn decide(&mut self, note: &Note) -> (String, Verdict) {
        for full in [self.buckets.len(), self.seen.len(), self.similar.len()] {
            if full > REMEMBERED {
                *self = Self::default();
                break;
            }
        }
        let uid = note.about.uid.as_deref().unwrap_or_default();
        let source = format!(
            "{}|{}|{}|{}",
            note.source.component,
            note.source.host.as_deref().unwrap_or_default(),
            uid,
            note.about.name.as_deref().unwrap_or_default()
        );
        let group = format!("{source}|{}|{}", note.level.as_str(), note.reason);

        // Many different messages for one reason become one event.
        let (messages, last) = self
            .similar
            .entry(group.clone())
            .or_insert_with(|| (Vec::new(), note.at));
        if note.at.duration_since(*last).as_secs() > FOLD_SECONDS {
            messages.clear();
        }
        *last = note.at;
        if !messages.contains(&note.message) && messages.len() < FOLD_AFTER {
            messages.push(note.message.clone());
        }
        let folded = !messages.contains(&note.message);
        let (key, message) = if folded {
            (
                group,
                format!("(combined from similar events): {}", note.message),
            )
        } else {
            // Equal events about two containers of a pod are two events.
            let field = note.about.field_path.as_deref().unwrap_or_default();
            (
                format!("{group}|{field}|{}", note.message),
                note.message.clone(),
            )
        };

        let (tokens, refilled) = self.buckets.entry(source).or_insert((BURST, note.at));
        let passed = note.at.duration_since(*refilled).as_secs_f64().max(0.0);
        *tokens = (*tokens + passed / REFILL_SECONDS).min(BURST);
        *refilled = note.at;
        if *tokens < 1.0 {
            return (key, Verdict::Drop);
        }
        *tokens -= 1.0;

        match self.seen.get_mut(&key) {
            Some((name, count, last))
                if note.at.duration_since(*last).as_secs() <= COUNTED_SECONDS =>
            {
                *count += 1;
                *last = note.at;
                let (name, count) = (name.clone(), *count);
                (
                    key,
                    Verdict::Count {
                        name,
                        count,
                        message,
                    },
                )
            }
            _ => (key, Verdict::Create { message }),
        }
    }

    fn created(&mut self, key: String, name: String, at: Timestamp) {
        self.seen.insert(key, (name, 1, at));
    }
}

async fn write(client: Client, mut notes: mpsc::Receiver<Note>, shutdown: CancellationToken) {
    let mut correlator = Correlator::default();
    loop {
        let note = tokio::select! {
            biased;
            note = notes.recv() => note,
            () = shutdown.cancelled() => return,
        };
        let Some(note) = note else { return };
        if let Err(error) = write_one(&client, &mut correlator, &note).await {
            tracing::debug!(%error, reason = note.reason, "event not written");
        }
    }
}

async fn write_one(
    client: &Client,
    correlator: &mut Correlator,
    note: &Note,
) -> Result<(), kube::Error> {
    let namespace = note.about.namespace.as_deref().unwrap_or("default");
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let (key, verdict) = correlator.decide(note);
    let message = match verdict {
        Verdict::Drop => return Ok(()),
        Verdict::Count {
            name,
            count,
            message,
        } => {
            let patch = json!({"count": count, "lastTimestamp": Time(note.at), "message": message});
            let done = api
                .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                .await;
            match done {
                // It expired; the count begins again.
                Err(kube::Error::Api(status)) if status.code == 404 => message,
                other => return other.map(drop),
            }
        }
        Verdict::Create { message } => message,
    };
    let name = format!(
        "{}.{:016x}",
        note.about.name.as_deref().unwrap_or("unknown"),
        note.at.as_nanosecond() as u64
    );
    let event = event_object(note, namespace, &name, &message);
    api.create(&PostParams::default(), &event).await?;
    correlator.created(key, name, note.at);
    Ok(())
}

fn event_object(note: &Note, namespace: &str, name: &str, message: &str) -> Event {
    Event {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..Default::default()
        },
        involved_object: note.about.clone(),
        reason: Some(note.reason.clone()),
        message: Some(message.to_owned()),
        type_: Some(note.level.as_str().to_owned()),
        action: Some(note.action.clone()).filter(|a| !a.is_empty()),
        count: Some(1),
        first_timestamp: Some(Time(note.at)),
        last_timestamp: Some(Time(note.at)),
        source: Some(EventSource {
            component: Some(note.source.component.to_string()),
            host: note.source.host.as_deref().map(str::to_owned),
        }),
        reporting_component: Some(note.source.component.to_string()),
        reporting_instance: note.source.host.as_deref().map(str::to_owned),
        ..Default::default()
    }
}
