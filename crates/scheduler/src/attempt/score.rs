//! Scores of the feasible nodes, and the choice of the best one with its devices (kube-scheduler's `prioritizeNodes` and
//! `selectHost`).

use std::borrow::Cow;
use std::sync::Arc;

use allot_allocator::Policy;

use super::memo::{NodeAnswers, NodeScores};
use super::place::Rejections;
use super::{Attempt, Placement};
use crate::dra::{Counts, NodeDevices, PodDevices};
use crate::framework::Plugin;
use crate::node::NodeInfo;
use crate::plugins::fit::FitArgs;
use crate::plugins::{fit, interpod, normalize, spread, taints};

/// Scores nodes by the plugins that look at nothing but a node, and for extended resources at its devices.
pub(super) struct NodeScorer<'s> {
    pub(super) attempt: &'s Attempt<'s>,
    fit: Cow<'s, FitArgs>,
    fit_counts: Option<Counts<'s>>,
    balanced_counts: Option<Counts<'s>>,
    is_best_effort: bool,
}

impl NodeScorer<'_> {
    pub(super) fn scores(&self, node: &NodeInfo) -> NodeScores {
        let (attempt, pod, profile) = (self.attempt, self.attempt.pod, self.attempt.profile);
        let mut scores = NodeScores::default();
        for (plugin, weight) in &profile.weights {
            match plugin {
                Plugin::TaintToleration => scores.taints = taints::score(pod.tolerations(), node),
                Plugin::NodeAffinity if attempt.prefers_nodes() => {
                    let own = attempt.affinity.score(node);
                    scores.affinity = own + profile.added_affinity.score(node);
                }
                Plugin::NodeResourcesFit => {
                    let devices = |r: &str, n: &NodeInfo| self.fit_counts.as_ref()?.of(r, n);
                    scores.resources += fit::score(pod, node, &self.fit, &devices) * weight;
                }
                Plugin::NodeResourcesBalancedAllocation if !self.is_best_effort => {
                    let devices = |r: &str, n: &NodeInfo| self.balanced_counts.as_ref()?.of(r, n);
                    let score = fit::balanced(pod, node, &profile.balanced, &devices);
                    scores.resources += score * weight;
                }
                _ => {}
            }
        }
        scores
    }
}

/// The score of a node where the allocation failed.
const ALLOCATION_FAILED: i64 = i64::MIN;

