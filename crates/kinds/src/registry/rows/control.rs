//! Access control, and kinds that extend or control the server itself.

use super::{ADMISSION, AUTHENTICATION, AUTHORIZATION, CLUSTER, FLOW, RBAC, RW, Row, STATUS};

pub(super) const ROWS: &[Row] = &[
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
        group: "certificates.k8s.io",
        kind: "CertificateSigningRequest",
        plural: "certificatesigningrequests",
        short: &["csr"],
        subresources: &[("approval", "", "", "", RW), STATUS],
        ..CLUSTER
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
];
