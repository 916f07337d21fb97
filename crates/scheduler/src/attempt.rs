//! One attempt to place one pod: filter nodes, score those that fit, allocate devices on the best.
//!
//! Devices are allocated last and only on the nodes that are preferred by everything else, best first, until it works:
//! for most pods that is a single allocation, where upstream allocates on every node that it looks at. Where the
//! allocation itself counts in the score (lists of alternatives), it is done on every candidate, as upstream does.

use std::sync::Arc;

use rayon::prelude::*;

use crate::cache::Snapshot;
use crate::classic::PodClaims;
use crate::config::Profile;
use crate::dra::{DraContext, NodeDevices, PodDevices};
use crate::node::NodeInfo;
use crate::plugins::affinity::NodeAffinity;
use crate::plugins::image::ImageLocality;
use crate::plugins::interpod::{self, InterPodAffinity};
use crate::plugins::spread::{self, Spread};
use crate::plugins::volumes::{self, Attachments, Choice, ExclusiveClaims, PodVolumes};
use crate::plugins::{Plugin, fit, normalize, ports, simple, taints};
use crate::pod::PodInfo;
use crate::status::{Code, Rejection};

/// From this number of nodes on, filtering is worth several threads.
const PARALLEL_FROM: usize = 1024;
/// Fewest nodes to find before scoring; upstream's value.
const MIN_FEASIBLE: usize = 100;

/// Pods that preemption made room for, on the node where they are expected.
pub type Nominated<'a> = &'a dyn Fn(&str) -> Vec<Arc<PodInfo>>;

/// The pod and everything that was prepared for it.
pub struct Attempt<'a> {
    /// The pod.
    pub pod: &'a Arc<PodInfo>,
    /// Nodes and pods.
    pub snapshot: &'a Snapshot,
    /// How to schedule.
    pub profile: &'a Profile,
    /// Devices.
    pub dra: DraContext<'a>,
    affinity: NodeAffinity,
    others: Others,
    attachments: Option<Attachments<'a>>,
    volumes: Option<PodVolumes<'a>>,
    devices: Option<PodDevices>,
    classic: Option<PodClaims>,
}

/// What depends on which other pods are on nodes.
#[derive(Debug, Clone, Default)]
struct Others {
    exclusive: Option<ExclusiveClaims>,
    spread: Option<Spread>,
    interpod: Option<InterPodAffinity>,
}

/// Where the pod goes.
#[derive(Debug)]
pub struct Placement {
    /// Position of the node in the snapshot.
    pub node: usize,
    /// What it gets there.
    pub devices: NodeDevices,
    /// All nodes where it fits; for pods whose claims drivers have to allocate first.
    pub feasible: Vec<usize>,
}

/// Why the pod goes nowhere.
#[derive(Debug)]
pub struct Unplaced {
    /// Rejection per node, by position; empty when the pod was rejected as such.
    pub nodes: Vec<Option<Rejection>>,
    /// Rejection of the pod before any node was looked at.
    pub before: Option<Rejection>,
}

impl Unplaced {
    /// The failure that ended the attempt, if it was one.
    pub fn error(&self) -> Option<&Rejection> {
        self.before
            .iter()
            .chain(self.nodes.iter().flatten())
            .find(|r| r.code == Code::Error)
    }
}

