//! Deployments: one replica set per template, rolled over from the old ones to the new one.

mod new_set;
mod plan;
mod sets;
mod status;

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::json;

use crate::Error;
use crate::controller::api::{self, Delete, Part};
use crate::controller::clock::Clock;
use crate::controller::context::{Context, Task};
use crate::controller::events::{Level, Recorder, reference};
use crate::controller::informer::{Informer, Key, key, key_of};
use crate::controller::meta;
use crate::controller::queue::{Next, Queue};
use crate::controller::whole::Whole;
use crate::replicaset::Set;
use crate::workload::{self, BY_CONTROLLER, ORPHANS, controller_uid, orphan_namespace};

use plan::{Limits, Size};
use sets::{Sets, revision_of, size_of};
use status::SyncResult;

const REVISION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
type Object = Whole<Deployment>;

struct Deployments {
    client: kube::Client,
    events: Recorder,
    clock: Clock,
    deployments: Informer<Object>,
    sets: Informer<Set>,
    pods: Informer<Pod>,
    queue: Queue<Key>,
}

/// Sets the controller up.
pub(crate) fn build(context: &Context) -> Task {
    let this = Arc::new(Deployments {
        client: context.client.clone(),
        events: context.events.component("deployment-controller"),
        clock: context.clock.clone(),
        deployments: context.informer::<Object>(),
        sets: context.informer::<Set>(),
        pods: context.informer::<Pod>(),
        queue: context.queue("deployment"),
    });
    this.sets
        .index(BY_CONTROLLER, controller_uid)
        .index(ORPHANS, orphan_namespace);
    this.pods.index(BY_CONTROLLER, controller_uid);
    let queue = this.queue.clone();
    this.deployments
        .on(move |change| queue.add(key_of(&**change.object())));
    let weak = Arc::downgrade(&this);
    this.sets.on(move |change| {
        let Some(this) = weak.upgrade() else { return };
        if let Some(old) = change.old() {
            this.set_changed(old);
        }
        this.set_changed(change.object());
    });
    let weak = Arc::downgrade(&this);
    this.pods.on(move |change| {
        // A recreate waits for the last old pod.
        if change.is_delete()
            && let Some(this) = weak.upgrade()
            && let Some(owner) = meta::controller_of(&change.object().metadata)
            && owner.kind == "ReplicaSet"
            && let Some(set) = this
                .sets
                .find(meta::namespace(&**change.object()), &owner.name)
        {
            this.set_changed(&set);
        }
    });
    let queue = this.queue.clone();
    context.run_workers(
        queue,
        this,
        |this, key| async move { this.sync(&key).await },
    )
}

impl Deployments {
    fn set_changed(&self, set: &Set) {
        let namespace = meta::namespace(set);
        if let Some(owner) = meta::controller_of(&set.metadata) {
            if owner.kind == "Deployment" {
                self.queue.add(key(Some(namespace), &owner.name));
            }
            return;
        }
        for deployment in self.deployments.list() {
            let selector = deployment.spec.as_ref().map(|s| &s.selector);
            if meta::namespace(&*deployment) == namespace
                && selector.is_some_and(|s| meta::selects(s, set.metadata.labels.as_ref()))
            {
                self.queue.add(key_of(&*deployment));
            }
        }
    }

    fn sets_of(&self, deployment: &Object) -> Sets {
        let mine = self.sets.by_index(BY_CONTROLLER, meta::uid(deployment));
        Sets::of(mine, deployment.at("/spec/template"))
    }

    async fn sync(&self, key: &str) -> Result<Next, Error> {
        let Some(deployment) = self.deployments.get(key) else {
            return Ok(Next::Done);
        };
        let Some(spec) = deployment.spec.clone() else {
            return Ok(Next::Done);
        };
        if meta::is_empty_selector(&spec.selector) {
            self.events.event(
                reference(&**deployment),
                Level::Warning,
                "SelectingAll",
                "This deployment is selecting all pods. A non-empty selector is required."
                    .to_owned(),
            );
            return Ok(Next::Done);
        }
        workload::claim(
            &self.client,
            &**deployment,
            &spec.selector,
            None,
            &self.sets,
        )
        .await?;
        let mut turn = SyncResult::Scaled;
        if !meta::deleting(&*deployment) {
            turn = match self.roll(&deployment, &spec).await {
                Err(error) if error.is_namespace_terminating() => return Ok(Next::Done),
                result => result?,
            };
        }
        // The roll may have written the deployment (its revision).
        let Some(deployment) = self.deployments.get(key) else {
            return Ok(Next::Done);
        };
        let sets = self.sets_of(&deployment);
        self.write_status(&deployment, &spec, &sets, &turn).await
    }

