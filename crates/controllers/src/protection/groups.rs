//! PodGroups in use are kept: the finalizer that admission sets is removed when no pod of a deleted group runs.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;

use super::Protection;
use crate::claims::groups::{BY_GROUP, PodGroup, of_pod};
use crate::controller::context::{Context, Task};
use crate::controller::informer::{Informer, Key};
use crate::controller::meta;
use crate::controller::queue::Queue;
use crate::served::Served;

const OF_GROUP: &str = "scheduling.k8s.io/podgroup-protection";

/// Sets the controller up; `None` if the server has no PodGroups.
pub(crate) fn build(context: &Context, served: &Served) -> Option<Task> {
    let resource = served.pod_groups()?;
    let groups: Informer<PodGroup> = context.informer_with(&resource);
    let pods = context.informer::<Pod>();
    pods.index(BY_GROUP, of_pod);
    let queue: Queue<Key> = context.queue("podgroup_protection");
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
    let protection = Protection {
        objects: groups,
        finalizer: OF_GROUP,
        is_used: move |group: &str, _: &PodGroup| {
            let members = pods.by_index(BY_GROUP, group);
            members.iter().any(|pod| !meta::is_finished(pod))
        },
    };
    let client = context.client.clone();
    Some(protection.run(context, queue, move |namespace| {
        Api::namespaced_with(client.clone(), namespace, &resource)
    }))
}
