//! Namespaces that are being deleted: their content is deleted first, then the finalizer
//! `kubernetes` is removed.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ListParams, PropagationPolicy};
use kube::core::Request;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::Error;
use crate::controller::api::{self, Delete, Part};
use crate::controller::clock::{Clock, rfc3339};
use crate::controller::context::{Context, Task};
use crate::controller::informer::{Informer, Key, key_of};
use crate::controller::meta;
use crate::controller::queue::{Next, Queue};
use crate::inventory::{BY_NAMESPACE, Inventory, Kind};
use crate::workload::set_condition;

/// Dependents of an object in the namespace are deleted with it, also if they would be orphaned by
/// default.
fn with_dependents() -> Delete {
    Delete {
        propagation: Some(PropagationPolicy::Background),
        ..Delete::default()
    }
}

#[cfg(test)]
mod tests;

const FINALIZER: &str = "kubernetes";
/// Remaining content is checked again after that time even without a change.
const RETRY: Duration = Duration::from_secs(10);

struct Namespaces {
    client: Client,
    clock: Clock,
    inventory: Inventory,
    namespaces: Informer<Namespace>,
    queue: Queue<Key>,
}

/// Sets the controller up.
pub(crate) fn build(context: &Context, inventory: &Inventory) -> Task {
    let this = Arc::new(Namespaces {
        client: context.client.clone(),
        clock: context.clock.clone(),
        inventory: inventory.clone(),
        namespaces: context.informer::<Namespace>(),
        queue: context.queue("namespace"),
    });
    let queue = this.queue.clone();
    this.namespaces.on(move |change| {
        let namespace = change.object();
        if !change.is_delete() && meta::deleting(&**namespace) {
            queue.add(key_of(&**namespace));
        }
    });
    let weak = Arc::downgrade(&this);
    inventory.on(move |_, change| {
        // Each deleted object may have been the last one.
        if change.is_delete()
            && let Some(this) = weak.upgrade()
            && let Some(namespace) = change.object().metadata.namespace.as_deref()
            && this
                .namespaces
                .get(namespace)
                .is_some_and(|n| meta::deleting(&*n))
        {
            this.queue.add(namespace.to_owned());
        }
    });
    let queue = this.queue.clone();
    context.run_workers(
        queue,
        this,
        |this, key| async move { this.sync(&key).await },
    )
}

/// The remaining content of a namespace.
#[derive(Debug, Default, PartialEq, Eq)]
struct Remaining {
    /// `pods.` has 3 resource instances, in upstream's words.
    resources: Vec<(String, usize)>,
    finalizers: std::collections::BTreeMap<String, usize>,
    errors: Vec<String>,
}

impl Remaining {
    fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.errors.is_empty()
    }
}

impl Namespaces {
    async fn sync(&self, name: &str) -> Result<Next, Error> {
        let cached = self.namespaces.get(name);
        let Some(cached) = cached.filter(|it| meta::deleting(&**it)) else {
            return Ok(Next::Done);
        };
        let Some(namespace) = self.terminating(&cached).await? else {
            return Ok(Next::Done);
        };
        let finalizers = namespace
            .spec
            .iter()
            .flat_map(|s| s.finalizers.iter().flatten());
        let finalizers: Vec<&String> = finalizers.collect();
        if !finalizers.iter().any(|f| *f == FINALIZER) {
            return Ok(Next::Done);
        }
        let mut left = self.empty(name).await;
        if let Some(failure) = self.inventory.failure() {
            left.errors.push(failure);
        }
        if left.is_empty() {
            let rest: Vec<&String> = finalizers.into_iter().filter(|f| *f != FINALIZER).collect();
            return self.finalize(&namespace, &rest).await;
        }
        self.report(&namespace, &left).await?;
        Ok(Next::After(RETRY))
    }

