//! The replica set of the current template: its creation, its revision and its annotations.

use std::sync::Arc;

use kube::Api;
use serde_json::{Map, Value, json};

use super::plan::Limits;
use super::sets::{Sets, plain, revision_of};
use super::{DESIRED_REPLICAS, Deployments, MAX_REPLICAS, Object, REVISION, REVISION_HISTORY};
use crate::Error;
use crate::controller::api::{self, Part};
use crate::controller::meta;
use crate::replicaset::Set;
use crate::workload::{self, POD_TEMPLATE_HASH};

/// Annotations of a deployment that its replica sets do not get.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    "deprecated.deployment.rollback.to",
];

impl Deployments {
    /// The replica set of the current template with updated annotations, and its name if it was created.
    pub(super) async fn ensure_new(
        &self,
        deployment: &Object,
        sets: &Sets,
        limits: Limits,
        replicas: i32,
    ) -> Result<(Arc<Set>, Option<String>), Error> {
        if let Some(new) = sets.new_set() {
            let new = self.annotate_new(deployment, sets, &new.clone()).await?;
            return Ok((new, None));
        }
        let namespace = meta::namespace(deployment);
        let revision = sets.all.iter().map(|s| revision_of(s)).max();
        let revision = revision.unwrap_or(0).saturating_add(1);
        let template = deployment.at("/spec/template");
        let mut collisions = deployment.status.as_ref().and_then(|s| s.collision_count);
        let api: Api<Set> = Api::namespaced(self.client.clone(), namespace);
        let (created, ours) = loop {
            let hash = workload::hash(&[template], collisions);
            let body = new_set(deployment, &hash, revision, limits, replicas);
            match api::create(&self.client, &api, &body).await {
                Ok(created) => break (created, true),
                Err(error) if error.is_already_exists() => {
                    // Ours from before a restart with a cache that lags, or a real collision.
                    let name = format!("{}-{hash}", meta::name(deployment));
                    let found = api::get(&api, &name).await?;
                    let existing =
                        found.ok_or_else(|| Error::Invalid(format!("{name} is gone again")))?;
                    if meta::is_controlled_by(&existing.metadata, meta::uid(deployment))
                        && plain(existing.at("/spec/template")) == plain(template)
                    {
                        break (existing, false);
                    }
                    collisions = Some(collisions.unwrap_or(0) + 1);
                    let body = json!({
                        "metadata": api::same(deployment),
                        "status": {"collisionCount": collisions},
                    });
                    let api: Api<Object> = Api::namespaced(self.client.clone(), namespace);
                    self.deployments.assume(
                        api::patch(&api, meta::name(deployment), Part::Status, &body).await?,
                    );
                }
                Err(error) => return Err(error),
            }
        };
        self.sets.assume(created.clone());
        if ours && replicas > 0 {
            self.scaled_event(deployment, "up", meta::name(&created), 0, replicas);
        }
        self.annotate_deployment(deployment, revision).await?;
        let made = ours.then(|| meta::name(&created).to_owned());
        Ok((Arc::new(created), made))
    }

    /// Brings the annotations of the new replica set (its revision among them) up to date.
    pub(super) async fn annotate_new(
        &self,
        deployment: &Object,
        sets: &Sets,
        new: &Arc<Set>,
    ) -> Result<Arc<Set>, Error> {
        let revision = sets.old().map(|s| revision_of(s)).max();
        let revision = revision.unwrap_or(0).saturating_add(1);
        let mut annotations = copied_annotations(deployment);
        let current = revision_of(new);
        if current < revision {
            annotations.insert(REVISION.to_owned(), json!(revision.to_string()));
            if current > 0 {
                let history = match meta::annotation(&**new, REVISION_HISTORY) {
                    Some(history) if !history.is_empty() => format!("{history},{current}"),
                    _ => current.to_string(),
                };
                annotations.insert(REVISION_HISTORY.to_owned(), json!(history));
            }
        }
        let has = new.metadata.annotations.clone().unwrap_or_default();
        annotations.retain(|k, v| has.get(k).map(String::as_str) != v.as_str());
        let min_ready = deployment
            .spec
            .as_ref()
            .and_then(|s| s.min_ready_seconds)
            .unwrap_or(0);
        let set_min_ready = new
            .spec
            .as_ref()
            .and_then(|s| s.min_ready_seconds)
            .unwrap_or(0);
        let mut updated = new.clone();
        if !annotations.is_empty() || min_ready != set_min_ready {
            let mut body = json!({"metadata": api::unchanged(&**new)});
            body["metadata"]["annotations"] = Value::Object(annotations);
            if min_ready != set_min_ready {
                body["spec"] = json!({"minReadySeconds": min_ready});
            }
            let api: Api<Set> = Api::namespaced(self.client.clone(), meta::namespace(deployment));
            let set = api::patch(&api, meta::name(&**new), Part::Main, &body).await?;
            self.sets.assume(set.clone());
            updated = Arc::new(set);
        }
        self.annotate_deployment(deployment, revision.max(current))
            .await?;
        Ok(updated)
    }

    /// Along with the status, as upstream: elsewhere a new annotation counts as a generation of the deployment.
    async fn annotate_deployment(&self, deployment: &Object, revision: i64) -> Result<(), Error> {
        let revision = revision.to_string();
        if meta::annotation(deployment, REVISION) == Some(revision.as_str()) {
            return Ok(());
        }
        let mut body = json!({"metadata": api::same(deployment)});
        body["metadata"]["annotations"] = json!({REVISION: revision});
        let api: Api<Object> = Api::namespaced(self.client.clone(), meta::namespace(deployment));
        let updated = api::patch(&api, meta::name(deployment), Part::Status, &body).await?;
        self.deployments.assume(updated);
        Ok(())
    }
}

fn copied_annotations(deployment: &Object) -> Map<String, Value> {
    let annotations = deployment.metadata.annotations.iter().flatten();
    annotations
        .filter(|(k, _)| !NOT_COPIED.contains(&k.as_str()))
        .map(|(k, v)| (k.clone(), json!(v)))
        .collect()
}

fn new_set(deployment: &Object, hash: &str, revision: i64, limits: Limits, replicas: i32) -> Value {
    let mut template = deployment.at("/spec/template").clone();
    template["metadata"]["labels"][POD_TEMPLATE_HASH] = json!(hash);
    let mut selector = deployment.at("/spec/selector").clone();
    selector["matchLabels"][POD_TEMPLATE_HASH] = json!(hash);
    let mut annotations = copied_annotations(deployment);
    annotations.insert(REVISION.to_owned(), json!(revision.to_string()));
    annotations.insert(
        DESIRED_REPLICAS.to_owned(),
        json!(limits.replicas.to_string()),
    );
    let max = limits.most();
    annotations.insert(MAX_REPLICAS.to_owned(), json!(max.to_string()));
    json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": format!("{}-{hash}", meta::name(deployment)),
            "namespace": meta::namespace(deployment),
            "labels": template["metadata"]["labels"],
            "annotations": annotations,
            "ownerReferences": [meta::controller_ref(&**deployment)],
        },
        "spec": {
            "replicas": replicas,
            "minReadySeconds": deployment.spec.as_ref().and_then(|s| s.min_ready_seconds).unwrap_or(0),
            "selector": selector,
            "template": template,
        },
    })
}
