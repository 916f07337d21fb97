//! The admission plugins by name. The one list of them: what runs, and what the flags of kube-apiserver may name.

macro_rules! plugins {
    ($($(#[$doc:meta])* $name:ident: $default:ident),+ $(,)?) => {
        /// An admission plugin that is implemented here, by kube-apiserver's name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Plugin { $($(#[$doc])* $name),+ }

        impl Plugin {
            /// All of them, by name.
            pub const ALL: &[Plugin] = &[$(Plugin::$name),+];

            /// The name in `--enable-admission-plugins` and `--disable-admission-plugins`.
            pub fn name(self) -> &'static str {
                match self { $(Plugin::$name => stringify!($name)),+ }
            }

            /// Whether the plugin runs unless a flag says otherwise, as in kube-apiserver.
            pub fn is_on_by_default(self) -> bool {
                match self { $(Plugin::$name => plugins!(@ $default)),+ }
            }
        }
    };
    (@ on) => { true };
    (@ off) => { false };
}

plugins! {
    /// Approving a certificate signing request needs the permission for its signer.
    CertificateApproval: on,
    /// Signing a certificate signing request needs the permission for its signer.
    CertificateSigning: on,
    /// No certificate for the group `system:masters`.
    CertificateSubjectRestriction: on,
    /// Writing the trust bundle of a signer needs the permission for that signer.
    ClusterTrustBundleAttest: on,
    /// Sets the default class of an Ingress.
    DefaultIngressClass: on,
    /// Sets the default class of a PersistentVolumeClaim.
    DefaultStorageClass: on,
    /// Pods tolerate a node that is not ready or not reachable for five minutes.
    DefaultTolerationSeconds: on,
    /// Defaults and limits of a namespace's LimitRanges.
    LimitRanger: on,
    /// Mutations by policies in CEL.
    MutatingAdmissionPolicy: on,
    /// Mutations by webhooks.
    MutatingAdmissionWebhook: on,
    /// Objects are created only in a namespace that exists and is not terminating.
    NamespaceLifecycle: on,
    /// A pod is changed only to what its node declares that it can do.
    NodeDeclaredFeatureValidator: on,
    /// A node writes only its own objects.
    NodeRestriction: on,
    /// A claim grows only if its class permits that.
    PersistentVolumeClaimResize: on,
    /// A Job whose pods are scheduled together keeps its parallelism.
    JobValidation: on,
    /// The finalizer of PodGroups that pods are in.
    PodGroupProtection: on,
    /// The Workload of a PodGroup exists.
    PodGroupWorkloadExists: on,
    /// Which pods can be resized on their node.
    PodResizeValidator: on,
    /// The Pod Security Standards of namespaces.
    PodSecurity: on,
    /// Copies topology labels of the node to its pods.
    PodTopologyLabels: on,
    /// The priority of pods, from their PriorityClass.
    Priority: on,
    /// The quotas of namespaces.
    ResourceQuota: on,
    /// The overhead and node selector of a pod's RuntimeClass.
    RuntimeClass: on,
    /// The service account of pods, and the volume with its token.
    ServiceAccount: on,
    /// The finalizers of PersistentVolumes and their claims.
    StorageObjectInUseProtection: on,
    /// New nodes have a taint until they are ready.
    TaintNodesByCondition: on,
    /// Validations by policies in CEL.
    ValidatingAdmissionPolicy: on,
    /// Validations by webhooks.
    ValidatingAdmissionWebhook: on,
    /// Everything is admitted, which is how it is without this plugin.
    AlwaysAdmit: off,
    /// Nothing is admitted.
    AlwaysDeny: off,
    /// Images are pulled for every pod, so that a pod uses only those that it may pull.
    AlwaysPullImages: off,
    /// No new external addresses of services.
    DenyServiceExternalIPs: off,
    /// Limits of events by server, namespace, user or source.
    EventRateLimit: off,
    /// Pods tolerate taints that are named after the extended resources which they ask for.
    ExtendedResourceToleration: off,
    /// Another server decides which images pods may have.
    ImagePolicyWebhook: off,
    /// Pods keep apart from others by node only.
    LimitPodHardAntiAffinityTopology: off,
    /// A namespace that does not exist is made for the first object in it.
    NamespaceAutoProvision: off,
    /// Objects are written only in a namespace that exists.
    NamespaceExists: off,
    /// Node selectors of the pods of a namespace.
    PodNodeSelector: off,
    /// Tolerations of the pods of a namespace.
    PodTolerationRestriction: off,
    /// An owner reference needs the permission to delete the dependent.
    OwnerReferencesPermissionEnforcement: off,
}

impl Plugin {
    /// Whether the plugin runs with these values of the two flags. A plugin that both name is off.
    pub fn is_enabled(self, enabled: &[String], disabled: &[String]) -> bool {
        let named = |list: &[String]| list.iter().any(|name| name == self.name());
        !named(disabled) && (self.is_on_by_default() || named(enabled))
    }
}

/// Whether the plugin of that name runs with these values of the two flags; `None` if kube-apiserver has no such plugin.
pub fn is_enabled(name: &str, enabled: &[String], disabled: &[String]) -> Option<bool> {
    let mut all = Plugin::ALL.iter();
    let plugin = all.find(|plugin| plugin.name() == name)?;
    Some(plugin.is_enabled(enabled, disabled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_switch_plugins_on_and_off() {
        let (on, off) = (
            Plugin::NamespaceLifecycle,
            Plugin::OwnerReferencesPermissionEnforcement,
        );
        let named = |plugin: Plugin| vec![plugin.name().to_owned()];
        assert!(on.is_enabled(&[], &[]) && !on.is_enabled(&[], &named(on)));
        assert!(!off.is_enabled(&[], &[]) && off.is_enabled(&named(off), &[]));
        assert!(!off.is_enabled(&named(off), &named(off)));
    }

    #[test]
    fn only_names_of_kube_apiserver_are_known() {
        assert_eq!(is_enabled("ResourceQuota", &[], &[]), Some(true));
        assert_eq!(is_enabled("ImagePolicyWebhook", &[], &[]), Some(false));
        assert_eq!(is_enabled("resourcequota", &[], &[]), None);
    }
}
