//! Which of the nodes that fit is the best, and what the pod gets there.

use std::sync::Arc;

use super::{Attempt, Placement};
use crate::dra::{Counts, NodeDevices, PodDevices};
use crate::node::NodeInfo;
use crate::plugins::image::ImageLocality;
use crate::plugins::{Plugin, fit, interpod, normalize, spread, taints};
use crate::status::{Code, Rejection};

impl Attempt<'_> {
    /// The best of the nodes that fit, with devices. Nodes on which devices can not be allocated are rejected; none is
    /// the best if the attempt as such fails on one of them.
    pub(super) fn best(
        &self,
        feasible: &[usize],
        rejections: &mut [Option<Rejection>],
    ) -> Option<Placement> {
        let devices_count = self.profile.weight(Plugin::DynamicResources) > 0
            && self
                .devices
                .as_ref()
                .is_some_and(|d| d.has_preferences(&self.dra));
        let negotiates = self.negotiates();
        if !(devices_count || negotiates && self.devices.is_some()) {
            let scores = if feasible.len() > 1 {
                self.scores(feasible)
            } else {
                vec![0]
            };
            let mut ranked: Vec<usize> = (0..feasible.len()).collect();
            ranked.sort_by_key(|i| std::cmp::Reverse(scores[*i]));
            if negotiates {
                let best = feasible[*ranked.first()?];
                return Some(self.negotiable(feasible.to_vec(), best, NodeDevices::default()));
            }
            let mut ranked = ranked.into_iter().map(|at| feasible[at]);
            while let Some(node) = ranked.next() {
                match self.allocate(&self.snapshot.nodes[node]) {
                    Ok(devices) => {
                        let may_fail = |d: &PodDevices| d.may_fail(&self.dra);
                        if ranked.len() > 0
                            && self.devices.as_ref().is_some_and(may_fail)
                            && self.fails_on(ranked, rejections)
                        {
                            return None;
                        }
                        return Some(Placement {
                            node,
                            devices,
                            feasible: Vec::new(),
                        });
                    }
                    Err(rejection) => {
                        let failed = rejection.code == Code::Error;
                        rejections[node] = Some(rejection);
                        if failed {
                            return None;
                        }
                    }
                }
            }
            return None;
        }
        let mut fitting = Vec::new();
        let mut found = Vec::new();
        for node in feasible {
            match self.allocate(&self.snapshot.nodes[*node]) {
                Ok(devices) => {
                    fitting.push(*node);
                    found.push(devices);
                }
                Err(rejection) => {
                    let failed = rejection.code == Code::Error;
                    rejections[*node] = Some(rejection);
                    if failed {
                        return None;
                    }
                }
            }
        }
        if fitting.is_empty() {
            return None;
        }
        let mut scores = self.scores(&fitting);
        if devices_count && let Some(plugin) = &self.devices {
            let mut own: Vec<i64> = found.iter().map(|d| plugin.score(d)).collect();
            normalize(&mut own, false);
            let weight = self.profile.weight(Plugin::DynamicResources);
            scores
                .iter_mut()
                .zip(own)
                .for_each(|(s, o)| *s += o * weight);
        }
        let best = (0..fitting.len()).max_by_key(|i| (scores[*i], std::cmp::Reverse(*i)))?;
        if negotiates {
            let node = fitting[best];
            return Some(self.negotiable(fitting, node, found.swap_remove(best)));
        }
        Some(Placement {
            node: fitting[best],
            devices: found.swap_remove(best),
            feasible: Vec::new(),
        })
    }

    /// Whether the attempt as such fails on one of the nodes: something is wrong with a claim then, and as in upstream
    /// the pod waits until that is mended, even where another node would do.
    fn fails_on(
        &self,
        nodes: impl Iterator<Item = usize>,
        rejections: &mut [Option<Rejection>],
    ) -> bool {
        for node in nodes {
            if let Err(rejection) = self.allocate(&self.snapshot.nodes[node])
                && rejection.code == Code::Error
            {
                rejections[node] = Some(rejection);
                return true;
            }
        }
        false
    }

    /// The outcome for a pod whose claims drivers have to allocate first: all nodes that fit, and of these the one that
    /// the drivers were told before, if it is still there.
    fn negotiable(&self, feasible: Vec<usize>, best: usize, devices: NodeDevices) -> Placement {
        let told = self
            .classic
            .as_ref()
            .and_then(|c| c.selected_among(&self.snapshot.nodes, &feasible));
        Placement {
            node: told.unwrap_or(best),
            devices,
            feasible,
        }
    }

    /// What devices stand for, among resources that are scored.
    fn counts(&self, scored: &[(Arc<str>, i64)]) -> Option<Counts<'_>> {
        self.devices.as_ref()?.counts(scored, &self.dra)
    }

    /// Weighted scores of nodes by all plugins but DynamicResources.
    fn scores(&self, nodes: &[usize]) -> Vec<i64> {
        let mut total = vec![0i64; nodes.len()];
        let (pod, snapshot, profile) = (self.pod, self.snapshot, self.profile);
        let each = |f: &dyn Fn(&NodeInfo) -> i64| {
            nodes
                .iter()
                .map(|i| f(&snapshot.nodes[*i]))
                .collect::<Vec<_>>()
        };
        for (plugin, weight) in profile.weights.iter().filter(|(_, w)| *w > 0) {
            let scores = match plugin {
                Plugin::TaintToleration => {
                    let mut s = each(&|n| taints::score(pod.tolerations(), n));
                    normalize(&mut s, true);
                    Some(s)
                }
                Plugin::NodeAffinity
                    if self.affinity.has_preferences()
                        || profile.added_affinity.has_preferences() =>
                {
                    let added = &profile.added_affinity;
                    let mut s = each(&|n| self.affinity.score(n) + added.score(n));
                    normalize(&mut s, false);
                    Some(s)
                }
                Plugin::NodeResourcesFit => {
                    let counts = self.counts(&profile.fit.resources);
                    let devices = |r: &str, n: &NodeInfo| counts.as_ref()?.of(r, n);
                    Some(each(&|n| fit::score(pod, n, &profile.fit, &devices)))
                }
                Plugin::NodeResourcesBalancedAllocation
                    if !fit::is_best_effort(pod, &profile.balanced) =>
                {
                    let counts = self.counts(&profile.balanced);
                    let devices = |r: &str, n: &NodeInfo| counts.as_ref()?.of(r, n);
                    Some(each(&|n| {
                        fit::balanced(pod, n, &profile.balanced, &devices)
                    }))
                }
                Plugin::ImageLocality if !snapshot.image_nodes.is_empty() => {
                    let images = ImageLocality::new(pod);
                    Some(each(&|n| {
                        images.score(n, &snapshot.image_nodes, snapshot.nodes.len())
                    }))
                }
                Plugin::PodTopologySpread => {
                    spread::scores(pod, &self.affinity, snapshot, nodes, &profile.spread)
                }
                Plugin::InterPodAffinity => {
                    let ignore = profile.ignore_preferred_terms_of_existing_pods;
                    let weight = profile.hard_pod_affinity_weight;
                    interpod::scores(pod, snapshot, nodes, weight, ignore)
                }
                _ => None,
            };
            for (sum, score) in total.iter_mut().zip(scores.into_iter().flatten()) {
                *sum += score * weight;
            }
        }
        total
    }
}
