//! One attempt to place one pod: filter nodes, score the feasible ones, allocate devices on the best.
//!
//! Whether devices are available is a filter, as in upstream; which devices are allocated is decided only on the node
//! that all other scores prefer. For most pods that is a single allocation. The answers of the filter are cached until
//! a node changes ([`allot_allocator::Allocator::probe`]). Where the allocation itself contributes to the score (lists
//! of alternatives), it is computed on every feasible node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use allot_framework::claim_plugin::PodClaims;

use crate::cache::Snapshot;
use crate::config::Profile;
use crate::dra::{DraContext, NodeDevices, PodDevices};
use crate::framework::Plugin;
use crate::node::NodeInfo;
use crate::plugins::affinity::NodeAffinity;
use crate::plugins::interpod::InterPodAffinity;
use crate::plugins::spread::Spread;
use crate::plugins::volumes::{self, Attachments, ExclusiveClaims, PodVolumeClaims, PodVolumes};
use crate::plugins::{Filter, fit, ports, simple, taints};
use crate::pod::PodInfo;
use crate::sources::Sources;
use crate::status::{Code, Rejection};

mod memo;
mod nearest;
mod place;
mod score;
mod signature;
mod trial;

pub use memo::NodeMemo;
pub use nearest::Rank;
pub(crate) use nearest::{MOST_CHECKS, MOST_CHECKS_IN_GANG};
pub(crate) use trial::Trial;

use trial::Changed;

/// The pods that are nominated to a node.
pub type Nominated<'a> = &'a dyn Fn(&str) -> Vec<Arc<PodInfo>>;

/// The pod and everything that was prepared for it.
pub struct Attempt<'a> {
    /// The pod for which a node is sought.
    pub pod: &'a Arc<PodInfo>,
    /// Nodes and pods.
    pub snapshot: &'a Snapshot,
    /// The profile of the pod: plugins, weights and arguments.
    pub profile: &'a Profile,
    /// Devices.
    pub dra: DraContext<'a>,
    /// The node that the pod is nominated to.
    pub nominated_node: Option<&'a str>,
    affinity: NodeAffinity,
    others: Others,
    attachments: Option<Attachments<'a>>,
    /// The filters that the table of plugins has for this pod, in its order.
    table: Vec<Box<dyn Filter>>,
    volumes: Option<PodVolumeClaims<'a>>,
    devices: Option<PodDevices>,
    plugin_claims: Option<Box<dyn PodClaims + 'a>>,
    sources: &'a Sources,
    memo: Option<&'a NodeMemo>,
    /// Time spent on scoring feasible nodes, in nanoseconds.
    scoring: AtomicU64,
}

/// The state of plugins that changes with the other pods on nodes: what upstream's plugins update in `AddPod` and
/// `RemovePod` of `PreFilterExtensions`.
#[derive(Debug, Clone, Default)]
struct Others {
    exclusive: Option<ExclusiveClaims>,
    spread: Option<Spread>,
    interpod: Option<InterPodAffinity>,
}

/// The node for a pod, and what is allocated for it there.
#[derive(Debug)]
pub struct Placement {
    /// Position of the node in the snapshot.
    pub node: usize,
    /// The devices to allocate.
    pub devices: NodeDevices,
    /// All feasible nodes; only for pods with claims that drivers must allocate first.
    pub feasible: Vec<usize>,
}

/// The error of an attempt that found no feasible node (`framework.FitError`).
#[derive(Debug)]
pub struct FitError {
    /// Rejection per node, by position; empty when the pod was rejected as such.
    pub nodes: Vec<Option<Rejection>>,
    /// Rejection of the pod in PreFilter.
    pub before: Option<Rejection>,
}

impl FitError {
    /// The failure that ended the attempt, if it was one.
    pub fn error(&self) -> Option<&Rejection> {
        let of = |code| {
            let mut all = self.before.iter().chain(self.nodes.iter().flatten());
            all.find(|r| r.code == code)
        };
        of(Code::Error).or_else(|| of(Code::Inconclusive))
    }
}

