//! Common parts of controllers with sets of equal pods: the sets, their pods, and which sets to process.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{BY_CONTROLLER, ORPHANS, PodControl, controller_uid, orphan_namespace};
use crate::controller::clock::Clock;
use crate::controller::context::Context;
use crate::controller::informer::{Cached, Informer, Key, key, key_of};
use crate::controller::meta;
use crate::controller::queue::Queue;

/// A kind whose objects own pods that they select.
pub(crate) trait PodSet: Cached<DynamicType: Default> {
    /// The kind in owner references.
    const KIND: &'static str;

    /// `spec.selector`.
    fn selector(&self) -> Option<&LabelSelector>;

    /// Whether it may adopt an orphaned pod.
    fn adopts(&self, pod: &Pod) -> bool {
        self.selector().is_some_and(|s| {
            !meta::is_empty_selector(s) && meta::selects(s, pod.metadata.labels.as_ref())
        })
    }
}

/// The parts that a controller of such a kind needs.
pub(crate) struct Sets<K> {
    pub control: PodControl,
    pub sets: Informer<K>,
    pub clock: Clock,
    /// Sets that changed, or whose pods did.
    pub queue: Queue<Key>,
}

impl<K: PodSet> Sets<K> {
    /// Sets informers and queue up.
    pub(crate) fn new(context: &Context, component: &str, queue: &'static str) -> Self {
        let pods = context.informer::<Pod>();
        pods.index(BY_CONTROLLER, controller_uid)
            .index(ORPHANS, orphan_namespace);
        let this = Self {
            control: PodControl {
                client: context.client.clone(),
                events: context.events.component(component),
                pods: pods.clone(),
            },
            sets: context.informer::<K>(),
            clock: context.clock.clone(),
            queue: context.queue(queue),
        };
        let queue = this.queue.clone();
        this.sets
            .on(move |change| queue.add(key_of(&**change.object())));
        let (sets, queue) = (this.sets.clone(), this.queue.clone());
        pods.on(move |change| {
            for pod in change.old().into_iter().chain([change.object()]) {
                concerned(&sets, pod)
                    .into_iter()
                    .for_each(|key| queue.add(key));
            }
        });
        this
    }
}

/// The sets that a change of the pod concerns: its owner, or those that may adopt it.
fn concerned<K: PodSet>(sets: &Informer<K>, pod: &Pod) -> Vec<Key> {
    let namespace = meta::namespace(pod);
    if let Some(owner) = meta::controller_of(&pod.metadata) {
        let own = owner.kind == K::KIND;
        return own
            .then(|| key(Some(namespace), &owner.name))
            .into_iter()
            .collect();
    }
    let mut all = sets.list();
    all.retain(|set| meta::namespace(&**set) == namespace && set.adopts(pod));
    all.iter().map(|set| key_of(&**set)).collect()
}
