//! A node from its start to its end: the tasks that it consists of.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node as NodeObject;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::assemble::Parts;
use crate::config::RuntimeKind;
use crate::end::LONGEST;
use crate::error::Error;
use crate::events::Kind;
use crate::eviction::Evictions;
use crate::plugins::{self, Plugins};
use crate::pods::{Node, PodEvent};
use crate::register::{self, Facts, Machine, Registered};
use crate::{images, nri, podresources, pods, server};

/// Starts what keeps the node from running short of something.
fn keep_resources(node: &Arc<Node>, tasks: &mut JoinSet<()>) {
    let (collections, requests) = mpsc::channel(1);
    let mut evictions = Evictions::new(node, collections);
    evictions.look();
    tasks.spawn(evictions.run());
    let garbage = node.images.as_ref().map(|images| images.garbage());
    let delegated = node.delegated.as_ref().map(|images| images.garbage());
    if let Some(images) = garbage.or(delegated) {
        let wanted = &node.config.images;
        tasks.spawn(images::collect(
            images,
            wanted.collection.clone(),
            wanted.collection_period,
            requests,
            node.events.clone(),
            node.config.node_name.clone(),
        ));
    }
}

/// Starts what does not wait for the API server: static pods, and plugins of NRI.
async fn start_without_api_server(
    node: &Arc<Node>,
    (sender, receiver): (&mpsc::Sender<PodEvent>, mpsc::Receiver<PodEvent>),
    tasks: &mut JoinSet<()>,
) -> Result<(), Error> {
    let config = &node.config;
    tasks.spawn(pods::dispatch(Arc::clone(node), receiver));
    if let Some(path) = config.pod_manifest_path.clone() {
        let name = config.node_name.clone();
        tasks.spawn(pods::static_source(path, name, sender.clone()));
    }
    if let (Some(path), Some(nri)) = (&config.nri_socket, node.nri.clone()) {
        let listener = nri::Listener::bind(path).await?;
        tasks.spawn(nri.serve(listener));
    }
    tasks.spawn({
        let node = Arc::clone(node);
        async move { node.sandboxes.follow(node.config.heartbeat).await }
    });
    Ok(())
}

/// Starts what lets drivers register, before any of them can publish: slices that are published from now on stay. Slices of
/// simulated drivers are not published again.
async fn follow_drivers(parts: &Parts, tasks: &mut JoinSet<()>) -> Result<(), Error> {
    let Parts { node, plugins, api } = parts;
    let (client, config) = (&node.client, &node.config);
    tasks.spawn(podresources::serve(Arc::clone(node))?);
    if config.runtime != RuntimeKind::Simulated {
        plugins::clean_at_start(client, &config.node_name).await;
    }
    tasks.spawn(plugins::watch(
        config.registry_dir(),
        Arc::clone(plugins),
        Arc::clone(api),
    ));
    tasks.spawn(plugins::clean_when_gone(
        client.clone(),
        config.node_name.clone(),
        Arc::clone(plugins),
        config.slice_grace,
    ));
    Ok(())
}

/// Publishes the slices of simulated drivers.
async fn publish_simulated(node: &Node, object: &NodeObject) {
    let (client, config) = (&node.client, &node.config);
    let uid = object.metadata.uid.as_deref().unwrap_or_default();
    let slices = config.slices.as_ref().map(|slices| slices.of(uid));
    let slices = slices.unwrap_or_default();
    plugins::keep_slices(client, &slices).await;
    plugins::remove_other_slices(client, &config.node_name, &slices).await;
}