impl<'a> Attempt<'a> {
    /// Prepares the plugins that are on in the profile.
    pub fn prepare(
        pod: &'a Arc<PodInfo>,
        snapshot: &'a Snapshot,
        profile: &'a Profile,
        dra: DraContext<'a>,
        nominated_node: Option<&'a str>,
        sources: &'a Sources,
    ) -> Result<Self, Rejection> {
        let on = |p| profile.filters.contains(p);
        let affinity = NodeAffinity::new(pod);
        if on(Plugin::NodeAffinity) {
            affinity.check()?;
        }
        let exclusive = match on(Plugin::VolumeRestrictions) {
            true => ExclusiveClaims::new(pod, snapshot)?,
            false => None,
        };
        let volumes = match on(Plugin::VolumeBinding) {
            true => PodVolumeClaims::prepare(pod, &snapshot.storage)?,
            false => None,
        };
        let attachments = on(Plugin::NodeVolumeLimits)
            .then(|| Attachments::new(pod, &snapshot.storage))
            .flatten();
        let table = Plugin::ALL.iter().filter(|plugin| on(**plugin));
        let table = table.filter_map(|plugin| plugin.definition().filter);
        let table = table.filter_map(|prepare| prepare(pod, snapshot)).collect();
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
        let plugin_claims = match dra.claim_plugin {
            Some(plugin) if on(Plugin::DynamicResources) => plugin.pre_filter(pod)?,
            _ => None,
        };
        Ok(Self {
            pod,
            snapshot,
            profile,
            dra,
            nominated_node,
            affinity,
            others: Others {
                exclusive,
                spread,
                interpod,
            },
            attachments,
            table,
            volumes,
            devices,
            plugin_claims,
            sources,
            memo: None,
            scoring: AtomicU64::new(0),
        })
    }

    /// Uses answers about nodes that earlier attempts left, and leaves its own.
    #[must_use]
    pub fn with_memo(mut self, memo: &'a NodeMemo) -> Self {
        self.memo = Some(memo);
        self
    }

    /// Time that was spent on scoring feasible nodes and allocating on the best one.
    pub fn scoring(&self) -> Duration {
        Duration::from_nanos(self.scoring.load(Ordering::Relaxed))
    }

    /// The claims of another generation of the pod, if it has any.
    pub fn plugin_claims(&self) -> Option<&dyn PodClaims> {
        self.plugin_claims.as_deref()
    }

    /// Whether drivers have to allocate claims before the pod can be placed.
    fn negotiates(&self) -> bool {
        self.plugin_claims().is_some_and(PodClaims::is_pending)
    }

    /// The writes for the pod's volumes that must precede its binding to a node; none without VolumeBinding.
    ///
    /// # Errors
    /// The volumes cannot be used on the node.
    pub fn find_pod_volumes(&self, node: &NodeInfo) -> Result<PodVolumes, Rejection> {
        let volumes = self.volumes.as_ref();
        volumes.map_or_else(|| Ok(PodVolumes::default()), |v| v.find_pod_volumes(node))
    }

    /// The claims of the pod, if it has any.
    pub fn devices(&self) -> Option<&PodDevices> {
        self.devices.as_ref()
    }

    /// All filters but DynamicResources, in upstream's order, until the first one that rejects the node.
    fn filter_with(&self, node: &NodeInfo, others: &Others) -> Result<(), Rejection> {
        self.run_filters(node, others, &mut |outcome| outcome)
    }

    /// The filters that look at nothing but the node, until the first one that rejects it.
    fn filter_node(&self, node: &NodeInfo) -> Result<(), Rejection> {
        self.run_node_filters(node, &mut |outcome| outcome)
    }

    /// The rejections of a node by all filters but DynamicResources, one for each plugin.
    fn rejections(&self, node: &NodeInfo) -> Vec<Rejection> {
        let mut rejections = Vec::new();
        let never = self.run_filters(node, &self.others, &mut |outcome| {
            rejections.extend(outcome.err());
            Ok(())
        });
        rejections.extend(never.err());
        rejections.dedup_by_key(|rejection| rejection.plugin);
        rejections
    }

    /// Runs the filters but DynamicResources in upstream's order, until `check` returns an error for the outcome of one.
    fn run_filters(
        &self,
        node: &NodeInfo,
        others: &Others,
        check: &mut impl FnMut(Result<(), Rejection>) -> Result<(), Rejection>,
    ) -> Result<(), Rejection> {
        self.run_node_filters(node, check)?;
        self.run_other_filters(node, others, check)
    }

