//! Names of admission plugins, as the flags of kube-apiserver take them.

/// Implemented plugins; all of them are on by default.
const BUILT: [&str; 24] = [
    "CertificateApproval",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "DefaultIngressClass",
    "DefaultStorageClass",
    "DefaultTolerationSeconds",
    "LimitRanger",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "NamespaceLifecycle",
    "NodeRestriction",
    "PersistentVolumeClaimResize",
    "PodGroupWorkloadExists",
    "PodResizeValidator",
    "PodSecurity",
    "PodTopologyLabels",
    "Priority",
    "ResourceQuota",
    "RuntimeClass",
    "ServiceAccount",
    "StorageObjectInUseProtection",
    "TaintNodesByCondition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
];

/// Implemented plugins that are off by default, as in kube-apiserver.
const ON_REQUEST: [&str; 1] = ["OwnerReferencesPermissionEnforcement"];

/// Plugins of kube-apiserver that do not exist here: their function is elsewhere, or not
/// implemented.
const OTHERS: [&str; 15] = [
    "AlwaysAdmit",
    "AlwaysDeny",
    "AlwaysPullImages",
    "ClusterTrustBundleAttest",
    "DenyServiceExternalIPs",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "ImagePolicyWebhook",
    "LimitPodHardAntiAffinityTopology",
    "NamespaceAutoProvision",
    "NamespaceExists",
    "NodeDeclaredFeatureValidator",
    "PodGroupProtection",
    "PodNodeSelector",
    "PodTolerationRestriction",
];

/// Whether a plugin of that name works here; `None` if kube-apiserver has no such plugin.
pub fn works(name: &str) -> Option<bool> {
    match name {
        _ if BUILT.contains(&name) || ON_REQUEST.contains(&name) => Some(true),
        _ if OTHERS.contains(&name) => Some(false),
        _ => None,
    }
}
