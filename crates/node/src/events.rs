//! Events about pods and nodes, as the kubelet words them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allot_apimachinery::truncate;
use k8s_openapi::api::core::v1::{Event, EventSource, Node, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::mpsc;

/// Weight of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// For the record.
    Normal,
    /// A problem.
    Warning,
}

/// Identifies events that are counted and not repeated.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    kind: Kind,
    uid: String,
    field: String,
    reason: String,
    message: String,
}

/// Sends events in the background; never blocks the caller.
#[derive(Clone)]
pub struct Recorder {
    sender: mpsc::Sender<(Key, ObjectReference, Option<String>)>,
}

/// Longest message, in bytes: what the newer kind of events permits in a note.
pub(crate) const LONGEST_MESSAGE: usize = 1024;
/// Events that are waiting to be sent; more are dropped.
const BACKLOG: usize = 1000;
/// Remembered for counting.
const REMEMBERED: usize = 4096;
/// Limit of events per object: a burst, and then one per refill period, as with client-go. A failure in every second is
/// not reported in every second.
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(300);

/// When the events that each object may have are all there again.
#[derive(Default)]
struct Budget(HashMap<String, Instant>);

impl Budget {
    fn take(&mut self, uid: &str, now: Instant) -> bool {
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, full| *full > now);
        }
        let full = self.0.entry(uid.to_owned()).or_insert(now);
        let after = (*full).max(now) + REFILL;
        let enough = after <= now + REFILL * BURST;
        if enough {
            *full = after;
        }
        enough
    }
}

/// A text with at most [`LONGEST_MESSAGE`] bytes: others write it, and it is in an object of the API.
pub(crate) fn shorten(text: String) -> String {
    truncate(text, LONGEST_MESSAGE)
}

impl Recorder {
    /// A recorder for one node.
    pub fn new(client: Client, node: String) -> Self {
        let (sender, mut receiver) =
            mpsc::channel::<(Key, ObjectReference, Option<String>)>(BACKLOG);
        tokio::spawn(async move {
            let known: Arc<Mutex<HashMap<Key, (String, i32)>>> = Arc::default();
            let mut budget = Budget::default();
            while let Some((key, object, host)) = receiver.recv().await {
                if !budget.take(&key.uid, Instant::now()) {
                    continue;
                }
                if let Err(error) = send(
                    &client,
                    host.as_ref().unwrap_or(&node),
                    &key,
                    object,
                    &known,
                )
                .await
                {
                    tracing::debug!(%error, reason = key.reason, "event was not stored");
                }
            }
        });
        Self { sender }
    }

    /// Records an event about a pod, or about one of its containers.
    pub fn pod(
        &self,
        pod: &Pod,
        container: Option<&str>,
        kind: Kind,
        reason: &str,
        message: impl Into<String>,
    ) {
        let object = ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            namespace: pod.namespace(),
            name: pod.metadata.name.clone(),
            uid: pod.uid(),
            resource_version: pod.resource_version(),
            field_path: container.map(|name| {
                let init = pod
                    .spec
                    .iter()
                    .flat_map(|spec| spec.init_containers.iter().flatten());
                let ephemeral = pod
                    .spec
                    .iter()
                    .flat_map(|spec| spec.ephemeral_containers.iter().flatten());
                let list = if init.clone().any(|c| c.name == name) {
                    "initContainers"
                } else if ephemeral.clone().any(|c| c.name == name) {
                    "ephemeralContainers"
                } else {
                    "containers"
                };
                format!("spec.{list}{{{name}}}")
            }),
        };
        // One recorder may serve many simulated nodes.
        let host = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        self.record(object, host, kind, reason, message.into());
    }

    /// Records an event about the node.
    pub fn node(&self, node: &Node, kind: Kind, reason: &str, message: impl Into<String>) {
        let object = ObjectReference {
            kind: Some("Node".into()),
            name: node.metadata.name.clone(),
            uid: node.metadata.name.clone(),
            ..ObjectReference::default()
        };
        self.record(object, None, kind, reason, message.into());
    }

    fn record(
        &self,
        object: ObjectReference,
        host: Option<String>,
        kind: Kind,
        reason: &str,
        message: String,
    ) {
        let key = Key {
            kind,
            uid: object.uid.clone().unwrap_or_default(),
            field: object.field_path.clone().unwrap_or_default(),
            reason: reason.to_owned(),
            message: shorten(message),
        };
        // A full queue means that the API server does not keep up; events are the least important objects.
        let _ = self.sender.try_send((key, object, host));
    }
}

async fn send(
    client: &Client,
    node: &str,
    key: &Key,
    object: ObjectReference,
    known: &Mutex<HashMap<Key, (String, i32)>>,
) -> Result<(), kube::Error> {
    let namespace = object.namespace.clone().unwrap_or_else(|| "default".into());
    let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
    let now = Time(Timestamp::now());
    let seen = known.lock().get(key).cloned();
    if let Some((name, count)) = seen {
        let patch = json!({"count": count + 1, "lastTimestamp": now});
        match api
            .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await
        {
            Ok(_) => {
                known.lock().insert(key.clone(), (name, count + 1));
                return Ok(());
            }
            // It expired; the next one starts again.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    let name = format!(
        "{}.{:x}",
        object.name.as_deref().unwrap_or_default(),
        now.0.as_nanosecond()
    );
    let event = Event {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(namespace),
            ..ObjectMeta::default()
        },
        involved_object: object,
        reason: Some(key.reason.clone()),
        message: Some(key.message.clone()),
        type_: Some(format!("{:?}", key.kind)),
        source: Some(EventSource {
            component: Some("kubelet".into()),
            host: Some(node.to_owned()),
        }),
        reporting_component: Some("kubelet".into()),
        reporting_instance: Some(node.to_owned()),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now),
        count: Some(1),
        ..Event::default()
    };
    api.create(&PostParams::default(), &event).await?;
    let mut known = known.lock();
    if known.len() >= REMEMBERED {
        known.clear();
    }
    known.insert(key.clone(), (name, 1));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut_between_characters() {
        assert_eq!(shorten("ü".into()), "ü");
        let cut = shorten("ü".repeat(600));
        assert!(
            cut.len() <= LONGEST_MESSAGE && cut.ends_with("ü..."),
            "{cut}"
        );
    }

    #[test]
    fn an_object_has_a_burst_of_events_and_then_one_in_five_minutes() {
        let mut budget = Budget::default();
        let start = Instant::now();
        let taken = |budget: &mut Budget, uid: &str, seconds: u64| {
            let now = start + Duration::from_secs(seconds);
            (0..100).filter(|_| budget.take(uid, now)).count()
        };
        assert_eq!(taken(&mut budget, "a", 0), 25);
        assert_eq!(taken(&mut budget, "b", 0), 25, "others have their own");
        assert_eq!(taken(&mut budget, "a", 299), 0);
        assert_eq!(taken(&mut budget, "a", 300), 1);
        assert_eq!(taken(&mut budget, "a", 1200), 3);
    }
}
