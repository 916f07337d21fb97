//! The gates of kube-apiserver 1.36 that are stable or deprecated, and whose features are not decided here by a gate.
//!
//! Configurations of older clusters may still name them. A locked gate can be set only to its value.

use super::Release;

/// A gate: name, the minor release that added it (0: always there), and since when it is locked to which value.
type Gate = (&'static str, u8, Option<(u8, bool)>);

const GATES: [Gate; 84] = [
    ("APIServerTracing", 22, Some((34, true))),
    ("AggregatedDiscoveryRemoveBetaType", 0, Some((35, true))),
    ("AllowDNSOnlyNodeCSR", 0, None),
    ("AllowInsecureKubeletCertificateSigningRequests", 0, None),
    (
        "AllowOverwriteTerminationGracePeriodSeconds",
        0,
        Some((35, false)),
    ),
    ("AllowServiceExternalIPs", 0, None),
    ("AnonymousAuthConfigurableEndpoints", 31, Some((34, true))),
    ("AnyVolumeDataSource", 18, Some((33, true))),
    ("AuthorizeNodeWithSelectors", 31, Some((34, true))),
    ("AuthorizeWithSelectors", 31, Some((34, true))),
    ("BtreeWatchCache", 32, Some((33, true))),
    ("CPUManagerPolicyOptions", 22, Some((33, true))),
    ("CRDValidationRatcheting", 28, Some((33, true))),
    ("CSIServiceAccountTokenSecrets", 35, Some((36, true))),
    ("ChangeContainerStatusOnKubeletRestart", 0, None),
    ("ConsistentListFromCache", 28, Some((34, true))),
    ("CustomCPUCFSQuotaPeriod", 12, None),
    ("CustomResourceFieldSelectors", 30, Some((32, true))),
    ("DeclarativeValidation", 33, Some((36, true))),
    ("DeclarativeValidationTakeover", 33, None),
    ("DisableAllocatorDualWrite", 31, Some((35, true))),
    ("DisableCPUQuotaWithExclusiveCPUs", 33, None),
    ("DisableNodeKubeProxyVersion", 29, Some((36, true))),
    ("ExecProbeTimeout", 20, Some((35, true))),
    ("ExternalServiceAccountTokenSigner", 32, Some((36, true))),
    ("GitRepoVolumeDriver", 0, Some((36, false))),
    ("ImageMaximumGCAge", 29, Some((35, true))),
    ("ImageVolume", 31, Some((36, true))),
    ("InOrderInformers", 33, Some((36, true))),
    ("InformerResourceVersion", 30, None),
    ("JobBackoffLimitPerIndex", 28, Some((33, true))),
    ("JobManagedBy", 30, Some((35, true))),
    ("JobPodReplacementPolicy", 28, Some((34, true))),
    ("JobSuccessPolicy", 30, Some((33, true))),
    ("KMSv1", 0, None),
    ("KubeletCgroupDriverFromCRI", 28, Some((34, true))),
    ("KubeletFineGrainedAuthz", 32, Some((36, true))),
    ("KubeletPSI", 33, Some((36, true))),
    ("KubeletRegistrationGetOnExistsOnly", 0, None),
    ("KubeletTracing", 25, Some((34, true))),
    ("LogarithmicScaleDown", 21, Some((31, true))),
    ("MatchLabelKeysInPodAffinity", 29, Some((33, true))),
    ("MultiCIDRServiceAllocator", 27, Some((34, true))),
    ("MutableCSINodeAllocatableCount", 33, Some((36, true))),
    ("MutatingAdmissionPolicy", 32, None),
    ("NFTablesProxyMode", 29, Some((33, true))),
    (
        "NodeInclusionPolicyInPodTopologySpread",
        25,
        Some((33, true)),
    ),
    ("NodeLogQuery", 27, Some((36, true))),
    ("NodeSwap", 22, Some((34, true))),
    ("OrderedNamespaceDeletion", 30, Some((34, true))),
    ("PodLifecycleSleepAction", 29, Some((34, true))),
    ("PodLifecycleSleepActionAllowZero", 32, Some((34, true))),
    ("PodObservedGenerationTracking", 33, Some((35, true))),
    ("PodSchedulingReadiness", 26, Some((30, true))),
    ("PreferSameTrafficDistribution", 33, Some((35, true))),
    ("ProcMountType", 12, Some((36, true))),
    ("RecoverVolumeExpansionFailure", 23, Some((34, true))),
    ("RecursiveReadOnlyMounts", 30, Some((33, true))),
    ("RelaxedDNSSearchValidation", 32, Some((34, true))),
    ("RelaxedEnvironmentVariableValidation", 30, Some((34, true))),
    ("ResilientWatchCacheInitialization", 31, Some((34, true))),
    ("RetryGenerateName", 30, Some((32, true))),
    ("SELinuxChangePolicy", 32, Some((36, true))),
    ("SELinuxMountReadWriteOncePod", 25, Some((36, true))),
    ("SchedulerQueueingHints", 28, Some((34, true))),
    ("SeparateCacheWatchRPC", 28, Some((36, false))),
    ("SeparateTaintEvictionController", 29, Some((34, true))),
    ("ServiceAccountTokenJTI", 29, Some((32, true))),
    ("ServiceAccountTokenNodeBinding", 29, Some((33, true))),
    (
        "ServiceAccountTokenNodeBindingValidation",
        29,
        Some((32, true)),
    ),
    ("ServiceAccountTokenPodNodeInfo", 29, Some((32, true))),
    ("ServiceCIDRStatusFieldWiping", 0, None),
    ("StorageNamespaceIndex", 30, None),
    ("StreamingCollectionEncodingToJSON", 33, Some((34, true))),
    (
        "StreamingCollectionEncodingToProtobuf",
        33,
        Some((34, true)),
    ),
    (
        "StructuredAuthenticationConfiguration",
        29,
        Some((34, true)),
    ),
    ("SupplementalGroupsPolicy", 31, Some((35, true))),
    ("SystemdWatchdog", 32, Some((35, true))),
    ("TopologyManagerPolicyOptions", 26, Some((32, true))),
    ("UserNamespacesSupport", 25, Some((36, true))),
    ("VolumeAttributesClass", 29, Some((36, true))),
    ("WinDSR", 14, Some((34, true))),
    ("WinOverlay", 14, Some((34, true))),
    ("WindowsHostNetwork", 26, None),
];

/// The result of a setting of such a gate.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Setting {
    /// It is accepted, and changes nothing.
    Accepted,
    /// The release does not have the gate yet.
    PreAlpha,
    /// The gate is locked to the other value.
    Locked,
}

