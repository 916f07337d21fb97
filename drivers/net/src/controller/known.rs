//! The controller's view of the cluster, kept up to date by watches: answering the scheduler needs no request.

use std::collections::BTreeMap;

use allot_apimachinery::quantity::Quantity;
use allot_reflector::{Collection, Observed, Readable, everything, reflect};
use k8s_openapi::api::core::v1::{Container, Namespace, Node, Pod};
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client, ResourceExt};
use parking_lot::RwLock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::objects::{self, IpPool, MultusConfig, NetworkName};
use crate::suitable::LabelMap;

/// The objects of one kind, as far as they matter.
pub(super) struct Store<T> {
    items: RwLock<BTreeMap<NetworkName, T>>,
    listed: watch::Sender<bool>,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self {
            items: RwLock::default(),
            listed: watch::Sender::new(false),
        }
    }
}

impl<T: Clone> Store<T> {
    /// Records an observation; objects for which `make` returns `None` are treated as absent.
    pub(super) fn see<K: ResourceExt>(&self, seen: &Observed<K>, make: impl Fn(&K) -> Option<T>) {
        let mut items = self.items.write();
        let mut put = |object: &K| match make(object) {
            Some(item) => drop(items.insert(name(object), item)),
            None => drop(items.remove(&name(object))),
        };
        match seen {
            Observed::Applied(object) => put(object),
            Observed::Deleted(object) => drop(items.remove(&name(&**object))),
            Observed::Listed { items: all, .. } => {
                items.clear();
                let made = all.iter().filter_map(|o| Some((name(o), make(o)?)));
                items.extend(made);
                self.listed.send_replace(true);
            }
        }
    }

    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<T> {
        let name = NetworkName {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        self.items.read().get(&name).cloned()
    }

    fn all(&self) -> Vec<T> {
        self.items.read().values().cloned().collect()
    }

    /// Waits for the first list.
    async fn ready(&self) {
        let _ = self.listed.subscribe().wait_for(|listed| *listed).await;
    }
}

/// Namespace and name of an object.
pub(super) fn name<K: ResourceExt>(object: &K) -> NetworkName {
    NetworkName {
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
    }
}

/// What a pod takes from its node.
#[derive(Clone)]
struct Taken {
    node: String,
    requests: BTreeMap<String, Quantity>,
}

/// Everything that answers need. Networks and pools come from the watches of the tasks that maintain them.
#[derive(Default)]
pub(super) struct Known {
    pub(super) networks: Store<MultusConfig>,
    pub(super) pools: Store<IpPool>,
    nodes: Store<Node>,
    namespaces: Store<LabelMap>,
    pods: Store<Taken>,
}

impl Known {
    /// Keeps nodes, namespaces and pods up to date until `shutdown`.
    pub(super) async fn watch(&self, client: Client, shutdown: CancellationToken) {
        let unfinished = Some("status.phase!=Succeeded,status.phase!=Failed");
        let nodes = Collection::new(Api::<Node>::all(client.clone()), None);
        let nodes = keep(nodes, of_node, &self.nodes, &shutdown, whole);
        let namespaces = Collection::new(Api::<Namespace>::all(client.clone()), None);
        let labels = |namespace: &Namespace| Some(namespace.labels().clone());
        let namespaces = keep(namespaces, everything, &self.namespaces, &shutdown, labels);
        let pods = Collection::new(Api::<Pod>::all(client), unfinished);
        let pods = keep(pods, of_pod, &self.pods, &shutdown, taken);
        tokio::join!(nodes, namespaces, pods);
    }

    /// One node and one pool.
    #[cfg(test)]
    pub(super) fn of(node: serde_json::Value, pool: serde_json::Value) -> Self {
        let known = Self::default();
        let node: Node = serde_json::from_value(node).expect("a node");
        known.nodes.see(&Observed::Applied(Box::new(node)), whole);
        let pool: DynamicObject = serde_json::from_value(pool).expect("a pool");
        known.pools.see(&Observed::Applied(Box::new(pool)), typed);
        known
    }

    /// Waits until everything was listed once.
    pub(super) async fn ready(&self) {
        self.networks.ready().await;
        self.pools.ready().await;
        self.nodes.ready().await;
        self.namespaces.ready().await;
        self.pods.ready().await;
    }

    /// All pools.
    pub(super) fn pools(&self) -> Vec<IpPool> {
        self.pools.all()
    }

    /// The nodes with these names that exist.
    pub(super) fn nodes(&self, names: &[String]) -> Vec<Node> {
        let found = names.iter().filter_map(|name| self.nodes.get("", name));
        found.collect()
    }

    pub(super) fn namespace_labels(&self, name: &str) -> LabelMap {
        self.namespaces.get("", name).unwrap_or_default()
    }

    /// The nodes that have too little of what device plugins give: the resources, and the reasons.
    pub(super) fn short_of<'a>(
        &self,
        wanted: &'a BTreeMap<String, Quantity>,
        nodes: &[Node],
    ) -> BTreeMap<String, Vec<(&'a str, String)>> {
        let mut short: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let pods = self.pods.items.read();
        for (resource, amount) in wanted {
            let mut taken: BTreeMap<&str, Quantity> = BTreeMap::new();
            for pod in pods.values() {
                if let Some(amount) = pod.requests.get(resource) {
                    let sum = taken.entry(&pod.node).or_default();
                    *sum = sum.checked_add(amount).unwrap_or_default();
                }
            }
            for node in nodes {
                let name = node.name_any();
                let status = node.status.as_ref().and_then(|s| s.allocatable.as_ref());
                let has = status.and_then(|a| a.get(resource)?.0.parse::<Quantity>().ok());
                let taken = taken.remove(&*name).unwrap_or_default();
                let left = has.unwrap_or_default().checked_sub(&taken);
                let left = left.unwrap_or_default();
                if left < *amount {
                    let reason = format!("{left} of {resource} left, {amount} wanted");
                    short.entry(name).or_default().push((&**resource, reason));
                }
            }
        }
        short
    }
}

