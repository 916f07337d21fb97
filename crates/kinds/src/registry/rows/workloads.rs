//! Workloads, devices, volumes, networks.

use super::{APPS, BASE, BATCH, CLUSTER, NETWORKING, RESOURCE, Row, SCALE, STATUS, STORAGE};

pub(super) const ROWS: &[Row] = &[
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
        kind: "DeviceClass",
        plural: "deviceclasses",
        namespaced: false,
        ..RESOURCE
    },
    Row {
        kind: "DeviceTaintRule",
        plural: "devicetaintrules",
        namespaced: false,
        versions: &["v1", "!v1beta2", "!v1alpha3"],
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
