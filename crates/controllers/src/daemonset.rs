//! DaemonSets: one pod on each node that fits.

mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use allot_model::features::Features;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Api;
use serde_json::{Value, json};

use crate::Error;
use crate::controller::clock::Clock;
use crate::controller::context::{Context, Task};
use crate::controller::events::reference;
use crate::controller::informer::{Informer, Key, key_of};
use crate::controller::meta;
use crate::controller::queue::{Next, Queue};
use crate::controller::whole::Whole;
use crate::workload::revision::{History, REVISION_HASH, Revision, hash_of};
use crate::workload::sets::{PodSet, Sets};
use crate::workload::{BY_CONTROLLER, PodControl, controller_uid, pod_from_template, write_status};

pub use plan::target_node;
use plan::{Fit, NodeState};

/// Annotation of a daemon set that the API server maintains; pods are labelled with it.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Pods created or deleted per pass at most, as in upstream.
const BURST: usize = 250;

type Object = Whole<DaemonSet>;

struct DaemonSets {
    control: PodControl,
    sets: Informer<Object>,
    nodes: Informer<Node>,
    revisions: Informer<Revision>,
    features: Features,
    clock: Clock,
    queue: Queue<Key>,
}

impl PodSet for Object {
    const KIND: &'static str = "DaemonSet";

    fn selector(&self) -> Option<&LabelSelector> {
        self.spec.as_ref().map(|s| &s.selector)
    }
}

/// Sets the controller up.
pub(crate) fn build(context: &Context) -> Task {
    let revisions = context.informer::<Revision>();
    revisions.index(BY_CONTROLLER, controller_uid);
    let Sets {
        control,
        sets,
        clock,
        queue,
    } = Sets::new(context, "daemonset-controller", "daemonset");
    let this = Arc::new(DaemonSets {
        control,
        sets,
        nodes: context.informer::<Node>(),
        revisions,
        features: context.config.features.clone(),
        clock,
        queue,
    });
    let weak = Arc::downgrade(&this);
    this.nodes.on(move |change| {
        let Some(this) = weak.upgrade() else { return };
        // Heartbeats do not matter, only fields that pods depend on.
        let same = change.old().is_some_and(|old| {
            let new = change.object();
            old.metadata.labels == new.metadata.labels
                && crate::controller::nodes::taints(old) == crate::controller::nodes::taints(new)
        });
        if !same {
            for set in this.sets.list() {
                this.queue.add(key_of(&*set));
            }
        }
    });
    let queue = this.queue.clone();
    context.run_workers(
        queue,
        this,
        |this, key| async move { this.sync(&key).await },
    )
}

impl DaemonSets {
    async fn sync(&self, key: &str) -> Result<Next, Error> {
        let Some(set) = self.sets.get(key) else {
            return Ok(Next::Done);
        };
        let Some(spec) = set.spec.clone() else {
            return Ok(Next::Done);
        };
        if meta::is_empty_selector(&spec.selector) || meta::deleting(&*set) {
            return Ok(Next::Done);
        }
        self.control.claim(&**set, &spec.selector).await?;
        let client = &self.control.client;
        let (history, current, collisions) =
            History::with_current(client, &self.revisions, &set, REVISION_HASH).await?;
        let hash = hash_of(&*current).to_owned();
        let result = self.manage(&set, &spec, &hash).await;
        if let Err(error) = &result
            && error.is_namespace_terminating()
        {
            return Ok(Next::Done);
        }
        let pods = self.control.pods.by_index(BY_CONTROLLER, meta::uid(&*set));
        let limit = usize::try_from(spec.revision_history_limit.unwrap_or(10)).unwrap_or(10);
        let in_use =
            |r: &Revision| hash_of(r) == hash || pods.iter().any(|p| hash_of(&**p) == hash_of(r));
        history
            .prune(
                &self.control.client,
                &self.revisions,
                meta::namespace(&*set),
                in_use,
                limit,
            )
            .await?;
        let wait = self.write(&set, &spec, &hash, collisions).await?;
        result?;
        Ok(wait.map_or(Next::Done, Next::After))
    }