    /// The filters that come first: they look at the node alone.
    fn run_node_filters(
        &self,
        node: &NodeInfo,
        check: &mut impl FnMut(Result<(), Rejection>) -> Result<(), Rejection>,
    ) -> Result<(), Rejection> {
        let (pod, on) = (self.pod, |p| self.profile.filters.contains(p));
        if on(Plugin::NodeUnschedulable) {
            check(simple::unschedulable(pod.tolerations(), node))?;
        }
        if on(Plugin::NodeName) {
            check(simple::node_name(pod, node))?;
        }
        if on(Plugin::TaintToleration) {
            check(taints::filter(pod.tolerations(), node))?;
        }
        if on(Plugin::NodeAffinity) {
            check(self.profile.added_affinity.filter(node))?;
            check(self.affinity.filter(node))?;
        }
        if on(Plugin::NodePorts) && !pod.ports.is_empty() {
            check(ports::filter(pod, node))?;
        }
        if on(Plugin::NodeResourcesFit) {
            let delegated = |name: &str| self.devices.as_ref().is_some_and(|d| d.delegates(name));
            check(fit::filter(pod, node, &self.profile.fit, delegated))?;
        }
        if on(Plugin::VolumeRestrictions) {
            check(volumes::disks::filter(pod, node))?;
        }
        Ok(())
    }

    /// The filters that look at more than the node, and those of the table, which come last as NodeDeclaredFeatures does in
    /// upstream.
    fn run_other_filters(
        &self,
        node: &NodeInfo,
        others: &Others,
        check: &mut impl FnMut(Result<(), Rejection>) -> Result<(), Rejection>,
    ) -> Result<(), Rejection> {
        let on = |p| self.profile.filters.contains(p);
        if let Some(exclusive) = &others.exclusive {
            check(exclusive.filter())?;
        }
        if let Some(attachments) = &self.attachments {
            check(attachments.filter(node))?;
        }
        if let Some(volumes) = &self.volumes {
            check(volumes.find_pod_volumes(node).map(drop))?;
            if on(Plugin::VolumeZone) {
                check(volumes::zones(volumes, node))?;
            }
        }
        if let Some(spread) = &others.spread {
            check(spread.filter(node))?;
        }
        if let Some(interpod) = &others.interpod {
            check(interpod.filter(self.pod, node, self.snapshot))?;
        }
        if let Some(claims) = &self.plugin_claims {
            check(claims.filter(node).map_err(Rejection::from))?;
        }
        for plugin in &self.table {
            check(plugin.filter(node))?;
        }
        Ok(())
    }

    /// All filters but DynamicResources; with the pods that are nominated to the node, and without them.
    fn filter(&self, node: &NodeInfo, nominated: Nominated<'_>) -> Result<(), Rejection> {
        self.filter_with_nominated(node, nominated)?;
        self.filter_with(node, &self.others)
    }

    /// All filters but DynamicResources, with the pods that are nominated to the node; succeeds if there are none.
    fn filter_with_nominated(
        &self,
        node: &NodeInfo,
        nominated: Nominated<'_>,
    ) -> Result<(), Rejection> {
        let nominated = nominated(&node.name);
        match nominated.is_empty() {
            true => Ok(()),
            false => Changed::with(self, node, &nominated).filter(),
        }
    }

    /// Whether the node is feasible for the pod, and what would be allocated there.
    ///
    /// # Errors
    /// The first plugin that rejects the node.
    pub fn evaluate(
        &self,
        node: &NodeInfo,
        nominated: Nominated<'_>,
    ) -> Result<NodeDevices, Rejection> {
        self.filter(node, nominated)?;
        self.allocate(node)
    }

    /// Allocates devices on a node, if the pod needs some.
    ///
    /// # Errors
    /// The first claim that cannot be used or allocated there.
    pub(crate) fn allocate(&self, node: &NodeInfo) -> Result<NodeDevices, Rejection> {
        match &self.devices {
            Some(devices) => devices.filter(node, &self.dra),
            None => Ok(NodeDevices::default()),
        }
    }
}