impl Attempt<'_> {
    /// The best feasible node, and what is allocated there. A node where the allocation fails is rejected.
    pub(super) fn select_host(
        &self,
        feasible: &[usize],
        known: &mut Option<NodeAnswers<'_>>,
        rejections: &mut Rejections,
    ) -> Option<Placement> {
        let mut scores = match feasible.len() {
            0 | 1 => vec![0; feasible.len()],
            _ => self.scores(feasible, known),
        };
        if let Some(plugin) = self.devices.as_ref().filter(|_| feasible.len() > 1) {
            self.add_preferences(plugin, feasible, &mut scores);
            if self.follows_policy() {
                self.add_placement(plugin, feasible, &mut scores);
            }
        }
        // The first of the best; of equals the one before, as in the order of all.
        let best = |left: &[i64]| {
            let most = left
                .iter()
                .copied()
                .max()
                .filter(|most| *most > ALLOCATION_FAILED)?;
            left.iter().position(|score| *score == most)
        };
        while let Some(at) = best(&scores) {
            scores[at] = ALLOCATION_FAILED;
            let node = feasible[at];
            match self.allocate(&self.snapshot.nodes[node]) {
                Ok(devices) if self.negotiates() => {
                    return Some(self.negotiable(feasible.to_vec(), node, devices));
                }
                Ok(devices) => {
                    return Some(Placement {
                        node,
                        devices,
                        feasible: Vec::new(),
                    });
                }
                Err(rejection) => rejections.push((node, rejection)),
            }
        }
        None
    }

    /// Whether a placement policy takes part in the score.
    pub(super) fn follows_policy(&self) -> bool {
        self.devices.is_some() && self.profile.dynamic_resources.placement != Policy::FirstFit
    }

    /// Adds the score of the placement policy: from 0 for the last node to a hundred times the weight for the first.
    fn add_placement(&self, plugin: &PodDevices, nodes: &[usize], scores: &mut [i64]) {
        let preference = |at: &usize| plugin.preference(&self.snapshot.nodes[*at], &self.dra);
        let own: Vec<Option<i64>> = nodes.iter().map(preference).collect();
        let known = own.iter().flatten();
        let (Some(least), Some(most)) = (known.clone().min(), known.max()) else {
            return;
        };
        let (least, range) = (*least, (most - least).max(1));
        let weight = 100 * self.profile.dynamic_resources.placement_weight;
        for (score, own) in scores.iter_mut().zip(own) {
            *score += own.map_or(0, |own| (own - least) * weight / range);
        }
    }

    /// Adds the score for the alternatives of lists that would be allocated on the nodes.
    fn add_preferences(&self, plugin: &PodDevices, nodes: &[usize], scores: &mut [i64]) {
        let weight = self.profile.weight(Plugin::DynamicResources);
        if weight == 0 || !plugin.has_preferences(&self.dra) {
            return;
        }
        let devices = nodes
            .iter()
            .map(|at| self.allocate(&self.snapshot.nodes[*at]));
        let mut own: Vec<i64> = devices
            .map(|devices| devices.map_or(0, |d| plugin.score(&d)))
            .collect();
        normalize(&mut own, false);
        for (score, own) in scores.iter_mut().zip(own) {
            *score += own * weight;
        }
    }

    /// The outcome for a pod with claims that drivers must allocate first: all feasible nodes, and the node that was
    /// published to the drivers before, if it is still feasible.
    fn negotiable(&self, feasible: Vec<usize>, best: usize, devices: NodeDevices) -> Placement {
        let told = self
            .plugin_claims
            .as_ref()
            .and_then(|c| c.preferred(&self.snapshot.nodes, &feasible));
        Placement {
            node: told.unwrap_or(best),
            devices,
            feasible,
        }
    }

    /// The extended resources among the scored resources that devices provide.
    fn counts(&self, scored: &[(Arc<str>, i64)]) -> Option<Counts<'_>> {
        self.devices.as_ref()?.counts(scored, &self.dra)
    }

    /// Prepares the scores by the plugins that look at nothing but a node.
    pub(super) fn node_scorer(&self) -> NodeScorer<'_> {
        let fit = self.profile.fit_args();
        NodeScorer {
            fit_counts: self.counts(&fit.resources),
            balanced_counts: self.counts(&self.profile.balanced),
            is_best_effort: fit::is_best_effort(self.pod, &self.profile.balanced),
            attempt: self,
            fit,
        }
    }

    /// Whether nodes differ in the score of NodeAffinity.
    fn prefers_nodes(&self) -> bool {
        self.affinity.has_preferences() || self.profile.added_affinity.has_preferences()
    }

    /// Weighted scores of nodes by all plugins but DynamicResources.
    fn scores(&self, nodes: &[usize], known: &mut Option<NodeAnswers<'_>>) -> Vec<i64> {
        let (pod, snapshot, profile) = (self.pod, self.snapshot, self.profile);
        let own: Vec<NodeScores> = match known {
            Some(known) => nodes.iter().map(|at| known.of(*at).scores).collect(),
            None => {
                let scorer = self.node_scorer();
                let scores = |at: &usize| scorer.scores(&snapshot.nodes[*at]);
                nodes.iter().map(scores).collect()
            }
        };
        let mut total: Vec<i64> = own.iter().map(|own| own.resources).collect();
        for (plugin, weight) in &profile.weights {
            let scores = match plugin {
                Plugin::TaintToleration => {
                    let mut s: Vec<i64> = own.iter().map(|own| own.taints).collect();
                    normalize(&mut s, true);
                    Some(s)
                }
                Plugin::NodeAffinity if self.prefers_nodes() => {
                    let mut s: Vec<i64> = own.iter().map(|own| own.affinity).collect();
                    normalize(&mut s, false);
                    Some(s)
                }
                Plugin::PodTopologySpread => {
                    spread::scores(pod, &self.affinity, snapshot, nodes, &profile.spread)
                }
                Plugin::InterPodAffinity => {
                    let ignore = profile.ignore_preferred_terms_of_existing_pods;
                    let weight = profile.hard_pod_affinity_weight;
                    interpod::scores(pod, snapshot, nodes, weight, ignore)
                }
                _ => {
                    let score = plugin.definition().score;
                    score.and_then(|score| score(pod, snapshot, nodes))
                }
            };
            for (sum, score) in total.iter_mut().zip(scores.into_iter().flatten()) {
                *sum += score * weight;
            }
        }
        total
    }
}
