//! Which objects pods and volumes refer to: what the node authorizer grants to the node of a pod, and what a mirror pod
//! may not have.

use std::collections::HashMap;

use allot_model::validate::pod::MIRROR_ANNOTATION as MIRROR;
use serde_json::Value;

use crate::object::{items, meta, text};

/// Sources of volumes that name a secret in the pod's namespace, and the field that does.
const SECRET_REFS: [(&str, &str); 8] = [
    ("cephfs", "secretRef"),
    ("cinder", "secretRef"),
    ("flexVolume", "secretRef"),
    ("rbd", "secretRef"),
    ("scaleIO", "secretRef"),
    ("iscsi", "secretRef"),
    ("storageos", "secretRef"),
    ("csi", "nodePublishSecretRef"),
];

/// Volume sources that refer to no other object.
const SELF_CONTAINED: [&str; 22] = [
    "awsElasticBlockStore",
    "azureDisk",
    "cephfs",
    "cinder",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

/// Volume sources that refer to API objects, with upstream's description of them.
const FROM_API: [(&str, &str); 7] = [
    ("configMap", "configmaps (via configmap volumes)"),
    ("secret", "secrets (via secret volumes)"),
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    (
        "ephemeral",
        "persistentvolumeclaims (via ephemeral volumes)",
    ),
    ("azureFile", "secrets (via azureFile volumes)"),
];

/// The same for the sources of projected volumes.
const PROJECTED_FROM_API: [(&str, &str); 5] = [
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    (
        "serviceAccountToken",
        "serviceaccounts (via projected volumes)",
    ),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

/// Whether the pod is a mirror pod.
pub fn is_mirror(pod: &Value) -> bool {
    pod["metadata"]["annotations"][MIRROR].is_string()
}

fn volumes(pod: &Value) -> &[Value] {
    items(&pod["spec"]["volumes"])
}

/// The names that containers take environment variables from, whole or key by key.
fn environment<'a>(
    pod: &'a Value,
    whole: &'a str,
    by_key: &'a str,
) -> impl Iterator<Item = &'a str> {
    let containers = ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|list| items(&pod["spec"][list]));
    containers.flat_map(move |container| {
        let all = items(&container["envFrom"])
            .iter()
            .map(move |from| text(from, &[whole, "name"]));
        let keys = items(&container["env"])
            .iter()
            .map(move |env| text(env, &["valueFrom", by_key, "name"]));
        all.chain(keys)
    })
}

fn projected<'a>(pod: &'a Value, source: &'a str) -> impl Iterator<Item = &'a str> {
    let sources = volumes(pod)
        .iter()
        .flat_map(|volume| items(&volume["projected"]["sources"]));
    sources.map(move |found| text(found, &[source, "name"]))
}

/// The secrets of its namespace that a pod names, without those of its persistent volumes.
pub fn secrets(pod: &Value) -> impl Iterator<Item = &str> {
    let pulls = items(&pod["spec"]["imagePullSecrets"])
        .iter()
        .map(|reference| text(reference, &["name"]));
    let of_volumes = volumes(pod).iter().flat_map(|volume| {
        SECRET_REFS
            .iter()
            .map(move |&(source, field)| text(volume, &[source, field, "name"]))
            .chain([
                text(volume, &["azureFile", "secretName"]),
                text(volume, &["secret", "secretName"]),
            ])
    });
    pulls
        .chain(environment(pod, "secretRef", "secretKeyRef"))
        .chain(of_volumes)
        .chain(projected(pod, "secret"))
        .filter(|name| !name.is_empty())
}

/// The config maps that a pod names.
pub fn config_maps(pod: &Value) -> impl Iterator<Item = &str> {
    let of_volumes = volumes(pod)
        .iter()
        .map(|volume| text(volume, &["configMap", "name"]));
    environment(pod, "configMapRef", "configMapKeyRef")
        .chain(of_volumes)
        .chain(projected(pod, "configMap"))
        .filter(|name| !name.is_empty())
}

/// The name of the claim of a volume, also if the claim is generated for the pod.
pub fn volume_claim(pod: &Value, volume: &Value) -> Option<String> {
    let named = text(volume, &["persistentVolumeClaim", "claimName"]);
    if !named.is_empty() {
        return Some(named.to_owned());
    }
    volume["ephemeral"]
        .is_object()
        .then(|| format!("{}-{}", meta(pod, "name"), text(volume, &["name"])))
}

