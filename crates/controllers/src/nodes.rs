//! Node life cycle: nodes that do not report are tainted, and their pods go.
//!
//! A node reports by renewing its Lease (or its Ready condition). When it stops, its conditions
//! become Unknown and it is tainted unreachable; a node that says it is not ready is tainted
//! not-ready. NoExecute taints evict pods after their tolerationSeconds.

mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::Error;
use crate::kit::api::{self, Delete, Part};
use crate::kit::clock::{Clock, rfc3339, until};
use crate::kit::context::Context;
use crate::kit::events::{Level, Recorder, reference};
use crate::kit::informer::{Change, Informer, Key, key_of, split_key};
use crate::kit::meta;
use crate::kit::nodes::taints;
use crate::kit::queue::{Next, Queue};
use crate::kit::whole::Whole;
use crate::registry::Task;
use crate::workload::set_condition;

/// Index of pods by node.
pub(crate) const BY_NODE: &str = "node";

/// Extracts [`BY_NODE`].
pub(crate) fn node_of_pod(pod: &Pod) -> Vec<String> {
    match meta::node_name(pod) {
        "" => Vec::new(),
        node => vec![node.to_owned()],
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Work {
    Node(String),
    Pod(Key),
}

/// What was last seen of a node's heartbeat, by our own clock: clocks of nodes may differ.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    renewed: Option<Timestamp>,
    heartbeat: Option<Timestamp>,
    at: Timestamp,
}

struct Nodes {
    client: kube::Client,
    clock: Clock,
    events: Recorder,
    nodes: Informer<Node>,
    leases: Informer<Lease>,
    pods: Informer<Pod>,
    seen: Mutex<BTreeMap<String, Seen>>,
    /// Pods that have to go, by UID, and since when we know.
    doomed: Mutex<BTreeMap<Key, (String, Timestamp)>>,
    grace: Duration,
    startup_grace: Duration,
    queue: Queue<Work>,
}

/// Sets the controller up.
pub(crate) fn build(context: &Context) -> Task {
    let this = Arc::new(Nodes {
        client: context.client.clone(),
        clock: context.clock.clone(),
        events: context.events.component("node-controller"),
        nodes: context.informer::<Node>(),
        leases: context.informer::<Lease>(),
        pods: context.informer::<Pod>(),
        seen: Mutex::default(),
        doomed: Mutex::default(),
        grace: context.config.node_monitor_grace_period,
        startup_grace: context.config.node_startup_grace_period,
        queue: context.queue("node_lifecycle"),
    });
    this.pods.index(BY_NODE, node_of_pod);
    let weak = Arc::downgrade(&this);
    this.nodes.on(move |change| {
        if let Some(this) = weak.upgrade() {
            this.node_changed(change);
        }
    });
    let weak = Arc::downgrade(&this);
    this.leases.on(move |change| {
        let lease = change.object();
        // Heartbeats of a healthy node need no work: its next deadline is looked at when it comes.
        if meta::namespace(&**lease) == "kube-node-lease"
            && let Some(this) = weak.upgrade()
        {
            let name = meta::name(&**lease);
            this.observe(name);
            let unhealthy = this.nodes.get(name).is_some_and(|n| !taints(&n).is_empty());
            if unhealthy || !matches!(change, Change::Updated(..)) {
                this.queue.add(Work::Node(name.to_owned()));
            }
        }
    });
    let weak = Arc::downgrade(&this);
    this.pods.on(move |change| {
        let Some(this) = weak.upgrade() else { return };
        let pod = change.object();
        let node = meta::node_name(pod);
        if change.is_delete() {
            this.doomed.lock().remove(&key_of(&**pod));
            return;
        }
        if node.is_empty() {
            return;
        }
        let bound_now = change.old().is_none_or(|old| meta::node_name(old) != node);
        if bound_now
            && this
                .nodes
                .get(node)
                .is_some_and(|n| plan::has_no_execute(taints(&n)))
        {
            this.queue.add(Work::Pod(key_of(&**pod)));
        }
    });
    let queue = this.queue.clone();
    Box::pin(queue.run(
        context.config.workers,
        context.shutdown.clone(),
        move |work| {
            let this = this.clone();
            async move {
                match work {
                    Work::Node(name) => this.sync_node(&name).await,
                    Work::Pod(key) => this.sync_pod(&key).await,
                }
            }
        },
    ))
}

fn ready_condition(node: &Node) -> Option<&k8s_openapi::api::core::v1::NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|c| c.type_ == "Ready")
}

