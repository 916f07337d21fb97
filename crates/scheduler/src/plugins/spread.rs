//! PodTopologySpread.
//!
//! Pods without constraints are spread by default ones, if they have a controller. Upstream counts for those the pods
//! that the selectors of the controller and of the pod's services select together; here it is the pods of the same
//! controller, which is the same unless a service selects only some of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use allot_apimachinery::well_known;
use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use rustc_hash::{FxHashMap, FxHashSet};

use super::affinity::NodeAffinity;
use super::{MAX_SCORE, Plugin, taints};
use crate::cache::Snapshot;
use crate::node::NodeInfo;
use crate::pod::{PodInfo, Replicated};
use crate::selectors::Labels;
use crate::status::Rejection;

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

/// The pods that a constraint counts.
#[derive(Debug, Clone)]
enum Counted {
    Labels(Labels),
    OfController(Replicated),
}

impl Counted {
    fn matches(&self, pod: &PodInfo) -> bool {
        match self {
            Self::Labels(selector) => selector.matches(pod.labels()),
            Self::OfController((_, uid)) => pod.controller.as_ref() == Some(uid),
        }
    }
}

#[derive(Debug, Clone)]
struct Constraint {
    max_skew: i64,
    key: String,
    selector: Counted,
    min_domains: usize,
    honor_affinity: bool,
    honor_taints: bool,
    self_match: i64,
}

impl Constraint {
    fn new(pod: &PodInfo, c: &TopologySpreadConstraint) -> Self {
        let mut selector = Labels::new(c.label_selector.as_ref());
        for key in c.match_label_keys.iter().flatten() {
            if let Some(value) = pod.labels().and_then(|l| l.get(key)) {
                selector.require_in(key, value);
            }
        }
        Self {
            max_skew: i64::from(c.max_skew),
            key: c.topology_key.clone(),
            self_match: i64::from(selector.matches(pod.labels())),
            selector: Counted::Labels(selector),
            min_domains: c
                .min_domains
                .and_then(|m| usize::try_from(m).ok())
                .unwrap_or(1),
            honor_affinity: c.node_affinity_policy.as_deref() != Some("Ignore"),
            honor_taints: c.node_taints_policy.as_deref() == Some("Honor"),
        }
    }

    fn by_default(replicated: &Replicated, c: &DefaultConstraint) -> Self {
        Self {
            max_skew: i64::from(c.max_skew),
            key: c.key.clone(),
            selector: Counted::OfController(replicated.clone()),
            min_domains: c.min_domains,
            honor_affinity: c.honor_affinity,
            honor_taints: c.honor_taints,
            self_match: 1,
        }
    }

    fn includes(&self, pod: &PodInfo, affinity: &NodeAffinity, node: &NodeInfo) -> bool {
        (!self.honor_affinity || affinity.matches(node))
            && (!self.honor_taints || taints::filter(pod.tolerations(), node).is_ok())
    }

    fn counts(&self, pod: &PodInfo, other: &PodInfo) -> bool {
        other.key.namespace == pod.key.namespace
            && !other.is_terminating()
            && self.selector.matches(other)
    }

    fn count_on(&self, pod: &PodInfo, node: &NodeInfo) -> i64 {
        match &self.selector {
            // Nearly every pod has a controller: do not search all other pods for its pods each time.
            Counted::OfController(replicated) => {
                node.replicas.get(replicated).copied().unwrap_or_default()
            }
            Counted::Labels(_) => node.pods.iter().filter(|p| self.counts(pod, p)).count() as i64,
        }
    }
}

