//! A node with the pods on it, kept up to date by deltas.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::api::core::v1::{Node, Taint};
use rustc_hash::FxHashMap;

use crate::pod::{HostPort, PodInfo, Replicated};
use crate::resources::{ResourceList, Resources, whole};
use crate::selectors::LabelMap;

/// A node as the scheduler sees it.
#[derive(Debug, Clone)]
pub struct NodeInfo {
    /// The object; `None` while pods are known for a node that does not exist.
    pub node: Option<Arc<Node>>,
    /// The name of the Node object, which `spec.nodeName` of pods has.
    pub name: Arc<str>,
    /// Allocatable resources.
    pub allocatable: Resources,
    /// `status.allocatable` of `pods`.
    pub allowed_pods: i64,
    /// Sum of the pods' requests.
    pub requested: Resources,
    /// CPU (thousandths) and memory requests of its pods, with defaults for pods that request none.
    pub nonzero_requested: (i64, i64),
    /// The pods that are bound or assumed to be on it.
    pub pods: Vec<Arc<PodInfo>>,
    /// Pods on the node per controller, without those that are being deleted.
    pub replicas: FxHashMap<Replicated, i64>,
    /// Pods on the node that have pod affinity.
    pub with_affinity: Vec<Arc<PodInfo>>,
    /// Pods on the node that have required anti-affinity.
    pub with_required_anti_affinity: Vec<Arc<PodInfo>>,
    /// Host ports in use.
    pub ports: Vec<HostPort>,
    /// Images on the node: name to bytes.
    pub images: Arc<FxHashMap<String, i64>>,
    /// The node as the allocator sees it.
    pub device_node: Arc<allot_allocator::Node>,
    generation: u64,
}

/// A number that no other state of a node has.
fn next_generation() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

static NO_LABELS: LabelMap = LabelMap::new();

impl NodeInfo {
    /// A node of which only the name is known.
    pub fn new(name: Arc<str>) -> Self {
        Self {
            node: None,
            name,
            allocatable: Resources::default(),
            allowed_pods: 0,
            requested: Resources::default(),
            nonzero_requested: (0, 0),
            pods: Vec::new(),
            replicas: FxHashMap::default(),
            with_affinity: Vec::new(),
            with_required_anti_affinity: Vec::new(),
            ports: Vec::new(),
            images: Arc::default(),
            device_node: Arc::default(),
            generation: next_generation(),
        }
    }

    /// Changes with every change of the node; no two different states of nodes have the same, and none has zero.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Takes over a new version of the object.
    pub fn set_node(&mut self, node: Arc<Node>) {
        let status = node.status.as_ref();
        let allocatable: Option<&ResourceList> = status.and_then(|s| s.allocatable.as_ref());
        self.allocatable = Resources::from_list(allocatable);
        self.allowed_pods = allocatable.and_then(|l| l.get("pods")).map_or(0, whole);
        let images = status.and_then(|s| s.images.as_ref()).into_iter().flatten();
        self.images = Arc::new(
            images
                .flat_map(|i| {
                    i.names
                        .iter()
                        .flatten()
                        .map(|n| (n.clone(), i.size_bytes.unwrap_or(0)))
                })
                .collect(),
        );
        let device_node = allot_allocator::Node::from(&*node);
        // Cached state of the old object still holds if no relevant field changed.
        if *self.device_node != device_node {
            self.device_node = Arc::new(device_node);
        }
        self.node = Some(node);
        self.generation = next_generation();
    }

    /// `metadata.labels`; empty while only pods of the node are known.
    pub fn labels(&self) -> &LabelMap {
        self.node
            .as_ref()
            .and_then(|n| n.metadata.labels.as_ref())
            .unwrap_or(&NO_LABELS)
    }

    /// `spec.taints`; empty while only pods of the node are known.
    pub fn taints(&self) -> &[Taint] {
        self.node
            .as_ref()
            .and_then(|n| n.spec.as_ref()?.taints.as_deref())
            .unwrap_or_default()
    }

    /// The node's declared features.
    pub fn declared_features(&self) -> &[String] {
        self.node
            .as_ref()
            .and_then(|n| n.status.as_ref()?.declared_features.as_deref())
            .unwrap_or_default()
    }

    /// `spec.unschedulable`: the node is cordoned.
    pub fn is_unschedulable(&self) -> bool {
        self.node
            .as_ref()
            .and_then(|n| n.spec.as_ref()?.unschedulable)
            .unwrap_or(false)
    }

    /// Accounts for a pod.
    pub fn add_pod(&mut self, pod: Arc<PodInfo>) {
        self.requested.add(&pod.requests);
        self.nonzero_requested.0 += pod.nonzero.0;
        self.nonzero_requested.1 += pod.nonzero.1;
        self.ports.extend(pod.ports.iter().cloned());
        if pod.has_affinity() {
            self.with_affinity.push(pod.clone());
        }
        if !pod.required_anti_affinity.is_empty() {
            self.with_required_anti_affinity.push(pod.clone());
        }
        if let Some(owner) = counted_for(&pod) {
            *self.replicas.entry(owner).or_default() += 1;
        }
        self.pods.push(pod);
        self.generation = next_generation();
    }

    /// Removes a pod; returns it if it was on the node.
    pub fn remove_pod(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let at = self.pods.iter().position(|p| &*p.uid == uid)?;
        let pod = self.pods.swap_remove(at);
        self.generation = next_generation();
        self.requested.sub(&pod.requests);
        self.nonzero_requested.0 -= pod.nonzero.0;
        self.nonzero_requested.1 -= pod.nonzero.1;
        for port in &pod.ports {
            if let Some(at) = self.ports.iter().position(|p| p == port) {
                self.ports.swap_remove(at);
            }
        }
        for list in [
            &mut self.with_affinity,
            &mut self.with_required_anti_affinity,
        ] {
            if let Some(at) = list.iter().position(|p| Arc::ptr_eq(p, &pod)) {
                list.swap_remove(at);
            }
        }
        if let Some(owner) = counted_for(&pod)
            && let Some(count) = self.replicas.get_mut(&owner)
        {
            *count -= 1;
            if *count == 0 {
                self.replicas.remove(&owner);
            }
        }
        Some(pod)
    }
}

/// The controller for which a pod counts; `None` for terminating pods.
fn counted_for(pod: &PodInfo) -> Option<Replicated> {
    pod.replicated().filter(|_| !pod.is_terminating())
}

#[cfg(test)]
mod tests;
