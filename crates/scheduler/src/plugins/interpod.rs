//! InterPodAffinity.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{MAX_SCORE, Plugin};
use crate::cache::Snapshot;
use crate::node::NodeInfo;
use crate::pod::{AffinityTerm, PodInfo};
use crate::status::Rejection;

/// Number of matching pods (or weights) per topology key and value.
type Domains = FxHashMap<String, FxHashMap<String, i64>>;

fn add_to_domain(domains: &mut Arc<Domains>, node: &NodeInfo, key: &str, delta: i64) {
    if let Some(value) = node.labels().get(key) {
        let domains = Arc::make_mut(domains);
        let values = domains.entry(key.to_owned()).or_default();
        let n = values.entry(value.clone()).or_default();
        *n += delta;
        if *n == 0 {
            values.remove(value);
        }
    }
}

fn lookup(domains: &Domains, node: &NodeInfo, key: &str) -> i64 {
    node.labels()
        .get(key)
        .and_then(|v| domains.get(key)?.get(v))
        .copied()
        .unwrap_or(0)
}

/// Required affinity in both directions, counted per domain. Copies share what does not change.
#[derive(Debug, Clone, Default)]
pub struct InterPodAffinity {
    /// Domains where the anti-affinity of existing pods excludes this pod.
    existing_anti: Arc<Domains>,
    /// Domains that have pods matching all affinity terms.
    affinity: Arc<Domains>,
    /// Domains that have pods matching an anti-affinity term.
    anti: Arc<Domains>,
}

fn matches_all(terms: &[AffinityTerm], pod: &PodInfo, snapshot: &Snapshot) -> bool {
    let labels = snapshot.namespaces.get(&*pod.key.namespace);
    !terms.is_empty() && terms.iter().all(|t| t.matches(pod, labels))
}

impl InterPodAffinity {
    /// Counts; `None` when neither the pod nor any other has required affinity.
    pub fn new(pod: &PodInfo, snapshot: &Snapshot) -> Option<Self> {
        let own = !pod.required_affinity.is_empty() || !pod.required_anti_affinity.is_empty();
        if !own && snapshot.pods_with_required_anti_affinity == 0 {
            return None;
        }
        let mut out = Self::default();
        for node in &snapshot.nodes {
            // A pod without terms can only be rejected by the anti-affinity of existing pods.
            let others = match own {
                true => &node.pods,
                false => &node.with_required_anti_affinity,
            };
            others
                .iter()
                .for_each(|other| out.update(pod, other, node, snapshot, 1));
        }
        let idle = !own && out.existing_anti.values().all(FxHashMap::is_empty);
        (!idle).then_some(out)
    }

    /// Accounts for a pod that is put on a node (`delta` 1) or taken off (-1).
    pub fn update(
        &mut self,
        pod: &PodInfo,
        other: &PodInfo,
        node: &NodeInfo,
        snapshot: &Snapshot,
        delta: i64,
    ) {
        let own_namespace = snapshot.namespaces.get(&*pod.key.namespace);
        for term in &other.required_anti_affinity {
            if term.matches(pod, own_namespace) {
                add_to_domain(&mut self.existing_anti, node, &term.topology_key, delta);
            }
        }
        if matches_all(&pod.required_affinity, other, snapshot) {
            for term in &pod.required_affinity {
                add_to_domain(&mut self.affinity, node, &term.topology_key, delta);
            }
        }
        let namespace = snapshot.namespaces.get(&*other.key.namespace);
        for term in &pod.required_anti_affinity {
            if term.matches(other, namespace) {
                add_to_domain(&mut self.anti, node, &term.topology_key, delta);
            }
        }
    }