/// What setting a gate means in a release; none if it is not one of these gates. 1.37, which removed some of them, accepts
/// all: a configuration for both releases stays valid.
pub(super) fn setting(
    name: &str,
    value: bool,
    release: Release,
) -> Option<(&'static str, Setting)> {
    let found = GATES.binary_search_by_key(&name, |(name, ..)| name).ok()?;
    let (name, added, locked) = GATES[found];
    let is_locked = locked.is_some_and(|(since, to)| release.minor() >= since && value != to);
    let setting = match is_locked {
        true => Setting::Locked,
        false if release.minor() < added => Setting::PreAlpha,
        false => Setting::Accepted,
    };
    Some((name, setting))
}

/// Whether a gate is one of these.
pub(super) fn is_one(name: &str) -> bool {
    GATES.binary_search_by_key(&name, |(name, ..)| name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::{Feature, Features};

    #[test]
    fn settled_gates_are_sorted_and_of_no_feature_here() {
        assert!(GATES.is_sorted_by_key(|(name, ..)| *name));
        for (name, ..) in GATES {
            assert!(Feature::from_name(name).is_none(), "{name}");
        }
    }

    /// As kube-apiserver 1.36.2 answers.
    #[test]
    fn stable_and_deprecated_gates_can_be_set_to_what_they_are() {
        let set = |minor, flag: &str| {
            let mut features = Features::of(Release::new(minor));
            features.set(flag).map_err(|error| error.to_string())
        };
        let locked = "cannot set feature gate ImageVolume to false, feature is locked to true";
        let early = "cannot set feature gate ImageVolume to true, feature is PreAlpha at emulated version 1.30, min \
                     compatibility version 1.29";
        for (minor, flag, expected) in [
            (36, "ImageVolume=true,UserNamespacesSupport=true", Ok(())),
            (36, "ImageVolume=false", Err(locked.to_owned())),
            (35, "ImageVolume=false", Ok(())),
            (30, "ImageVolume=true", Err(early.to_owned())),
            (33, "JobPodReplacementPolicy=false", Ok(())),
            (36, "AllowServiceExternalIPs=false", Ok(())),
        ] {
            assert_eq!(set(minor, flag), expected, "{minor} {flag}");
        }
    }
}