/// Tells that the node has started, and what its containers lack.
fn record_start(node: &Node, facts: &Facts, rebooted: bool) {
    let (events, name) = (&node.events, &node.config.node_name);
    events.node(name, Kind::Normal, "Starting", "Starting kubelet.");
    if rebooted {
        let id = crate::boot::id();
        let text = format!("Node {name} has been rebooted, boot id: {id}");
        events.node(name, Kind::Warning, "Rebooted", text);
    }
    if let Some(damage) = node.claims.damage() {
        let text = format!(
            "the checkpoint of claims was damaged ({}) and is now {}: claims of pods on this node are prepared again; remove the file \
             when the pods of before have ended",
            damage.reason,
            damage.path.display()
        );
        tracing::error!(node = name, "{text}");
        events.node(name, Kind::Warning, "CheckpointDamaged", text);
    }
    let simulated = node.config.runtime == RuntimeKind::Simulated;
    for limitation in facts.limitations.iter().filter(|_| !simulated) {
        let text = limitation.clone();
        events.node(name, Kind::Warning, "IsolationNotApplied", text);
    }
}

/// Starts to publish what drivers offer, and which of them are there.
fn publish_drivers(
    node: &Node,
    plugins: &Arc<Plugins>,
    object: &NodeObject,
    tasks: &mut JoinSet<()>,
) {
    let (client, name) = (node.client.clone(), node.config.node_name.clone());
    tasks.spawn(plugins::publish(
        client.clone(),
        object.clone(),
        Arc::clone(plugins),
    ));
    let simulated = node.config.runtime == RuntimeKind::Simulated;
    tasks.spawn(plugins::announce(
        client,
        name,
        Arc::clone(plugins),
        simulated,
    ));
}

/// Starts everything that a node does, and waits for `shutdown`.
pub(crate) async fn serve(parts: Parts, tasks: &mut JoinSet<()>) -> Result<(), Error> {
    let node = Arc::clone(&parts.node);
    let (client, config, shutdown) = (&node.client, &node.config, &node.shutdown);
    let simulated = config.runtime == RuntimeKind::Simulated;
    let (sender, receiver) = mpsc::channel(256);
    keep_resources(&node, tasks);
    start_without_api_server(&node, (&sender, receiver), tasks).await?;
    let port = server::start(&node, HashSet::new(), tasks).await?;
    // The Node says from the beginning how the network of its pods is.
    let looked = tokio::time::timeout(LONGEST, node.sandboxes.looked());
    tokio::select! {
        // The Node is not ready while plugins take longer.
        _ = looked => {}
        () = shutdown.cancelled() => return Ok(()),
    }
    let mut machine = Machine {
        runtime: Arc::clone(&node.runtime),
        condition: node.condition(),
        pressed: node.pressed.subscribe(),
        port,
    };
    let facts = machine.facts();
    if config.plugins {
        tokio::select! {
            result = follow_drivers(&parts, tasks) => result?,
            () = shutdown.cancelled() => return Ok(()),
        }
    }
    let Registered {
        node: object,
        rebooted,
    } = tokio::select! {
        result = register::register(client, config, &facts) => result?,
        () = shutdown.cancelled() => return Ok(()),
    };
    if simulated {
        tokio::select! {
            () = publish_simulated(&node, &object) => {}
            () = shutdown.cancelled() => return Ok(()),
        }
        tasks.spawn(plugins::follow_health(
            client.clone(),
            Some(format!("spec.nodeName={}", config.node_name)),
            Arc::clone(&parts.plugins),
        ));
    }
    // Set already if a configuration is run again.
    let _ = config.registered.set(());
    record_start(&node, &facts, rebooted);
    if config.plugins {
        publish_drivers(&node, &parts.plugins, &object, tasks);
    }
    tasks.spawn(register::heartbeat(
        client.clone(),
        config.clone(),
        machine,
        node.images.clone(),
        object,
    ));
    tasks.spawn(pods::keep_mirrors(Arc::clone(&node)));
    let selector = format!("spec.nodeName={}", config.node_name);
    tasks.spawn(pods::source(client.clone(), selector, |_| true, sender));
    tracing::info!(node = config.node_name, root = %config.root_dir.display(), runtime = node.runtime.name(), "node is up");
    tokio::select! {
        () = shutdown.cancelled() => {}
        // No task ends on its own; if one panics, so does the node.
        Some(Err(error)) = tasks.join_next() => if error.is_panic() { std::panic::resume_unwind(error.into_panic()) },
    }
    Ok(())
}
