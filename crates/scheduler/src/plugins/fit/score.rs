//! Scores of NodeResourcesFit and NodeResourcesBalancedAllocation.

use std::sync::Arc;

use super::{FitArgs, Strategy};
use crate::node::NodeInfo;
use crate::plugins::MAX_SCORE;
use crate::pod::PodInfo;

/// For a resource that a node does not provide itself: how many devices provide it there, and how many of them are in
/// use.
pub type Devices<'a> = &'a dyn Fn(&str, &NodeInfo) -> Option<(i64, i64)>;

/// How much of a resource a node offers, and how much of it is taken.
#[derive(Debug, Clone, Copy, Default)]
struct Usage {
    offered: i64,
    /// The usage without the pod.
    before: i64,
    /// The usage with the pod.
    after: i64,
}

/// The usage of a resource on a node with the pod. Zero capacity if the resource does not count.
fn usage(name: &str, pod: &PodInfo, node: &NodeInfo, nonzero: bool, devices: Devices<'_>) -> Usage {
    let (mut offered, mut before, wanted) = match name {
        "cpu" if nonzero => (
            node.allocatable.milli_cpu,
            node.nonzero_requested.0,
            pod.nonzero.0,
        ),
        "memory" if nonzero => (
            node.allocatable.memory,
            node.nonzero_requested.1,
            pod.nonzero.1,
        ),
        // A scalar resource that the pod does not request does not count.
        _ if is_scalar(name) && pod.requests.amount(name) == 0 => return Usage::default(),
        _ => (
            node.allocatable.amount(name),
            node.requested.amount(name),
            pod.requests.amount(name),
        ),
    };
    if offered == 0
        && is_scalar(name)
        && let Some((all, in_use)) = devices(name, node)
    {
        (offered, before) = (all, in_use);
    }
    Usage {
        offered,
        before,
        after: before + wanted,
    }
}

fn is_scalar(name: &str) -> bool {
    !matches!(name, "cpu" | "memory" | "ephemeral-storage")
}

/// Score of a node by how much of it would be used.
pub fn score(pod: &PodInfo, node: &NodeInfo, args: &FitArgs, devices: Devices<'_>) -> i64 {
    let counted = args.resources.iter().filter_map(|(name, weight)| {
        let Usage { offered, after, .. } = usage(name, pod, node, true, devices);
        (offered != 0).then_some((after, offered, *weight))
    });
    match &args.strategy {
        Strategy::LeastAllocated => mean(counted, |used, offered| {
            if used > offered {
                0
            } else {
                (offered - used) * MAX_SCORE / offered
            }
        }),
        Strategy::MostAllocated => mean(counted, |used, offered| {
            used.min(offered) * MAX_SCORE / offered
        }),
        Strategy::RequestedToCapacityRatio(shape) => ratio(counted, shape),
    }
}

/// Weighted mean of scores of resources (used, offered, weight).
fn mean(resources: impl Iterator<Item = (i64, i64, i64)>, one: impl Fn(i64, i64) -> i64) -> i64 {
    let (mut sum, mut weights) = (0i64, 0i64);
    for (used, offered, weight) in resources {
        sum += one(used, offered) * weight;
        weights += weight;
    }
    if weights == 0 { 0 } else { sum / weights }
}

/// The same by a function of the utilization. Resources with score 0 do not count, and the result is rounded.
fn ratio(resources: impl Iterator<Item = (i64, i64, i64)>, shape: &[(i64, i64)]) -> i64 {
    let (mut sum, mut weights) = (0i64, 0i64);
    for (used, offered, weight) in resources {
        let utilization = if used > offered {
            100
        } else {
            used * 100 / offered
        };
        let score = interpolate(shape, utilization);
        if score > 0 {
            sum += score * weight;
            weights += weight;
        }
    }
    if weights == 0 {
        return 0;
    }
    (sum as f64 / weights as f64).round() as i64
}

/// The value of a function that is given as points; those have scores up to 10.
fn interpolate(shape: &[(i64, i64)], x: i64) -> i64 {
    let mut previous: Option<(i64, i64)> = None;
    for &(at, score) in shape {
        // Scaled before rounding down.
        let value = score * (MAX_SCORE / 10);
        if x <= at {
            return match previous {
                None => value,
                Some((px, py)) => py + (value - py) * (x - px) / (at - px).max(1),
            };
        }
        previous = Some((at, value));
    }
    previous.map_or(0, |(_, y)| y)
}

/// Whether balance does not matter to the pod: it requests none of the resources.
///
/// Otherwise all such pods would go to the most balanced node.
pub fn is_best_effort(pod: &PodInfo, resources: &[(Arc<str>, i64)]) -> bool {
    resources
        .iter()
        .all(|(name, _)| pod.requests.amount(name) == 0)
}

/// Score of a node by how the pod changes its balance: 75 for no change, 100 when it evens out the most uneven use of
/// resources, 50 when it does the opposite.
pub fn balanced(
    pod: &PodInfo,
    node: &NodeInfo,
    resources: &[(Arc<str>, i64)],
    devices: Devices<'_>,
) -> i64 {
    // On the stack: this runs for every feasible node, and more than four resources are rare.
    let (mut few, mut many) = ([Usage::default(); 4], Vec::new());
    let all = match few.get_mut(..resources.len()) {
        Some(all) => all,
        None => {
            many.resize(resources.len(), Usage::default());
            &mut many[..]
        }
    };
    let mut count = 0;
    for (name, _) in resources {
        all[count] = usage(name, pod, node, false, devices);
        count += usize::from(all[count].offered != 0);
    }
    let all = &all[..count];
    let before = evenness(all.iter().map(|u| (u.before, u.offered)));
    let after = evenness(all.iter().map(|u| (u.after, u.offered)));
    MAX_SCORE / 2 + (MAX_SCORE / 2 + after - before) / 2
}

/// How even resources (used, offered) are used: 100 without any difference, 50 at worst.
fn evenness(resources: impl ExactSizeIterator<Item = (i64, i64)> + Clone) -> i64 {
    let n = resources.len();
    let mut fractions = resources.map(|(used, offered)| (used as f64 / offered as f64).min(1.0));
    let deviation = match n {
        0 | 1 => 0.0,
        2 => {
            let mut next = || fractions.next().unwrap_or_default();
            (next() - next()).abs() / 2.0
        }
        _ => {
            let mean = fractions.clone().sum::<f64>() / n as f64;
            (fractions.map(|f| (f - mean).powi(2)).sum::<f64>() / n as f64).sqrt()
        }
    };
    ((1.0 - deviation) * MAX_SCORE as f64) as i64
}