impl<'a> Attempt<'a> {
    /// Prepares the plugins that are on in the profile.
    pub fn prepare(
        pod: &'a Arc<PodInfo>,
        snapshot: &'a Snapshot,
        profile: &'a Profile,
        dra: DraContext<'a>,
    ) -> Result<Self, Rejection> {
        let on = |p| profile.filters.contains(p);
        let exclusive = match on(Plugin::VolumeRestrictions) {
            true => ExclusiveClaims::new(pod, snapshot)?,
            false => None,
        };
        let volumes = match on(Plugin::VolumeBinding) {
            true => PodVolumes::prepare(pod, &snapshot.storage)?,
            false => None,
        };
        let attachments = on(Plugin::NodeVolumeLimits)
            .then(|| Attachments::new(pod, &snapshot.storage))
            .flatten();
        let affinity = NodeAffinity::new(pod);
        let spread = on(Plugin::PodTopologySpread)
            .then(|| Spread::new(pod, &affinity, snapshot, &profile.spread))
            .flatten();
        let interpod = on(Plugin::InterPodAffinity)
            .then(|| InterPodAffinity::new(pod, snapshot))
            .flatten();
        let devices = if on(Plugin::DynamicResources) {
            PodDevices::prepare(pod, &dra)?
        } else {
            None
        };
        let classic = match dra.classic {
            Some(classic) if on(Plugin::DynamicResources) => PodClaims::prepare(pod, classic)?,
            _ => None,
        };
        Ok(Self {
            pod,
            snapshot,
            profile,
            dra,
            affinity,
            others: Others {
                exclusive,
                spread,
                interpod,
            },
            attachments,
            volumes,
            devices,
            classic,
        })
    }

    /// The classic claims of the pod, if it has any.
    pub fn classic(&self) -> Option<&PodClaims> {
        self.classic.as_ref()
    }

    /// Whether drivers have to allocate claims before the pod can be placed.
    fn negotiates(&self) -> bool {
        self.classic.as_ref().is_some_and(PodClaims::is_pending)
    }

    /// What has to be done about the pod's volumes before it goes to a node.
    ///
    /// # Errors
    /// When its volumes can not be there.
    pub fn choose_volumes(&self, node: &NodeInfo) -> Result<Choice, Rejection> {
        let volumes = self.volumes.as_ref();
        volumes.map_or_else(|| Ok(Choice::default()), |v| v.choose(node))
    }

    /// The claims of the pod, if it has any.
    pub fn devices(&self) -> Option<&PodDevices> {
        self.devices.as_ref()
    }

    /// All filters but DynamicResources, in upstream's order.
    fn filter_with(&self, node: &NodeInfo, others: &Others) -> Result<(), Rejection> {
        let (pod, on) = (self.pod, |p| self.profile.filters.contains(p));
        if on(Plugin::NodeUnschedulable) {
            simple::unschedulable(pod.tolerations(), node)?;
        }
        if on(Plugin::NodeName) {
            simple::node_name(pod, node)?;
        }
        if on(Plugin::TaintToleration) {
            taints::filter(pod.tolerations(), node)?;
        }
        if on(Plugin::NodeAffinity) {
            self.affinity.filter(node)?;
        }
        if on(Plugin::NodePorts) && !pod.ports.is_empty() {
            ports::filter(pod, node)?;
        }
        if on(Plugin::NodeResourcesFit) {
            let delegated = |name: &str| self.devices.as_ref().is_some_and(|d| d.delegates(name));
            fit::filter(pod, node, &self.profile.fit, delegated)?;
        }
        if let Some(exclusive) = &others.exclusive {
            exclusive.filter()?;
        }
        if let Some(attachments) = &self.attachments {
            attachments.filter(node)?;
        }
        if let Some(volumes) = &self.volumes {
            volumes.choose(node)?;
            if on(Plugin::VolumeZone) {
                volumes::zones(volumes, node)?;
            }
        }
        if let Some(spread) = &others.spread {
            spread.filter(node)?;
        }
        if let Some(interpod) = &others.interpod {
            interpod.filter(pod, node, self.snapshot)?;
        }
        if let (Some(claims), Some(classic)) = (&self.classic, self.dra.classic) {
            claims.filter(node, classic)?;
        }
        Ok(())
    }

    /// All filters but DynamicResources; with the pods that are nominated to the node, and without them.
    fn filter(&self, node: &NodeInfo, nominated: Nominated<'_>) -> Result<(), Rejection> {
        let expected = nominated(&node.name);
        if !expected.is_empty() {
            self.without_and_with(node, &[], &expected)?;
        }
        self.filter_with(node, &self.others)
    }