impl Nodes {
    fn node_changed(&self, change: &Change<Node>) {
        let node = change.object();
        let name = meta::name(&**node);
        if change.is_delete() {
            self.seen.lock().remove(name);
            return;
        }
        self.observe(name);
        let same = change.old().is_some_and(|old| {
            let ready = |n: &Node| ready_condition(n).map(|c| c.status.clone());
            ready(old) == ready(node)
                && taints(old) == taints(node)
                && old.spec.as_ref().and_then(|s| s.unschedulable)
                    == node.spec.as_ref().and_then(|s| s.unschedulable)
        });
        if !same {
            self.queue.add(Work::Node(name.to_owned()));
        }
        if change.old().is_none_or(|old| taints(old) != taints(node)) {
            for pod in self.pods.by_index(BY_NODE, name) {
                self.queue.add(Work::Pod(key_of(&*pod)));
            }
        }
    }

    /// Notes a heartbeat if there is a new one.
    fn observe(&self, name: &str) {
        let renewed = self
            .leases
            .find("kube-node-lease", name)
            .and_then(|l| l.spec.as_ref()?.renew_time.as_ref().map(|t| t.0));
        let heartbeat = self.nodes.get(name).and_then(|n| {
            ready_condition(&n)?
                .last_heartbeat_time
                .as_ref()
                .map(|t| t.0)
        });
        let now = self.clock.now();
        let mut seen = self.seen.lock();
        match seen.get_mut(name) {
            Some(old) if old.renewed == renewed && old.heartbeat == heartbeat => {}
            Some(old) => {
                *old = Seen {
                    renewed,
                    heartbeat,
                    at: now,
                }
            }
            None => {
                seen.insert(
                    name.to_owned(),
                    Seen {
                        renewed,
                        heartbeat,
                        at: now,
                    },
                );
            }
        }
    }

    async fn sync_node(&self, name: &str) -> Result<Next, Error> {
        let Some(mut node) = self.nodes.get(name) else {
            return Ok(Next::Done);
        };
        self.observe(name);
        let Some(seen) = self.seen.lock().get(name).cloned() else {
            return Ok(Next::Done);
        };
        let now = self.clock.now();
        let grace = if ready_condition(&node).is_none() {
            self.startup_grace
        } else {
            self.grace
        };
        let deadline = seen.at + jiff::SignedDuration::try_from(grace).unwrap_or_default();
        let silent = now >= deadline;
        if silent && plan::needs_unknown(&node) {
            let Some(updated) = self.set_unknown(&node, now).await? else {
                return Ok(Next::After(Duration::from_millis(100)));
            };
            node = updated;
        }
        let wanted = plan::taints(&node, silent, now);
        if wanted != taints(&node) {
            let listed: Vec<Value> = wanted.iter().map(|t| json!(t)).collect();
            let body = json!({
                "metadata": api::unchanged(&*node),
                "spec": {"taints": if listed.is_empty() { Value::Null } else { json!(listed) }},
            });
            let api: Api<Node> = Api::all(self.client.clone());
            match api::patch(&api, name, Part::Main, &body).await {
                Ok(new) => self.nodes.assume(new),
                Err(error) if error.is_not_found() => return Ok(Next::Done),
                Err(error) => return Err(error),
            }
        }
        if plan::is_not_ready(&node) {
            self.mark_pods(name).await?;
        }
        Ok(if silent {
            Next::Done
        } else {
            Next::After(until(now, deadline))
        })
    }

