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
use crate::controller::informer::{Cached, Informer, Key, key_of, split_key};
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
    queue_waiting(&this.claims, &queue, OF_CLAIM);
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
    let protection = Protection {
        objects: volumes,
        finalizer: OF_VOLUME,
        is_used: |_: &str, volume: &PersistentVolume| is_bound(volume),
    };
    let api: Api<PersistentVolume> = Api::all(context.client.clone());
    protection.run(context, queue, move |_| api.clone())
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
    let protection = Protection {
        objects: classes,
        finalizer: OF_CLASS,
        is_used: move |class: &str, _: &VolumeAttributesClass| {
            !volumes.by_index(BY_CLASS, class).is_empty()
                || !claims.by_index(BY_CLASS, class).is_empty()
        },
    };
    let api: Api<VolumeAttributesClass> = Api::all(context.client.clone());
    protection.run(context, queue, move |_| api.clone())
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

/// Objects that keep a finalizer while they are used, which the caches tell.
struct Protection<K, F> {
    objects: Informer<K>,
    finalizer: &'static str,
    /// By key and object.
    is_used: F,
}

impl<K, F> Protection<K, F>
where
    K: Cached,
    F: Fn(&str, &K) -> bool + Send + Sync + 'static,
{
    /// Removes the finalizer of deleted objects when they change, or are queued because what used them has changed. `api` is
    /// that of a namespace.
    fn run(
        self,
        context: &Context,
        queue: Queue<Key>,
        api: impl Fn(&str) -> Api<K> + Send + Sync + 'static,
    ) -> Task {
        queue_waiting(&self.objects, &queue, self.finalizer);
        context.run_workers(queue, Arc::new(self), move |this, key| {
            let api = api(split_key(&key).0);
            async move { this.sync(&api, &key).await }
        })
    }

    async fn sync(&self, api: &Api<K>, key: &str) -> Result<Next, Error> {
        match self.objects.get(key) {
            Some(object) if waits(&*object, self.finalizer) && !(self.is_used)(key, &object) => {
                release(api, &self.objects, &object, self.finalizer).await
            }
            _ => Ok(Next::Done),
        }
    }
}

/// Adds the objects to a queue that are deleted but for the finalizer.
fn queue_waiting<K: Cached>(objects: &Informer<K>, queue: &Queue<Key>, finalizer: &'static str) {
    let adds = queue.clone();
    objects.on(move |change| {
        if waits(&**change.object(), finalizer) {
            adds.add(key_of(&**change.object()));
        }
    });
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
