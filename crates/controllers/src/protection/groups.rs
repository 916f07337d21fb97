//! PodGroups in use are kept: the finalizer that admission sets is removed when no pod of a deleted group runs.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;

use super::{release, waits};
use crate::claims::groups::{PodGroup, of_pod};
use crate::controller::context::{Context, Task};
use crate::controller::informer::{Informer, Key, key_of, split_key};
use crate::controller::meta;
use crate::controller::queue::{Next, Queue};
use crate::served::Served;

const OF_GROUP: &str = "scheduling.k8s.io/podgroup-protection";
/// Index of pods that have not finished by the key of their group.
const ACTIVE: &str = "active-in-group";

/// Sets the controller up; `None` if the server has no PodGroups.
pub(crate) fn build(context: &Context, served: &Served) -> Option<Task> {
    let resource = served.pod_groups()?;
    let groups: Informer<PodGroup> = context.informer_with(&resource);
    let pods = context.informer::<Pod>();
    pods.index(ACTIVE, |pod| match meta::is_finished(pod) {
        true => Vec::new(),
        false => of_pod(pod),
    });
    let queue: Queue<Key> = context.queue("podgroup_protection");
    let adds = queue.clone();
    groups.on(move |change| {
        if waits(&**change.object(), OF_GROUP) {
            adds.add(key_of(&**change.object()));
        }
    });
    let adds = queue.clone();
    pods.on(move |change| {
        let pod = change.object();
        // A pod of the same name may have taken the place of one that has ended.
        let replaced = change
            .old()
            .filter(|old| meta::uid(&***old) != meta::uid(&**pod));
        let ended = Some(pod).filter(|pod| change.is_delete() || meta::is_finished(pod));
        for pod in replaced.into_iter().chain(ended) {
            of_pod(pod).into_iter().for_each(|group| adds.add(group));
        }
    });
    let client = context.client.clone();
    Some(Box::pin(queue.run(
        context.config.workers,
        context.shutdown.clone(),
        move |key| {
            let (namespace, _) = split_key(&key);
            let api: Api<PodGroup> = Api::namespaced_with(client.clone(), namespace, &resource);
            let groups = groups.clone();
            let used = !pods.by_index(ACTIVE, &key).is_empty();
            async move {
                match groups.get(&key) {
                    Some(group) if waits(&*group, OF_GROUP) && !used => {
                        release(&api, &groups, &group, OF_GROUP).await
                    }
                    _ => Ok(Next::Done),
                }
            }
        },
    )))
}
