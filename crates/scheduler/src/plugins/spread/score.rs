//! Score: the constraints that should hold.

use rustc_hash::{FxHashMap, FxHashSet};

use super::super::MAX_SCORE;
use super::super::affinity::NodeAffinity;
use super::Defaults;
use super::constraint::{Constraint, Counted, WhenUnsatisfiable, constraints};
use crate::cache::Snapshot;
use crate::node::NodeInfo;
use crate::pod::PodInfo;

/// Scores of nodes by the constraints that should hold; `None` when the pod has none.
pub fn scores(
    pod: &PodInfo,
    affinity: &NodeAffinity,
    snapshot: &Snapshot,
    nodes: &[usize],
    defaults: &Defaults,
) -> Option<Vec<i64>> {
    let constraints = constraints(pod, WhenUnsatisfiable::ScheduleAnyway, defaults);
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
pub(super) fn raw_scores(
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
