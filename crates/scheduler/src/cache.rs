//! Nodes and the pods on them, including pods that are assumed on a node while their binding is written.
//!
//! Invariants: a pod counts on exactly one node from the moment it is assumed or observed as bound until it is deleted,
//! has finished or its binding failed; the order in which watch events and the outcome of a binding arrive does not
//! matter.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use rustc_hash::FxHashMap;

use crate::node::NodeInfo;
use crate::pod::{PodInfo, Uid};
use crate::selectors::LabelMap;
use crate::storage::Storage;

/// The node that a pod counts on.
#[derive(Debug)]
struct Placed {
    node: Arc<str>,
    /// The pod is assumed: no watch has shown it bound yet.
    assumed: bool,
}

/// A consistent view of the cluster for one attempt. Cheap to take: it shares what does not change.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Nodes that exist, in a stable order.
    pub nodes: Vec<Arc<NodeInfo>>,
    /// Number of pods with some pod affinity.
    pub pods_with_affinity: usize,
    /// Number of pods with required anti-affinity.
    pub pods_with_required_anti_affinity: usize,
    /// Labels of namespaces.
    pub namespaces: Arc<FxHashMap<String, LabelMap>>,
    /// Volumes and claims for them.
    pub storage: Arc<Storage>,
    /// The number of nodes that have an image, by image name; for ImageLocality.
    pub image_nodes: Arc<FxHashMap<String, usize>>,
}

impl Snapshot {
    /// Position of a node by name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|n| &*n.name == name)
    }
}

/// The nodes and the pods on them. See the module.
#[derive(Debug, Default)]
pub struct Cache {
    index: FxHashMap<Arc<str>, usize>,
    snapshot: Snapshot,
    /// Pods on nodes that do not exist (yet).
    orphans: FxHashMap<Arc<str>, NodeInfo>,
    placed: FxHashMap<Uid, Placed>,
}

impl Cache {
    /// The current view.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// A node that exists.
    pub fn node(&self, name: &str) -> Option<&Arc<NodeInfo>> {
        self.index.get(name).map(|i| &self.snapshot.nodes[*i])
    }

