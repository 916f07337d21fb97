//! The history of each feature gate: one row per gate.

use super::{Spec, Stage};

pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) needs: &'static [Feature],
    /// The releases in which something changed, oldest first.
    pub(super) history: &'static [Since],
    /// The first minor release that no longer has the gate.
    pub(super) removed: Option<u8>,
}

pub(super) struct Since {
    pub(super) minor: u8,
    pub(super) spec: Spec,
}

const fn since(minor: u8, stage: Stage, default: bool, locked: bool) -> Since {
    Since {
        minor,
        spec: Spec {
            stage,
            default,
            locked,
        },
    }
}

const fn alpha(minor: u8) -> Since {
    since(minor, Stage::Alpha, false, false)
}

const fn beta(minor: u8, default: bool) -> Since {
    since(minor, Stage::Beta, default, false)
}

const fn stable(minor: u8) -> Since {
    since(minor, Stage::Stable, true, false)
}

const fn locked(minor: u8) -> Since {
    since(minor, Stage::Stable, true, true)
}

const fn first(minors: &[u8]) -> Option<u8> {
    match minors {
        [minor, ..] => Some(*minor),
        [] => None,
    }
}

macro_rules! features {
    ($($(#[$doc:meta])* $name:ident: needs [$($needs:ident),*], [$($since:expr),*] $(, removed in $removed:literal)?;)*) => {
        /// A feature gate that matters to dynamic resource allocation.
        #[allow(clippy::upper_case_acronyms, reason = "the names are Kubernetes' own")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Feature {
            $($(#[$doc])* $name,)*
        }

        impl Feature {
            /// Every feature, in the order of the table.
            pub const ALL: &'static [Feature] = &[$(Feature::$name,)*];
            /// How many there are.
            pub const COUNT: usize = Feature::ALL.len();

            pub(super) const fn row(self) -> &'static Row {
                match self {
                    $(Feature::$name => {
                        const ROW: Row = Row {
                            name: stringify!($name),
                            needs: &[$(Feature::$needs),*],
                            history: &[$($since),*],
                            removed: first(&[$($removed)?]),
                        };
                        &ROW
                    })*
                }
            }
        }
    };
}

features! {
    /// The whole of dynamic resource allocation (KEP 4381; KEP 3063 before 1.30).
    DynamicResourceAllocation: needs [], [alpha(26), beta(32, false), stable(34), locked(35)];
    /// Allocation by a driver's controller, beside structured parameters (KEP 3063 in 1.31).
    DRAControlPlaneController: needs [DynamicResourceAllocation], [alpha(31)], removed in 32;
    /// Access for administrators to devices in use (KEP 5018).
    DRAAdminAccess: needs [DynamicResourceAllocation], [alpha(32), beta(34, true), locked(36)];
    /// Alternatives in a request (KEP 4816).
    DRAPrioritizedList: needs [DynamicResourceAllocation], [alpha(33), beta(34, true), stable(36), locked(37)];
    /// Device status in claims (KEP 4817).
    DRAResourceClaimDeviceStatus: needs [], [alpha(32), beta(33, true), locked(37)];
    /// Separate permissions for parts of a claim's status (KEP 4817).
    DRAResourceClaimGranularStatusAuthorization: needs [DynamicResourceAllocation, DRAResourceClaimDeviceStatus], [beta(36, true)];
    /// Devices that share counters, node selection per device (KEP 4815).
    DRAPartitionableDevices: needs [DynamicResourceAllocation], [alpha(33), beta(36, true)];
    /// Taints on devices, tolerations in requests (KEP 5055).
    DRADeviceTaints: needs [DynamicResourceAllocation], [alpha(33), beta(36, true), stable(37)];
    /// The DeviceTaintRule kind (KEP 5055).
    DRADeviceTaintRules: needs [DRADeviceTaints], [alpha(35), beta(36, false), stable(37)];
    /// Devices shared by independent claims (KEP 5075).
    DRAConsumableCapacity: needs [DynamicResourceAllocation], [alpha(34), beta(36, true)];
    /// Binding of a pod waits for its devices (KEP 5007).
    DRADeviceBindingConditions: needs [DynamicResourceAllocation, DRAResourceClaimDeviceStatus], [alpha(34), beta(36, true)];
    /// Extended resources backed by device classes (KEP 5004).
    DRAExtendedResource: needs [DynamicResourceAllocation], [alpha(34), beta(36, true), locked(37)];
    /// A time limit for allocating in Filter (KEP 4381).
    DRASchedulerFilterTimeout: needs [DynamicResourceAllocation], [beta(34, true)];
    /// List-valued device attributes (KEP 5491).
    DRAListTypeAttributes: needs [DynamicResourceAllocation], [alpha(36)];
    /// Devices that account for CPU, memory and the like (KEP 5517).
    DRANodeAllocatableResources: needs [DynamicResourceAllocation], [alpha(36)];
    /// The ResourcePoolStatusRequest kind (KEP 5677).
    DRAResourcePoolStatus: needs [DynamicResourceAllocation], [alpha(36)];
    /// Fractions in the range of a capacity's request policy (KEP 5075). On only where no rollback to 1.36 has to be
    /// possible, which a server does not assume unless told so.
    DRAFractionalCapacityRange: needs [DRAConsumableCapacity], [beta(37, false)];
    /// Claims of pod groups (KEP 5729).
    DRAWorkloadResourceClaims: needs [DynamicResourceAllocation, GenericWorkload], [alpha(36), beta(37, false)];
    /// The Workload and PodGroup kinds (KEP 4671).
    GenericWorkload: needs [], [alpha(35), beta(37, false)];
    /// Scheduling of pod groups as a whole (KEP 4671); part of `GenericWorkload` since 1.37.
    GangScheduling: needs [GenericWorkload], [alpha(35)], removed in 37;
    /// Tolerations that compare the value of a taint as a number (KEP 5471).
    TaintTolerationComparisonOperators: needs [], [alpha(35)];
    /// Preemption by pod groups, and of pod groups as a whole (KEP 5710); part of `GenericWorkload` since 1.37.
    WorkloadAwarePreemption: needs [GangScheduling], [alpha(36)], removed in 37;
    /// Nodes declare their features, and pods are scheduled accordingly (KEP 5328).
    NodeDeclaredFeatures: needs [], [alpha(35), beta(36, true), locked(37)];
    /// Policies and webhooks from files (KEP 5793).
    ManifestBasedAdmissionControlConfig: needs [], [alpha(36), beta(37, true)];
    /// Names of services that begin with a digit (KEP 5311).
    RelaxedServiceNameValidation: needs [], [alpha(34), beta(36, true)];
    /// Pods have the zone and the region of their node as labels (KEP 4742).
    PodTopologyLabelsAdmission: needs [], [alpha(33), beta(35, true)];
    /// Lists and watches of a part of a collection (KEP 5866).
    ShardedListAndWatch: needs [], [alpha(36)];
    /// The page `/flagz` of components (KEP 4828).
    ComponentFlagz: needs [], [alpha(32), beta(36, true)];
    /// Nodes get tokens only for audiences that their pods refer to (KEP 4412).
    ServiceAccountNodeAudienceRestriction: needs [], [beta(32, false), beta(33, true)];
    /// The page `/statusz` of components (KEP 4827).
    ComponentStatusz: needs [], [alpha(32), beta(36, true)];
    /// Device health in pod status (KEP 4680).
    ResourceHealthStatus: needs [DynamicResourceAllocation], [alpha(31), beta(36, true)];
    /// Messages beside device health (KEP 4680).
    ResourceHealthStatusMessage: needs [ResourceHealthStatus], [beta(36, true)];
    /// Claims in the kubelet's PodResources service (KEP 3695).
    KubeletPodResourcesDynamicResources: needs [], [alpha(27), beta(34, true), locked(36)];
    /// The `Get` method of the kubelet's PodResources service (KEP 3695).
    KubeletPodResourcesGet: needs [], [alpha(27), beta(34, true), locked(36)];
    /// Only active pods in the kubelet's PodResources service.
    KubeletPodResourcesListUseActivePods: needs [], [since(34, Stage::Deprecated, true, false)];
    /// Containers that restart inside a pod's init phase (KEP 753).
    SidecarContainers: needs [], [alpha(28), beta(29, true), locked(33)], removed in 37;
    /// Resources for a pod as a whole (KEP 2837).
    PodLevelResources: needs [], [alpha(32), beta(34, true)];
    /// Changing a running pod's resources (KEP 1287).
    InPlacePodVerticalScaling: needs [], [alpha(27), beta(33, true), locked(35)];
    /// Certificates of authorities as objects (KEP 3257).
    ClusterTrustBundle: needs [], [alpha(27), beta(33, false)];
    /// Trust bundles in projected volumes (KEP 3257).
    ClusterTrustBundleProjection: needs [ClusterTrustBundle], [alpha(29), beta(33, false)];
    /// Certificates of pods (KEP 4317).
    PodCertificateRequest: needs [], [alpha(34), beta(35, false)];
    /// Streams into pods that begin with the `GET` of a WebSocket take the right to create them as well.
    AuthorizePodWebsocketUpgradeCreatePermission: needs [], [beta(35, true)];
    /// Impersonation of some identities for some requests (KEP 5284).
    ConstrainedImpersonation: needs [], [alpha(35), beta(36, true)];
    /// Priority and fairness estimates the seats of a list by the size of objects instead of their number (KEP 1040).
    SizeBasedListCostEstimate: needs [], [beta(34, true)];
}
