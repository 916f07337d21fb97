//! Maintains a NetworkAttachmentDefinition for every SpiderMultusConfig.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use allot_reflector::{Observed, everything, reflect};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use super::known::{Known, collection, name, typed};
use crate::objects::{GROUP, MultusConfig, NetworkName, attachment_definitions, multus_configs};
use crate::{DRIVER_NAME, attachment};

/// Pause before what failed is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// An observation.
enum Seen {
    Configs(Observed<DynamicObject>),
    Definitions(Observed<DynamicObject>),
}

/// Runs until `shutdown`; passes observed networks to `known` as well. A definition that is changed or deleted is
/// restored; one whose network uses another name for it now is deleted, and one whose network is deleted is
/// garbage-collected with its owner. A network that cannot be converted gets an event.
pub(super) async fn define(
    client: Client,
    known: Arc<Known>,
    events: Recorder,
    shutdown: CancellationToken,
) {
    let (sender, mut seen) = unbounded_channel();
    let (to, stop) = (sender.clone(), shutdown.clone());
    let configs = watch(
        client.clone(),
        multus_configs(),
        stop,
        to,
        move |observed| {
            known.networks.see(&observed, typed);
            Seen::Configs(observed)
        },
    );
    tokio::spawn(configs);
    let definitions = attachment_definitions();
    let stop = shutdown.clone();
    let definitions = watch(client.clone(), definitions, stop, sender, Seen::Definitions);
    tokio::spawn(definitions);
    let mut state = State::default();
    loop {
        let plan = state.plan();
        let mut failed = false;
        for (name, definition) in plan.write {
            if let Err(error) = apply(&client, &name, &definition).await {
                if is_kind_gone(&error) {
                    tracing::debug!(network = %name, %error, "waits for the kind");
                } else {
                    tracing::warn!(network = %name, %error, "cannot write NetworkAttachmentDefinition");
                }
                failed = true;
            }
        }
        // The new one exists before the old one is deleted, which pods may still name.
        let delete_now = if failed { Vec::new() } else { plan.delete };
        for (name, preconditions) in delete_now {
            if let Err(error) = delete(&client, &name, preconditions).await {
                tracing::warn!(definition = %name, %error, "cannot delete NetworkAttachmentDefinition");
                failed = true;
            }
        }
        for (network, note) in plan.tell {
            tell(&events, &network, note).await;
        }
        let again = async {
            match failed {
                true => tokio::time::sleep(TRY_AGAIN).await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = again => {}
            next = seen.recv() => match next {
                Some(next) => state.see(next),
                None => return,
            },
        }
        // All pending observations are handled together.
        while let Ok(next) = seen.try_recv() {
            state.see(next);
        }
    }
}

async fn watch(
    client: Client,
    kind: ApiResource,
    shutdown: CancellationToken,
    sender: UnboundedSender<Seen>,
    wrap: impl Fn(Observed<DynamicObject>) -> Seen + Send + Sync,
) {
    reflect::<DynamicObject, _>(
        collection(client, &kind),
        everything,
        shutdown,
        |observed| sender.send(wrap(observed)).is_ok(),
    )
    .await;
}

/// A network, and the definition to write or why there is none.
struct Network {
    reference: ObjectReference,
    definition: Result<Value, String>,
}

/// Wanted and observed definitions.
#[derive(Default)]
struct State {
    networks: BTreeMap<NetworkName, Network>,
    there: BTreeMap<NetworkName, DynamicObject>,
    /// The reported errors of networks.
    told: BTreeMap<NetworkName, String>,
    /// Kinds that were listed.
    listed: BTreeSet<&'static str>,
}

/// The actions to take.
#[derive(Default)]
struct Plan {
    write: Vec<(NetworkName, Value)>,
    delete: Vec<(NetworkName, Preconditions)>,
    tell: Vec<(ObjectReference, String)>,
}

impl State {
    fn see(&mut self, seen: Seen) {
        match seen {
            Seen::Configs(Observed::Listed { items, .. }) => {
                self.listed.insert("configs");
                self.networks.clear();
                items.iter().for_each(|object| self.want(object));
            }
            Seen::Configs(Observed::Applied(object)) => self.want(&object),
            Seen::Configs(Observed::Deleted(object)) => {
                self.networks.remove(&name(&*object));
            }
            Seen::Definitions(Observed::Listed { items, .. }) => {
                self.listed.insert("definitions");
                self.there = items.into_iter().map(|o| (name(&o), o)).collect();
            }
            Seen::Definitions(Observed::Applied(object)) => {
                self.there.insert(name(&*object), *object);
            }
            Seen::Definitions(Observed::Deleted(object)) => {
                self.there.remove(&name(&*object));
            }
        }
    }

    fn want(&mut self, object: &DynamicObject) {
        let of = name(object);
        if object.metadata.deletion_timestamp.is_some() {
            self.networks.remove(&of);
            return;
        }
        let read = serde_json::to_value(object).and_then(serde_json::from_value::<MultusConfig>);
        let definition = read.map_err(|error| error.to_string());
        let network = Network {
            reference: object.object_ref(&multus_configs()),
            definition: definition.and_then(|config| attachment::definition(&config)),
        };
        self.networks.insert(of, network);
    }

    /// The actions to take, once both kinds were listed. Planned reports count as sent.
    fn plan(&mut self) -> Plan {
        let mut plan = Plan::default();
        if self.listed.len() < 2 {
            return plan;
        }
        // Of several networks with the same name for a definition the first one gets it.
        let mut taken: BTreeMap<NetworkName, &NetworkName> = BTreeMap::new();
        let mut wrong: BTreeMap<NetworkName, String> = BTreeMap::new();
        for (name, network) in &self.networks {
            let definition = match &network.definition {
                Ok(definition) => definition,
                Err(error) => {
                    wrong.insert(name.clone(), error.clone());
                    continue;
                }
            };
            let target = target(definition);
            if let Some(other) = taken.get(&target) {
                let text = format!(
                    "the NetworkAttachmentDefinition {target} is that of SpiderMultusConfig {other}"
                );
                wrong.insert(name.clone(), text);
                continue;
            }
            if differs(self.there.get(&target), definition) {
                plan.write.push((name.clone(), definition.clone()));
            }
            taken.insert(target, name);
        }
        let owned = |object: &DynamicObject| owner(object).map(str::to_owned);
        let current = |uid: &str| {
            let mut networks = self.networks.iter();
            let found = networks.find(|(_, n)| n.reference.uid.as_deref() == Some(uid));
            // One that cannot be written under its name stays: pods may use it.
            let (_, network) = found.filter(|(name, _)| !wrong.contains_key(*name))?;
            Some(target(network.definition.as_ref().ok()?))
        };
        for (name, object) in &self.there {
            let now = owned(object).and_then(|uid| current(&uid));
            if now.is_some_and(|now| now != *name) {
                let preconditions = Preconditions {
                    uid: object.uid(),
                    resource_version: object.resource_version(),
                };
                plan.delete.push((name.clone(), preconditions));
            }
        }
        for (name, text) in &wrong {
            if self.told.get(name) != Some(text) {
                let reference = self.networks[name].reference.clone();
                plan.tell.push((reference, text.clone()));
            }
        }
        self.told = wrong;
        plan
    }
}

/// Whether the kind itself is being deleted or was deleted, until [`crate::definitions::keep`] has installed it again.
fn is_kind_gone(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    status.code == 404 || status.code == 403 && status.message.ends_with("is terminating")
}

/// Namespace and name of a definition.
fn target(definition: &Value) -> NetworkName {
    let metadata = &definition["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
    NetworkName {
        namespace: text("namespace"),
        name: text("name"),
    }
}

/// UID of the network that a definition was created for.
fn owner(definition: &DynamicObject) -> Option<&str> {
    let mut owners = definition.owner_references().iter();
    let ours = owners.find(|o| {
        o.controller == Some(true)
            && o.kind == "SpiderMultusConfig"
            && o.api_version.split('/').next() == Some(GROUP)
    });
    ours.map(|owner| &*owner.uid)
}

fn differs(there: Option<&DynamicObject>, definition: &Value) -> bool {
    let metadata = &definition["metadata"];
    there.is_none_or(|there| {
        let annotations = metadata["annotations"].as_object().into_iter().flatten();
        let mut annotations = annotations
            .map(|(key, value)| there.annotations().get(key).map(String::as_str) == value.as_str());
        there.data["spec"] != definition["spec"]
            || owner(there) != metadata["ownerReferences"][0]["uid"].as_str()
            || !annotations.all(|equal| equal)
    })
}

/// Records an event about the error of a network.
async fn tell(events: &Recorder, network: &ObjectReference, note: String) {
    let name = network.name.as_deref().unwrap_or_default();
    let namespace = network.namespace.as_deref().unwrap_or_default();
    tracing::warn!(namespace, name, note, "no NetworkAttachmentDefinition");
    let event = Event {
        type_: EventType::Warning,
        reason: "NetworkNotDefined".to_owned(),
        note: Some(note),
        action: "Defining".to_owned(),
        secondary: None,
    };
    if let Err(error) = events.publish(&event, network).await {
        tracing::warn!(namespace, name, %error, "cannot write an event");
    }
}

async fn delete(
    client: &Client,
    name: &NetworkName,
    preconditions: Preconditions,
) -> Result<(), kube::Error> {
    let kind = attachment_definitions();
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &name.namespace, &kind);
    let params = DeleteParams::default().preconditions(preconditions);
    match api.delete(&name.name, &params).await {
        Ok(_) => {
            tracing::info!(definition = %name, "NetworkAttachmentDefinition deleted: its network has another")
        }
        // A concurrent change; the watch reports the new state.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

async fn apply(
    client: &Client,
    network: &NetworkName,
    definition: &Value,
) -> Result<(), kube::Error> {
    let kind = attachment_definitions();
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &network.namespace, &kind);
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    let params = PatchParams::apply(DRIVER_NAME).force();
    api.patch(name, &params, &Patch::Apply(definition)).await?;
    tracing::info!(%network, name, "NetworkAttachmentDefinition written");
    Ok(())
}

#[cfg(test)]
mod tests;