    async fn roll(&self, deployment: &Object, spec: &DeploymentSpec) -> Result<SyncResult, Error> {
        let limits = Limits::of(spec);
        let mut sets = self.sets_of(deployment);
        let paused = spec.paused.unwrap_or(false);
        if paused || plan::was_scaled(limits.replicas, &sets.sizes()) {
            if let Some(new) = sets.new_set() {
                self.annotate_new(deployment, &sets, &new.clone()).await?;
            }
            let sets = self.sets_of(deployment);
            let sizes = plan::scale(limits, &sets.sizes(), sets.new, !plan::is_recreate(spec));
            for (set, size) in sets.all.iter().zip(sizes) {
                self.resize(deployment, limits, set, size).await?;
            }
            if paused {
                self.clean_up(deployment, spec, &sets).await?;
            }
            return Ok(SyncResult::Scaled);
        }
        let made;
        if plan::is_recreate(spec) {
            for set in sets.old() {
                self.resize(deployment, limits, set, 0).await?;
            }
            let old_pods = sets
                .old()
                .flat_map(|s| self.pods.by_index(BY_CONTROLLER, meta::uid(&**s)))
                .any(|p| !meta::is_finished(&p));
            if old_pods {
                return Ok(SyncResult::Rolled(None));
            }
            let new;
            (new, made) = self
                .ensure_new(deployment, &sets, limits, limits.replicas)
                .await?;
            self.resize(deployment, limits, &new, limits.replicas)
                .await?;
        } else {
            let old: Vec<Size> = sets.old().map(|s| size_of(s)).collect();
            let first = plan::grow_new(limits, &Size::default(), &old);
            let new;
            (new, made) = self.ensure_new(deployment, &sets, limits, first).await?;
            sets = self.sets_of(deployment);
            let grown = plan::grow_new(limits, &size_of(&new), &old);
            if !self.resize(deployment, limits, &new, grown).await? {
                let sizes = plan::shrink_old(limits, &size_of(&new), &old);
                for (set, size) in sets.old().zip(sizes) {
                    self.resize(deployment, limits, set, size).await?;
                }
            }
        }
        let sets = self.sets_of(deployment);
        self.clean_up(deployment, spec, &sets).await?;
        Ok(SyncResult::Rolled(made))
    }

    /// Sets the size of a replica set; returns whether it changed.
    async fn resize(
        &self,
        deployment: &Object,
        limits: Limits,
        set: &Arc<Set>,
        size: i32,
    ) -> Result<bool, Error> {
        let now = size_of(set);
        let max = limits.most();
        let annotated = now.desired == Some(limits.replicas) && now.max == Some(max);
        // As in upstream, the annotations of empty sets are not updated.
        if now.spec == size && (annotated || size == 0) {
            return Ok(false);
        }
        let mut body = json!({"metadata": api::unchanged(&**set), "spec": {"replicas": size}});
        body["metadata"]["annotations"] = json!({
            DESIRED_REPLICAS: limits.replicas.to_string(),
            MAX_REPLICAS: max.to_string(),
        });
        let api: Api<Set> = Api::namespaced(self.client.clone(), meta::namespace(deployment));
        let updated = api::patch(&api, meta::name(&**set), Part::Main, &body).await?;
        self.sets.assume(updated);
        if now.spec != size {
            let direction = if size > now.spec { "up" } else { "down" };
            self.scaled_event(deployment, direction, meta::name(&**set), now.spec, size);
        }
        Ok(now.spec != size)
    }

    fn scaled_event(&self, deployment: &Object, direction: &str, set: &str, from: i32, to: i32) {
        self.events.event(
            reference(&**deployment),
            Level::Normal,
            "ScalingReplicaSet",
            format!("Scaled {direction} replica set {set} from {from} to {to}"),
        );
    }

    /// Deletes old, empty replica sets beyond the history limit once the rollout is complete.
    async fn clean_up(
        &self,
        deployment: &Object,
        spec: &DeploymentSpec,
        sets: &Sets,
    ) -> Result<(), Error> {
        let complete = sets
            .new_set()
            .is_some_and(|n| size_of(n).available == spec.replicas.unwrap_or(1))
            && sets.old().all(|s| size_of(s).status == 0);
        if !complete {
            return Ok(());
        }
        let limit =
            usize::try_from(spec.revision_history_limit.unwrap_or(10)).unwrap_or(usize::MAX);
        let mut old: Vec<_> = sets.old().filter(|s| !meta::deleting(&***s)).collect();
        old.sort_by_key(|s| revision_of(s));
        let surplus = old.len().saturating_sub(limit);
        let api: Api<Set> = Api::namespaced(self.client.clone(), meta::namespace(deployment));
        for set in old.into_iter().take(surplus) {
            let size = size_of(set);
            let observed = set
                .status
                .as_ref()
                .and_then(|s| s.observed_generation)
                .unwrap_or(0);
            if size.spec == 0 && size.status == 0 && observed >= meta::generation(&**set) {
                api::delete_cached(&self.sets, &api, &**set, Delete::default()).await?;
            }
        }
        Ok(())
    }

    async fn write_status(
        &self,
        deployment: &Object,
        spec: &DeploymentSpec,
        sets: &Sets,
        turn: &SyncResult,
    ) -> Result<Next, Error> {
        let old = deployment.at("/status");
        let (new, wait) = status::next(deployment, spec, sets, turn, self.clock.now());
        let api: Api<Object> = Api::namespaced(self.client.clone(), meta::namespace(deployment));
        workload::write_status(&api, &self.deployments, deployment, old, new).await?;
        Ok(wait.map_or(Next::Done, Next::After))
    }
}
