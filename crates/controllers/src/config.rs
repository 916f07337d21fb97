//! Which controllers run, and their settings.

use std::collections::BTreeSet;
use std::time::Duration;

use allot_model::features::Features;

use crate::leader::{self, clock::Clock};

/// A controller, by the name that kube-controller-manager uses (those of this project have other
/// names).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    /// Claims from templates, reservations, release of devices.
    ResourceClaim,
    /// Evicts pods from devices with NoExecute taints.
    DeviceTaintEviction,
    /// Answers ResourcePoolStatusRequests.
    ResourcePoolStatusRequest,
    /// Taints devices whose driver or node no longer runs (of this project).
    SliceLiveness,
    /// Deployments.
    Deployment,
    /// ReplicaSets.
    ReplicaSet,
    /// DaemonSets.
    DaemonSet,
    /// StatefulSets.
    StatefulSet,
    /// Jobs.
    Job,
    /// CronJobs.
    CronJob,
    /// Deletes dependents of deleted owners.
    GarbageCollector,
    /// Empties namespaces that are being deleted.
    Namespace,
    /// Taints nodes that do not report, evicts their pods.
    NodeLifecycle,
    /// Deletes pods of deleted nodes, and old finished pods.
    PodGarbageCollector,
    /// The service account `default` of each namespace.
    ServiceAccount,
    /// Issues the tokens of secrets of type `kubernetes.io/service-account-token`.
    ServiceAccountToken,
    /// The ConfigMap `kube-root-ca.crt` of each namespace.
    RootCaPublisher,
    /// Status of PodDisruptionBudgets.
    Disruption,
    /// Status of ResourceQuotas.
    ResourceQuota,
    /// Deletes finished Jobs after their time to live.
    TtlAfterFinished,
    /// Endpoints of services.
    Endpoints,
    /// EndpointSlices of services.
    EndpointSlice,
    /// Protects PersistentVolumeClaims that pods use.
    ClaimProtection,
    /// Protects PersistentVolumes that claims use.
    VolumeProtection,
    /// Protects VolumeAttributesClasses that volumes and claims name.
    ClassProtection,
    /// Protects PodGroups that pods are in.
    PodGroupProtection,
    /// Says which ranges of services are ready, and protects those with addresses in use.
    ServiceCidr,
    /// Aggregates cluster roles.
    ClusterRoleAggregation,
}

use Controller as C;

impl Controller {
    /// Every controller, in the order of error messages.
    pub const ALL: [Self; 28] = [
        C::ResourceClaim,
        C::DeviceTaintEviction,
        C::ResourcePoolStatusRequest,
        C::SliceLiveness,
        C::Deployment,
        C::ReplicaSet,
        C::DaemonSet,
        C::StatefulSet,
        C::Job,
        C::CronJob,
        C::GarbageCollector,
        C::Namespace,
        C::NodeLifecycle,
        C::PodGarbageCollector,
        C::ServiceAccount,
        C::ServiceAccountToken,
        C::RootCaPublisher,
        C::Disruption,
        C::ResourceQuota,
        C::TtlAfterFinished,
        C::Endpoints,
        C::EndpointSlice,
        C::ClaimProtection,
        C::VolumeProtection,
        C::ClassProtection,
        C::PodGroupProtection,
        C::ServiceCidr,
        C::ClusterRoleAggregation,
    ];

