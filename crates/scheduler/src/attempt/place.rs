//! Which nodes are looked at, in which order, and how many.

use std::sync::atomic::Ordering;
use std::time::Instant;

use rayon::prelude::*;

use super::{Attempt, Nominated, Placement, Unplaced};
use crate::plugins::Plugin;
use crate::status::{Code, Rejection};

/// From this number of nodes on, filtering is worth several threads.
const PARALLEL_FROM: usize = 1024;
/// Fewest nodes to find before scoring; upstream's value.
const MIN_FEASIBLE: usize = 100;

impl Attempt<'_> {
    /// Places the pod. `start` is the position at which to begin, so that nodes take turns.
    pub fn place(&self, start: usize, nominated: Nominated<'_>) -> Result<Placement, Unplaced> {
        let total = self.snapshot.nodes.len();
        let mut rejections: Vec<Option<Rejection>> = vec![None; total];
        let order: Vec<usize> = self.order(start, &mut rejections);
        let wanted = self.wanted(order.len());
        let mut rest = order.as_slice();
        // Where preemption made room the pod goes there, if it still can.
        if let Some(at) = self.expected_on.and_then(|n| self.snapshot.position(n)) {
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
        while !rest.is_empty() {
            let (feasible, seen) = self.feasible(rest, wanted, nominated, &mut rejections);
            rest = &rest[seen..];
            if feasible.is_empty() {
                continue;
            }
            let begin = Instant::now();
            let best = self.best(&feasible, &mut rejections);
            let taken = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.scoring.fetch_add(taken, Ordering::Relaxed);
            if let Some(placement) = best {
                return Ok(placement);
            }
            let failed = |r: &Rejection| matches!(r.code, Code::Error | Code::GaveUp);
            if rejections.iter().flatten().any(failed) {
                break;
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
        Err(Unplaced {
            nodes: rejections,
            before: None,
        })
    }

    /// The nodes to look at, in order. Those that the pod's own affinity excludes by name are rejected at once.
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
            _ => (50usize.saturating_sub(total / 125)).max(5),
        };
        (total * percentage.min(100) / 100).max(MIN_FEASIBLE)
    }

    /// Filters nodes in order until enough are found. Says which, and how many were looked at.
    fn feasible(
        &self,
        order: &[usize],
        wanted: usize,
        nominated: Nominated<'_>,
        rejections: &mut [Option<Rejection>],
    ) -> (Vec<usize>, usize) {
        let mut feasible = Vec::new();
        let mut seen = 0;
        if self.snapshot.nodes.len() >= PARALLEL_FROM {
            let expected: Vec<bool> = order
                .iter()
                .map(|i| !nominated(&self.snapshot.nodes[*i].name).is_empty())
                .collect();
            for (chunk, expected) in order
                .chunks(PARALLEL_FROM)
                .zip(expected.chunks(PARALLEL_FROM))
            {
                let judge = |(i, special): (&usize, &bool)| {
                    let node = &self.snapshot.nodes[*i];
                    // Nominations are looked up outside of the pool of threads.
                    if *special {
                        Ok(())
                    } else {
                        self.filter_with(node, &self.others)
                    }
                };
                let outcomes: Vec<_> = chunk
                    .par_iter()
                    .zip(expected.par_iter())
                    .with_min_len(128)
                    .map(judge)
                    .collect();
                for ((i, outcome), special) in chunk.iter().zip(outcomes).zip(expected) {
                    seen += 1;
                    let outcome = if *special {
                        self.filter(&self.snapshot.nodes[*i], nominated)
                    } else {
                        outcome
                    };
                    match outcome {
                        Ok(()) => feasible.push(*i),
                        Err(rejection) => rejections[*i] = Some(rejection),
                    }
                    if feasible.len() >= wanted {
                        return (feasible, seen);
                    }
                }
            }
            return (feasible, seen);
        }
        for i in order {
            seen += 1;
            match self.filter(&self.snapshot.nodes[*i], nominated) {
                Ok(()) => feasible.push(*i),
                Err(rejection) => rejections[*i] = Some(rejection),
            }
            if feasible.len() >= wanted {
                break;
            }
        }
        (feasible, seen)
    }
}
