//! The built-in resources of Kubernetes 1.36, one row each.

use super::{Resource, RuntimeConfig, Subresource, Version, collection_name};

/// A built-in resource.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    group: &'static str,
    /// Versions, preferred first; `!` in front: only served when asked for.
    versions: &'static [&'static str],
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    verbs: &'static [&'static str],
    subresources: &'static [Sub],
    /// Collection of another resource that holds the objects.
    stored_with: Option<(&'static str, &'static str)>,
    storage_version: Option<&'static str>,
    /// `(version, deprecated in, removed in)`.
    deprecated: &'static [(&'static str, &'static str, &'static str)],
}

/// A subresource: name, kind (empty: the resource's), its group and version (empty: the resource's), verbs.
type Sub = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
);

const ALL: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
const NO_DELETE_ALL: &[&str] = &[
    "create", "delete", "get", "list", "patch", "update", "watch",
];
const CREATE: &[&str] = &["create"];
const READ: &[&str] = &["get", "list"];
const RW: &[&str] = &["get", "patch", "update"];
const PROXY: &[&str] = &["create", "delete", "get", "patch", "update"];
const CONNECT: &[&str] = &["create", "get"];
const UPDATE: &[&str] = &["update"];
const GET: &[&str] = &["get"];

const STATUS: Sub = ("status", "", "", "", RW);
const SCALE: Sub = ("scale", "Scale", "autoscaling", "v1", RW);

const BASE: Row = Row {
    group: "",
    versions: &["v1"],
    kind: "",
    plural: "",
    short: &[],
    categories: &[],
    namespaced: true,
    verbs: ALL,
    subresources: &[],
    stored_with: None,
    storage_version: None,
    deprecated: &[],
};
const CLUSTER: Row = Row {
    namespaced: false,
    ..BASE
};
const ADMISSION: Row = Row {
    group: "admissionregistration.k8s.io",
    categories: &["api-extensions"],
    ..CLUSTER
};
const APPS: Row = Row {
    group: "apps",
    categories: &["all"],
    ..BASE
};
const BATCH: Row = Row {
    group: "batch",
    categories: &["all"],
    subresources: &[STATUS],
    ..BASE
};
const AUTHORIZATION: Row = Row {
    group: "authorization.k8s.io",
    verbs: CREATE,
    ..CLUSTER
};
const AUTHENTICATION: Row = Row {
    group: "authentication.k8s.io",
    verbs: CREATE,
    ..CLUSTER
};
const FLOW: Row = Row {
    group: "flowcontrol.apiserver.k8s.io",
    subresources: &[STATUS],
    ..CLUSTER
};
const NETWORKING: Row = Row {
    group: "networking.k8s.io",
    ..BASE
};
const RBAC: Row = Row {
    group: "rbac.authorization.k8s.io",
    ..BASE
};
const STORAGE: Row = Row {
    group: "storage.k8s.io",
    ..CLUSTER
};
const RESOURCE: Row = Row {
    group: "resource.k8s.io",
    versions: &["v1", "!v1beta2", "!v1beta1"],
    deprecated: &[("v1beta1", "v1.35", "v1.38"), ("v1beta2", "v1.36", "v1.39")],
    ..BASE
};

