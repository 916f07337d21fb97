//! Publishes the resources that classic plugins report for the node, as the kubelet of 1.30 did: one ResourceSlice of
//! v1alpha2 per message of a plugin. (Since 1.31 drivers publish their slices themselves.)

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use allot_client::{delete, discovery};
use allot_model::classic::Kind;
use allot_model::classic::objects::{
    Attribute, Instance, Ints, NamedResources, ResourceSlice, Strings,
};
use allot_protos::dra_v1alpha3 as wire;
use allot_reflector::{Collection, Observed, observe};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tonic::Code;

use super::{Plugin, Plugins};
use crate::rules;

/// Until a broken stream is opened again, or a failed write is repeated.
const RETRY: Duration = Duration::from_secs(5);

/// What each driver has here, as it said last.
#[derive(Default)]
struct ReportedResources {
    by_driver: Mutex<BTreeMap<String, Vec<NamedResources>>>,
    changed: Notify,
}

impl ReportedResources {
    fn set(&self, driver: &str, resources: Option<Vec<NamedResources>>) {
        let mut by_driver = self.by_driver.lock();
        match resources {
            Some(resources) => by_driver.insert(driver.to_owned(), resources),
            None => by_driver.remove(driver),
        };
        drop(by_driver);
        self.changed.notify_one();
    }
}

/// Publishes until dropped; does nothing if the API server does not serve such slices.
pub(crate) async fn publish(client: Client, node: Node, plugins: Arc<Plugins>) {
    let version = allot_model::classic::VERSIONS[0];
    let kind = discovery::resource(
        allot_model::GROUP,
        version,
        Kind::ResourceSlice.name(),
        Kind::ResourceSlice.plural(),
    );
    loop {
        match discovery::resources(&client, &kind.api_version).await {
            Ok(served) if served.contains(&kind.plural) => break,
            Ok(_) => return std::future::pending().await,
            Err(kube::Error::Api(status)) if status.code == 404 => {
                return std::future::pending().await;
            }
            Err(error) => tracing::warn!(%error, "discovering ResourceSlices"),
        }
        tokio::time::sleep(RETRY).await;
    }
    let said = Arc::new(ReportedResources::default());
    tokio::join!(
        follow_all(Arc::clone(&plugins), Arc::clone(&said)),
        Publisher {
            api: Api::all_with(client, &kind),
            kind,
            node,
            stored: HashMap::new(),
        }
        .run(&said)
    );
}

/// Listens to every classic plugin.
async fn follow_all(plugins: Arc<Plugins>, said: Arc<ReportedResources>) {
    let mut tasks = JoinSet::new();
    let mut followed: Vec<Arc<Plugin>> = Vec::new();
    loop {
        let changed = plugins.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let classic = plugins.of_classic_service();
        followed.retain(|plugin| classic.iter().any(|other| Arc::ptr_eq(other, plugin)));
        for plugin in classic {
            if !followed.iter().any(|other| Arc::ptr_eq(other, &plugin)) {
                followed.push(Arc::clone(&plugin));
                tasks.spawn(follow(plugin, Arc::clone(&said)));
            }
        }
        changed.await;
        while tasks.try_join_next().is_some() {}
    }
}