fn constraints(pod: &PodInfo, required: bool, defaults: &Defaults) -> Vec<Constraint> {
    let when = if required {
        "DoNotSchedule"
    } else {
        "ScheduleAnyway"
    };
    let own = pod.spec().topology_spread_constraints.as_deref();
    match (own.unwrap_or_default(), pod.replicated()) {
        ([], None) => Vec::new(),
        ([], Some(replicated)) => {
            let all = defaults.constraints.iter();
            all.filter(|c| c.required == required)
                .map(|c| Constraint::by_default(&replicated, c))
                .collect()
        }
        (own, _) => {
            let those = own.iter().filter(|c| c.when_unsatisfiable == when);
            those.map(|c| Constraint::new(pod, c)).collect()
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
        let constraints = constraints(pod, true, defaults);
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

/// Scores of nodes by the constraints that should hold; `None` when the pod has none.
pub fn scores(
    pod: &PodInfo,
    affinity: &NodeAffinity,
    snapshot: &Snapshot,
    nodes: &[usize],
    defaults: &Defaults,
) -> Option<Vec<i64>> {
    let constraints = constraints(pod, false, defaults);
    if constraints.is_empty() {
        return None;
    }
    let own = pod.spec().topology_spread_constraints.as_deref();
    let lenient = defaults.system && own.unwrap_or_default().is_empty();
    let raw = raw_scores(pod, affinity, snapshot, nodes, &constraints, lenient);
    let (min, max) = raw
        .iter()
        .flatten()
        .fold((i64::MAX, 0), |(lo, hi), s| (lo.min(*s), hi.max(*s)));
    Some(
        raw.into_iter()
            .map(|s| match s {
                None => 0,
                Some(_) if max == 0 => MAX_SCORE,
                Some(s) => MAX_SCORE * (max + min - s) / max,
            })
            .collect(),
    )
}

/// How many pods are in the domains of each node, weighted; `None` for nodes that are in too few domains, unless that
/// does not matter (`lenient`).
fn raw_scores(
    pod: &PodInfo,
    affinity: &NodeAffinity,
    snapshot: &Snapshot,
    nodes: &[usize],
    constraints: &[Constraint],
    lenient: bool,
) -> Vec<Option<i64>> {
    let has_all =
        |n: &NodeInfo| lenient || constraints.iter().all(|c| n.labels().contains_key(&c.key));
    let every = || snapshot.nodes.iter().map(|n| &**n);
    // Constraints by default are all about the pods of one controller, which are on few of the nodes.
    let occupied: Option<Vec<&NodeInfo>> = match constraints.first().map(|c| &c.selector) {
        Some(Counted::OfController(replicated)) => {
            let on = |n: &&NodeInfo| n.replicas.contains_key(replicated);
            Some(every().filter(on).collect())
        }
        _ => None,
    };
    let mut sums = vec![0f64; nodes.len()];
    for c in constraints {
        // If nodes without the label count, they form a domain.
        let feasible: FxHashSet<Option<&str>> = nodes
            .iter()
            .map(|i| &snapshot.nodes[*i])
            .filter(|n| has_all(n))
            .map(|n| n.labels().get(&c.key).map(String::as_str))
            .collect();
        if feasible.is_empty() {
            continue;
        }
        let weight = (feasible.len() as f64 + 2.0).ln();
        let mut domains: FxHashMap<&str, i64> = FxHashMap::default();
        let counts = |node: &NodeInfo, value: &str| {
            feasible.contains(&Some(value)) && has_all(node) && c.includes(pod, affinity, node)
        };
        for node in nodes.iter().map(|i| &snapshot.nodes[*i]) {
            if let Some(value) = node.labels().get(&c.key).filter(|v| counts(node, v)) {
                domains.entry(value).or_default();
            }
        }
        // A domain without pods counts, too; if every domain is known already, nodes without pods add none.
        let each_is_known = domains.len() == feasible.iter().flatten().count();
        let counted: Vec<&NodeInfo> = match &occupied {
            Some(occupied) if each_is_known => occupied.clone(),
            _ => every().collect(),
        };
        for node in counted {
            if let Some(value) = node.labels().get(&c.key).filter(|v| counts(node, v)) {
                *domains.entry(value).or_default() += c.count_on(pod, node);
            }
        }
        for (sum, i) in sums.iter_mut().zip(nodes) {
            let here = snapshot.nodes[*i]
                .labels()
                .get(&c.key)
                .and_then(|v| domains.get(v.as_str()));
            if let Some(here) = here {
                *sum += *here as f64 * weight + (c.max_skew - 1) as f64;
            }
        }
    }
    nodes
        .iter()
        .zip(&sums)
        .map(|(i, s)| has_all(&snapshot.nodes[*i]).then_some(s.round() as i64))
        .collect()
}

#[cfg(test)]
mod tests;
