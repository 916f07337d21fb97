//! The part that runs once per cluster: which claim is allocated where.

use std::collections::{BTreeMap, HashMap};

use allot_driver::Failure;
use allot_driver::classic::{
    Allocation, Claim, Class, Controller, Driver, Error, LeaderElection, NodeSelector, Pod, Wanted,
    discover,
};
use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm};
use kube::api::{DynamicObject, ListParams};
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use rand::seq::IndexedRandom;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::{DRIVER_NAME, Handle, Variables, parameters, structured, variables};

/// What there is to allocate; the content of a `--resource-config` file. By default everything, everywhere.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub struct Resources {
    /// Name of the driver.
    pub driver_name: String,
    /// Leave it to the scheduler to reserve claims for pods.
    pub dont_set_reserved_for: bool,
    /// A resource is on one node, not everywhere.
    pub node_local: bool,
    /// The nodes with resources; all if empty.
    pub nodes: Vec<String>,
    /// Labels of the nodes with resources.
    pub node_labels: BTreeMap<String, String>,
    /// How many claims can be allocated, on each node if they are local to one; no limit if 0.
    pub max_allocations: usize,
    /// Several pods may use a claim.
    pub shareable: bool,
}

/// How to run the controller.
pub struct Config {
    /// What there is; the name of the driver is [`DRIVER_NAME`] if empty.
    pub resources: Resources,
    /// How many claims and pods are worked on at the same time.
    pub workers: usize,
    /// Work only while holding a Lease.
    pub election: Option<LeaderElection>,
    /// Where to give the function that tells the metrics.
    pub metrics: Option<tokio::sync::oneshot::Sender<Metrics>>,
}

/// Metrics in Prometheus' text form.
pub type Metrics = std::sync::Arc<dyn Fn() -> String + Send + Sync>;

impl Default for Config {
    fn default() -> Self {
        Self {
            resources: Resources::default(),
            workers: 10,
            election: None,
            metrics: None,
        }
    }
}

/// Runs the controller until `shutdown`.
///
/// # Errors
/// When the API server does not answer, or has none of the classic kinds.
pub async fn run(client: Client, config: Config, shutdown: CancellationToken) -> Result<(), Error> {
    let mut resources = config.resources;
    if resources.driver_name.is_empty() {
        resources.driver_name = DRIVER_NAME.into();
    }
    let (name, reserve) = (
        resources.driver_name.clone(),
        !resources.dont_set_reserved_for,
    );
    let driver = TestDriver {
        allocated: Mutex::new(allocated(&client, &name).await?),
        client: client.clone(),
        resources,
    };
    let (watching, converted) = (client.clone(), name.clone());
    let mut controller = Controller::new(name, driver, client)
        .workers(config.workers)
        .set_reserved_for(reserve);
    if let Some(election) = config.election {
        controller = controller.leader_election(election);
    }
    if let Some(sender) = config.metrics {
        // The receiver may have stopped.
        let _ = sender.send(std::sync::Arc::new(controller.metrics()));
    }
    tokio::select! {
        result = controller.run(shutdown.clone()) => result,
        never = structured::generate(watching, converted, shutdown) => match never {},
    }
}

/// What claims say about earlier allocations: UID and node.
async fn allocated(client: &Client, driver: &str) -> Result<HashMap<String, String>, Error> {
    let version = discover(client).await?.ok_or(Error::NotServed)?;
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &version.claims());
    let claims = api.list(&ListParams::default()).await?;
    let claims = claims
        .into_iter()
        .map(|object| Claim::from(std::sync::Arc::new(object)));
    let ours = claims.filter(|claim| claim.is_allocated() && claim.driver_name() == driver);
    Ok(ours
        .map(|claim| {
            let handles = claim.allocation().unwrap_or_default().handles;
            let data = handles.first().map_or("", |handle| handle.data.as_str());
            let handle: Handle = serde_json::from_str(data).unwrap_or_default();
            (claim.uid().to_owned(), handle.node_name)
        })
        .collect())
}

struct TestDriver {
    client: Client,
    resources: Resources,
    /// The node of every allocated claim, by UID; empty for what is everywhere.
    allocated: Mutex<HashMap<String, String>>,
}

impl TestDriver {
    /// How many other claims are allocated there.
    fn used(allocated: &HashMap<String, String>, node: &str, but: &[&str]) -> usize {
        let others = allocated
            .iter()
            .filter(|(uid, _)| !but.contains(&uid.as_str()));
        others.filter(|(_, other)| *other == node).count()
    }

    fn is_full(&self, used: usize, wanted: usize) -> bool {
        self.resources.max_allocations > 0 && used + wanted > self.resources.max_allocations
    }

    /// The nodes on which there may be something.
    async fn nodes(&self) -> Result<Vec<String>, Failure> {
        if !self.resources.nodes.is_empty() {
            return Ok(self.resources.nodes.clone());
        }
        let labels = &self.resources.node_labels;
        let labels: Vec<_> = labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let params = ListParams::default().labels(&labels.join(","));
        let nodes = Api::<Node>::all(self.client.clone());
        let nodes = nodes.list_metadata(&params).await?;
        Ok(nodes.iter().map(ResourceExt::name_any).collect())
    }