async fn follow(plugin: Arc<Plugin>, said: Arc<ReportedResources>) {
    let listen = async {
        let mut client = wire::node_client::NodeClient::new(plugin.channel.clone());
        loop {
            let request = wire::NodeListAndWatchResourcesRequest {};
            let result = match client.node_list_and_watch_resources(request).await {
                Ok(stream) => receive(&plugin, stream.into_inner(), &said).await,
                Err(status) => Err(status),
            };
            match result {
                // The end of a stream is not the end of the resources.
                Ok(()) => return,
                Err(status) if status.code() == Code::Unimplemented => return,
                Err(status) => {
                    tracing::warn!(driver = plugin.driver, %status, "NodeListAndWatchResources");
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    };
    tokio::select! {
        () = listen => plugin.gone.cancelled().await,
        () = plugin.gone.cancelled() => {}
    }
    said.set(&plugin.driver, None);
}

async fn receive(
    plugin: &Plugin,
    mut stream: tonic::Streaming<wire::NodeListAndWatchResourcesResponse>,
    said: &ReportedResources,
) -> Result<(), tonic::Status> {
    while let Some(message) = stream.message().await? {
        let models = message.resources.into_iter();
        let resources = models.filter_map(|model| model.named_resources.map(named));
        said.set(&plugin.driver, Some(resources.collect()));
    }
    Ok(())
}

fn named(resources: wire::NamedResourcesResources) -> NamedResources {
    let attribute = |attribute: wire::NamedResourcesAttribute| {
        let value = attribute.attribute_value.unwrap_or_default();
        let quantity = value.quantity.and_then(|quantity| quantity.string);
        Attribute {
            name: attribute.name,
            quantity: quantity.map(|text| canonical(&text)),
            bool: value.bool,
            int: value.int,
            int_slice: value.int_slice.map(|slice| Ints { ints: slice.ints }),
            string: value.string,
            string_slice: value.string_slice.map(|slice| Strings {
                strings: slice.strings,
            }),
            version: value.version,
        }
    };
    let instance = |instance: wire::NamedResourcesInstance| Instance {
        name: instance.name,
        attributes: instance.attributes.into_iter().map(attribute).collect(),
    };
    NamedResources {
        instances: resources.instances.into_iter().map(instance).collect(),
    }
}

/// In the form in which the API server stores it, so that stored and reported slices compare equal.
fn canonical(text: &str) -> WireQuantity {
    WireQuantity(match text.parse::<allot_apimachinery::Quantity>() {
        Ok(quantity) => quantity.to_string(),
        Err(_) => text.to_owned(),
    })
}

struct Publisher {
    api: Api<DynamicObject>,
    kind: ApiResource,
    node: Node,
    /// The slices of this node, by name.
    stored: HashMap<String, DynamicObject>,
}

impl Publisher {
    async fn run(mut self, said: &ReportedResources) {
        let selector = format!("nodeName={}", self.node.name_any());
        let slices = Collection::new(self.api.clone(), Some(&selector));
        let mut stream = observe::<DynamicObject>(slices);
        let mut synced = false;
        let mut failed = false;
        loop {
            tokio::select! {
                Some(observed) = stream.next() => match observed {
                    Observed::Listed { items, .. } => {
                        let items = items.into_iter();
                        self.stored = items.map(|slice| (slice.name_any(), slice)).collect();
                        synced = true;
                    }
                    Observed::Applied(slice) => {
                        self.stored.insert(slice.name_any(), *slice);
                    }
                    Observed::Deleted(slice) => {
                        self.stored.remove(&slice.name_any());
                    }
                },
                () = said.changed.notified() => {}
                () = tokio::time::sleep(RETRY), if failed => {}
            }
            if synced {
                let wanted = said.by_driver.lock().clone();
                let result = self.sync(&wanted).await;
                failed = result.is_err();
                if let Err(error) = result {
                    tracing::warn!(%error, "publishing ResourceSlices");
                }
            }
        }
    }

    /// Updates the stored slices to the wanted ones, with as few writes as possible.
    async fn sync(
        &mut self,
        wanted: &BTreeMap<String, Vec<NamedResources>>,
    ) -> Result<(), kube::Error> {
        let mut slices: BTreeMap<String, Vec<(String, NamedResources)>> = BTreeMap::new();
        for (name, object) in &self.stored {
            let slice = serde_json::to_value(object).and_then(serde_json::from_value);
            let slice: ResourceSlice = slice.unwrap_or_default();
            let mut resources = slice.named_resources.unwrap_or_default();
            let attributes = resources
                .instances
                .iter_mut()
                .flat_map(|it| &mut it.attributes);
            for quantity in attributes.filter_map(|attribute| attribute.quantity.as_mut()) {
                *quantity = canonical(&quantity.0);
            }
            let of_driver = slices.entry(slice.driver_name).or_default();
            of_driver.push((name.clone(), resources));
        }
        let drivers: BTreeSet<&String> = wanted.keys().chain(slices.keys()).collect();
        for driver in drivers {
            let mut obsolete = slices.get(driver).cloned().unwrap_or_default();
            let mut missing = Vec::new();
            for resources in wanted.get(driver).into_iter().flatten() {
                match obsolete.iter().position(|(_, stored)| stored == resources) {
                    Some(at) => drop(obsolete.remove(at)),
                    None => missing.push(resources),
                }
            }
            for resources in missing {
                match obsolete.pop() {
                    Some((name, _)) => self.update(&name, resources).await?,
                    None => self.create(driver, resources).await?,
                }
            }
            for (name, _) in obsolete {
                self.delete(&name).await?;
            }
        }
        Ok(())
    }

    async fn create(
        &mut self,
        driver: &str,
        resources: &NamedResources,
    ) -> Result<(), kube::Error> {
        let node = self.node.name_any();
        let mut slice = DynamicObject::new("", &self.kind).data(json!({
            "nodeName": node, "driverName": driver, "namedResources": resources,
        }));
        slice.metadata.name = None;
        slice.metadata.generate_name = Some(format!("{node}-{driver}-"));
        let uid = self.node.uid().unwrap_or_default();
        slice.metadata.owner_references = Some(vec![rules::owned_by_node(node, uid)]);
        let created = self.api.create(&PostParams::default(), &slice).await?;
        self.stored.insert(created.name_any(), created);
        Ok(())
    }

    async fn update(&mut self, name: &str, resources: &NamedResources) -> Result<(), kube::Error> {
        let Some(mut slice) = self.stored.get(name).cloned() else {
            return Ok(());
        };
        slice.data["namedResources"] = json!(resources);
        let updated = self
            .api
            .replace(name, &PostParams::default(), &slice)
            .await?;
        self.stored.insert(updated.name_any(), updated);
        Ok(())
    }

    async fn delete(&mut self, name: &str) -> Result<(), kube::Error> {
        let params = delete::by_uid(self.stored.get(name).and_then(ResourceExt::uid));
        match self.api.delete(name, &params).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error),
        }
        self.stored.remove(name);
        Ok(())
    }
}
