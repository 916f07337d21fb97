//! Storage in use is kept: the finalizers that admission sets on claims, volumes and classes are removed when no pod
//! uses a deleted claim, no claim is bound to a deleted volume, and no volume or claim names a deleted class.

use std::sync::Arc;

use allot_reflector::everything;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde_json::json;

use crate::Error;
use crate::controller::api::{self, Part};
use crate::controller::context::{Context, Task};
use crate::controller::informer::{Cached, Informer, Key, key_of};
use crate::controller::meta;
use crate::controller::queue::{Next, Queue};

pub(crate) mod groups;
#[cfg(test)]
mod tests;

const OF_CLAIM: &str = "kubernetes.io/pvc-protection";
const OF_VOLUME: &str = "kubernetes.io/pv-protection";
const OF_CLASS: &str = "kubernetes.io/vac-protection";
/// Index of deleted claims in use, by namespace.
const WAITING: &str = "waiting";
/// Index of claims and volumes by the classes they name.
const BY_CLASS: &str = "class";

struct Claims {
    client: Client,
    claims: Informer<PersistentVolumeClaim>,
}

/// Sets up the controller of claims.
pub(crate) fn claims(context: &Context) -> Task {
    let this = Arc::new(Claims {
        client: context.client.clone(),
        claims: context.informer::<PersistentVolumeClaim>(),
    });
    this.claims
        .index(WAITING, |claim| match waits(claim, OF_CLAIM) {
            true => vec![meta::namespace(claim).to_owned()],
            false => Vec::new(),
        });
    let queue: Queue<Key> = context.queue("persistentvolumeclaim_protection");
    let adds = queue.clone();
    this.claims.on(move |change| {
        if waits(&**change.object(), OF_CLAIM) {
            adds.add(key_of(&**change.object()));
        }
    });
    let (claims, adds) = (this.claims.clone(), queue.clone());
    context.informer::<Pod>().on(move |change| {
        if change.is_delete() || meta::deleting(&**change.object()) {
            for claim in claims.by_index(WAITING, meta::namespace(&**change.object())) {
                adds.add(key_of(&*claim));
            }
        }
    });
    context.run_workers(
        queue,
        this,
        |this, key| async move { this.sync(&key).await },
    )
}

impl Claims {
    async fn sync(&self, key: &str) -> Result<Next, Error> {
        let Some(claim) = self.claims.get(key) else {
            return Ok(Next::Done);
        };
        if !waits(&*claim, OF_CLAIM) {
            return Ok(Next::Done);
        }
        // Listed each time: a pod that is not in the cache yet may already run, and the cache has no volumes.
        let namespace = meta::namespace(&*claim);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let pods = allot_reflector::list(&pods, &ListParams::default(), everything).await?;
        if pods.iter().any(|pod| uses(pod, &claim)) {
            // The end of the pod brings the claim back.
            return Ok(Next::Done);
        }
        let api = Api::namespaced(self.client.clone(), namespace);
        release(&api, &self.claims, &claim, OF_CLAIM).await
    }
}

/// Sets up the controller of volumes.
pub(crate) fn volumes(context: &Context) -> Task {
    let volumes = context.informer::<PersistentVolume>();
    let queue: Queue<Key> = context.queue("persistentvolume_protection");
    let adds = queue.clone();
    volumes.on(move |change| {
        if waits(&**change.object(), OF_VOLUME) {
            adds.add(key_of(&**change.object()));
        }
    });
    let api: Api<PersistentVolume> = Api::all(context.client.clone());
    Box::pin(queue.run(
        context.config.workers,
        context.shutdown.clone(),
        move |key| {
            let (api, volumes) = (api.clone(), volumes.clone());
            async move {
                match volumes.get(&key) {
                    Some(volume) if waits(&*volume, OF_VOLUME) && !is_bound(&volume) => {
                        release(&api, &volumes, &volume, OF_VOLUME).await
                    }
                    _ => Ok(Next::Done),
                }
            }
        },
    ))
}

