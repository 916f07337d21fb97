//! Deletes pods that will not finish: on deleted nodes, surplus finished ones, deleted before they
//! were bound.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use serde_json::json;

use crate::Error;
use crate::controller::api::{self, Delete, Part};
use crate::controller::clock::Clock;
use crate::controller::context::{Context, Task};
use crate::controller::informer::{Informer, Key, key_of};
use crate::controller::meta;
use crate::controller::queue::{Next, Queue};
use crate::controller::whole::Whole;
use crate::nodes::{BY_NODE, node_of_pod};
use crate::workload::disruption_target;

/// How long a node must be absent before its pods are deleted, since it may be created again; upstream's value.
const QUARANTINE: Duration = Duration::from_secs(40);

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Work {
    /// A pod that may be deletable.
    Pod(Key),
    /// The name of a node that does not exist.
    Node(String),
    /// Too many finished pods.
    Finished,
}

struct PodGc {
    client: kube::Client,
    clock: Clock,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    threshold: usize,
    finished: std::sync::atomic::AtomicUsize,
    queue: Queue<Work>,
}

/// Sets the controller up.
pub(crate) fn build(context: &Context) -> Task {
    use std::sync::atomic::Ordering;
    let this = Arc::new(PodGc {
        client: context.client.clone(),
        clock: context.clock.clone(),
        pods: context.informer::<Pod>(),
        nodes: context.informer::<Node>(),
        threshold: context.config.terminated_pod_threshold,
        finished: std::sync::atomic::AtomicUsize::new(0),
        queue: context.queue("gc_controller"),
    });
    this.pods.index(BY_NODE, node_of_pod);
    let weak = Arc::downgrade(&this);
    this.nodes.on(move |change| {
        if change.is_delete()
            && let Some(this) = weak.upgrade()
        {
            this.queue.add_after(
                Work::Node(meta::name(&**change.object()).to_owned()),
                QUARANTINE,
            );
        }
    });
    let weak = Arc::downgrade(&this);
    this.pods.on(move |change| {
        let Some(this) = weak.upgrade() else { return };
        let pod = change.object();
        let was = change.old().is_some_and(|p| meta::is_finished(p));
        let is = meta::is_finished(pod) && !change.is_delete();
        let was = was || (change.is_delete() && meta::is_finished(pod));
        if is && !was {
            let count = this.finished.fetch_add(1, Ordering::Relaxed) + 1;
            if count > this.threshold {
                this.queue.add(Work::Finished);
            }
        } else if was && !is {
            let _ = this
                .finished
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        }
        if change.is_delete() {
            return;
        }
        let node = meta::node_name(pod);
        if node.is_empty() {
            if meta::deleting(&**pod) {
                this.queue.add(Work::Pod(key_of(&**pod)));
            }
        } else if change.old().is_none_or(|old| meta::node_name(old) != node)
            && this.nodes.get(node).is_none()
        {
            this.queue
                .add_after(Work::Node(node.to_owned()), QUARANTINE);
        }
    });
    let queue = this.queue.clone();
    context.run_workers(queue, this, |this, work| async move {
        match work {
            Work::Pod(key) => this.unbound(&key).await?,
            Work::Node(name) => this.node_gone(&name).await?,
            Work::Finished => this.too_many().await?,
        }
        Ok(Next::Done)
    })
}

impl PodGc {
    async fn remove(&self, pod: &Pod) -> Result<(), Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), meta::namespace(pod));
        let options = Delete {
            grace: Some(0),
            ..Delete::default()
        };
        api::delete_cached(&self.pods, &api, pod, options).await
    }

    /// A pod that was deleted before it was bound: no node will ever confirm its end.
    async fn unbound(&self, key: &str) -> Result<(), Error> {
        if let Some(pod) = self.pods.get(key)
            && meta::deleting(&*pod)
            && meta::node_name(&pod).is_empty()
        {
            self.remove(&pod).await?;
        }
        Ok(())
    }

    async fn node_gone(&self, name: &str) -> Result<(), Error> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        if self.nodes.get(name).is_some() || api::get(&nodes, name).await?.is_some() {
            return Ok(());
        }
        for pod in self.pods.by_index(BY_NODE, name) {
            self.fail(&pod).await?;
            self.remove(&pod).await?;
        }
        Ok(())
    }

    /// Sets the failed status, so that the owner learns why the pod ended.
    async fn fail(&self, pod: &Pod) -> Result<(), Error> {
        if meta::is_finished(pod) {
            return Ok(());
        }
        let api: Api<Whole<Pod>> = Api::namespaced(self.client.clone(), meta::namespace(pod));
        let Some(live) = api::get(&api, meta::name(pod))
            .await?
            .filter(|p| meta::uid(p) == meta::uid(pod))
        else {
            return Ok(());
        };
        let generation = meta::generation(&live);
        let conditions = disruption_target(
            &live,
            "DeletionByPodGC",
            "PodGC: node no longer exists",
            Some(generation),
            self.clock.now(),
        );
        let body = json!({
            "metadata": api::unchanged(&live),
            "status": {"phase": "Failed", "conditions": conditions, "observedGeneration": generation},
        });
        match api::patch(&api, meta::name(pod), Part::Status, &body).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn too_many(&self) -> Result<(), Error> {
        let mut finished: Vec<Arc<Pod>> = self
            .pods
            .list()
            .into_iter()
            .filter(|p| meta::is_finished(p) && !meta::deleting(&**p))
            .collect();
        let surplus = finished.len().saturating_sub(self.threshold);
        finished.sort_by_key(|p| {
            (
                p.metadata.creation_timestamp.clone(),
                p.metadata.name.clone(),
            )
        });
        for pod in finished.into_iter().take(surplus) {
            self.remove(&pod).await?;
        }
        Ok(())
    }
}
