//! Which nodes are filtered, in which order, and how many.

use std::sync::atomic::Ordering;

use rayon::prelude::*;

use super::{Attempt, FitError, Nominated, Placement};
use crate::framework::Plugin;
use crate::node::NodeInfo;
use crate::status::{Code, Rejection};

/// From this number of nodes on, filtering uses several threads.
const PARALLEL_FROM: usize = 1024;
/// Fewest nodes to find before scoring; upstream's value.
const MIN_FEASIBLE: usize = 100;

impl Attempt<'_> {
    /// Places the pod. `start` is the position at which to begin, so that nodes take turns.
    pub fn place(&self, start: usize, nominated: Nominated<'_>) -> Result<Placement, FitError> {
        let total = self.snapshot.nodes.len();
        let mut rejections: Vec<Option<Rejection>> = vec![None; total];
        let order: Vec<usize> = self.order(start, &mut rejections);
        let wanted = self.wanted(order.len());
        // The nominated node is tried first.
        if let Some(at) = self.nominated_node.and_then(|n| self.snapshot.position(n)) {
            let node = &self.snapshot.nodes[at];
            if self.filter(node, nominated).is_ok()
                && let Ok(devices) = self.allocate(node)
            {
                return Ok(Placement {
                    node: at,
                    devices,
                    feasible: vec![at],
                });
            }
        }
        let feasible = self.feasible(&order, wanted, nominated, &mut rejections);
        let failed = |r: &Rejection| matches!(r.code, Code::Error | Code::GaveUp);
        if !feasible.is_empty() && !rejections.iter().flatten().any(failed) {
            let begin = self.sources.elapsed();
            let best = self.best(&feasible, &mut rejections);
            let taken = self.sources.elapsed().saturating_sub(begin);
            let taken = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
            self.scoring.fetch_add(taken, Ordering::Relaxed);
            if let Some(placement) = best {
                return Ok(placement);
            }
        }
        if let Some(devices) = &self.devices {
            for (rejection, node) in rejections.iter_mut().zip(&self.snapshot.nodes) {
                if rejection.as_ref().is_some_and(Rejection::is_not_available)
                    && let Err(other) = devices.fits_otherwise(node, &self.dra)
                {
                    *rejection = Some(other);
                }
            }
        }
        Err(FitError {
            nodes: rejections,
            before: None,
        })
    }

    /// The nodes to filter, in order. Nodes that the pod's own affinity excludes by name are rejected at once.
    fn order(&self, start: usize, rejections: &mut [Option<Rejection>]) -> Vec<usize> {
        let total = self.snapshot.nodes.len();
        if self.profile.filters.contains(Plugin::NodeAffinity)
            && let Some(names) = self.affinity.names()
        {
            let reason = "node(s) didn't satisfy plugin(s) [NodeAffinity]";
            for (rejection, node) in rejections.iter_mut().zip(&self.snapshot.nodes) {
                if !names.contains(&&*node.name) {
                    *rejection = Some(Rejection::unresolvable(Plugin::NodeAffinity, reason));
                }
            }
            return (0..total).filter(|i| rejections[*i].is_none()).collect();
        }
        let start = start.checked_rem(total).unwrap_or(0);
        (start..total).chain(0..start).collect()
    }

    /// How many nodes to find before scoring.
    fn wanted(&self, total: usize) -> usize {
        if total < MIN_FEASIBLE {
            return total;
        }
        let percentage = match self.profile.percentage_of_nodes {
            Some(p) if p > 0 => p as usize,
            // What a policy is about shows only among all nodes.
            _ if self.follows_policy() => 100,
            _ => (50usize.saturating_sub(total / 125)).max(5),
        };
        (total * percentage.min(100) / 100).max(MIN_FEASIBLE)
    }

    /// The feasible nodes, in order, until enough are found or the attempt itself fails on one. In that case a claim is
    /// invalid, and as in upstream the pod waits until it is corrected, even if another node would be feasible.
    fn feasible(
        &self,
        order: &[usize],
        wanted: usize,
        nominated: Nominated<'_>,
        rejections: &mut [Option<Rejection>],
    ) -> Vec<usize> {
        let mut feasible = Vec::new();
        let many = self.snapshot.nodes.len() >= PARALLEL_FROM;
        for chunk in order.chunks(PARALLEL_FROM) {
            let filtered = match many {
                true => self.filter_together(chunk, nominated),
                false => Vec::new(),
            };
            for (i, at) in chunk.iter().enumerate() {
                let node = &self.snapshot.nodes[*at];
                let outcome = match filtered.get(i) {
                    Some(Some(outcome)) => outcome.clone(),
                    _ => self.filter(node, nominated),
                };
                let Err(rejection) = outcome.and_then(|()| self.check_devices(node)) else {
                    feasible.push(*at);
                    if feasible.len() >= wanted {
                        return feasible;
                    }
                    continue;
                };
                let failed = matches!(rejection.code, Code::Error | Code::GaveUp);
                rejections[*at] = Some(rejection);
                if failed {
                    return feasible;
                }
            }
        }
        feasible
    }

    /// Filters nodes in several threads; `None` for nodes with nominated pods, which the threads do not see.
    fn filter_together(
        &self,
        nodes: &[usize],
        nominated: Nominated<'_>,
    ) -> Vec<Option<Result<(), Rejection>>> {
        let alone: Vec<bool> = nodes
            .iter()
            .map(|at| nominated(&self.snapshot.nodes[*at].name).is_empty())
            .collect();
        let judge = |(at, alone): (&usize, &bool)| {
            let node = &self.snapshot.nodes[*at];
            alone.then(|| self.filter_with(node, &self.others))
        };
        nodes
            .par_iter()
            .zip(alone.par_iter())
            .with_min_len(128)
            .map(judge)
            .collect()
    }

    /// Whether devices are available for the pod on a node; devices that drivers allocate are not checked here.
    fn check_devices(&self, node: &NodeInfo) -> Result<(), Rejection> {
        match &self.devices {
            Some(devices) => devices.check(node, &self.dra),
            None => Ok(()),
        }
    }
}