    async fn set_unknown(&self, node: &Node, now: Timestamp) -> Result<Option<Arc<Node>>, Error> {
        let whole: Api<Whole<Node>> = Api::all(self.client.clone());
        let live = api::get(&whole, meta::name(node)).await?;
        // A newer state than the cached one may bring a heartbeat: it is looked at when it arrives.
        let version = &node.metadata.resource_version;
        let Some(node) = live.filter(|n| n.metadata.resource_version == *version) else {
            return Ok(None);
        };
        let stamp = rfc3339(now);
        let mut conditions = node
            .at("/status/conditions")
            .as_array()
            .cloned()
            .unwrap_or_default();
        for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
            let never = conditions.iter().all(|c| c["type"] != kind);
            let (reason, message) = if never {
                (
                    "NodeStatusNeverUpdated",
                    "Kubelet never posted node status.",
                )
            } else {
                ("NodeStatusUnknown", "Kubelet stopped posting node status.")
            };
            let heartbeat = conditions
                .iter()
                .find(|c| c["type"] == kind)
                .map(|c| c["lastHeartbeatTime"].clone());
            set_condition(&mut conditions, kind, "Unknown", reason, message, &stamp);
            if let Some(c) = conditions.iter_mut().find(|c| c["type"] == kind) {
                c["lastHeartbeatTime"] = heartbeat
                    .filter(|h| !h.is_null())
                    .unwrap_or_else(|| json!(stamp));
            }
        }
        let body = json!({"metadata": api::unchanged(&node), "status": {"conditions": conditions}});
        let api: Api<Node> = Api::all(self.client.clone());
        let updated = api::patch(&api, meta::name(&node), Part::Status, &body).await?;
        self.events.event(
            reference(&*node),
            Level::Normal,
            "NodeNotReady",
            format!("Node {} status is now: NodeNotReady", meta::name(&node)),
        );
        // Heartbeats stand still: the write above is not one.
        if let Some(seen) = self.seen.lock().get_mut(meta::name(&node)) {
            seen.heartbeat =
                ready_condition(&updated).and_then(|c| c.last_heartbeat_time.as_ref().map(|t| t.0));
        }
        self.nodes.assume(updated.clone());
        Ok(Some(Arc::new(updated)))
    }

    /// Pods of a node that is not ready are not ready either, whatever their last word was.
    async fn mark_pods(&self, node: &str) -> Result<(), Error> {
        for pod in self.pods.by_index(BY_NODE, node) {
            if !meta::is_ready(&pod) {
                continue;
            }
            let api: Api<Whole<Pod>> = Api::namespaced(self.client.clone(), meta::namespace(&*pod));
            let Some(live) = api::get(&api, meta::name(&*pod)).await? else {
                continue;
            };
            let mut conditions = live
                .at("/status/conditions")
                .as_array()
                .cloned()
                .unwrap_or_default();
            let stamp = rfc3339(self.clock.now());
            set_condition(
                &mut conditions,
                "Ready",
                "False",
                "NodeNotReady",
                "",
                &stamp,
            );
            let body =
                json!({"metadata": api::unchanged(&live), "status": {"conditions": conditions}});
            match api::patch(&api, meta::name(&*pod), Part::Status, &body).await {
                Ok(_) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Since when it is known that a pod may have to go: not every taint says when it was added.
    fn doomed_since(&self, key: &str, pod: &Pod, now: Timestamp) -> Timestamp {
        let mut doomed = self.doomed.lock();
        let entry = doomed.entry(key.to_owned());
        let entry = entry.or_insert_with(|| (meta::uid(pod).to_owned(), now));
        if entry.0 != meta::uid(pod) {
            *entry = (meta::uid(pod).to_owned(), now);
        }
        entry.1
    }

    async fn sync_pod(&self, key: &str) -> Result<Next, Error> {
        let Some(pod) = self.pods.get(key).filter(|p| !meta::deleting(&**p)) else {
            return Ok(Next::Done);
        };
        let Some(node) = self.nodes.get(meta::node_name(&pod)) else {
            return Ok(Next::Done);
        };
        let now = self.clock.now();
        let (namespace, name) = split_key(key);
        let Some(at) = plan::eviction(taints(&node), &pod, self.doomed_since(key, &pod, now))
        else {
            if self
                .doomed
                .lock()
                .remove(key)
                .is_some_and(|(_, since)| since < now)
            {
                self.events.event(
                    reference(&*pod),
                    Level::Normal,
                    "TaintManagerEviction",
                    format!("Cancelling deletion of Pod {namespace}/{name}"),
                );
            }
            return Ok(Next::Done);
        };
        if at > now {
            return Ok(Next::After(until(now, at)));
        }
        let api: Api<Whole<Pod>> = Api::namespaced(self.client.clone(), namespace);
        let Some(live) = api::get(&api, name)
            .await?
            .filter(|p| meta::uid(p) == meta::uid(&*pod))
        else {
            return Ok(Next::Done);
        };
        let mut conditions = live
            .at("/status/conditions")
            .as_array()
            .cloned()
            .unwrap_or_default();
        set_condition(
            &mut conditions,
            "DisruptionTarget",
            "True",
            "DeletionByTaintManager",
            "Taint manager: deleting due to NoExecute taint",
            &rfc3339(now),
        );
        let body = json!({"metadata": api::unchanged(&live), "status": {"conditions": conditions}});
        api::patch(&api, name, Part::Status, &body).await?;
        self.events.event(
            reference(&*pod),
            Level::Normal,
            "TaintManagerEviction",
            format!("Marking for deletion Pod {namespace}/{name}"),
        );
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        api::delete_cached(&self.pods, &pods, &pod, Delete::default()).await?;
        Ok(Next::Done)
    }
}
