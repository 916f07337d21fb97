//! Simulated nodes by the thousand: one agent for all of them, with one watch for pods, one server and one heartbeat.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{TryStreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::claims;
use crate::config::Config;
use crate::error::Error;
use crate::error::api_message;
use crate::events::Recorder;
use crate::plugins::{self, ANY_OTHER, Plugins, REGISTERED_DRIVERS};
use crate::pods::{self, Node};
use crate::pressure::Pressed;
use crate::register::{self, Facts};
use crate::runtime::Simulated;
use crate::server;

mod conditions;

/// Nodes that are registered at the same time. The API server writes concurrent requests in one transaction.
const TOGETHER: usize = 64;

/// Limit of Lease renewals per second, so that the heartbeat of thousands of nodes does not keep the machine busy. 5000
/// nodes then renew every 25 seconds; a node is considered lost after 50.
const RENEWALS: u32 = 200;

/// Runs simulated nodes without plugins until `shutdown`.
pub(crate) async fn run(
    client: Client,
    nodes: Vec<Config>,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let Some(first) = nodes.first() else {
        shutdown.cancelled().await;
        return Ok(());
    };
    // Files of pods are below one directory, by pod UID.
    let config = Config {
        slices: None,
        pod_manifest_path: None,
        ..first.clone()
    }
    .absolute()?;
    let pods = config.root_dir.join("pods");
    std::fs::create_dir_all(&pods).map_err(|source| Error::Io { path: pods, source })?;
    let runtime = Arc::new(Simulated::default());
    let plugins = Arc::new(Plugins::default());
    let api = Arc::new(crate::resource_api::ResourceApi::new(client.clone()));
    let special = nodes.iter().filter(|node| node.capacity != config.capacity);
    let by_node = special.map(|node| (node.node_name.clone(), register::allocatable(node)));
    let by_node = by_node.collect();
    let node = Arc::new(Node {
        client: client.clone(),
        runtime: runtime.clone(),
        claims: claims::Claims::in_memory(api, Arc::clone(&plugins)),
        allocations: pods::Allocations::new(register::allocatable(&config), by_node),
        events: Recorder::new(client.clone(), config.node_name.clone()),
        pressed: Default::default(),
        certificates: pods::Certificates::new(client.clone(), config.node_name.clone()),
        trust_bundles: pods::TrustBundles::new(client.clone()),
        services: pods::Services::new(client.clone(), config.api_server),
        sandboxes: Arc::new(pods::Sandboxes::none()),
        images: None,
        delegated: None,
        nri: None,
        pods: Default::default(),
        mirrors: Default::default(),
        ended: Default::default(),
        synced: Default::default(),
        manifests_known: Default::default(),
        shutdown: shutdown.clone(),
        workers: Default::default(),
        config: config.clone(),
    });
    let mut tasks = JoinSet::new();
    let names: HashSet<String> = nodes.iter().map(|node| node.node_name.clone()).collect();
    let port = server::start(&node, names.clone(), &mut tasks).await?;
    let facts = Facts::of(&*runtime, None, port, Pressed::default());
    let (of_fleet, of_nodes) = (names.clone(), names.clone());
    let keep = move |pod: &Pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        node.is_some_and(|node| names.contains(node))
    };
    let (sender, receiver) = mpsc::channel(256);
    let selector = "spec.nodeName!=".to_owned();
    tasks.spawn(pods::source(client.clone(), selector, keep, sender));
    tasks.spawn(pods::keep_mirrors(Arc::clone(&node)));
    tasks.spawn(pods::dispatch(node, receiver));
    tasks.spawn(plugins::follow_health(client.clone(), None, plugins));

    let registration = Registration {
        status: register::status(&config, &facts, None),
        client: client.clone(),
        facts,
        uids: Mutex::default(),
        slices: Mutex::default(),
        drivers: Mutex::default(),
    };
    let (count, heartbeat) = (nodes.len(), config.heartbeat);
    let all = stream::iter(nodes.into_iter().map(Ok))
        .try_for_each_concurrent(TOGETHER, |config| registration.register(config));
    tokio::select! {
        result = all => result?,
        () = shutdown.cancelled() => return Ok(()),
    }
    let (uids, slices, drivers, facts) = (
        registration.uids.into_inner(),
        registration.slices.into_inner(),
        registration.drivers.into_inner(),
        registration.facts,
    );
    tasks.spawn({
        let client = client.clone();
        async move {
            plugins::remove_slices_of_real_drivers(&client, &drivers, &of_fleet).await;
            plugins::remove_slices_unless(&client, None, |name| slices.contains(name)).await;
        }
    });
    tasks.spawn(conditions::keep(client.clone(), of_nodes, facts));
    tasks.spawn(renew(client, uids, heartbeat));
    tracing::info!(nodes = count, "simulated nodes are up");
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            joined = tasks.join_next() => match joined {
                Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Some(_) => {}
                None => break,
            }
        }
    }
    tasks.shutdown().await;
    Ok(())
}

