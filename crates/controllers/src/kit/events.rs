//! Events for users: repeated ones are counted up in place, floods are held back.

use std::sync::Arc;

use allot_apimachinery::truncate;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::clock::{Clock, rfc3339};

#[cfg(test)]
mod tests;

/// Event burst per object (as in client-go).
const BURST: f64 = 25.0;
/// After the burst: one event per object in this many seconds (as in client-go).
const REFILL_SECONDS: f64 = 300.0;
/// Different messages with the same reason on one object before they are folded into one.
const FOLD_AFTER: usize = 10;
/// How long events are remembered for counting and folding.
const FOLD_SECONDS: i64 = 600;
/// Objects and events remembered at most; the memory is cleared when it is full.
const REMEMBERED: usize = 4096;

/// `Normal` or `Warning`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// Information.
    Normal,
    /// A warning.
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

#[derive(Debug, Clone)]
struct Note {
    component: String,
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
    clock: Clock,
    component: Arc<str>,
}

/// A reference to an object, for events.
pub fn reference<K: Resource<DynamicType = ()>>(obj: &K) -> ObjectReference {
    obj.object_ref(&())
}

impl Recorder {
    /// A recorder and the task that writes its events.
    pub fn new(
        client: Client,
        clock: Clock,
        component: &str,
        shutdown: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (sender, receiver) = mpsc::channel(1024);
        let recorder = Self {
            sender,
            clock,
            component: component.into(),
        };
        (recorder, write(client, receiver, shutdown))
    }

    /// The same recorder under another component's name.
    pub fn component(&self, name: &str) -> Self {
        Self {
            component: name.into(),
            ..self.clone()
        }
    }

    /// Records an event about an object.
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
            component: self.component.to_string(),
            about,
            level,
            reason: reason.to_owned(),
            action: action.to_owned(),
            message: truncate(message, 1024),
            at: self.clock.now(),
        };
        if self.sender.try_send(note).is_err() {
            tracing::debug!(reason, "event dropped: the queue is full");
        }
    }
}

/// What happens to an event that a controller records: written, merged with an earlier one, or dropped.
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
    buckets: FxHashMap<String, (f64, Timestamp)>,
    seen: FxHashMap<String, (String, i32, Timestamp)>,
    similar: FxHashMap<String, (Vec<String>, Timestamp)>,
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
            "{}|{}|{}",
            note.component,
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
            (format!("{group}|{}", note.message), note.message.clone())
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
                if note.at.duration_since(*last).as_secs() <= FOLD_SECONDS * 6 =>
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
    let correlator = Mutex::new(Correlator::default());
    loop {
        let note = tokio::select! {
            biased;
            note = notes.recv() => note,
            () = shutdown.cancelled() => return,
        };
        let Some(note) = note else { return };
        if let Err(error) = write_one(&client, &correlator, &note).await {
            tracing::debug!(%error, reason = note.reason, "event not written");
        }
    }
}

async fn write_one(
    client: &Client,
    correlator: &Mutex<Correlator>,
    note: &Note,
) -> Result<(), kube::Error> {
    let namespace = note.about.namespace.as_deref().unwrap_or("default");
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let (key, verdict) = correlator.lock().decide(note);
    let message = match verdict {
        Verdict::Drop => return Ok(()),
        Verdict::Count {
            name,
            count,
            message,
        } => {
            let patch =
                json!({"count": count, "lastTimestamp": rfc3339(note.at), "message": message});
            let done = api
                .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                .await;
            match done {
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
    correlator.lock().created(key, name, note.at);
    Ok(())
}

fn event_object(note: &Note, namespace: &str, name: &str, message: &str) -> Event {
    use k8s_openapi::api::core::v1::EventSource;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
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
            component: Some(note.component.clone()),
            host: None,
        }),
        reporting_component: Some(note.component.clone()),
        ..Default::default()
    }
}
