//! The gates of kube-apiserver 1.36 without effect here, because their feature is not implemented or always on.

/// Their names. Setting one is no mistake: all components of a cluster are often given the same gates.
const NAMES: [&str; 128] = [
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
    "ClusterTrustBundle",
    "ClusterTrustBundleProjection",
    "ComponentFlagz",
    "ComponentStatusz",
    "ConcurrentWatchObjectDecode",
    "ConstrainedImpersonation",
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
    "ManifestBasedAdmissionControlConfig",
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
    "PodCertificateRequest",
    "PodDeletionCost",
    "PodLevelResourceManagers",
    "PodLogsQuerySplitStreams",
    "PodReadyToStartContainersCondition",
    "PodTopologyLabelsAdmission",
    "PodsAPI",
    "PortForwardWebsockets",
    "PreventStaticPodAPIReferences",
    "QOSReserved",
    "ReduceDefaultCrashLoopBackOffDecay",
    "RelaxedServiceNameValidation",
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
    "ServiceAccountNodeAudienceRestriction",
    "ShardedListAndWatch",
    "SizeBasedListCostEstimate",
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
    "TaintTolerationComparisonOperators",
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
    "WorkloadAwarePreemption",
    "WorkloadWithJob",
];

/// kube-apiserver has the gate, and nothing here depends on it.
pub fn is_unbuilt(name: &str) -> bool {
    NAMES.binary_search(&name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::{Feature, Features};

    #[test]
    fn unbuilt_gates_are_sorted_and_not_built() {
        assert!(NAMES.is_sorted());
        assert!(NAMES.iter().all(|name| Feature::from_name(name).is_none()));
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
