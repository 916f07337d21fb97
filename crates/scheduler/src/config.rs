//! Settings of the scheduler, and how they are read from a KubeSchedulerConfiguration file.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use allot_allocator::Policy;
use allot_election::clock::Clock;
use allot_model::features::Feature;

use crate::framework::{Plugin, PluginSet};
use crate::plugins::affinity::AddedAffinity;
use crate::plugins::fit::{FitArgs, Strategy};
use crate::plugins::spread::Defaults;
use crate::queue::Backoff;
use crate::sources::Sources;

mod file;

pub use file::{ConfigError, parse};

/// Arguments of the plugin DynamicResources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DynamicResourcesArgs {
    /// How long one node may take; `None` for no limit.
    pub filter_timeout: Option<Duration>,
    /// The timeout of binding conditions.
    pub binding_timeout: Duration,
    /// Which of the fitting devices are allocated, and which nodes score higher for them. Upstream allocates the first that fit.
    pub placement: Policy,
    /// The weight of the score of nodes under another policy than the first fit.
    pub placement_weight: i64,
}

impl Default for DynamicResourcesArgs {
    fn default() -> Self {
        Self {
            filter_timeout: Some(Duration::from_secs(10)),
            binding_timeout: Duration::from_secs(600),
            placement: Policy::FirstFit,
            placement_weight: 20,
        }
    }
}

/// One way of scheduling; pods choose by `spec.schedulerName`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The scheduler name that selects the profile.
    pub name: Arc<str>,
    /// Plugins that filter (and gate, and allocate).
    pub filters: PluginSet,
    /// Plugins that score, with their weights.
    pub weights: Vec<(Plugin, i64)>,
    /// Plugins that run when a pod fits nowhere.
    pub post_filters: PluginSet,
    /// Share of nodes to find before scoring, in percent; `None` for upstream's rule.
    pub percentage_of_nodes: Option<u32>,
    /// Arguments of DynamicResources.
    pub dynamic_resources: DynamicResourcesArgs,
    /// How long VolumeBinding waits until volumes are bound.
    pub volume_binding_timeout: Duration,
    /// Arguments of NodeResourcesFit.
    pub fit: FitArgs,
    /// Resources of NodeResourcesBalancedAllocation.
    pub balanced: Vec<(Arc<str>, i64)>,
    /// Node affinity that applies to all pods, from the arguments of NodeAffinity.
    pub added_affinity: AddedAffinity,
    /// What required affinity of another pod counts in the score of InterPodAffinity.
    pub hard_pod_affinity_weight: i64,
    /// Whether preferred terms of existing pods count in the score of InterPodAffinity only for pods that have
    /// preferred terms themselves.
    pub ignore_preferred_terms_of_existing_pods: bool,
    /// Minimum number of candidate nodes for DefaultPreemption, in percent of all nodes. The larger of both minimums
    /// applies.
    pub min_candidate_nodes_percentage: u32,
    /// Minimum number of candidate nodes for DefaultPreemption.
    pub min_candidate_nodes_absolute: u32,
    /// How PodTopologySpread treats pods without constraints.
    pub spread: Defaults,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            name: "default-scheduler".into(),
            filters: PluginSet::all(),
            weights: Plugin::ALL
                .iter()
                .filter(|p| p.scores())
                .map(|p| (*p, p.default_weight()))
                .collect(),
            post_filters: PluginSet::all(),
            percentage_of_nodes: None,
            dynamic_resources: DynamicResourcesArgs::default(),
            volume_binding_timeout: Duration::from_secs(600),
            fit: FitArgs::default(),
            balanced: vec![("cpu".into(), 1), ("memory".into(), 1)],
            added_affinity: AddedAffinity::default(),
            hard_pod_affinity_weight: 1,
            ignore_preferred_terms_of_existing_pods: false,
            min_candidate_nodes_percentage: 10,
            min_candidate_nodes_absolute: 100,
            spread: Defaults::system(),
        }
    }
}

impl Profile {
    /// The weight of a plugin's score; zero when it does not score.
    pub fn weight(&self, plugin: Plugin) -> i64 {
        self.weights
            .iter()
            .find(|(p, _)| *p == plugin)
            .map_or(0, |(_, w)| *w)
    }

    /// The scoring strategy of NodeResourcesFit. A policy that packs devices is ineffective if pods, including those
    /// without devices, are spread over all nodes: then nodes with free devices run out of CPU and memory. So such a
    /// policy prefers used nodes, unless the configuration sets a scoring strategy.
    pub(crate) fn fit_args(&self) -> Cow<'_, FitArgs> {
        let packs = matches!(
            self.dynamic_resources.placement,
            Policy::BestFit | Policy::LeastFragmentation
        );
        match packs && !self.fit.is_stated {
            true => Cow::Owned(FitArgs {
                strategy: Strategy::MostAllocated,
                ..self.fit.clone()
            }),
            false => Cow::Borrowed(&self.fit),
        }
    }
}

/// Leader election as configured. The caller runs it, since the client must be fenced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderElection {
    /// `leaderElect`: only the leader schedules.
    pub enabled: bool,
    /// Name of the Lease.
    pub name: String,
    /// Namespace of the Lease.
    pub namespace: String,
    /// `leaseDuration`: other candidates wait this long after the last renewal.
    pub lease_duration: Duration,
    /// `renewDeadline`: the leader stops leading after this time without a renewal.
    pub renew_deadline: Duration,
    /// Time between attempts.
    pub retry_period: Duration,
}

impl Default for LeaderElection {
    fn default() -> Self {
        Self {
            enabled: true,
            name: "kube-scheduler".to_owned(),
            namespace: "kube-system".to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// Limits of the connection to the API server.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClientConnection {
    /// Path of a kubeconfig.
    pub kubeconfig: Option<String>,
    /// Requests per second; `None` for no limit of ours.
    pub qps: Option<f32>,
    /// Requests above the rate for a short time.
    pub burst: Option<u32>,
}

/// Everything that can be set.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Ways of scheduling; never empty.
    pub profiles: Vec<Profile>,
    /// The backoff of pods after a failure.
    pub backoff: Backoff,
    /// How many bindings are written at the same time.
    pub parallel_bindings: usize,
    /// The feature gates.
    pub features: allot_model::features::Features,
    /// Whether and with which Lease one of several schedulers is elected.
    pub leader_election: LeaderElection,
    /// Kubeconfig and rate limits of the connection to the API server.
    pub client_connection: ClientConnection,
    /// The time as the API writes it.
    pub clock: Clock,
    /// Elapsed time and new identifiers.
    pub sources: Sources,
}

impl Config {
    /// The same without plugins whose features are off; references to them have no effect.
    #[must_use]
    pub(crate) fn without_disabled(mut self) -> Self {
        if !self.features.enabled(Feature::NodeDeclaredFeatures) {
            for profile in &mut self.profiles {
                profile.filters.remove(Plugin::NodeDeclaredFeatures);
            }
        }
        self
    }
}

#[cfg(test)]
mod tests;

impl Default for Config {
    fn default() -> Self {
        Self {
            profiles: vec![Profile::default()],
            backoff: Backoff::default(),
            parallel_bindings: 64,
            features: allot_model::features::Features::default(),
            leader_election: LeaderElection::default(),
            client_connection: ClientConnection::default(),
            clock: Clock::System,
            sources: Sources::default(),
        }
    }
}