/// The persistent volume claims of a pod.
pub fn volume_claims(pod: &Value) -> impl Iterator<Item = String> {
    volumes(pod)
        .iter()
        .filter_map(|volume| volume_claim(pod, volume))
}

/// The resource claims of a pod: named ones, generated ones, and the one for its extended resources. Status entries
/// count only if they belong to an entry of the specification.
pub fn resource_claims(pod: &Value) -> impl Iterator<Item = &str> {
    // There may be thousands of both.
    let statuses = items(&pod["status"]["resourceClaimStatuses"]).iter().rev();
    let statuses: HashMap<_, _> = statuses.map(|it| (it["name"].as_str(), it)).collect();
    let claims = items(&pod["spec"]["resourceClaims"])
        .iter()
        .map(move |claim| match text(claim, &["resourceClaimName"]) {
            "" => statuses
                .get(&claim["name"].as_str())
                .map_or("", |status| text(status, &["resourceClaimName"])),
            named => named,
        });
    let extended = text(
        pod,
        &["status", "extendedResourceClaimStatus", "resourceClaimName"],
    );
    claims.chain([extended]).filter(|name| !name.is_empty())
}

/// Namespace and name of the secrets of a persistent volume that the node needs to mount it. The default namespace is
/// that of its claim.
pub fn secrets_of_volume(volume: &Value) -> Vec<(&str, &str)> {
    let spec = &volume["spec"];
    let of_claim = text(spec, &["claimRef", "namespace"]);
    let or_claim = |namespace| match namespace {
        "" => of_claim,
        named => named,
    };
    let mut found = Vec::new();
    let azure = &spec["azureFile"];
    found.push((
        or_claim(text(azure, &["secretNamespace"])),
        text(azure, &["secretName"]),
    ));
    for source in ["cephfs", "flexVolume", "rbd", "scaleIO", "iscsi"] {
        let secret = &spec[source]["secretRef"];
        found.push((
            or_claim(text(secret, &["namespace"])),
            text(secret, &["name"]),
        ));
    }
    let as_named = [
        ("cinder", "secretRef"),
        ("storageos", "secretRef"),
        ("csi", "nodePublishSecretRef"),
        ("csi", "nodeStageSecretRef"),
        ("csi", "nodeExpandSecretRef"),
    ];
    for (source, field) in as_named {
        let secret = &spec[source][field];
        found.push((text(secret, &["namespace"]), text(secret, &["name"])));
    }
    found.retain(|(_, name)| !name.is_empty());
    found
}

/// Why it is unknown whether a pod refers to API objects; the texts are upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// A volume is of an unknown type.
    #[error("unknown volume type for volume  {0:?}")]
    Volume(String),
    /// A projected volume has an unknown source.
    #[error("unknown source for projected volume {0:?}")]
    Source(String),
}

/// The kind of API objects that a pod refers to, as messages about mirror pods name it; `None` if it refers to none.
///
/// # Errors
/// A volume that is not known to be without references.
pub fn of_api(pod: &Value) -> Result<Option<&'static str>, ReferenceError> {
    let found = |what| Ok(Some(what));
    if !text(pod, &["spec", "serviceAccountName"]).is_empty() {
        return found("serviceaccounts");
    }
    if secrets(pod).next().is_some() {
        return found("secrets");
    }
    if config_maps(pod).next().is_some() {
        return found("configmaps");
    }
    if !items(&pod["spec"]["resourceClaims"]).is_empty() {
        return found("resourceclaims");
    }
    for volume in volumes(pod) {
        let has = |source: &str| !volume[source].is_null();
        if SELF_CONTAINED.iter().any(|source| has(source)) {
            continue;
        }
        if let Some((_, what)) = FROM_API.iter().find(|(source, _)| has(source)) {
            return found(what);
        }
        let name = text(volume, &["name"]);
        if !has("projected") {
            return Err(ReferenceError::Volume(name.to_owned()));
        }
        for part in items(&volume["projected"]["sources"]) {
            let has = |source: &str| !part[source].is_null();
            if let Some((_, what)) = PROJECTED_FROM_API.iter().find(|(source, _)| has(source)) {
                return found(what);
            }
            if !has("downwardAPI") {
                return Err(ReferenceError::Source(name.to_owned()));
            }
        }
    }
    Ok(None)
}
