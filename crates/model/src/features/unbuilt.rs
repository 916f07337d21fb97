//! The gates of kube-apiserver 1.36 and 1.37 without effect here, because their feature is not implemented or always on.

use super::{Release, settled};

/// The names of those of 1.36. Setting one is not an error: all components of a cluster often get the same gates.
const NAMES: [&str; 114] = [
    "APIResponseCompression",
    "APIServerIdentity",
    "APIServingWithRoutine",
    "AllowParsingUserUIDFromCertAuth",
    "AllowUnsafeMalformedObjectDeletion",
    "AtomicFIFO",
    "CBORServingAndStorage",
    "CPUManagerPolicyAlphaOptions",
    "CPUManagerPolicyBetaOptions",
    "CRDObservedGenerationTracking",
    "CRIListStreaming",
    "CSIVolumeHealth",
    "ClearingNominatedNodeNameAfterBinding",
    "ClientsAllowCARotation",
    "ClientsAllowCBOR",
    "ClientsAllowTLSCacheGC",
    "ClientsPreferCBOR",
    "CloudControllerManagerWatchBasedRoutesReconciliation",
    "CloudControllerManagerWebhook",
    "ConcurrentWatchObjectDecode",
    "ContainerCheckpoint",
    "ContainerRestartRules",
    "ContainerStopSignals",
    "ContextualLogging",
    "ControllerManagerReleaseLeaderElectionLockOnExit",
    "CoordinatedLeaderElection",
    "CrossNamespaceVolumeDataSource",
    "DeclarativeValidationBeta",
    "DeploymentReplicaSetTerminatingReplicas",
    "DetectCacheInconsistency",
    "EnvFiles",
    "EventedPLEG",
    "ExtendWebSocketsToKubelet",
    "GracefulNodeShutdown",
    "GracefulNodeShutdownBasedOnPodPriority",
    "HPAConfigurableTolerance",
    "HPAScaleToZero",
    "HostnameOverride",
    "ImageVolumeWithDigest",
    "InOrderInformersBatchProcess",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingExclusiveCPUs",
    "InPlacePodVerticalScalingExclusiveMemory",
    "InPlacePodVerticalScalingInitContainers",
    "KubeletCrashLoopBackOffMax",
    "KubeletEnsureSecretPulledImages",
    "KubeletInUserNamespace",
    "KubeletSeparateDiskGC",
    "KubeletServiceAccountTokenForCredentialProviders",
    "ListFromCacheSnapshot",
    "LocalStorageCapacityIsolationFSQuotaMonitoring",
    "LoggingAlphaOptions",
    "LoggingBetaOptions",
    "MatchLabelKeysInPodTopologySpread",
    "MatchLabelKeysInPodTopologySpreadSelectorMerge",
    "MaxUnavailableStatefulSet",
    "MemoryQoS",
    "MutablePVNodeAffinity",
    "MutablePodResourcesForSuspendedJobs",
    "MutableSchedulingDirectivesForSuspendedJobs",
    "NativeHistograms",
    "NominatedNodeNameForExpectation",
    "OpenAPIEnums",
    "OpportunisticBatching",
    "PLEGOnDemandRelist",
    "PersistentVolumeClaimUnusedSinceTime",
    "PodAndContainerStatsFromCRI",
    "PodDeletionCost",
    "PodLevelResourceManagers",
    "PodLogsQuerySplitStreams",
    "PodReadyToStartContainersCondition",
    "PodsAPI",
    "PortForwardWebsockets",
    "PreventStaticPodAPIReferences",
    "QOSReserved",
    "ReduceDefaultCrashLoopBackOffDecay",
    "ReloadKubeletClientCAFile",
    "ReloadKubeletServerCertificateFile",
    "RemoteRequestHeaderUID",
    "RestartAllContainersOnContainerExits",
    "RotateKubeletServerCertificate",
    "RuntimeClassInImageCriApi",
    "SELinuxMount",
    "SchedulerAsyncAPICalls",
    "SchedulerAsyncPreemption",
    "SchedulerPopFromBackoffQ",
    "StaleControllerConsistencyDaemonSet",
    "StaleControllerConsistencyJob",
    "StaleControllerConsistencyReplicaSet",
    "StaleControllerConsistencyStatefulSet",
    "StatefulSetSemanticRevisionComparison",
    "StorageCapacityScoring",
    "StorageVersionAPI",
    "StorageVersionHash",
    "StorageVersionMigrator",
    "StrictIPCIDRValidation",
    "StructuredAuthenticationConfigurationEgressSelector",
    "StructuredAuthenticationConfigurationJWKSMetrics",
    "TokenRequestServiceAccountUIDValidation",
    "TopologyAwareWorkloadScheduling",
    "TopologyManagerPolicyAlphaOptions",
    "TopologyManagerPolicyBetaOptions",
    "TranslateStreamCloseWebsocketRequests",
    "UnauthenticatedHTTP2DOSMitigation",
    "UnknownVersionInteroperabilityProxy",
    "UnlockWhileProcessingFIFO",
    "UserNamespacesHostNetworkSupport",
    "VolumeLimitScaling",
    "WatchCacheInitializationPostStartHook",
    "WatchList",
    "WatchListClient",
    "WindowsCPUAndMemoryAffinity",
    "WindowsGracefulNodeShutdown",
    "WorkloadWithJob",
];