    /// The nodes with their daemon pods, by name.
    fn states(
        &self,
        set: &Object,
        spec: &DaemonSetSpec,
        hash: &str,
    ) -> BTreeMap<String, NodeState> {
        let mut states: BTreeMap<String, NodeState> = BTreeMap::new();
        for node in self.nodes.list() {
            let fit = plan::fit(spec, &node, &self.features);
            states.insert(meta::name(&*node).to_owned(), NodeState::new(fit));
        }
        let now = self.clock.now();
        for pod in self.control.pods.by_index(BY_CONTROLLER, meta::uid(set)) {
            let node = plan::target_node(&pod);
            // A node that was deleted: the pod garbage collector deletes its pods.
            let state = states
                .entry(node)
                .or_insert_with(|| NodeState::new(Fit::NoNode));
            state.pods.push(plan::DaemonPod::new(
                &pod,
                hash,
                spec.min_ready_seconds.unwrap_or(0),
                now,
            ));
        }
        states
    }

    async fn manage(&self, set: &Object, spec: &DaemonSetSpec, hash: &str) -> Result<(), Error> {
        let states = self.states(set, spec, hash);
        let actions = plan::actions(spec, &states);
        let pods: BTreeMap<String, Arc<Pod>> = self
            .control
            .pods
            .by_index(BY_CONTROLLER, meta::uid(set))
            .into_iter()
            .map(|p| (meta::name(&*p).to_owned(), p))
            .collect();
        let deletions = actions
            .delete
            .iter()
            .take(BURST)
            .filter_map(|name| pods.get(name))
            .map(|pod| self.delete(set, pod));
        for result in futures::future::join_all(deletions).await {
            result?;
        }
        let mut batch = 1;
        let mut left = &actions.create[..actions.create.len().min(BURST)];
        while !left.is_empty() {
            let (now, rest) = left.split_at(batch.min(left.len()));
            let bodies: Vec<Value> = now.iter().map(|node| new_pod(set, hash, node)).collect();
            let creations = bodies.iter().map(|pod| self.control.create(&**set, pod));
            for result in futures::future::join_all(creations).await {
                result?;
            }
            left = rest;
            batch *= 2;
        }
        Ok(())
    }

    /// Deletes a pod; records an event for a failed one.
    async fn delete(&self, set: &Object, pod: &Pod) -> Result<(), Error> {
        if let Some((level, reason, message)) = plan::ended(pod) {
            let events = &self.control.events;
            events.event(reference(&**set), level, reason, message);
        }
        self.control.delete(&**set, pod).await
    }

    async fn write(
        &self,
        set: &Object,
        spec: &DaemonSetSpec,
        hash: &str,
        collisions: i32,
    ) -> Result<Option<Duration>, Error> {
        let states = self.states(set, spec, hash);
        let (mut status, wait) = plan::status(&states);
        status["observedGeneration"] = json!(meta::generation(set));
        if collisions > 0 {
            status["collisionCount"] = json!(collisions);
        }
        let api: Api<Object> = Api::namespaced(self.control.client.clone(), meta::namespace(set));
        write_status(&api, &self.sets, set, set.at("/status"), status).await?;
        Ok(wait)
    }
}

/// The pod for a node: it can only be scheduled there, and tolerates the taints of the node's conditions.
fn new_pod(set: &Object, hash: &str, node: &str) -> Value {
    let mut pod = pod_from_template(
        set.at("/spec/template"),
        meta::namespace(set),
        &format!("{}-", meta::name(set)),
        meta::controller_ref(&**set),
    );
    pod["metadata"]["labels"][REVISION_HASH] = json!(hash);
    if let Some(generation) = meta::annotation(set, TEMPLATE_GENERATION) {
        pod["metadata"]["labels"]["pod-template-generation"] = json!(generation);
    }
    pin(&mut pod, node);
    pod
}

/// Whether a DaemonSet with this specification wants a pod on a node.
pub fn wants_pod_on(spec: &DaemonSetSpec, node: &Node, features: &Features) -> bool {
    plan::fit(spec, node, features) == Fit::Run
}

/// Makes a pod of a DaemonSet's template the one for a node.
pub fn pin(pod: &mut Value, node: &str) {
    pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!({
        "nodeSelectorTerms": [{
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}],
        }],
    });
    let host_network = pod["spec"]["hostNetwork"] == true;
    let mut tolerations = pod["spec"]["tolerations"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    tolerations.extend(plan::tolerations(host_network).iter().map(|t| json!(t)));
    pod["spec"]["tolerations"] = json!(tolerations);
}
