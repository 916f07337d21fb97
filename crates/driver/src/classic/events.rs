//! Events about what a controller could not do.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::mpsc;

/// Limit of queued events; more are dropped.
const BACKLOG: usize = 256;
/// Events that are remembered, to count repetitions.
const REMEMBERED: usize = 1024;

/// UID of the object, and the text.
type Key = (String, String);

/// Sends events in the background; never blocks the caller.
#[derive(Clone)]
pub(super) struct Recorder {
    sender: mpsc::Sender<(ObjectReference, String)>,
}

impl Recorder {
    /// A recorder, and the work of sending, which ends when it is dropped.
    pub(super) fn new(
        client: Client,
        driver: &str,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let (sender, mut receiver) = mpsc::channel::<(ObjectReference, String)>(BACKLOG);
        let component = format!("resource driver {driver}");
        let work = async move {
            let mut known: HashMap<Key, (String, i32)> = HashMap::new();
            while let Some((object, message)) = receiver.recv().await {
                if let Err(error) = send(&client, &component, object, message, &mut known).await {
                    tracing::debug!(%error, "event was not stored");
                }
            }
        };
        (Self { sender }, work)
    }

    /// Records a failure about an object.
    pub(super) fn failed(&self, kind: &ApiResource, object: &DynamicObject, message: &str) {
        let metadata = &object.metadata;
        let reference = ObjectReference {
            api_version: Some(kind.api_version.clone()),
            kind: Some(kind.kind.clone()),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
            ..ObjectReference::default()
        };
        // A full queue means that the API server does not keep up; events are the least important objects.
        let _ = self.sender.try_send((reference, message.to_owned()));
    }
}

async fn send(
    client: &Client,
    component: &str,
    object: ObjectReference,
    message: String,
    known: &mut HashMap<Key, (String, i32)>,
) -> Result<(), kube::Error> {
    let namespace = object.namespace.clone().unwrap_or_else(|| "default".into());
    let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
    let now = Time(jiff::Timestamp::now());
    let key = (object.uid.clone().unwrap_or_default(), message.clone());
    if let Some((name, count)) = known.get_mut(&key) {
        let patch = json!({"count": *count + 1, "lastTimestamp": now});
        match api
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
        {
            Ok(_) => {
                *count += 1;
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
        reason: Some("Failed".into()),
        message: Some(message),
        type_: Some("Warning".into()),
        source: Some(EventSource {
            component: Some(component.to_owned()),
            host: None,
        }),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now),
        count: Some(1),
        ..Event::default()
    };
    api.create(&PostParams::default(), &event).await?;
    if known.len() >= REMEMBERED {
        known.clear();
    }
    known.insert(key, (name, 1));
    Ok(())
}
