//! PodTopologySpread.
//!
//! Pods without constraints are spread by default ones, if they have a controller. Upstream counts for those the pods
//! that the selectors of the controller and of the pod's services select together; here it is the pods of the same
//! controller, which is the same unless a service selects only some of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use allot_apimachinery::well_known;
use rustc_hash::FxHashMap;

use super::Plugin;
use super::affinity::NodeAffinity;
use crate::cache::Snapshot;
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::status::Rejection;

mod constraint;
mod score;

use constraint::{Constraint, WhenUnsatisfiable, constraints};
pub use score::scores;

const MISSING_LABEL: &str =
    "node(s) didn't match pod topology spread constraints (missing required label)";
const VIOLATED: &str = "node(s) didn't match pod topology spread constraints";

/// A constraint for pods that have none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultConstraint {
    /// Largest difference between domains.
    pub max_skew: i32,
    /// The node label that defines the domains.
    pub key: String,
    /// Whether it must hold, or only should.
    pub required: bool,
    /// Below this number of domains an empty one is missing.
    pub min_domains: usize,
    /// Whether only nodes count that the pod selects.
    pub honor_affinity: bool,
    /// Whether only nodes count whose taints the pod tolerates.
    pub honor_taints: bool,
}

/// The constraints for pods that have none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defaults {
    /// The constraints of pods that have none themselves.
    pub constraints: Vec<DefaultConstraint>,
    /// The system defaults are used: nodes without one of the labels count, too.
    pub system: bool,
}

impl Defaults {
    /// Upstream's system defaults, for scoring only: max skew 3 for hostnames, 5 for zones.
    pub fn system() -> Self {
        let constraint = |max_skew, key: &str| DefaultConstraint {
            max_skew,
            key: key.to_owned(),
            required: false,
            min_domains: 1,
            honor_affinity: true,
            honor_taints: false,
        };
        Self {
            constraints: vec![
                constraint(3, well_known::LABEL_HOSTNAME),
                constraint(5, well_known::LABEL_TOPOLOGY_ZONE),
            ],
            system: true,
        }
    }
}

/// The number of matching pods per domain.
#[derive(Debug, Clone, Default)]
struct Domains {
    pods: FxHashMap<String, i64>,
    /// How many domains have as many pods. Every node is compared with the emptiest of maybe as many domains.
    sizes: BTreeMap<i64, usize>,
}

impl Domains {
    fn new(pods: FxHashMap<String, i64>) -> Self {
        let mut sizes = BTreeMap::new();
        for count in pods.values() {
            *sizes.entry(*count).or_default() += 1;
        }
        Self { pods, sizes }
    }

    /// Changes the number of pods of a domain, if it is one that counts.
    fn change(&mut self, domain: &str, delta: i64) {
        let Some(count) = self.pods.get_mut(domain) else {
            return;
        };
        if let Some(same) = self.sizes.get_mut(count) {
            *same -= 1;
            if *same == 0 {
                self.sizes.remove(count);
            }
        }
        *count += delta;
        *self.sizes.entry(*count).or_default() += 1;
    }

    /// The number of pods in the domain with the fewest (upstream's global minimum, `minMatchNum`).
    fn min_match(&self) -> i64 {
        self.sizes.keys().next().copied().unwrap_or(0)
    }
}

/// The constraints that must hold, with the number of matching pods per domain. Copies share what does not change.
#[derive(Debug, Clone)]
pub struct Spread {
    constraints: Arc<[Constraint]>,
    domains: Vec<Arc<Domains>>,
}

impl Spread {
    /// Counts pods per domain; `None` when the pod has no such constraint.
    pub fn new(
        pod: &PodInfo,
        affinity: &NodeAffinity,
        snapshot: &Snapshot,
        defaults: &Defaults,
    ) -> Option<Self> {
        let constraints = constraints(pod, WhenUnsatisfiable::DoNotSchedule, defaults);
        if constraints.is_empty() {
            return None;
        }
        let mut domains = vec![FxHashMap::<String, i64>::default(); constraints.len()];
        for node in &snapshot.nodes {
            // A node counts only if it is in a domain of every constraint.
            if !constraints
                .iter()
                .all(|c| node.labels().contains_key(&c.key))
            {
                continue;
            }
            for (constraint, domains) in constraints.iter().zip(&mut domains) {
                if constraint.includes(pod, affinity, node) {
                    let n = constraint.count_on(pod, node);
                    *domains
                        .entry(node.labels()[&constraint.key].clone())
                        .or_default() += n;
                }
            }
        }
        Some(Self {
            constraints: constraints.into(),
            domains: domains
                .into_iter()
                .map(|d| Domains::new(d).into())
                .collect(),
        })
    }

    /// Accounts for a pod that is put on a node (`delta` 1) or taken off (-1) in a simulation.
    pub fn update(&mut self, pod: &PodInfo, other: &PodInfo, node: &NodeInfo, delta: i64) {
        for (constraint, domains) in self.constraints.iter().zip(&mut self.domains) {
            if constraint.counts(pod, other)
                && let Some(value) = node.labels().get(&constraint.key)
            {
                Arc::make_mut(domains).change(value, delta);
            }
        }
    }

    /// Rejects nodes on which the pod would break a constraint.
    pub fn filter(&self, node: &NodeInfo) -> Result<(), Rejection> {
        for (constraint, domains) in self.constraints.iter().zip(&self.domains) {
            let Some(value) = node.labels().get(&constraint.key) else {
                return Err(Rejection::unresolvable(
                    Plugin::PodTopologySpread,
                    MISSING_LABEL,
                ));
            };
            let min = if domains.pods.len() < constraint.min_domains {
                0
            } else {
                domains.min_match()
            };
            let here = domains.pods.get(value).copied().unwrap_or(0);
            if here + constraint.self_match - min > constraint.max_skew {
                return Err(Rejection::unschedulable(
                    Plugin::PodTopologySpread,
                    VIOLATED,
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