    async fn allocate_one(
        &self,
        wanted: &Wanted<Self>,
        selected: Option<&str>,
    ) -> Result<Allocation, Failure> {
        let uid = wanted.claim.uid();
        let node = match (self.resources.node_local, selected) {
            (false, _) => String::new(),
            (true, Some(node)) => node.to_owned(),
            (true, None) => self.pick(uid).await?,
        };
        {
            let mut allocated = self.allocated.lock();
            if self.is_full(Self::used(&allocated, &node, &[uid]), 1) {
                return Err(match node.as_str() {
                    "" => "resources exhausted in the cluster".into(),
                    node => format!("resources exhausted on node {node:?}").into(),
                });
            }
            allocated.insert(uid.to_owned(), node.clone());
        }
        tracing::info!(claim = %wanted.claim, node, "allocated");
        let mut env_vars = variables("user", &wanted.claim_parameters);
        env_vars.extend(variables("admin", &wanted.class_parameters));
        let handle = Handle {
            env_vars,
            node_name: node.clone(),
        };
        let data = serde_json::to_string(&handle)?;
        let allocation = Allocation::opaque(&self.resources.driver_name, data)
            .shareable(self.resources.shareable);
        Ok(match node.as_str() {
            "" => Allocation {
                available_on_nodes: self.available(),
                ..allocation
            },
            node => allocation.on_node(node),
        })
    }

    /// A node for a claim that no pod waits for.
    async fn pick(&self, uid: &str) -> Result<String, Failure> {
        let nodes = self.nodes().await?;
        let allocated = self.allocated.lock();
        if let Some(known) = allocated.get(uid) {
            return Ok(known.clone());
        }
        let free = |node: &&String| !self.is_full(Self::used(&allocated, node, &[]), 1);
        let free: Vec<_> = nodes.iter().filter(free).collect();
        let picked = free.choose(&mut rand::rng());
        Ok(picked
            .ok_or("resources exhausted on all nodes")?
            .to_string())
    }

    /// Where resources that are not local to a node can be used.
    fn available(&self) -> Option<NodeSelector> {
        let within = |key: &str, values: Vec<String>| NodeSelectorRequirement {
            key: key.to_owned(),
            operator: "In".into(),
            values: Some(values),
        };
        let Resources {
            nodes, node_labels, ..
        } = &self.resources;
        let expressions: Vec<_> = match (nodes.is_empty(), node_labels.is_empty()) {
            (false, _) => vec![within("kubernetes.io/hostname", nodes.clone())],
            (true, false) => {
                let labels = node_labels.iter();
                labels
                    .map(|(key, value)| within(key, vec![value.clone()]))
                    .collect()
            }
            (true, true) => return None,
        };
        let term = NodeSelectorTerm {
            match_expressions: Some(expressions),
            ..NodeSelectorTerm::default()
        };
        Some(NodeSelector {
            node_selector_terms: vec![term],
        })
    }
}

impl Driver for TestDriver {
    type ClassParameters = Variables;
    type ClaimParameters = Variables;

    async fn class_parameters(&self, class: &Class) -> Result<Variables, Failure> {
        match class.parameters() {
            Some(found) => parameters::read(&self.client, "class", &found, &found.namespace).await,
            None => Ok(Variables::new()),
        }
    }

    async fn claim_parameters(
        &self,
        claim: &Claim,
        _: &Class,
        _: &Variables,
    ) -> Result<Variables, Failure> {
        match claim.parameters() {
            Some(found) => parameters::read(&self.client, "claim", &found, claim.namespace()).await,
            None => Ok(Variables::new()),
        }
    }

    async fn allocate(
        &self,
        claims: &[Wanted<Self>],
        node: Option<&str>,
    ) -> Vec<Result<Allocation, Failure>> {
        let mut results = Vec::new();
        for claim in claims {
            results.push(self.allocate_one(claim, node).await);
        }
        results
    }

    async fn deallocate(&self, claim: &Claim) -> Result<(), Failure> {
        if self.allocated.lock().remove(claim.uid()).is_some() {
            tracing::info!(%claim, "deallocated");
        }
        Ok(())
    }

    async fn unsuitable_nodes(
        &self,
        _: &Pod,
        claims: &[Wanted<Self>],
        nodes: &[String],
    ) -> Result<Vec<Vec<String>>, Failure> {
        let with_resources = match self.resources.node_labels.is_empty() {
            true if self.resources.nodes.is_empty() => nodes.to_vec(),
            _ => self.nodes().await?,
        };
        let uids: Vec<_> = claims.iter().map(|claim| claim.claim.uid()).collect();
        let allocated = self.allocated.lock();
        let will_not_do = |node: &&String| {
            let place = if self.resources.node_local {
                node.as_str()
            } else {
                ""
            };
            let used = Self::used(&allocated, place, &uids);
            !with_resources.contains(node) || self.is_full(used, claims.len())
        };
        let unsuitable: Vec<_> = nodes.iter().filter(will_not_do).cloned().collect();
        Ok(vec![unsuitable; claims.len()])
    }
}