/// What registers nodes.
struct Registration {
    client: Client,
    facts: Facts,
    /// What all nodes have in common.
    status: Value,
    /// Names and UIDs of the registered nodes.
    uids: Mutex<Vec<(String, String)>>,
    /// Names of the slices.
    slices: Mutex<BTreeSet<String>>,
    /// Drivers whose devices are modelled.
    drivers: Mutex<BTreeSet<String>>,
}

impl Registration {
    async fn register(&self, config: Config) -> Result<(), Error> {
        let uid = match self.create(&config).await {
            Ok(node) => node.metadata.uid,
            // It exists from an earlier run, or the creation failed: register it like any other node.
            Err(_) => {
                register::register(&self.client, &config, &self.facts)
                    .await?
                    .node
                    .metadata
                    .uid
            }
        };
        let uid = uid.unwrap_or_default();
        if let Some(slices) = &config.slices {
            let slices = slices.of(&uid);
            plugins::keep_slices(&self.client, &slices).await;
            let names = slices
                .iter()
                .filter_map(|slice| slice["metadata"]["name"].as_str());
            self.slices.lock().extend(names.map(str::to_owned));
            let mut drivers = self.drivers.lock();
            for driver in slices.iter().filter_map(|s| s["spec"]["driver"].as_str()) {
                if !drivers.contains(driver) {
                    drivers.insert(driver.to_owned());
                }
            }
        }
        // Set already if a configuration is run again.
        let _ = config.registered.set(());
        self.uids.lock().push((config.node_name, uid));
        Ok(())
    }

    /// Creates a Node with its status in one request, as a kubelet does.
    async fn create(&self, config: &Config) -> Result<NodeObject, kube::Error> {
        let mut status = self.status.clone();
        status["addresses"][1]["address"] = config.node_name.clone().into();
        for list in ["capacity", "allocatable"] {
            for (name, quantity) in &config.capacity {
                status[list][name] = quantity.clone().into();
            }
        }
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": config.node_name,
                "labels": register::labels(config),
                "annotations": {REGISTERED_DRIVERS: ANY_OTHER},
            },
            "status": status,
        });
        let request = http::Request::post("/api/v1/nodes")
            .header("content-type", "application/json")
            .body(serde_json::to_vec(&node).map_err(kube::Error::SerdeError)?)
            .map_err(kube::Error::HttpError)?;
        self.client.request(request).await
    }
}

/// Renews the Leases of all nodes in turn, each in its heartbeat period unless there are too many nodes for that.
async fn renew(client: Client, nodes: Vec<(String, String)>, heartbeat: Duration) {
    let leases: Api<Lease> = Api::namespaced(client, register::LEASES);
    let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX).max(1);
    let pause = (heartbeat / count).max(Duration::from_secs(1) / RENEWALS);
    let every = (pause * count).max(heartbeat);
    // Timers are not finer than a few milliseconds; several Leases are renewed per tick then.
    let chunk = usize::try_from(count.div_ceil(200)).unwrap_or(1);
    let mut ticks = tokio::time::interval(pause * u32::try_from(chunk).unwrap_or(1));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        for some in nodes.chunks(chunk.max(1)) {
            ticks.tick().await;
            for (name, uid) in some {
                if let Err(error) = register::renew(&leases, name, uid, every).await {
                    tracing::warn!(
                        node = name,
                        error = api_message(&error),
                        "lease was not renewed"
                    );
                }
            }
        }
    }
}
