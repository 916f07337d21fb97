//! Garbage collection: objects whose owners were all deleted are deleted.
//!
//! Background, foreground (finalizer `foregroundDeletion`, with `blockOwnerDeletion`) and orphaning (finalizer
//! `orphan`), as upstream. An unknown owner is looked up at the API server before a dependent is deleted, and the
//! delete carries the dependent's UID and resourceVersion: a lagging cache can delay a deletion, never cause a wrong
//! one.

mod graph;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::PropagationPolicy;
use parking_lot::Mutex;
use serde_json::json;

use crate::Error;
use crate::controller::api::{self, Delete, Part};
use crate::controller::context::{Context, Task};
use crate::controller::informer::Change;
use crate::controller::meta;
use crate::controller::queue::{Next, Queue};
use crate::inventory::{Inventory, Kind, MetaObject};

use graph::{Graph, Node, Verdict};

/// How long the claim controller has for the claims of a deleted pod.
const DEFERRAL: Duration = Duration::from_secs(1);
const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";
/// Finalizers of allocated claims: of the structured allocation of today and of 1.30.
const ALLOCATED: [&str; 2] = [
    allot_resourceclaim::FINALIZER,
    allot_model::classic::DELETE_PROTECTION,
];

struct Collector {
    client: Client,
    inventory: Inventory,
    graph: Mutex<Graph>,
    /// UIDs of objects to process.
    queue: Queue<String>,
    /// UIDs of claims that the claim controller was given time for.
    deferred: Mutex<HashSet<String>>,
}

/// Sets the controller up.
pub(crate) fn build(context: &Context, inventory: &Inventory) -> Task {
    let this = Arc::new(Collector {
        client: context.client.clone(),
        inventory: inventory.clone(),
        graph: Mutex::default(),
        queue: context.queue("garbage_collector"),
        deferred: Mutex::default(),
    });
    let weak = Arc::downgrade(&this);
    inventory.on(move |kind, change| {
        if let Some(this) = weak.upgrade() {
            this.changed(kind, change);
        }
    });
    let queue = this.queue.clone();
    let workers = context.config.workers * 2;
    Box::pin(queue.run(workers, context.shutdown.clone(), move |uid| {
        let this = this.clone();
        async move { this.sync(&uid).await }
    }))
}

fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// An allocated claim of a pod: the claim controller releases and deletes it first.
fn is_held_for_pod(node: &Node) -> bool {
    let of_pod = |owner: &OwnerReference| owner.kind == "Pod" && owner.api_version == "v1";
    node.owners().iter().any(of_pod) && ALLOCATED.iter().any(|finalizer| node.has(finalizer))
}

impl Collector {
    fn changed(&self, kind: &Arc<Kind>, change: &Change<MetaObject>) {
        let work = {
            let mut graph = self.graph.lock();
            match change {
                Change::Added(obj) | Change::Updated(_, obj) => graph.upsert(kind, obj),
                Change::Deleted(obj) => {
                    self.deferred.lock().remove(meta::uid(&**obj));
                    graph.remove(meta::uid(&**obj))
                }
            }
        };
        for uid in work {
            self.queue.add(uid);
        }
    }

