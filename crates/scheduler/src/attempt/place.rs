//! Which nodes are filtered, in which order, and how many.

use std::ops::Range;
use std::sync::atomic::Ordering;

use rayon::prelude::*;

use super::memo::NodeAnswers;
use super::{Attempt, FitError, Nominated, Others, Placement};
use crate::framework::Plugin;
use crate::status::{Code, Rejection};

/// From this number of nodes on, filtering uses several threads.
const PARALLEL_FROM: usize = 1024;
/// Fewest nodes to find before scoring; upstream's value.
const MIN_FEASIBLE: usize = 100;

/// Nodes that reject the pod, by position. Most attempts find a node before there are many.
pub(super) type Rejections = Vec<(usize, Rejection)>;

/// The positions of the nodes to filter, in order.
enum Order {
    /// All nodes, beginning at a position.
    Around {
        start: usize,
        total: usize,
    },
    Listed(Vec<usize>),
}

impl Order {
    fn len(&self) -> usize {
        match self {
            Self::Around { total, .. } => *total,
            Self::Listed(list) => list.len(),
        }
    }

    fn get(&self, place: usize) -> usize {
        match self {
            Self::Around { start, total } if start + place < *total => start + place,
            Self::Around { start, total } => start + place - total,
            Self::Listed(list) => list[place],
        }
    }
}