    /// Rejects nodes whose domains do not satisfy the pod's terms.
    pub fn filter(
        &self,
        pod: &PodInfo,
        node: &NodeInfo,
        snapshot: &Snapshot,
    ) -> Result<(), Rejection> {
        if !self.satisfies_affinity(pod, node, snapshot) {
            return Err(Rejection::unresolvable(
                Plugin::InterPodAffinity,
                "node(s) didn't match pod affinity rules",
            ));
        }
        if pod
            .required_anti_affinity
            .iter()
            .any(|t| lookup(&self.anti, node, &t.topology_key) > 0)
        {
            return Err(Rejection::unschedulable(
                Plugin::InterPodAffinity,
                "node(s) didn't match pod anti-affinity rules",
            ));
        }
        if self
            .existing_anti
            .keys()
            .any(|key| lookup(&self.existing_anti, node, key) > 0)
        {
            return Err(Rejection::unschedulable(
                Plugin::InterPodAffinity,
                "node(s) didn't satisfy existing pods anti-affinity rules",
            ));
        }
        Ok(())
    }

    fn satisfies_affinity(&self, pod: &PodInfo, node: &NodeInfo, snapshot: &Snapshot) -> bool {
        let mut found = true;
        for term in &pod.required_affinity {
            if !node.labels().contains_key(&term.topology_key) {
                return false;
            }
            found &= lookup(&self.affinity, node, &term.topology_key) > 0;
        }
        // The first pod of a group with affinity to itself may go to any node.
        found
            || (self.affinity.values().all(FxHashMap::is_empty)
                && matches_all(&pod.required_affinity, pod, snapshot))
    }
}

/// Scores of nodes by preferred affinity in both directions; `None` without preferred terms.
///
/// `hard_weight` is the weight of another pod's required affinity term that matches this pod; `ignore_existing` skips
/// existing pods' preferred terms for pods without preferred terms.
pub fn scores(
    pod: &PodInfo,
    snapshot: &Snapshot,
    nodes: &[usize],
    hard_weight: i64,
    ignore_existing: bool,
) -> Option<Vec<i64>> {
    let own = !pod.preferred_affinity.is_empty() || !pod.preferred_anti_affinity.is_empty();
    if !own && (ignore_existing || snapshot.pods_with_affinity == 0) {
        return None;
    }
    let mut domains = Arc::<Domains>::default();
    let own_namespace = snapshot.namespaces.get(&*pod.key.namespace);
    for node in &snapshot.nodes {
        let others = match own {
            true => &node.pods,
            false => &node.with_affinity,
        };
        for other in others {
            let namespace = snapshot.namespaces.get(&*other.key.namespace);
            let mut add = |terms: &[(i32, AffinityTerm)], sign: i64, subject: &PodInfo, labels| {
                for (weight, term) in terms.iter().filter(|(_, t)| t.matches(subject, labels)) {
                    add_to_domain(
                        &mut domains,
                        node,
                        &term.topology_key,
                        sign * i64::from(*weight),
                    );
                }
            };
            add(&pod.preferred_affinity, 1, other, namespace);
            add(&pod.preferred_anti_affinity, -1, other, namespace);
            add(&other.preferred_affinity, 1, pod, own_namespace);
            add(&other.preferred_anti_affinity, -1, pod, own_namespace);
            for term in other
                .required_affinity
                .iter()
                .filter(|t| t.matches(pod, own_namespace))
            {
                add_to_domain(&mut domains, node, &term.topology_key, hard_weight);
            }
        }
    }
    if domains.values().all(FxHashMap::is_empty) {
        return None;
    }
    let raw: Vec<i64> = nodes
        .iter()
        .map(|i| {
            let node = &snapshot.nodes[*i];
            domains.keys().map(|key| lookup(&domains, node, key)).sum()
        })
        .collect();
    let (min, max) = (
        raw.iter().copied().min().unwrap_or(0),
        raw.iter().copied().max().unwrap_or(0),
    );
    let spread = max - min;
    Some(
        raw.into_iter()
            .map(|s| {
                if spread > 0 {
                    MAX_SCORE * (s - min) / spread
                } else {
                    0
                }
            })
            .collect(),
    )
}

#[cfg(test)]
mod tests;
