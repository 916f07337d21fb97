//! The objects of the tables and where they are.

use allot_apiserver::identity::NODES;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::cluster::RBAC;

/// Where a resource is.
pub fn path_of(resource: &str, target: &str) -> String {
    if resource.starts_with('/') {
        return resource.to_owned();
    }
    let (plural, sub) = resource.split_once('/').unwrap_or((resource, ""));
    let root = match plural {
        "deployments" | "daemonsets" | "replicasets" | "statefulsets" | "controllerrevisions" => {
            "/apis/apps/v1"
        }
        "jobs" | "cronjobs" => "/apis/batch/v1",
        "horizontalpodautoscalers" => "/apis/autoscaling/v2",
        "poddisruptionbudgets" => "/apis/policy/v1",
        "endpointslices" => "/apis/discovery.k8s.io/v1",
        "apiservices" => "/apis/apiregistration.k8s.io/v1",
        "priorityclasses" => "/apis/scheduling.k8s.io/v1",
        "flowschemas" | "prioritylevelconfigurations" => "/apis/flowcontrol.apiserver.k8s.io/v1",
        "validatingwebhookconfigurations"
        | "mutatingwebhookconfigurations"
        | "validatingadmissionpolicies"
        | "validatingadmissionpolicybindings" => "/apis/admissionregistration.k8s.io/v1",
        "roles" | "rolebindings" | "clusterroles" | "clusterrolebindings" => RBAC,
        "leases" => "/apis/coordination.k8s.io/v1",
        "csinodes"
        | "csidrivers"
        | "csistoragecapacities"
        | "volumeattachments"
        | "storageclasses" => "/apis/storage.k8s.io/v1",
        "resourceslices" | "resourceclaims" | "resourceclaimtemplates" | "deviceclasses" => {
            "/apis/resource.k8s.io/v1"
        }
        "certificatesigningrequests" | "podcertificaterequests" => "/apis/certificates.k8s.io/v1",
        "runtimeclasses" => "/apis/node.k8s.io/v1",
        "customresourcedefinitions" => "/apis/apiextensions.k8s.io/v1",
        "tokenreviews" | "selfsubjectreviews" => "/apis/authentication.k8s.io/v1",
        "subjectaccessreviews"
        | "localsubjectaccessreviews"
        | "selfsubjectaccessreviews"
        | "selfsubjectrulesreviews" => "/apis/authorization.k8s.io/v1",
        "networkpolicies" | "ingresses" | "ingressclasses" | "servicecidrs" | "ipaddresses" => {
            "/apis/networking.k8s.io/v1"
        }
        _ => "/api/v1",
    };
    let cluster = matches!(
        plural,
        "nodes"
            | "persistentvolumes"
            | "namespaces"
            | "clusterroles"
            | "clusterrolebindings"
            | "csinodes"
            | "csidrivers"
            | "volumeattachments"
            | "storageclasses"
            | "resourceslices"
            | "deviceclasses"
            | "certificatesigningrequests"
            | "runtimeclasses"
            | "customresourcedefinitions"
            | "apiservices"
            | "priorityclasses"
            | "flowschemas"
            | "prioritylevelconfigurations"
            | "validatingwebhookconfigurations"
            | "mutatingwebhookconfigurations"
            | "validatingadmissionpolicies"
            | "validatingadmissionpolicybindings"
            | "ingressclasses"
            | "servicecidrs"
            | "ipaddresses"
            | "tokenreviews"
            | "selfsubjectreviews"
            | "subjectaccessreviews"
            | "selfsubjectaccessreviews"
            | "selfsubjectrulesreviews"
    );
    let (namespace, name) = match target.split_once('/') {
        _ if cluster => ("", target),
        Some((namespace, name)) => (namespace, name),
        None => (target, ""),
    };
    let mut path = root.to_owned();
    if !namespace.is_empty() {
        path = format!("{path}/namespaces/{namespace}");
    }
    path = format!("{path}/{plural}");
    for part in [name, sub] {
        if !part.is_empty() {
            path = format!("{path}/{part}");
        }
    }
    path
}

/// RFC 7386, with which the tables say what differs.
pub fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    let map = object.as_object_mut().unwrap();
    for (key, change) in changes {
        if change.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key.clone()).or_insert(Value::Null), change);
        }
    }
}

pub fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

pub fn slice(node: &str) -> Value {
    json!({
        "metadata": {"name": "new"},
        "spec": {
            "driver": "gpu.example.com", "nodeName": node, "devices": [{"name": "d"}],
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        },
    })
}

pub fn pod(name: &str, node: &str) -> Value {
    let mut pod = json!({
        "metadata": {"name": name},
        "spec": {
            "serviceAccountName": "others", "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "i"}],
        },
    });
    if !node.is_empty() {
        pod["spec"]["nodeName"] = node.into();
    }
    pod
}

pub fn deployment(name: &str) -> Value {
    let labels = json!({"a": "b"});
    json!({
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    })
}

/// A pod that refers to one object in every way there is.
pub fn pod_with_everything() -> Value {
    let mut pod = pod("p1", "n1");
    let key = |kind: &str, name: &str| json!({"name": "A", "valueFrom": {kind: {"name": name, "key": "k"}}});
    let template = json!({
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let sources = json!([
        {"secret": {"name": "s-proj"}},
        {"configMap": {"name": "c-proj"}},
        {"serviceAccountToken": {"audience": "vault", "path": "token"}},
    ]);
    let inline = json!({"driver": "inline.example.com", "nodePublishSecretRef": {"name": "s-csi"}});
    pod["spec"] = json!({
        "nodeName": "n1", "serviceAccountName": "builder", "automountServiceAccountToken": false,
        "imagePullSecrets": [{"name": "s-pull"}],
        "initContainers": [{"name": "i", "image": "i", "env": [key("secretKeyRef", "s-init")]}],
        "containers": [{
            "name": "c", "image": "i",
            "env": [key("secretKeyRef", "s-key"), key("configMapKeyRef", "c-key")],
            "envFrom": [{"secretRef": {"name": "s-from"}}, {"configMapRef": {"name": "c-from"}}],
            "resources": {"limits": {"example.com/gpu": "1"}},
        }],
        "resourceClaims": [
            {"name": "named", "resourceClaimName": "rc"},
            {"name": "made", "resourceClaimTemplateName": "template"},
        ],
        "volumes": [
            {"name": "secret", "secret": {"secretName": "s-vol"}},
            {"name": "map", "configMap": {"name": "c-vol"}},
            {"name": "projected", "projected": {"sources": sources}},
            {"name": "claim", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}},
            {"name": "inline", "csi": inline},
        ],
    });
    pod
}

/// A request for a certificate with a common name, as it stands in the API.
pub fn certificate_request(name: &str) -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let subject = &mut params.distinguished_name;
    subject.push(rcgen::DnType::OrganizationName, NODES);
    subject.push(rcgen::DnType::CommonName, name);
    let request = params.serialize_request(&key).unwrap();
    STANDARD.encode(request.pem().unwrap())
}