    /// The namespace as the API server has it; `None` if the cached one does not exist any more, or is not terminating.
    ///
    /// Content is deleted by the name of its namespace. A cache that still shows a namespace which is gone would delete
    /// the content of one that was created afterwards under the same name.
    async fn terminating(&self, cached: &Namespace) -> Result<Option<Namespace>, Error> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let live = api::get(&api, meta::name(cached)).await?;
        Ok(live.filter(|n| meta::deleting(n) && meta::uid(n) == meta::uid(cached)))
    }

    /// Deletes all content; returns what remains.
    async fn empty(&self, namespace: &str) -> Remaining {
        let kinds: Vec<Arc<Kind>> = self
            .inventory
            .kinds()
            .into_iter()
            .filter(|k| k.namespaced)
            .collect();
        let deletions = kinds.iter().map(|kind| self.delete_all(kind, namespace));
        let mut left = Remaining::default();
        for (kind, result) in kinds.iter().zip(futures::future::join_all(deletions).await) {
            match result {
                Ok(objects) if objects.is_empty() => {}
                Ok(objects) => {
                    for finalizer in objects
                        .iter()
                        .flat_map(|o| o.metadata.finalizers.iter().flatten())
                    {
                        *left.finalizers.entry(finalizer.clone()).or_default() += 1;
                    }
                    let what = format!("{}.{}", kind.resource.plural, kind.resource.group);
                    left.resources.push((what, objects.len()));
                }
                Err(error) => left.errors.push(error.to_string()),
            }
        }
        left
    }

    async fn delete_all(
        &self,
        kind: &Kind,
        namespace: &str,
    ) -> Result<Vec<crate::inventory::MetaObject>, Error> {
        let api = kind.api(&self.client, namespace);
        let all = ListParams::default();
        let cached = kind.cache.as_ref().filter(|c| c.is_synced());
        let known = cached.map(|c| c.by_index(BY_NAMESPACE, namespace));
        // Nothing in the cache: the list below finds objects that the cache has not seen yet.
        if known
            .as_ref()
            .is_none_or(|k| k.iter().any(|o| !meta::deleting(&**o)))
        {
            if kind.delete_collection {
                api.delete_collection(&DeleteParams::background(), &all)
                    .await?;
            } else {
                for obj in api.list(&all).await?.items {
                    api::delete(&api, meta::name(&obj), meta::uid(&obj), with_dependents()).await?;
                }
            }
        }
        let mut left = api.list(&all).await?.items;
        if left.iter().any(|o| !meta::deleting(o)) {
            for obj in left.iter().filter(|o| !meta::deleting(*o)) {
                api::delete(&api, meta::name(obj), meta::uid(obj), with_dependents()).await?;
            }
            left = api.list(&all).await?.items;
        }
        Ok(left)
    }

    async fn finalize(&self, namespace: &Namespace, rest: &[&String]) -> Result<Next, Error> {
        let name = meta::name(namespace);
        let api: Api<Namespace> = Api::all(self.client.clone());
        // The subresource replaces only spec.finalizers.
        let body = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": name,
                "uid": meta::uid(namespace),
                "resourceVersion": namespace.metadata.resource_version,
            },
            "spec": {"finalizers": rest},
        });
        let data = serde_json::to_vec(&body).map_err(kube::Error::SerdeError)?;
        let request = Request::new(api.resource_url())
            .replace_subresource("finalize", name, &Default::default(), data)
            .map_err(kube::Error::BuildRequest)?;
        match self
            .client
            .request::<Value>(request)
            .await
            .map_err(Error::from)
        {
            Ok(_) => Ok(Next::Done),
            Err(error) if error.is_not_found() => Ok(Next::Done),
            Err(error) => Err(error),
        }
    }

    async fn report(&self, namespace: &Namespace, left: &Remaining) -> Result<(), Error> {
        let old = namespace
            .status
            .iter()
            .flat_map(|s| s.conditions.iter().flatten());
        let old: Vec<Value> = old.map(|c| json!(c)).collect();
        let new = conditions(
            old.clone(),
            left,
            self.inventory.failure().is_some(),
            self.clock.now(),
        );
        if new == old {
            return Ok(());
        }
        let api: Api<Namespace> = Api::all(self.client.clone());
        let body = json!({"metadata": api::unchanged(namespace), "status": {"conditions": new}});
        match api::patch(&api, meta::name(namespace), Part::Status, &body).await {
            Ok(new) => {
                self.namespaces.assume(new);
                Ok(())
            }
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn conditions(
    mut list: Vec<Value>,
    left: &Remaining,
    undiscovered: bool,
    now: Timestamp,
) -> Vec<Value> {
    let now = rfc3339(now);
    let mut set = |kind: &str, bad: bool, reason: &str, message: String, good: (&str, &str)| {
        if bad {
            set_condition(&mut list, kind, "True", reason, &message, &now);
        } else {
            set_condition(&mut list, kind, "False", good.0, good.1, &now);
        }
    };
    set(
        "NamespaceDeletionDiscoveryFailure",
        undiscovered,
        "DiscoveryFailed",
        format!(
            "Discovery failed for some groups, {} failing: {}",
            left.errors.len(),
            left.errors.join(", ")
        ),
        (
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
    );
    set(
        "NamespaceDeletionGroupVersionParsingFailure",
        false,
        "",
        String::new(),
        (
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
    );
    set(
        "NamespaceDeletionContentFailure",
        !left.errors.is_empty(),
        "ContentDeletionFailed",
        format!(
            "Failed to delete all resource types, {} remaining: {}",
            left.errors.len(),
            left.errors.join(", ")
        ),
        (
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
    );
    let resources: Vec<String> = left
        .resources
        .iter()
        .map(|(what, n)| format!("{what} has {n} resource instances"))
        .collect();
    set(
        "NamespaceContentRemaining",
        !resources.is_empty(),
        "SomeResourcesRemain",
        format!("Some resources are remaining: {}", resources.join(", ")),
        ("ContentRemoved", "All content successfully removed"),
    );
    let finalizers: Vec<String> = left
        .finalizers
        .iter()
        .map(|(what, n)| format!("{what} in {n} resource instances"))
        .collect();
    set(
        "NamespaceFinalizersRemaining",
        !finalizers.is_empty(),
        "SomeFinalizersRemain",
        format!(
            "Some content in the namespace has finalizers remaining: {}",
            finalizers.join(", ")
        ),
        (
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished",
        ),
    );
    list
}
