//! NodeResourcesFit and NodeResourcesBalancedAllocation.

use std::borrow::Cow;
use std::sync::Arc;

use super::Plugin;
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::status::{Code, Rejection};

mod score;

pub use score::{Devices, balanced, is_best_effort, score};

/// The scoring strategy of NodeResourcesFit.
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
    /// How the requested and free resources of a node become its score.
    pub strategy: Strategy,
    /// Whether the configuration says how to score. A placement policy decides where it does not.
    pub is_stated: bool,
    /// Resources that count, with weights.
    pub resources: Vec<(Arc<str>, i64)>,
    /// Extended resources that the filter leaves alone.
    pub ignored_resources: Vec<String>,
    /// Prefixes (before `/`) of extended resources that the filter leaves alone.
    pub ignored_groups: Vec<String>,
}

impl Default for FitArgs {
    fn default() -> Self {
        Self {
            strategy: Strategy::default(),
            is_stated: false,
            resources: vec![("cpu".into(), 1), ("memory".into(), 1)],
            ignored_resources: Vec::new(),
            ignored_groups: Vec::new(),
        }
    }
}

/// Rejects nodes with too little left.
///
/// `delegated` returns the scalar resources that devices provide where a node does not: DynamicResources checks those.
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

/// Whether the arguments leave a resource to others. Only extended resources can be left to others: those with a domain
/// that is not Kubernetes' own.
fn is_ignored(name: &str, args: &FitArgs) -> bool {
    let Some((group, _)) = name.split_once('/') else {
        return false;
    };
    let extended = !name.contains("kubernetes.io/") && !name.starts_with("requests.");
    extended
        && (args.ignored_resources.iter().any(|r| r == name)
            || args.ignored_groups.iter().any(|g| g == group))
}
