//! Pods that are nominated to nodes: because of preemption there, or because they wait for binding conditions.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::pod::{PodInfo, Uid};

/// A pod and the node it is nominated to.
pub type Nomination = (Arc<PodInfo>, Arc<str>);

/// Nominated pods by node.
#[derive(Debug, Default)]
pub struct Nominations {
    pods: FxHashMap<Uid, Nomination>,
    by_node: FxHashMap<Arc<str>, Vec<Uid>>,
}

impl Nominations {
    /// Nominates a pod to a node. Returns its previous nomination, if that was to another node.
    pub fn insert(&mut self, pod: Arc<PodInfo>, node: Arc<str>) -> Option<Nomination> {
        if let Some((known, at)) = self.pods.get_mut(&pod.uid)
            && *at == node
        {
            *known = pod;
            return None;
        }
        let moved = self.remove(&pod.uid);
        self.by_node
            .entry(node.clone())
            .or_default()
            .push(pod.uid.clone());
        self.pods.insert(pod.uid.clone(), (pod, node));
        moved
    }

    /// Removes a pod's nomination.
    pub fn remove(&mut self, uid: &str) -> Option<Nomination> {
        let (pod, node) = self.pods.remove(uid)?;
        if let Some(uids) = self.by_node.get_mut(&node) {
            uids.retain(|u| **u != *uid);
            if uids.is_empty() {
                self.by_node.remove(&node);
            }
        }
        Some((pod, node))
    }

    /// The nomination of a pod.
    pub fn get(&self, uid: &str) -> Option<&Nomination> {
        self.pods.get(uid)
    }

    /// The pods that are nominated to a node (`NominatedPodsForNode`), in the order of their nominations.
    pub fn for_node(&self, node: &str) -> impl Iterator<Item = &Arc<PodInfo>> {
        let uids = self.by_node.get(node).into_iter().flatten();
        uids.filter_map(|uid| self.pods.get(uid).map(|(pod, _)| pod))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> Arc<PodInfo> {
        let pod = serde_json::json!({"metadata": {"name": name, "uid": name}, "spec": {"containers": []}});
        let pod = serde_json::from_value(pod).expect("a pod");
        Arc::new(PodInfo::new(Arc::new(pod)))
    }

    #[test]
    fn a_pod_is_nominated_to_one_node() {
        let mut nominations = Nominations::default();
        let on = |n: &Nominations, node: &str| {
            let names = n.for_node(node).map(|p| p.key.name.to_string());
            names.collect::<Vec<_>>().join(" ")
        };
        assert!(nominations.insert(pod("a"), "x".into()).is_none());
        assert!(nominations.insert(pod("b"), "x".into()).is_none());
        assert!(nominations.insert(pod("a"), "x".into()).is_none(), "again");
        assert_eq!(on(&nominations, "x"), "a b", "in the same order");
        let moved = nominations.insert(pod("a"), "y".into());
        assert_eq!(moved.map(|(_, node)| node).as_deref(), Some("x"));
        assert_eq!(
            (on(&nominations, "x"), on(&nominations, "y")),
            ("b".to_owned(), "a".to_owned())
        );
        assert!(nominations.remove("b").is_some());
        assert!(nominations.remove("b").is_none());
        assert!(nominations.by_node.len() == 1 && nominations.pods.len() == 1);
    }
}