    /// The name in `--controllers`, that of kube-controller-manager where it has the controller.
    pub fn name(self) -> &'static str {
        match self {
            C::ResourceClaim => "resourceclaim-controller",
            C::DeviceTaintEviction => "device-taint-eviction-controller",
            C::ResourcePoolStatusRequest => "resourcepoolstatusrequest-controller",
            C::SliceLiveness => "slice-liveness-controller",
            C::Deployment => "deployment-controller",
            C::ReplicaSet => "replicaset-controller",
            C::DaemonSet => "daemonset-controller",
            C::StatefulSet => "statefulset-controller",
            C::Job => "job-controller",
            C::CronJob => "cronjob-controller",
            C::GarbageCollector => "garbage-collector-controller",
            C::Namespace => "namespace-controller",
            C::NodeLifecycle => "node-lifecycle-controller",
            C::PodGarbageCollector => "pod-garbage-collector-controller",
            C::ServiceAccount => "serviceaccount-controller",
            C::ServiceAccountToken => "serviceaccount-token-controller",
            C::RootCaPublisher => "root-ca-certificate-publisher-controller",
            C::Disruption => "disruption-controller",
            C::ResourceQuota => "resourcequota-controller",
            C::TtlAfterFinished => "ttl-after-finished-controller",
            C::Endpoints => "endpoints-controller",
            C::EndpointSlice => "endpointslice-controller",
            C::ClaimProtection => "persistentvolumeclaim-protection-controller",
            C::VolumeProtection => "persistentvolume-protection-controller",
            C::ClassProtection => "volumeattributesclass-protection-controller",
            C::PodGroupProtection => "podgroup-protection-controller",
            C::ServiceCidr => "service-cidr-controller",
            C::ClusterRoleAggregation => "clusterrole-aggregation-controller",
        }
    }

    /// The controllers for a cluster that has a kube-controller-manager. The first three replace
    /// upstream's, which must be disabled there.
    fn is_dra(self) -> bool {
        matches!(
            self,
            C::ResourceClaim
                | C::DeviceTaintEviction
                | C::ResourcePoolStatusRequest
                | C::SliceLiveness
        )
    }

    fn parse(name: &str) -> Option<Self> {
        // The short form without "-controller" is common on command lines.
        Self::ALL
            .into_iter()
            .find(|c| c.name() == name || c.name().strip_suffix("-controller") == Some(name))
    }
}

/// Why a list of controllers is wrong.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown controller {0:?}; known are {known}", known = Controller::ALL.map(Controller::name).join(", "))]
pub struct UnknownController(pub String);

/// Settings of all controllers.
#[derive(Debug, Clone)]
pub struct Config {
    /// The controllers to run (`--controllers`).
    pub controllers: BTreeSet<Controller>,
    /// The feature gates.
    pub features: Features,
    /// The source of time; another one in tests.
    pub clock: Clock,
    /// Only one process works at a time, if set.
    pub leader_election: Option<leader::Settings>,
    /// Keys handled at a time per controller (claims: five times as many).
    pub workers: usize,
    /// A node that has not renewed its Lease for that long is not ready (upstream: 50 s).
    pub node_monitor_grace_period: Duration,
    /// As `node_monitor_grace_period`, for a node that has never reported (upstream: 60 s).
    pub node_startup_grace_period: Duration,
    /// Delay before the devices of a driver or node that no longer runs are tainted.
    pub slice_liveness_delay: Duration,
    /// Limit of finished pods (upstream: 12500); the oldest are deleted first.
    pub terminated_pod_threshold: usize,
    /// The certificate that pods trust, for `kube-root-ca.crt`; none is published if not set.
    pub root_ca: Option<String>,
}

impl Config {
    /// For a cluster of our own: everything runs.
    pub fn embedded() -> Self {
        Self {
            controllers: Controller::ALL.into_iter().collect(),
            features: Features::default(),
            clock: Clock::System,
            leader_election: None,
            workers: 10,
            node_monitor_grace_period: Duration::from_secs(50),
            node_startup_grace_period: Duration::from_secs(60),
            slice_liveness_delay: Duration::from_secs(30),
            terminated_pod_threshold: 12_500,
            root_ca: None,
        }
    }

    /// For a cluster that has a kube-controller-manager: only DRA controllers run.
    pub fn external() -> Self {
        let mut config = Self::embedded();
        config.controllers.retain(|c| c.is_dra());
        config
    }

    /// Selects controllers as kube-controller-manager's `--controllers` does: `*` means the
    /// controllers enabled so far, `foo` enables one, `-foo` disables one; without `*` only the
    /// named ones run. `all` means every controller.
    ///
    /// # Errors
    /// No controller has one of the names.
    pub fn select(mut self, names: &[String]) -> Result<Self, UnknownController> {
        let defaults = std::mem::take(&mut self.controllers);
        let mut off = Vec::new();
        for name in names {
            let name = name.trim();
            match name.strip_prefix('-') {
                _ if name == "*" => self.controllers.extend(&defaults),
                _ if name == "all" => self.controllers.extend(Controller::ALL),
                Some(name) => off.push(lookup(name)?),
                None => {
                    self.controllers.insert(lookup(name)?);
                }
            }
        }
        for controller in off {
            self.controllers.remove(&controller);
        }
        Ok(self)
    }
}

fn lookup(name: &str) -> Result<Controller, UnknownController> {
    Controller::parse(name).ok_or_else(|| UnknownController(name.to_owned()))
}

#[cfg(test)]
mod tests;