impl Attempt<'_> {
    /// Places the pod. `start` is the position at which to begin, so that nodes take turns.
    pub fn place(&self, start: usize, nominated: Nominated<'_>) -> Result<Placement, FitError> {
        let mut rejections = Vec::new();
        let order = self.order(start, &mut rejections);
        let wanted = self.num_feasible_nodes_to_find(order.len());
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
        let mut known = self.memo.and_then(|memo| memo.answers_for(self));
        let known = &mut known;
        let feasible = self.feasible(&order, wanted, nominated, known, &mut rejections);
        let failed = |r: &Rejection| matches!(r.code, Code::Error | Code::Inconclusive);
        if !feasible.is_empty() && !rejections.iter().any(|(_, r)| failed(r)) {
            let begin = self.sources.elapsed();
            let best = self.select_host(&feasible, known, &mut rejections);
            let taken = self.sources.elapsed().saturating_sub(begin);
            let taken = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
            self.scoring.fetch_add(taken, Ordering::Relaxed);
            if let Some(placement) = best {
                return Ok(placement);
            }
        }
        if let Some(devices) = &self.devices {
            let unavailable = rejections.iter_mut().filter(|(_, r)| r.is_not_available());
            for (at, rejection) in unavailable {
                let node = &self.snapshot.nodes[*at];
                if let Err(other) = devices.fits_otherwise(node, &self.dra) {
                    *rejection = other;
                }
            }
        }
        let mut nodes = vec![None; self.snapshot.nodes.len()];
        for (at, rejection) in rejections {
            nodes[at] = Some(rejection);
        }
        let before = None;
        Err(FitError { nodes, before })
    }

    /// The nodes to filter, in order. Nodes that the pod's own affinity excludes by name are rejected at once.
    fn order(&self, start: usize, rejections: &mut Rejections) -> Order {
        let total = self.snapshot.nodes.len();
        if self.profile.filters.contains(Plugin::NodeAffinity)
            && let Some(names) = self.affinity.names()
        {
            let reason = "node(s) didn't satisfy plugin(s) [NodeAffinity]";
            let mut order = Vec::new();
            for (at, node) in self.snapshot.nodes.iter().enumerate() {
                match names.contains(&&*node.name) {
                    true => order.push(at),
                    false => {
                        let rejection = Rejection::unresolvable(Plugin::NodeAffinity, reason);
                        rejections.push((at, rejection));
                    }
                }
            }
            return Order::Listed(order);
        }
        let start = start.checked_rem(total).unwrap_or(0);
        Order::Around { start, total }
    }

    /// How many feasible nodes to find before scoring; the rule is that of kube-scheduler's `numFeasibleNodesToFind`.
    fn num_feasible_nodes_to_find(&self, total: usize) -> usize {
        if total < MIN_FEASIBLE {
            return total;
        }
        let percentage = match self.profile.percentage_of_nodes {
            Some(p) if p > 0 => p as usize,
            // A placement policy prefers the best of all nodes.
            _ if self.follows_policy() => 100,
            _ => (50usize.saturating_sub(total / 125)).max(5),
        };
        (total * percentage.min(100) / 100).max(MIN_FEASIBLE)
    }

    /// The feasible nodes, in order, until enough are found or the attempt itself fails on one. In that case a claim is
    /// invalid, and as in upstream the pod waits until it is corrected, even if another node would be feasible.
    fn feasible(
        &self,
        order: &Order,
        wanted: usize,
        nominated: Nominated<'_>,
        known: &mut Option<NodeAnswers<'_>>,
        rejections: &mut Rejections,
    ) -> Vec<usize> {
        let mut feasible = Vec::with_capacity(wanted.min(order.len()));
        let (mut next, mut end) = (0, 0);
        let mut filtered = Vec::new();
        let mut checks = self.devices.as_ref().map(|d| d.checks(&self.dra));
        while next < order.len() {
            if next == end {
                // Most often nearly all nodes fit: filtering more than are wanted would be wasted. If most do not, all may
                // have to be filtered.
                let most_reject = feasible.len() < next / 2;
                let chunk = match most_reject {
                    true => PARALLEL_FROM,
                    false => (wanted - feasible.len()).max(MIN_FEASIBLE),
                };
                end = order.len().min(next + chunk);
                let together = self.snapshot.nodes.len() >= PARALLEL_FROM
                    && (most_reject && known.is_none() || self.filters_are_costly());
                filtered = match together {
                    true => self.filter_together(order, next..end, nominated),
                    false => Vec::new(),
                };
                filtered.reverse();
            }
            let at = order.get(next);
            next += 1;
            let node = &self.snapshot.nodes[at];
            let outcome = match filtered.pop() {
                Some(Some(outcome)) => outcome,
                _ => self.filter_known(at, nominated, known),
            };
            let outcome = outcome.and_then(|()| match (&mut checks, known.as_mut()) {
                (Some(checks), Some(known)) => checks.check(node, known.devices(at)),
                (Some(checks), None) => checks.check(node, &mut None),
                (None, _) => Ok(()),
            });
            let Err(rejection) = outcome else {
                feasible.push(at);
                if feasible.len() >= wanted {
                    return feasible;
                }
                continue;
            };
            let failed = matches!(rejection.code, Code::Error | Code::Inconclusive);
            rejections.push((at, rejection));
            if failed {
                return feasible;
            }
        }
        feasible
    }

    /// As [`Attempt::filter`], with cached results for the node.
    fn filter_known(
        &self,
        at: usize,
        nominated: Nominated<'_>,
        known: &mut Option<NodeAnswers<'_>>,
    ) -> Result<(), Rejection> {
        let node = &self.snapshot.nodes[at];
        let Some(known) = known else {
            return self.filter(node, nominated);
        };
        self.filter_with_nominated(node, nominated)?;
        match &known.of(at).rejection {
            Some(rejection) => Err((**rejection).clone()),
            None => self.run_other_filters(node, &self.others, &mut |outcome| outcome),
        }
    }

    /// Whether a filter looks at more than the node itself: then several threads save time.
    fn filters_are_costly(&self) -> bool {
        let Others {
            exclusive,
            spread,
            interpod,
        } = &self.others;
        exclusive.is_some()
            || spread.is_some()
            || interpod.is_some()
            || self.volumes.is_some()
            || self.attachments.is_some()
            || self.plugin_claims.is_some()
    }

    /// Filters nodes in several threads. `None` for nodes with nominated pods: they are filtered one by one afterwards.
    fn filter_together(
        &self,
        order: &Order,
        places: Range<usize>,
        nominated: Nominated<'_>,
    ) -> Vec<Option<Result<(), Rejection>>> {
        let alone = |place: usize| {
            let at = order.get(place);
            let alone = nominated(&self.snapshot.nodes[at].name).is_empty();
            (at, alone)
        };
        let nodes: Vec<(usize, bool)> = places.map(alone).collect();
        let judge = |(at, alone): &(usize, bool)| {
            let node = &self.snapshot.nodes[*at];
            alone.then(|| self.filter_with(node, &self.others))
        };
        nodes.par_iter().with_min_len(128).map(judge).collect()
    }
}