/// All rows.
pub const ROWS: &[Row] = &[
    Row {
        kind: "Binding",
        plural: "bindings",
        verbs: CREATE,
        ..BASE
    },
    Row {
        kind: "ComponentStatus",
        plural: "componentstatuses",
        short: &["cs"],
        verbs: READ,
        deprecated: &[("v1", "v1.19", "")],
        ..CLUSTER
    },
    Row {
        kind: "ConfigMap",
        plural: "configmaps",
        short: &["cm"],
        ..BASE
    },
    Row {
        kind: "Endpoints",
        plural: "endpoints",
        short: &["ep"],
        deprecated: &[("v1", "v1.33", "")],
        ..BASE
    },
    Row {
        kind: "Event",
        plural: "events",
        short: &["ev"],
        ..BASE
    },
    Row {
        kind: "LimitRange",
        plural: "limitranges",
        short: &["limits"],
        ..BASE
    },
    Row {
        kind: "Namespace",
        plural: "namespaces",
        short: &["ns"],
        verbs: NO_DELETE_ALL,
        subresources: &[("finalize", "", "", "", UPDATE), STATUS],
        ..CLUSTER
    },
    Row {
        kind: "Node",
        plural: "nodes",
        short: &["no"],
        subresources: &[("proxy", "NodeProxyOptions", "", "", PROXY), STATUS],
        ..CLUSTER
    },
    Row {
        kind: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
        short: &["pvc"],
        subresources: &[STATUS],
        ..BASE
    },
    Row {
        kind: "PersistentVolume",
        plural: "persistentvolumes",
        short: &["pv"],
        subresources: &[STATUS],
        ..CLUSTER
    },
    Row {
        kind: "Pod",
        plural: "pods",
        short: &["po"],
        categories: &["all"],
        subresources: &[
            ("attach", "PodAttachOptions", "", "", CONNECT),
            ("binding", "Binding", "", "", CREATE),
            ("ephemeralcontainers", "", "", "", RW),
            ("eviction", "Eviction", "policy", "v1", CREATE),
            ("exec", "PodExecOptions", "", "", CONNECT),
            ("log", "", "", "", GET),
            ("portforward", "PodPortForwardOptions", "", "", CONNECT),
            ("proxy", "PodProxyOptions", "", "", PROXY),
            ("resize", "", "", "", RW),
            STATUS,
        ],
        ..BASE
    },
    Row {
        kind: "PodTemplate",
        plural: "podtemplates",
        ..BASE
    },
    Row {
        kind: "ReplicationController",
        plural: "replicationcontrollers",
        short: &["rc"],
        categories: &["all"],
        subresources: &[SCALE, STATUS],
        ..BASE
    },
    Row {
        kind: "ResourceQuota",
        plural: "resourcequotas",
        short: &["quota"],
        subresources: &[STATUS],
        ..BASE
    },
    Row {
        kind: "Secret",
        plural: "secrets",
        ..BASE
    },
    Row {
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        short: &["sa"],
        subresources: &[(
            "token",
            "TokenRequest",
            "authentication.k8s.io",
            "v1",
            CREATE,
        )],
        ..BASE
    },
    Row {
        kind: "Service",
        plural: "services",
        short: &["svc"],
        categories: &["all"],
        subresources: &[("proxy", "ServiceProxyOptions", "", "", PROXY), STATUS],
        ..BASE
    },
    Row {
        kind: "MutatingAdmissionPolicy",
        plural: "mutatingadmissionpolicies",
        ..ADMISSION
    },
    Row {
        kind: "MutatingAdmissionPolicyBinding",
        plural: "mutatingadmissionpolicybindings",
        ..ADMISSION
    },
    Row {
        kind: "MutatingWebhookConfiguration",
        plural: "mutatingwebhookconfigurations",
        ..ADMISSION
    },
    Row {
        kind: "ValidatingAdmissionPolicy",
        plural: "validatingadmissionpolicies",
        subresources: &[STATUS],
        ..ADMISSION
    },
    Row {
        kind: "ValidatingAdmissionPolicyBinding",
        plural: "validatingadmissionpolicybindings",
        ..ADMISSION
    },
    Row {
        kind: "ValidatingWebhookConfiguration",
        plural: "validatingwebhookconfigurations",
        ..ADMISSION
    },
    Row {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        plural: "customresourcedefinitions",
        short: &["crd", "crds"],
        categories: &["api-extensions"],
        subresources: &[STATUS],
        ..CLUSTER
    },
    Row {
        group: "apiregistration.k8s.io",
        kind: "APIService",
        plural: "apiservices",
        categories: &["api-extensions"],
        subresources: &[STATUS],
        ..CLUSTER
    },
    Row {
        kind: "ControllerRevision",
        plural: "controllerrevisions",
        categories: &[],
        ..APPS
    },
    Row {
        kind: "DaemonSet",
        plural: "daemonsets",
        short: &["ds"],
        subresources: &[STATUS],
        ..APPS
    },
    Row {
        kind: "Deployment",
        plural: "deployments",
        short: &["deploy"],
        subresources: &[SCALE, STATUS],
        ..APPS
    },
    Row {
        kind: "ReplicaSet",
        plural: "replicasets",
        short: &["rs"],
        subresources: &[SCALE, STATUS],
        ..APPS
    },
    Row {
        kind: "StatefulSet",
        plural: "statefulsets",
        short: &["sts"],
        subresources: &[SCALE, STATUS],
        ..APPS
    },
    Row {
        kind: "SelfSubjectReview",
        plural: "selfsubjectreviews",
        ..AUTHENTICATION
    },
    Row {
        kind: "TokenReview",
        plural: "tokenreviews",
        ..AUTHENTICATION
    },
    Row {
        kind: "LocalSubjectAccessReview",
        plural: "localsubjectaccessreviews",
        namespaced: true,
        ..AUTHORIZATION
    },
    Row {
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        ..AUTHORIZATION
    },
    Row {
        kind: "SelfSubjectRulesReview",
        plural: "selfsubjectrulesreviews",
        ..AUTHORIZATION
    },
    Row {
        kind: "SubjectAccessReview",
        plural: "subjectaccessreviews",
        ..AUTHORIZATION
    },
    Row {
        group: "autoscaling",
        versions: &["v2", "v1"],
        kind: "HorizontalPodAutoscaler",
        plural: "horizontalpodautoscalers",
        short: &["hpa"],
        categories: &["all"],
        subresources: &[STATUS],
        storage_version: Some("v2"),
        ..BASE
    },
    Row {
        kind: "CronJob",
        plural: "cronjobs",
        short: &["cj"],
        ..BATCH
    },
    Row {
        kind: "Job",
        plural: "jobs",
        ..BATCH
    },
    Row {
        group: "certificates.k8s.io",
        kind: "CertificateSigningRequest",
        plural: "certificatesigningrequests",
        short: &["csr"],
        subresources: &[("approval", "", "", "", RW), STATUS],
        ..CLUSTER
    },
    Row {
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        ..BASE
    },
    Row {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        plural: "endpointslices",
        ..BASE
    },
    Row {
        group: "events.k8s.io",
        kind: "Event",
        plural: "events",
        short: &["ev"],
        stored_with: Some(("", "events")),
        ..BASE
    },
    Row {
        kind: "FlowSchema",
        plural: "flowschemas",
        ..FLOW
    },
    Row {
        kind: "PriorityLevelConfiguration",
        plural: "prioritylevelconfigurations",
        ..FLOW
    },
    Row {
        kind: "IngressClass",
        plural: "ingressclasses",
        namespaced: false,
        ..NETWORKING
    },
    Row {
        kind: "Ingress",
        plural: "ingresses",
        short: &["ing"],
        subresources: &[STATUS],
        ..NETWORKING
    },
    Row {
        kind: "IPAddress",
        plural: "ipaddresses",
        short: &["ip"],
        namespaced: false,
        ..NETWORKING
    },
    Row {
        kind: "NetworkPolicy",
        plural: "networkpolicies",
        short: &["netpol"],
        ..NETWORKING
    },
    Row {
        kind: "ServiceCIDR",
        plural: "servicecidrs",
        namespaced: false,
        subresources: &[STATUS],
        ..NETWORKING
    },
    Row {
        group: "node.k8s.io",
        kind: "RuntimeClass",
        plural: "runtimeclasses",
        ..CLUSTER
    },
    Row {
        group: "policy",
        kind: "PodDisruptionBudget",
        plural: "poddisruptionbudgets",
        short: &["pdb"],
        subresources: &[STATUS],
        ..BASE
    },
    Row {
        kind: "ClusterRoleBinding",
        plural: "clusterrolebindings",
        namespaced: false,
        ..RBAC
    },
    Row {
        kind: "ClusterRole",
        plural: "clusterroles",
        namespaced: false,
        ..RBAC
    },
    Row {
        kind: "RoleBinding",
        plural: "rolebindings",
        ..RBAC
    },
    Row {
        kind: "Role",
        plural: "roles",
        ..RBAC
    },
    Row {
        kind: "DeviceClass",
        plural: "deviceclasses",
        namespaced: false,
        ..RESOURCE
    },
    Row {
        kind: "DeviceTaintRule",
        plural: "devicetaintrules",
        namespaced: false,
        versions: &["!v1beta2", "!v1alpha3"],
        deprecated: &[
            ("v1beta2", "v1.39", "v1.42"),
            ("v1alpha3", "v1.36", "v1.39"),
        ],
        subresources: &[STATUS],
        storage_version: Some("v1alpha3"),
        ..RESOURCE
    },
    Row {
        kind: "ResourceClaim",
        plural: "resourceclaims",
        subresources: &[STATUS],
        ..RESOURCE
    },
    Row {
        kind: "ResourceClaimTemplate",
        plural: "resourceclaimtemplates",
        ..RESOURCE
    },
    Row {
        kind: "ResourcePoolStatusRequest",
        plural: "resourcepoolstatusrequests",
        namespaced: false,
        versions: &["!v1alpha3"],
        deprecated: &[("v1alpha3", "v1.39", "v1.42")],
        subresources: &[STATUS],
        ..RESOURCE
    },
    Row {
        kind: "ResourceSlice",
        plural: "resourceslices",
        namespaced: false,
        ..RESOURCE
    },
    Row {
        group: "scheduling.k8s.io",
        kind: "PriorityClass",
        plural: "priorityclasses",
        short: &["pc"],
        ..CLUSTER
    },
    Row {
        group: "scheduling.k8s.io",
        versions: &["!v1alpha2"],
        kind: "Workload",
        plural: "workloads",
        ..BASE
    },
    Row {
        group: "scheduling.k8s.io",
        versions: &["!v1alpha2"],
        kind: "PodGroup",
        plural: "podgroups",
        subresources: &[STATUS],
        ..BASE
    },
    Row {
        kind: "CSIDriver",
        plural: "csidrivers",
        ..STORAGE
    },
    Row {
        kind: "CSINode",
        plural: "csinodes",
        ..STORAGE
    },
    Row {
        kind: "CSIStorageCapacity",
        plural: "csistoragecapacities",
        namespaced: true,
        ..STORAGE
    },
    Row {
        kind: "StorageClass",
        plural: "storageclasses",
        short: &["sc"],
        ..STORAGE
    },
    Row {
        kind: "VolumeAttachment",
        plural: "volumeattachments",
        subresources: &[STATUS],
        ..STORAGE
    },
    Row {
        kind: "VolumeAttributesClass",
        plural: "volumeattributesclasses",
        short: &["vac"],
        ..STORAGE
    },
];

