//! NodeResourcesFit and NodeResourcesBalancedAllocation.

use std::borrow::Cow;
use std::sync::Arc;

use super::{MAX_SCORE, Plugin};
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::status::{Code, Rejection};

/// How the fit of a node is scored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Strategy {
    /// Prefers nodes with much left.
    #[default]
    LeastAllocated,
    /// Prefers nodes that are full.
    MostAllocated,
    /// Prefers by a function given as points (utilization in percent, score 0..=10).
    RequestedToCapacityRatio(Vec<(i64, i64)>),
}

/// Settings of the plugin from its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FitArgs {
    /// How to score.
    pub strategy: Strategy,
    /// Resources that count, with weights.
    pub resources: Vec<(Arc<str>, i64)>,
    /// Extended resources that the plugin leaves alone.
    pub ignored_resources: Vec<String>,
    /// Prefixes (before `/`) of extended resources that the plugin leaves alone.
    pub ignored_groups: Vec<String>,
}

impl Default for FitArgs {
    fn default() -> Self {
        Self {
            strategy: Strategy::default(),
            resources: vec![("cpu".into(), 1), ("memory".into(), 1)],
            ignored_resources: Vec::new(),
            ignored_groups: Vec::new(),
        }
    }
}

/// Rejects nodes with too little left.
///
/// `delegated` says for which scalar resources devices stand in where a node does not offer the resource itself:
/// those are DynamicResources' to judge.
pub fn filter(
    pod: &PodInfo,
    node: &NodeInfo,
    args: &FitArgs,
    delegated: impl Fn(&str) -> bool,
) -> Result<(), Rejection> {
    let mut reasons: Vec<Cow<'static, str>> = Vec::new();
    let mut code = Code::Unschedulable;
    if node.pods.len() as i64 + 1 > node.allowed_pods {
        reasons.push(Cow::Borrowed("Too many pods"));
    }
    let want = &pod.requests;
    if !want.is_zero() {
        let mut check = |asked: i64, used: i64, offered: i64, reason: Cow<'static, str>| {
            if asked > 0 && asked > offered - used {
                reasons.push(reason);
                if asked > offered {
                    code = Code::Unresolvable;
                }
            }
        };
        let (have, used) = (&node.allocatable, &node.requested);
        check(
            want.milli_cpu,
            used.milli_cpu,
            have.milli_cpu,
            Cow::Borrowed("Insufficient cpu"),
        );
        check(
            want.memory,
            used.memory,
            have.memory,
            Cow::Borrowed("Insufficient memory"),
        );
        check(
            want.ephemeral,
            used.ephemeral,
            have.ephemeral,
            Cow::Borrowed("Insufficient ephemeral-storage"),
        );
        for (name, asked) in &want.scalars {
            if *asked == 0 || is_ignored(name, args) {
                continue;
            }
            let offered = have.scalar(name);
            if offered == 0 && delegated(name) {
                continue;
            }
            check(
                *asked,
                used.scalar(name),
                offered,
                Cow::Owned(format!("Insufficient {name}")),
            );
        }
    }
    if reasons.is_empty() {
        Ok(())
    } else {
        Err(Rejection {
            code,
            plugin: Plugin::NodeResourcesFit,
            reasons,
        })
    }
}

fn is_ignored(name: &str, args: &FitArgs) -> bool {
    let group = name.split_once('/').map(|(g, _)| g);
    args.ignored_resources.iter().any(|r| r == name)
        || group.is_some_and(|g| args.ignored_groups.iter().any(|i| i == g))
}

/// Requested and allocatable amount of a resource if the pod were on the node.
fn usage(name: &str, pod: &PodInfo, node: &NodeInfo, nonzero: bool) -> (i64, i64) {
    match name {
        "cpu" if nonzero => (
            node.nonzero_requested.0 + pod.nonzero.0,
            node.allocatable.milli_cpu,
        ),
        "memory" if nonzero => (
            node.nonzero_requested.1 + pod.nonzero.1,
            node.allocatable.memory,
        ),
        "cpu" => (
            node.requested.milli_cpu + pod.requests.milli_cpu,
            node.allocatable.milli_cpu,
        ),
        "memory" => (
            node.requested.memory + pod.requests.memory,
            node.allocatable.memory,
        ),
        "ephemeral-storage" => (
            node.requested.ephemeral + pod.requests.ephemeral,
            node.allocatable.ephemeral,
        ),
        // A scalar that the pod does not ask for does not count.
        _ if pod.requests.scalar(name) == 0 => (0, 0),
        _ => (
            node.requested.scalar(name) + pod.requests.scalar(name),
            node.allocatable.scalar(name),
        ),
    }
}

/// Score of a node by how much of it would be used.
pub fn score(pod: &PodInfo, node: &NodeInfo, args: &FitArgs) -> i64 {
    let (mut sum, mut weights) = (0i64, 0i64);
    for (name, weight) in &args.resources {
        let (used, offered) = usage(name, pod, node, true);
        if offered == 0 {
            continue;
        }
        let one = match &args.strategy {
            Strategy::LeastAllocated if used > offered => 0,
            Strategy::LeastAllocated => (offered - used) * MAX_SCORE / offered,
            Strategy::MostAllocated => used.min(offered) * MAX_SCORE / offered,
            Strategy::RequestedToCapacityRatio(shape) => {
                let utilization = if used > offered {
                    100
                } else {
                    used * 100 / offered
                };
                interpolate(shape, utilization) * (MAX_SCORE / 10)
            }
        };
        sum += one * weight;
        weights += weight;
    }
    if weights == 0 { 0 } else { sum / weights }
}

fn interpolate(shape: &[(i64, i64)], x: i64) -> i64 {
    let mut previous: Option<(i64, i64)> = None;
    for &(at, value) in shape {
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

/// Score of a node by how even its resources would be used: 100 without any difference.
pub fn balanced(pod: &PodInfo, node: &NodeInfo, resources: &[(Arc<str>, i64)]) -> i64 {
    let mut fractions = [0f64; 8];
    let mut n = 0;
    for (name, _) in resources.iter().take(fractions.len()) {
        let (used, offered) = usage(name, pod, node, false);
        if offered > 0 {
            fractions[n] = (used as f64 / offered as f64).min(1.0);
            n += 1;
        }
    }
    let fractions = &fractions[..n];
    let deviation = match fractions {
        [] | [_] => 0.0,
        [a, b] => (a - b).abs() / 2.0,
        _ => {
            let mean = fractions.iter().sum::<f64>() / n as f64;
            (fractions.iter().map(|f| (f - mean).powi(2)).sum::<f64>() / n as f64).sqrt()
        }
    };
    ((1.0 - deviation) * MAX_SCORE as f64) as i64
}