    /// Filters a node as it would be without some pods and with some others.
    fn without_and_with(
        &self,
        node: &NodeInfo,
        removed: &[Arc<PodInfo>],
        added: &[Arc<PodInfo>],
    ) -> Result<(), Rejection> {
        let mut node = node.clone();
        let mut others = self.others.clone();
        let mut update = |other: &PodInfo, node: &NodeInfo, delta| {
            if let Some(e) = &mut others.exclusive {
                e.update(other, delta);
            }
            if let Some(s) = &mut others.spread {
                s.update(self.pod, other, node, delta);
            }
            if let Some(i) = &mut others.interpod {
                i.update(self.pod, other, node, self.snapshot, delta);
            }
        };
        for pod in removed {
            if node.remove_pod(&pod.uid).is_some() {
                update(pod, &node, -1);
            }
        }
        for pod in added {
            update(pod, &node, 1);
            node.add_pod(pod.clone());
        }
        self.filter_with(&node, &others)
    }

    /// Whether the pod would fit on a node without some pods and with the pods nominated there; for preemption.
    pub fn fits_without(
        &self,
        node: &NodeInfo,
        removed: &[Arc<PodInfo>],
        nominated: &[Arc<PodInfo>],
    ) -> Result<(), Rejection> {
        if !nominated.is_empty() {
            self.without_and_with(node, removed, &[])?;
        }
        self.without_and_with(node, removed, nominated)?;
        self.allocate(node).map(|_| ())
    }

    fn allocate(&self, node: &NodeInfo) -> Result<NodeDevices, Rejection> {
        match &self.devices {
            Some(devices) => devices.filter(node, &self.dra),
            None => Ok(NodeDevices::default()),
        }
    }

    /// Places the pod. `start` is the position at which to begin, so that nodes take turns.
    pub fn place(&self, start: usize, nominated: Nominated<'_>) -> Result<Placement, Unplaced> {
        let total = self.snapshot.nodes.len();
        let mut rejections: Vec<Option<Rejection>> = vec![None; total];
        let order: Vec<usize> = self.order(start, &mut rejections);
        let wanted = self.wanted(order.len());
        let mut rest = order.as_slice();
        // Where preemption made room the pod goes there, if it still can.
        if let Some(at) = self
            .pod
            .nominated_node()
            .and_then(|n| self.snapshot.position(n))
        {
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
            if let Some(placement) = self.best(&feasible, &mut rejections) {
                return Ok(placement);
            }
            if rejections.iter().flatten().any(|r| r.code == Code::Error) {
                break;
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

    /// The best of the nodes that fit, with devices. Nodes on which devices can not be allocated are rejected.
    fn best(&self, feasible: &[usize], rejections: &mut [Option<Rejection>]) -> Option<Placement> {
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
            for at in ranked {
                let node = feasible[at];
                match self.allocate(&self.snapshot.nodes[node]) {
                    Ok(devices) => {
                        return Some(Placement {
                            node,
                            devices,
                            feasible: Vec::new(),
                        });
                    }
                    Err(rejection) => rejections[node] = Some(rejection),
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
                Err(rejection) => rejections[*node] = Some(rejection),
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
                Plugin::NodeAffinity if self.affinity.has_preferences() => {
                    let mut s = each(&|n| self.affinity.score(n));
                    normalize(&mut s, false);
                    Some(s)
                }
                Plugin::NodeResourcesFit => Some(each(&|n| fit::score(pod, n, &profile.fit))),
                Plugin::NodeResourcesBalancedAllocation if !pod.requests.is_zero() => {
                    Some(each(&|n| fit::balanced(pod, n, &profile.balanced)))
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
                    interpod::scores(pod, snapshot, nodes, profile.hard_pod_affinity_weight)
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
