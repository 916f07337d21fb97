//! Keeps a NetworkAttachmentDefinition for every SpiderMultusConfig.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use allot_reflector::{Collection, Observed, everything, reflect};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use crate::objects::{MultusConfig, NetworkName, attachment_definitions, multus_configs};
use crate::{DRIVER_NAME, attachment};

/// Pause before what failed is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// What a watch says.
enum Seen {
    Configs(Observed<DynamicObject>),
    Definitions(Observed<DynamicObject>),
}

/// Works until `shutdown`. A definition that is changed or deleted by somebody else comes back; one whose network is
/// deleted is collected with its owner.
pub(super) async fn define(client: Client, shutdown: CancellationToken) {
    let (sender, mut seen) = unbounded_channel();
    tokio::spawn(watch(
        client.clone(),
        multus_configs(),
        shutdown.clone(),
        sender.clone(),
        Seen::Configs,
    ));
    tokio::spawn(watch(
        client.clone(),
        attachment_definitions(),
        shutdown.clone(),
        sender,
        Seen::Definitions,
    ));
    let mut state = State::default();
    loop {
        let open = state.open();
        let mut failed = false;
        for (name, definition) in open {
            if let Err(error) = apply(&client, &name, &definition).await {
                tracing::warn!(network = %name, %error, "cannot write NetworkAttachmentDefinition");
                failed = true;
            }
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
        // Everything that came together is looked at once.
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
    wrap: fn(Observed<DynamicObject>) -> Seen,
) {
    let all = Collection::new(Api::<DynamicObject>::all_with(client, &kind), None);
    reflect::<DynamicObject, _>(all, everything, shutdown, |observed| {
        sender.send(wrap(observed)).is_ok()
    })
    .await;
}

/// What is wanted and what is there.
#[derive(Default)]
struct State {
    wanted: BTreeMap<NetworkName, Value>,
    there: BTreeMap<NetworkName, DynamicObject>,
    /// Kinds that were listed.
    listed: BTreeSet<&'static str>,
}

impl State {
    fn see(&mut self, seen: Seen) {
        match seen {
            Seen::Configs(Observed::Listed { items, .. }) => {
                self.listed.insert("configs");
                self.wanted.clear();
                items.iter().for_each(|object| self.want(object));
            }
            Seen::Configs(Observed::Applied(object)) => self.want(&object),
            Seen::Configs(Observed::Deleted(object)) => {
                self.wanted.remove(&name(&object));
            }
            Seen::Definitions(Observed::Listed { items, .. }) => {
                self.listed.insert("definitions");
                self.there = items.into_iter().map(|o| (name(&o), o)).collect();
            }
            Seen::Definitions(Observed::Applied(object)) => {
                self.there.insert(name(&object), *object);
            }
            Seen::Definitions(Observed::Deleted(object)) => {
                self.there.remove(&name(&object));
            }
        }
    }

    fn want(&mut self, object: &DynamicObject) {
        let of = name(object);
        let read = serde_json::to_value(object).and_then(serde_json::from_value::<MultusConfig>);
        let definition = read
            .map_err(|error| error.to_string())
            .and_then(|config| attachment::definition(&config));
        match definition {
            Ok(_) if object.metadata.deletion_timestamp.is_some() => {
                self.wanted.remove(&of);
            }
            Ok(definition) => {
                let other = self.wanted.iter().find(|(name, known)| {
                    let same =
                        |field: &str| known["metadata"][field] == definition["metadata"][field];
                    **name != of && same("name") && same("namespace")
                });
                if let Some((other, _)) = other {
                    tracing::warn!(network = %of, %other, "two networks have the same NetworkAttachmentDefinition");
                }
                self.wanted.insert(of, definition);
            }
            Err(error) => {
                tracing::warn!(network = %of, error, "cannot be turned into a NetworkAttachmentDefinition");
                self.wanted.remove(&of);
            }
        }
    }

    /// What has to be written.
    fn open(&self) -> Vec<(NetworkName, Value)> {
        if self.listed.len() < 2 {
            return Vec::new();
        }
        let differs = |definition: &Value| {
            let metadata = &definition["metadata"];
            let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
            let there = self.there.get(&NetworkName {
                namespace: text("namespace"),
                name: text("name"),
            });
            there.is_none_or(|there| {
                let annotations = metadata["annotations"].as_object().into_iter().flatten();
                let mut annotations = annotations.map(|(key, value)| {
                    there.annotations().get(key).map(String::as_str) == value.as_str()
                });
                there.data["spec"] != definition["spec"]
                    || there.owner_references().is_empty()
                    || !annotations.all(|equal| equal)
            })
        };
        // Of several networks that want the same name the first has it.
        let mut taken = BTreeSet::new();
        let target = |definition: &Value| {
            let metadata = &definition["metadata"];
            format!("{}/{}", metadata["namespace"], metadata["name"])
        };
        let mut open = Vec::new();
        for (name, definition) in &self.wanted {
            if taken.insert(target(definition)) && differs(definition) {
                open.push((name.clone(), definition.clone()));
            }
        }
        open
    }
}

fn name(object: &DynamicObject) -> NetworkName {
    NetworkName {
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
    }
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