    /// Position of a node in the snapshot.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.index.get(name).copied()
    }

    /// Adds or replaces a node.
    pub fn set_node(&mut self, node: Arc<Node>) {
        let name: Arc<str> = node.metadata.name.as_deref().unwrap_or_default().into();
        let at = match self.index.get(&name) {
            Some(at) => *at,
            None => {
                let info = self
                    .orphans
                    .remove(&name)
                    .unwrap_or_else(|| NodeInfo::new(name.clone()));
                self.snapshot.pods_with_affinity += info.with_affinity.len();
                self.snapshot.pods_with_required_anti_affinity +=
                    info.with_required_anti_affinity.len();
                self.snapshot.nodes.push(Arc::new(info));
                self.index.insert(name, self.snapshot.nodes.len() - 1);
                self.snapshot.nodes.len() - 1
            }
        };
        let info = Arc::make_mut(&mut self.snapshot.nodes[at]);
        let before = info.images.clone();
        info.set_node(node);
        let after = info.images.clone();
        self.count_images(&before, &after);
    }

    /// Removes a node; its pods are kept in case the node is added again.
    pub fn remove_node(&mut self, name: &str) {
        let Some(at) = self.index.remove(name) else {
            return;
        };
        let mut info = Arc::unwrap_or_clone(self.snapshot.nodes.remove(at));
        for i in self.index.values_mut().filter(|i| **i > at) {
            *i -= 1;
        }
        self.count_images(&info.images.clone(), &FxHashMap::default());
        self.snapshot.pods_with_affinity -= info.with_affinity.len();
        self.snapshot.pods_with_required_anti_affinity -= info.with_required_anti_affinity.len();
        info.node = None;
        if !info.pods.is_empty() {
            self.orphans.insert(info.name.clone(), info);
        }
    }

    /// Updates the number of nodes that have an image after the images of a node have changed.
    fn count_images(&mut self, before: &FxHashMap<String, i64>, after: &FxHashMap<String, i64>) {
        if before == after {
            return;
        }
        let counts = Arc::make_mut(&mut self.snapshot.image_nodes);
        for name in before.keys() {
            if let Some(n) = counts.get_mut(name) {
                *n -= 1;
                if *n == 0 {
                    counts.remove(name);
                }
            }
        }
        for name in after.keys() {
            *counts.entry(name.clone()).or_default() += 1;
        }
    }

    /// Sets the labels of a namespace.
    pub fn set_namespace(&mut self, name: &str, labels: LabelMap) {
        Arc::make_mut(&mut self.snapshot.namespaces).insert(name.to_owned(), labels);
    }

    /// Volumes and claims for them, to be changed.
    pub fn storage_mut(&mut self) -> &mut Storage {
        Arc::make_mut(&mut self.snapshot.storage)
    }

    /// Forgets a namespace.
    pub fn remove_namespace(&mut self, name: &str) {
        Arc::make_mut(&mut self.snapshot.namespaces).remove(name);
    }

    /// Counts a pod on a node before its binding is written.
    pub fn assume(&mut self, pod: Arc<PodInfo>, node: &Arc<str>) {
        self.detach(&pod.uid);
        self.placed.insert(
            pod.uid.clone(),
            Placed {
                node: node.clone(),
                assumed: true,
            },
        );
        self.attach(pod, node);
    }

    /// Removes an assumed pod after its binding failed. A pod that was observed as bound in the meantime stays.
    pub fn forget(&mut self, uid: &str) {
        if self.placed.get(uid).is_some_and(|p| p.assumed) {
            self.detach(uid);
        }
    }

    /// A watch showed a pod bound to a node; also for later changes of it.
    pub fn set_pod(&mut self, pod: Arc<PodInfo>) {
        let Some(node) = pod.node_name().map(Arc::<str>::from) else {
            return;
        };
        self.detach(&pod.uid);
        if pod.is_finished() {
            return;
        }
        self.placed.insert(
            pod.uid.clone(),
            Placed {
                node: node.clone(),
                assumed: false,
            },
        );
        self.attach(pod, &node);
    }

    /// A watch reported the deletion of a pod.
    pub fn remove_pod(&mut self, uid: &str) {
        self.detach(uid);
    }

    /// Whether the pod counts on a node without having been seen bound.
    pub fn is_assumed(&self, uid: &str) -> bool {
        self.placed.get(uid).is_some_and(|p| p.assumed)
    }

    /// The node on which a pod counts.
    pub fn node_of(&self, uid: &str) -> Option<&Arc<str>> {
        self.placed.get(uid).map(|p| &p.node)
    }

    fn attach(&mut self, pod: Arc<PodInfo>, node: &Arc<str>) {
        match self.index.get(node) {
            Some(at) => {
                self.snapshot.pods_with_affinity += usize::from(pod.has_affinity());
                self.snapshot.pods_with_required_anti_affinity +=
                    usize::from(!pod.required_anti_affinity.is_empty());
                Arc::make_mut(&mut self.snapshot.nodes[*at]).add_pod(pod);
            }
            None => {
                self.orphans
                    .entry(node.clone())
                    .or_insert_with(|| NodeInfo::new(node.clone()))
                    .add_pod(pod);
            }
        }
    }

    fn detach(&mut self, uid: &str) {
        let Some(placed) = self.placed.remove(uid) else {
            return;
        };
        if let Some(at) = self.index.get(&placed.node) {
            if let Some(pod) = Arc::make_mut(&mut self.snapshot.nodes[*at]).remove_pod(uid) {
                self.snapshot.pods_with_affinity -= usize::from(pod.has_affinity());
                self.snapshot.pods_with_required_anti_affinity -=
                    usize::from(!pod.required_anti_affinity.is_empty());
            }
        } else if let Some(info) = self.orphans.get_mut(&placed.node) {
            info.remove_pod(uid);
            if info.pods.is_empty() {
                self.orphans.remove(&placed.node);
            }
        }
    }
}

#[cfg(test)]
mod tests;