/// The gates that 1.37 added.
const SINCE_1_37: [&str; 36] = [
    "APIServerWebhookAuthenticationToken",
    "AtomicWriteVolumeUserFields",
    "CompositePodGroup",
    "ConsistentListFromCacheSkipTimeoutFallback",
    "DRADerivedAttributes",
    "DRADeviceCompatibilityGroups",
    "DRAOptionalNodeOperations",
    "DRAPartitionableDevicesType",
    "DefaultPodSysctls",
    "EmptyDirVolumeMode",
    "EtcdRangeStream",
    "EvictionRequestAPI",
    "ExcludeAdmissionWebhookVirtualResources",
    "GRPCContainerProbeTLS",
    "H2CContainerProbe",
    "HPAGeneration",
    "HPAOptimizedSelectorStore",
    "HugepageAwareEviction",
    "InPlacePodVerticalScalingMemoryBackedVolumes",
    "InPlacePodVerticalScalingSchedulerPreemption",
    "InterPodAffinityHostnameFastPath",
    "KubeProxyIPVS",
    "KubeProxyNFTablesLocalhostNodePorts",
    "KubeletAllocatedPodsEndpoint",
    "NFTablesNetlink",
    "NodeControllerLeaseCircuitBreaker",
    "NodeLifecycleConditions",
    "PodGroupPreemptionPolicy",
    "PodLevelResourcesFixDefaulting",
    "PodLevelResourcesFixKubeletQOSClass",
    "SchedulerPreQueueingHints",
    "StaleControllerConsistencyHPA",
    "StatefulSetRecreateStrategy",
    "VolumeBindMountOptions",
    "WatchListCompression",
    "WebhookRoundTripLoadBalancing",
];

/// The gates of 1.36 that 1.37 no longer has.
const UNTIL_1_36: [&str; 1] = ["PreventStaticPodAPIReferences"];

/// kube-apiserver of that release has the gate, and nothing here depends on it.
pub fn is_unbuilt(name: &str, release: Release) -> bool {
    if settled::is_one(name) {
        return true;
    }
    if release.minor() < 37 {
        return NAMES.binary_search(&name).is_ok();
    }
    !UNTIL_1_36.contains(&name)
        && (NAMES.binary_search(&name).is_ok() || SINCE_1_37.binary_search(&name).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::{Feature, Features};

    #[test]
    fn unbuilt_gates_are_sorted_and_not_built() {
        assert!(NAMES.is_sorted() && SINCE_1_37.is_sorted());
        let mut all = NAMES.iter().chain(&SINCE_1_37);
        assert!(all.all(|name| Feature::from_name(name).is_none()));
    }

    #[test]
    fn gates_come_and_go_with_the_release() {
        let set = |minor, gate: &str| Features::of(Release::new(minor)).set(gate).is_ok();
        for (gate, in_36, in_37) in [
            ("EvictionRequestAPI=true", false, true),
            ("PreventStaticPodAPIReferences=true", true, false),
            ("WorkloadAwarePreemption=true", false, false),
            ("GangScheduling=true", false, false),
            ("GangScheduling=true,GenericWorkload=true", true, false),
            ("StrictIPCIDRValidation=true", true, true),
        ] {
            assert_eq!((set(36, gate), set(37, gate)), (in_36, in_37), "{gate}");
        }
    }

    #[test]
    fn unbuilt_gates_can_be_set_and_unknown_ones_can_not() {
        let mut features = Features::default();
        assert_eq!(features.set("StrictIPCIDRValidation=true"), Ok(()));
        assert_eq!(features, Features::default());
        assert!(features.set("NoSuchGate=true").is_err());
        assert!(features.set("StrictIPCIDRValidation=x").is_err());
    }

    #[test]
    fn the_order_of_gates_does_not_matter() {
        let mut features = Features::default();
        assert_eq!(
            features.set("GangScheduling=true,GenericWorkload=true"),
            Ok(())
        );
    }
}
