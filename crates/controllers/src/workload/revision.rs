//! ControllerRevisions: the history of templates of daemon sets and stateful sets.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::{Api, Client, Resource};
use serde_json::{Value, json};

use super::{BY_CONTROLLER, hash};
use crate::Error;
use crate::controller::api::{self, Delete, Part};
use crate::controller::informer::Informer;
use crate::controller::meta;
use crate::controller::whole::Whole;

/// Label of a pod with the revision of its template: of a daemon set the hash, as its revisions are labelled, of a
/// stateful set the revision's name.
pub(crate) const REVISION_HASH: &str = "controller-revision-hash";
/// Label of a stateful set's revision.
pub(crate) const SET_REVISION_HASH: &str = "controller.kubernetes.io/hash";

pub(crate) type Revision = Whole<ControllerRevision>;

/// The history of an owner.
pub(crate) struct History {
    /// Oldest first.
    pub revisions: Vec<Arc<Revision>>,
}

/// The part of a workload that a revision remembers.
fn data_of(template: &Value) -> Value {
    let mut template = template.clone();
    template["$patch"] = json!("replace");
    json!({"spec": {"template": template}})
}

impl History {
    fn of(cache: &Informer<Revision>, owner_uid: &str) -> Self {
        let mut revisions = cache.by_index(BY_CONTROLLER, owner_uid);
        revisions.sort_by_key(|r| (r.revision, r.metadata.creation_timestamp.clone()));
        Self { revisions }
    }

    /// The history of a set, with the revision of its current template (found and made the newest one, or created), and
    /// the collision count, which grows when the name of a new revision was taken. `hash_label` is the label of a revision
    /// that gets the hash.
    pub(crate) async fn with_current<K>(
        client: &Client,
        cache: &Informer<Revision>,
        set: &Whole<K>,
        hash_label: &str,
    ) -> Result<(Self, Arc<Revision>, i32), Error>
    where
        K: Resource<DynamicType = ()>,
    {
        let mut history = Self::of(cache, meta::uid(&**set));
        let collisions = set.at("/status/collisionCount").as_i64();
        let collisions = collisions.and_then(|count| i32::try_from(count).ok());
        let labels = set.at("/spec/template/metadata/labels");
        let data = data_of(set.at("/spec/template"));
        let (current, collisions) = history
            .current(
                client,
                cache,
                &**set,
                (labels, hash_label),
                &data,
                collisions.unwrap_or(0),
            )
            .await?;
        Ok((history, current, collisions))
    }

    fn next_number(&self) -> i64 {
        let last = self.revisions.last();
        last.map_or(1, |r| r.revision.saturating_add(1))
    }

    /// The revision with that data.
    fn find(&self, data: &Value) -> Option<&Arc<Revision>> {
        self.revisions.iter().rev().find(|r| r.at("/data") == data)
    }

    /// `labels` are those of the template, and the label that gets the hash.
    async fn current<O>(
        &mut self,
        client: &Client,
        cache: &Informer<Revision>,
        owner: &O,
        labels: (&Value, &str),
        data: &Value,
        mut collisions: i32,
    ) -> Result<(Arc<Revision>, i32), Error>
    where
        O: Resource<DynamicType = ()>,
    {
        let namespace = meta::namespace(owner);
        let api: Api<Revision> = Api::namespaced(client.clone(), namespace);
        if let Some(found) = self.find(data).cloned() {
            let newest = self
                .revisions
                .last()
                .is_some_and(|r| r.revision == found.revision);
            if newest {
                return Ok((found, collisions));
            }
            let body = json!({"metadata": api::unchanged(&*found), "revision": self.next_number()});
            let updated = api::patch(&api, meta::name(&*found), Part::Main, &body).await?;
            cache.assume(updated.clone());
            *self = Self::of(cache, meta::uid(owner));
            return Ok((Arc::new(updated), collisions));
        }
        loop {
            let hash = hash(&[data], Some(collisions));
            let (mut labels, hash_label) = (labels.0.clone(), labels.1);
            if !labels.is_object() {
                labels = json!({});
            }
            labels[hash_label] = json!(hash);
            let name = format!("{}-{hash}", meta::name(owner));
            let body = json!({
                "apiVersion": "apps/v1",
                "kind": "ControllerRevision",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "labels": labels,
                    "annotations": owner.meta().annotations,
                    "ownerReferences": [meta::controller_ref(owner)],
                },
                "data": data,
                "revision": self.next_number(),
            });
            match api::create(client, &api, &body).await {
                Ok(created) => {
                    cache.assume(created.clone());
                    *self = Self::of(cache, meta::uid(owner));
                    return Ok((Arc::new(created), collisions));
                }
                Err(error) if error.is_already_exists() => {
                    let found = api::get(&api, &name).await?;
                    let existing =
                        found.ok_or_else(|| Error::Invalid(format!("{name} is gone again")))?;
                    if existing.at("/data") == data
                        && meta::is_controlled_by(&existing.metadata, meta::uid(owner))
                    {
                        return Ok((Arc::new(existing), collisions));
                    }
                    collisions += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Deletes the oldest revisions that no pod uses beyond the limit.
    pub(crate) async fn prune(
        &self,
        client: &Client,
        cache: &Informer<Revision>,
        namespace: &str,
        in_use: impl Fn(&Revision) -> bool,
        limit: usize,
    ) -> Result<(), Error> {
        let unused: Vec<_> = self.revisions.iter().filter(|r| !in_use(r)).collect();
        let surplus = unused.len().saturating_sub(limit);
        let api: Api<Revision> = Api::namespaced(client.clone(), namespace);
        for revision in unused.into_iter().take(surplus) {
            api::delete_cached(cache, &api, &**revision, Delete::default()).await?;
        }
        Ok(())
    }
}

/// The hash label of an object; empty if it has none.
pub(crate) fn hash_of<K: Resource>(obj: &K) -> &str {
    obj.meta()
        .labels
        .as_ref()
        .and_then(|l| l.get(REVISION_HASH))
        .map(String::as_str)
        .unwrap_or_default()
}
