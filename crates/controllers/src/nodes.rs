//! Node life cycle: nodes that do not report are tainted, and their pods are evicted.
//!
//! A node reports by renewing its Lease (or its Ready condition). When it stops, its conditions
//! become Unknown and it is tainted unreachable; a node that reports NotReady is tainted not-ready.
//! NoExecute taints evict pods after their tolerationSeconds.

mod evict;
mod lost;
mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use allot_model::features::Features;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::Error;
use crate::controller::api::{self, Part};
use crate::controller::clock::{Clock, shifted, until};
use crate::controller::context::{Context, Task};
use crate::controller::events::{Level, Recorder, reference};
use crate::controller::informer::{Change, Informer, Key, key_of};
use crate::controller::meta;
use crate::controller::nodes::taints;
use crate::controller::queue::{Next, Queue};

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

/// A node's last observed heartbeat, by the local clock: clocks of nodes may differ.
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
    /// Events of upstream's controller that evicts.
    evictions: Recorder,
    nodes: Informer<Node>,
    leases: Informer<Lease>,
    pods: Informer<Pod>,
    seen: Mutex<BTreeMap<String, Seen>>,
    /// Pods to evict, by UID, and since when.
    doomed: Mutex<BTreeMap<Key, (String, Timestamp)>>,
    /// Nodes created after this get an event.
    started: Timestamp,
    features: Features,
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
        evictions: context.events.component("taint-eviction-controller"),
        started: context.clock.now(),
        nodes: context.informer::<Node>(),
        leases: context.informer::<Lease>(),
        pods: context.informer::<Pod>(),
        seen: Mutex::default(),
        doomed: Mutex::default(),
        features: context.config.features.clone(),
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
        // Heartbeats of a healthy node need no work: its next deadline is checked when it is due.
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
    context.run_workers(queue, this, |this, work| async move {
        match work {
            Work::Node(name) => this.sync_node(&name).await,
            Work::Pod(key) => this.sync_pod(&key).await,
        }
    })
}

fn ready_condition(node: &Node) -> Option<&k8s_openapi::api::core::v1::NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|c| c.type_ == "Ready")
}

impl Nodes {
    fn node_changed(&self, change: &Change<Node>) {
        let node = change.object();
        let name = meta::name(&**node);
        let tell = |reason: &str, message: String| {
            self.events
                .event(reference(&**node), Level::Normal, reason, message);
        };
        if change.is_delete() {
            self.seen.lock().remove(name);
            tell(
                "RemovingNode",
                format!("Removing Node {name} from Controller"),
            );
            return;
        }
        // `creationTimestamp` has whole seconds, so the start is compared in whole seconds as well.
        let created = node.metadata.creation_timestamp.as_ref();
        let is_new = created.is_some_and(|at| at.0.as_second() >= self.started.as_second());
        if change.old().is_none() && is_new {
            tell(
                "RegisteredNode",
                format!("Registered Node {name} in Controller"),
            );
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
        let grace = jiff::SignedDuration::try_from(grace).unwrap_or_default();
        let deadline = shifted(seen.at, grace);
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
        if plan::is_lost(&node) {
            self.mark_pods(name).await?;
        }
        Ok(if silent {
            Next::Done
        } else {
            Next::After(until(now, deadline))
        })
    }
}