/// A group of a built-in resource.
pub(super) fn is_group(name: &str) -> bool {
    ROWS.iter().any(|row| row.group == name)
}

impl Row {
    /// The resource with the versions that the configuration selects.
    pub fn resource(&self, config: &RuntimeConfig) -> Resource {
        let owned = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        let versions: Vec<Version> = self
            .versions
            .iter()
            .map(|name| {
                let (name, default) = match name.strip_prefix('!') {
                    Some(name) => (name, false),
                    None => (*name, true),
                };
                Version {
                    name: name.to_owned(),
                    served: config.serves(self.group, name, default),
                    internal: false,
                    deprecation: self.deprecation(name),
                }
            })
            .collect();
        let (group, plural) = self.stored_with.unwrap_or((self.group, self.plural));
        Resource {
            group: self.group.to_owned(),
            storage_version: self.storage_version.map_or_else(
                || {
                    versions
                        .first()
                        .map_or_else(String::new, |it| it.name.clone())
                },
                str::to_owned,
            ),
            versions,
            kind: self.kind.to_owned(),
            list_kind: format!("{}List", self.kind),
            plural: self.plural.to_owned(),
            singular: self.kind.to_lowercase(),
            short_names: owned(self.short),
            categories: owned(self.categories),
            namespaced: self.namespaced,
            verbs: owned(self.verbs),
            subresources: self
                .subresources
                .iter()
                .map(|(name, kind, group, version, verbs)| Subresource {
                    name: (*name).to_owned(),
                    kind: if kind.is_empty() { self.kind } else { kind }.to_owned(),
                    group: (*group).to_owned(),
                    version: (*version).to_owned(),
                    verbs: owned(verbs),
                })
                .collect(),
            collection: collection_name(group, plural),
            custom: None,
        }
    }

    fn deprecation(&self, version: &str) -> String {
        let Some((_, since, removed)) = self.deprecated.iter().find(|(name, ..)| *name == version)
        else {
            return String::new();
        };
        let api = if self.group.is_empty() {
            version.to_owned()
        } else {
            format!("{}/{version}", self.group)
        };
        match (*removed, self.kind) {
            ("", "Endpoints") => {
                "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
                    .to_owned()
            }
            ("", kind) => format!("{api} {kind} is deprecated in {since}+"),
            (removed, kind) => {
                format!("{api} {kind} is deprecated in {since}+, unavailable in {removed}+")
            }
        }
    }
}
