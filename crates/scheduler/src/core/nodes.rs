//! Nodes, namespaces and disruption budgets.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use rustc_hash::FxHashSet;

use super::{Core, Time};
use crate::framework::Plugin;
use crate::hints::ClusterEvent;
use crate::pod::key_of;
use crate::preemption::Budget;
use allot_reflector::Observed;

impl Core {
    pub(super) fn observe_nodes(&mut self, observed: Observed<Node>, time: Time) {
        match observed {
            Observed::Applied(node) => self.set_node(Arc::new(*node), time),
            Observed::Deleted(node) => {
                self.remove_node(node.metadata.name.as_deref().unwrap_or_default(), time);
            }
            Observed::Listed { items, .. } => {
                let present: FxHashSet<String> = items
                    .iter()
                    .filter_map(|n| n.metadata.name.clone())
                    .collect();
                let nodes = self.cache.snapshot().nodes.iter();
                let gone: Vec<Arc<str>> = nodes
                    .map(|n| n.name.clone())
                    .filter(|n| !present.contains(&**n))
                    .collect();
                gone.iter().for_each(|name| self.remove_node(name, time));
                items
                    .into_iter()
                    .for_each(|node| self.set_node(Arc::new(node), time));
            }
        }
    }

    fn set_node(&mut self, node: Arc<Node>, time: Time) {
        let name = node.metadata.name.clone().unwrap_or_default();
        let before = self.cache.node(&name).cloned();
        let is_first = self.cache.snapshot().nodes.is_empty();
        self.cache.set_node(node);
        let Some(after) = self.cache.node(&name).cloned() else {
            return;
        };
        match before {
            // Pods that were rejected when no nodes existed get the reason why this node is not feasible.
            None if is_first => {
                let all = [Plugin::NodeAffinity].into_iter().collect();
                for pod in self.queue.rejected_by(all) {
                    self.activate(&pod, ClusterEvent::NodeAdded(&after).name(), time);
                }
                self.requeue(&ClusterEvent::NodeAdded(&after), time);
            }
            None => self.requeue(&ClusterEvent::NodeAdded(&after), time),
            // Most updates are heartbeats.
            Some(before) if schedules_alike(&before, &after) => {}
            Some(before) => self.requeue(
                &ClusterEvent::NodeChanged {
                    old: &before,
                    new: &after,
                },
                time,
            ),
        }
    }

    fn remove_node(&mut self, name: &str, time: Time) {
        self.cache.remove_node(name);
        self.requeue(&ClusterEvent::NodeRemoved, time);
    }

    pub(super) fn observe_namespaces(&mut self, observed: Observed<Namespace>, time: Time) {
        let set = |core: &mut Self, namespace: Namespace| {
            let name = namespace.metadata.name.unwrap_or_default();
            let labels = namespace.metadata.labels.unwrap_or_default();
            if core.cache.snapshot().namespaces.get(&name) != Some(&labels) {
                core.cache.set_namespace(&name, labels);
                core.requeue(&ClusterEvent::NamespaceChanged, time);
            }
        };
        match observed {
            Observed::Applied(namespace) => set(self, *namespace),
            Observed::Deleted(namespace) => {
                self.cache
                    .remove_namespace(namespace.metadata.name.as_deref().unwrap_or_default());
            }
            Observed::Listed { items, .. } => {
                let present: FxHashSet<String> = items
                    .iter()
                    .filter_map(|n| n.metadata.name.clone())
                    .collect();
                let known = self.cache.snapshot().namespaces.keys();
                let gone: Vec<String> = known.filter(|n| !present.contains(*n)).cloned().collect();
                gone.iter()
                    .for_each(|name| self.cache.remove_namespace(name));
                items.into_iter().for_each(|n| set(self, n));
            }
        }
    }

    pub(super) fn observe_budgets(&mut self, observed: Observed<PodDisruptionBudget>) {
        let read = |b: &PodDisruptionBudget| (key_of(&b.metadata), Budget::new(b));
        match observed {
            Observed::Applied(budget) => {
                let (key, budget) = read(&budget);
                self.budgets.insert(key, budget);
            }
            Observed::Deleted(budget) => {
                self.budgets.remove(&key_of(&budget.metadata));
            }
            Observed::Listed { items, .. } => {
                self.budgets = items.iter().map(read).collect();
            }
        }
    }
}

/// Whether two versions of a node are the same to every filter.
fn schedules_alike(a: &crate::node::NodeInfo, b: &crate::node::NodeInfo) -> bool {
    a.allocatable == b.allocatable
        && a.allowed_pods == b.allowed_pods
        && a.is_unschedulable() == b.is_unschedulable()
        && a.labels() == b.labels()
        && a.taints() == b.taints()
        && a.declared_features() == b.declared_features()
}