/// Sets up the controller of VolumeAttributesClasses.
pub(crate) fn classes(context: &Context) -> Task {
    let classes = context.informer::<VolumeAttributesClass>();
    let volumes = context.informer::<PersistentVolume>();
    let claims = context.informer::<PersistentVolumeClaim>();
    volumes.index(BY_CLASS, classes_of_volume);
    claims.index(BY_CLASS, classes_of_claim);
    let queue: Queue<Key> = context.queue("volumeattributesclass_protection");
    let adds = queue.clone();
    classes.on(move |change| {
        if waits(&**change.object(), OF_CLASS) {
            adds.add(key_of(&**change.object()));
        }
    });
    let adds = queue.clone();
    volumes.on(move |change| {
        for volume in change.old().into_iter().chain([change.object()]) {
            classes_of_volume(volume)
                .into_iter()
                .for_each(|class| adds.add(class));
        }
    });
    let adds = queue.clone();
    claims.on(move |change| {
        for claim in change.old().into_iter().chain([change.object()]) {
            classes_of_claim(claim)
                .into_iter()
                .for_each(|class| adds.add(class));
        }
    });
    let api: Api<VolumeAttributesClass> = Api::all(context.client.clone());
    Box::pin(queue.run(
        context.config.workers,
        context.shutdown.clone(),
        move |key| {
            let (api, classes) = (api.clone(), classes.clone());
            let used = !volumes.by_index(BY_CLASS, &key).is_empty()
                || !claims.by_index(BY_CLASS, &key).is_empty();
            async move {
                match classes.get(&key) {
                    Some(class) if waits(&*class, OF_CLASS) && !used => {
                        release(&api, &classes, &class, OF_CLASS).await
                    }
                    _ => Ok(Next::Done),
                }
            }
        },
    ))
}

fn classes_of_volume(volume: &PersistentVolume) -> Vec<String> {
    let spec = volume.spec.as_ref();
    let class = spec.and_then(|s| s.volume_attributes_class_name.clone());
    class.into_iter().collect()
}

/// The requested class of a claim, the current one, and the target one.
fn classes_of_claim(claim: &PersistentVolumeClaim) -> Vec<String> {
    let (spec, status) = (claim.spec.as_ref(), claim.status.as_ref());
    let wanted = spec.and_then(|s| s.volume_attributes_class_name.clone());
    let current = status.and_then(|s| s.current_volume_attributes_class_name.clone());
    let change = status.and_then(|s| s.modify_volume_status.as_ref());
    let target = change.and_then(|c| c.target_volume_attributes_class_name.clone());
    [wanted, current, target].into_iter().flatten().collect()
}

/// Whether an object is deleted but for the finalizer.
pub(crate) fn waits<K: Resource>(object: &K, finalizer: &str) -> bool {
    let finalizers = object.meta().finalizers.as_deref().unwrap_or_default();
    meta::deleting(object) && finalizers.iter().any(|f| f == finalizer)
}

/// Removes the finalizer, if the object is unchanged.
pub(crate) async fn release<K: Cached>(
    api: &Api<K>,
    cache: &Informer<K>,
    object: &K,
    finalizer: &str,
) -> Result<Next, Error> {
    let mut finalizers = object.meta().finalizers.clone().unwrap_or_default();
    finalizers.retain(|f| f != finalizer);
    let mut body = json!({"metadata": api::unchanged(object)});
    body["metadata"]["finalizers"] = json!(finalizers);
    match api::patch(api, meta::name(object), Part::Main, &body).await {
        Ok(gone) if finalizers.is_empty() => cache.assume_gone(&gone),
        Ok(changed) => cache.assume(changed),
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error),
    }
    Ok(Next::Done)
}

/// A pod that no node has does not use its claims: a node refuses to start it with one that is being deleted.
fn uses(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let name = meta::name(claim);
    let shut_down = meta::deleting(pod) && pod.metadata.deletion_grace_period_seconds == Some(0);
    let ephemeral = |volume: &str| {
        !shut_down
            && format!("{}-{volume}", meta::name(pod)) == name
            && meta::controller_of(&claim.metadata).is_some_and(|owner| owner.uid == meta::uid(pod))
    };
    let volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
    let mut volumes = volumes.map(|volume| match &volume.persistent_volume_claim {
        Some(source) => source.claim_name == name,
        None => volume.ephemeral.is_some() && ephemeral(&volume.name),
    });
    !meta::node_name(pod).is_empty() && volumes.any(|uses| uses)
}

fn is_bound(volume: &PersistentVolume) -> bool {
    let phase = volume.status.as_ref().and_then(|s| s.phase.as_deref());
    phase == Some("Bound")
}