async fn keep<K, T>(
    of: Collection,
    fields: fn(&str, &str) -> bool,
    store: &Store<T>,
    shutdown: &CancellationToken,
    make: impl Fn(&K) -> Option<T> + Send + Sync,
) where
    K: Readable + ResourceExt + Send + 'static,
    T: Clone + Send + Sync,
{
    reflect::<K, _>(of, fields, shutdown.clone(), |seen| {
        store.see(&seen, &make);
        true
    })
    .await;
}

fn whole(node: &Node) -> Option<Node> {
    Some(node.clone())
}

/// The parts of a node that are read.
fn of_node(of: &str, field: &str) -> bool {
    match of {
        "ObjectMeta" => field != "managedFields",
        "NodeStatus" => field == "allocatable",
        _ => true,
    }
}

/// The parts of a pod that are read.
fn of_pod(of: &str, field: &str) -> bool {
    match of {
        "ObjectMeta" => matches!(field, "name" | "namespace" | "resourceVersion"),
        "PodSpec" => matches!(field, "nodeName" | "containers" | "initContainers"),
        "Container" => matches!(field, "name" | "resources"),
        "Pod" => field != "status",
        _ => true,
    }
}

/// The resources of a pod on a node: what its containers request together, or one of the init containers.
fn taken(pod: &Pod) -> Option<Taken> {
    let spec = pod.spec.as_ref()?;
    let mut requests: BTreeMap<String, Quantity> = BTreeMap::new();
    let of = |container: &Container| {
        let requests = container
            .resources
            .as_ref()
            .and_then(|r| r.requests.clone());
        let requests = requests.into_iter().flatten();
        requests.filter_map(|(name, amount)| Some((name, amount.0.parse::<Quantity>().ok()?)))
    };
    for (name, amount) in spec.containers.iter().flat_map(of) {
        let sum = requests.entry(name).or_default();
        *sum = sum.checked_add(&amount).unwrap_or_default();
    }
    for (name, amount) in spec.init_containers.iter().flatten().flat_map(of) {
        let most = requests.entry(name).or_default();
        if *most < amount {
            *most = amount;
        }
    }
    Some(Taken {
        node: spec.node_name.clone().filter(|node| !node.is_empty())?,
        requests,
    })
}

/// A watch of a kind of Spiderpool or Multus.
pub(super) fn collection(client: Client, kind: &ApiResource) -> Collection {
    Collection::new(Api::<DynamicObject>::all_with(client, kind), None)
}

/// An object of Spiderpool in its typed form; an invalid one is logged once per change.
pub(super) fn typed<T: serde::de::DeserializeOwned>(object: &DynamicObject) -> Option<T> {
    serde_json::to_value(object)
        .and_then(serde_json::from_value)
        .inspect_err(|error| tracing::warn!(name = %name(object), %error, "can not be read"))
        .ok()
}

/// The configuration of a network, also of one that was just created.
pub(super) async fn network(
    known: &Known,
    client: &Client,
    name: &NetworkName,
) -> Result<MultusConfig, allot_driver::Failure> {
    if let Some(found) = known.networks.get(&name.namespace, &name.name) {
        return Ok(found);
    }
    let kind = objects::multus_configs();
    let api: Api<MultusConfig> = Api::namespaced_with(client.clone(), &name.namespace, &kind);
    let found = api.get_opt(&name.name).await?;
    Ok(found.ok_or_else(|| format!("there is no SpiderMultusConfig {name}"))?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, node: &str, requests: &[&str]) -> Pod {
        let containers = requests
            .iter()
            .map(|amount| json!({"name": "c", "resources": {"requests": {"x/vf": amount}}}));
        let containers: Vec<_> = containers.collect();
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "ns"},
            "spec": {"nodeName": node, "containers": containers, "initContainers": [
                {"name": "i", "resources": {"requests": {"x/vf": "2"}}},
            ]},
        }))
        .expect("a pod")
    }

    #[test]
    fn what_pods_take_is_kept_up_to_date() {
        let known = Known::default();
        fn listed<K>(items: Vec<K>) -> Observed<K> {
            Observed::Listed {
                items,
                version: String::new(),
            }
        }
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n"}, "status": {"allocatable": {"x/vf": "8"}},
        }))
        .expect("a node");
        known.nodes.see(&listed(vec![node]), whole);
        let (a, waits) = (pod("a", "n", &["1", "3"]), pod("waits", "", &["8"]));
        known.pods.see(&listed(vec![a, waits]), taken);
        let left = |wanted: &str| {
            let wanted = BTreeMap::from([("x/vf".to_owned(), wanted.parse().expect("an amount"))]);
            let names = ["n".to_owned(), "gone".to_owned()];
            let mut short = known.short_of(&wanted, &known.nodes(&names));
            let reasons = short.remove("n").unwrap_or_default();
            let reasons = reasons.into_iter().map(|(_, reason)| reason);
            reasons.collect::<String>()
        };
        assert_eq!(left("4"), "");
        assert_eq!(left("5"), "4 of x/vf left, 5 wanted");
        known
            .pods
            .see(&Observed::Applied(Box::new(pod("b", "n", &["1"]))), taken);
        assert_eq!(left("4"), "2 of x/vf left, 4 wanted");
        known
            .pods
            .see(&Observed::Deleted(Box::new(pod("a", "n", &[]))), taken);
        assert_eq!(left("6"), "");
    }
}