    async fn sync(&self, uid: &str) -> Result<Next, Error> {
        let Some(node) = self.graph.lock().node(uid) else {
            return Ok(Next::Done);
        };
        if node.is_deleting() {
            if node.finalizers().iter().any(|f| f == ORPHAN) {
                return self.orphan(&node).await;
            }
            if node.finalizers().iter().any(|f| f == FOREGROUND) {
                return self.finish_foreground(&node).await;
            }
            return Ok(Next::Done);
        }
        if node.owners().is_empty() {
            return Ok(Next::Done);
        }
        let mut verdicts = Vec::with_capacity(node.owners().len());
        for owner in node.owners() {
            verdicts.push(self.judge(&node, owner).await?);
        }
        let solid = verdicts.contains(&Verdict::Solid);
        let waiting = verdicts.contains(&Verdict::Waiting);
        if solid {
            if verdicts.iter().any(|v| *v != Verdict::Solid) {
                let keep = node.owners().iter().zip(&verdicts);
                let keep = keep.filter(|(_, v)| **v == Verdict::Solid).map(|(o, _)| o);
                self.set_owners(&node, keep.cloned().collect()).await?;
            }
            return Ok(Next::Done);
        }
        if is_held_for_pod(&node) && self.deferred.lock().insert(uid.to_owned()) {
            return Ok(Next::After(DEFERRAL));
        }
        self.deferred.lock().remove(uid);
        let has_dependents = self.graph.lock().has_dependents(uid);
        let policy = if waiting && has_dependents {
            PropagationPolicy::Foreground
        } else if node.finalizers().iter().any(|f| f == ORPHAN) {
            PropagationPolicy::Orphan
        } else if node.finalizers().iter().any(|f| f == FOREGROUND) {
            PropagationPolicy::Foreground
        } else {
            PropagationPolicy::Background
        };
        tracing::debug!(
            kind = node.kind.resource.kind,
            name = node.name(),
            "owners are gone, deleting"
        );
        let options = Delete {
            propagation: Some(policy),
            resource_version: Some(node.version().to_owned()),
            ..Delete::default()
        };
        let api = node.kind.api(&self.client, node.namespace());
        api::delete(&api, node.name(), uid, options).await?;
        Ok(Next::Done)
    }

    /// Whether an owner keeps the dependent alive.
    async fn judge(&self, node: &Node, owner: &OwnerReference) -> Result<Verdict, Error> {
        if let Some(verdict) = self.graph.lock().judge(node, owner) {
            return Ok(verdict);
        }
        let group = group_of(&owner.api_version);
        let Some(kind) = self.inventory.kind(group, &owner.kind) else {
            // A kind that is not served (any longer) cannot be looked up; keep the dependent.
            return Ok(Verdict::Solid);
        };
        if kind.namespaced && node.namespace().is_empty() {
            // A cluster-scoped object cannot have a namespaced owner: never act on such a reference.
            return Ok(Verdict::Solid);
        }
        let live = kind
            .api(&self.client, node.namespace())
            .get_opt(&owner.name)
            .await?;
        Ok(match live {
            Some(live) if meta::uid(&live) == owner.uid => graph::verdict_of_live(&live),
            _ => {
                self.graph.lock().remember_absent(&owner.uid);
                Verdict::Gone
            }
        })
    }

    async fn set_owners(&self, node: &Node, owners: Vec<OwnerReference>) -> Result<(), Error> {
        let body = json!({"metadata": {
            "uid": node.uid(),
            "resourceVersion": node.version(),
            "ownerReferences": owners,
        }});
        self.patch(node, body).await
    }

    async fn remove_finalizer(&self, node: &Node, finalizer: &str) -> Result<(), Error> {
        let rest: Vec<&String> = node
            .finalizers()
            .iter()
            .filter(|f| *f != finalizer)
            .collect();
        let body = json!({"metadata": {
            "uid": node.uid(),
            "resourceVersion": node.version(),
            "finalizers": rest,
        }});
        self.patch(node, body).await
    }

    async fn patch(&self, node: &Node, body: serde_json::Value) -> Result<(), Error> {
        let api = node.kind.api(&self.client, node.namespace());
        match api::patch(&api, node.name(), Part::Main, &body).await {
            Ok(new) => {
                if let Some(cache) = &node.kind.cache {
                    cache.assume(new);
                }
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The owner is deleted when no dependent blocks it any longer.
    async fn finish_foreground(&self, node: &Node) -> Result<Next, Error> {
        let (blocking, dependents) = self.graph.lock().foreground_dependents(node.uid());
        for dependent in dependents {
            self.queue.add(dependent);
        }
        if !blocking {
            self.remove_finalizer(node, FOREGROUND).await?;
        }
        Ok(Next::Done)
    }

    /// Removes the owner from its dependents; then it may be deleted.
    async fn orphan(&self, node: &Node) -> Result<Next, Error> {
        let dependents = self.graph.lock().dependents(node.uid());
        for dependent in dependents {
            let rest = dependent.owners().iter().filter(|o| o.uid != node.uid());
            let rest = rest.cloned().collect();
            self.set_owners(&dependent, rest).await?;
        }
        self.remove_finalizer(node, ORPHAN).await?;
        Ok(Next::Done)
    }
}
