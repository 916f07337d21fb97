//! The core group.

use super::{
    BASE, CLUSTER, CONNECT, CREATE, GET, NO_DELETE_ALL, PROXY, READ, RW, Row, SCALE, STATUS, UPDATE,
};

pub(super) const ROWS: &[Row] = &[
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
];
