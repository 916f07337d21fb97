//! The manifests of static pods: pods that a node runs from its own files, whether or not there is an API server.
//!
//! The rules are those of the kubelet's `--pod-manifest-path`: the path is a directory, whose files with names that begin
//! with a dot are left out, or one file; the pod's name gets the node's name as a suffix; its UID is a hash of the
//! manifest, so that a changed manifest is another pod. A file at fault is left out, and the others are used.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use allot_apimachinery::names;
use allot_schema::decode::{self, DecodeError, Mode};
use allot_schema::{defaults, types};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::{Value, json};

/// Where a pod is from: `file` for static pods.
const SOURCE: &str = "kubernetes.io/config.source";
/// The hash of a static pod, which is its UID.
const HASH: &str = "kubernetes.io/config.hash";

/// Maximum size of a manifest in bytes: that of an object of the API.
const MAX_FILE: u64 = 1 << 20;
/// Maximum number of manifests: more than the pods of a node.
const MAX_FILES: usize = 250;
/// Maximum number of directory entries that are looked at.
const MAX_ENTRIES: usize = 10_000;

/// What the files define.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Manifests {
    pub(crate) pods: Vec<Pod>,
    /// Files that are left out, and why.
    pub(crate) faults: BTreeMap<PathBuf, String>,
}

/// Why a file is left out.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("there are more than {MAX_FILES} manifests")]
    TooMany,
    #[error("{0}")]
    Yaml(String),
    #[error("expected a Pod of v1, found kind {kind:?} of {version:?}")]
    Kind { kind: String, version: String },
    #[error("{0}")]
    Decode(#[from] DecodeError),
    #[error("invalid pod: {0}")]
    Invalid(String),
    #[error("static pods may not reference {0}")]
    Reference(String),
    #[error("invalid pod: {0} is defined in another file")]
    Duplicate(String),
}

fn invalid(reason: impl Into<String>) -> Fault {
    Fault::Invalid(reason.into())
}

/// Reads all manifests; none if the path does not exist.
///
/// # Errors
/// The directory cannot be read, or there are too few file descriptors: what the files define is not known.
pub(crate) fn read(path: &Path, node: &str) -> std::io::Result<Manifests> {
    let mut files = Vec::new();
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let reason = "it does not exist".to_owned();
            return Ok(Manifests {
                faults: BTreeMap::from([(path.to_owned(), reason)]),
                ..Manifests::default()
            });
        }
        Err(error) => return Err(error),
        Ok(found) if found.is_dir() => {
            for entry in std::fs::read_dir(path)?.take(MAX_ENTRIES) {
                let entry = entry?;
                if !entry.file_name().as_encoded_bytes().starts_with(b".") {
                    files.push(entry.path());
                }
            }
            files.sort();
        }
        Ok(_) => files.push(path.to_owned()),
    }
    let mut read = Manifests::default();
    let mut known = BTreeSet::new();
    for (index, file) in files.into_iter().enumerate() {
        let pod = match index {
            MAX_FILES.. => Err(Fault::TooMany),
            _ => manifest(&file, node),
        };
        let pod = pod.and_then(|pod| {
            let name = full_name(&pod);
            match known.insert(name.clone()) {
                true => Ok(pod),
                false => Err(Fault::Duplicate(name)),
            }
        });
        match pod {
            Ok(pod) => read.pods.push(pod),
            Err(Fault::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(Fault::Io(error)) if is_out_of_descriptors(&error) => return Err(error),
            Err(fault) => {
                read.faults.insert(file, fault.to_string());
            }
        }
    }
    Ok(read)
}

fn is_out_of_descriptors(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Namespace and name.
pub(crate) fn full_name(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

/// Whether a UID is the hash of a manifest. The API server gives pods UUIDs.
pub(crate) fn is_hash(uid: &str) -> bool {
    uid.len() == 32 && uid.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn manifest(file: &Path, node: &str) -> Result<Pod, Fault> {
    let text = allot_cdi::file::read_bounded(file, MAX_FILE)?;
    parse(&text, file, node)
}

/// The pod of a manifest in YAML or JSON.
fn parse(text: &[u8], file: &Path, node: &str) -> Result<Pod, Fault> {
    let text = std::str::from_utf8(text).map_err(|error| Fault::Yaml(error.to_string()))?;
    let value: Value = serde_saphyr::from_str(text).map_err(|error| {
        let error = error.to_string();
        let line = error.split("\n -->").next().unwrap_or_default();
        Fault::Yaml(line.trim().to_owned())
    })?;
    let named = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let (kind, version) = (named("kind"), named("apiVersion"));
    let schema = types::lookup("", "v1", "Pod");
    let Some(schema) = schema.filter(|_| kind == "Pod" && version == "v1") else {
        return Err(Fault::Kind { kind, version });
    };
    let (mut pod, _) = decode::decode_value(value, schema)?.apply(Mode::Ignore)?;
    let uid = hash(&pod, file, node);
    defaults::apply("", "v1", "Pod", &mut pod);
    if let Some(what) = forbidden_reference(&pod["spec"]) {
        return Err(Fault::Reference(what));
    }
    if let Some(object) = pod.as_object_mut() {
        object.insert("status".to_owned(), json!({"phase": "Pending"}));
    }
    let mut pod: Pod = serde_json::from_value(pod).map_err(|error| invalid(error.to_string()))?;
    let name = pod.metadata.name.take().unwrap_or_default();
    if name.is_empty() {
        return Err(invalid("name is needed for the pod"));
    }
    let metadata = &mut pod.metadata;
    metadata.name = Some(format!("{name}-{}", node.to_lowercase()));
    metadata.namespace.get_or_insert_with(|| "default".into());
    metadata.uid = Some(uid.clone());
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(SOURCE.to_owned(), "file".to_owned());
    annotations.insert(HASH.to_owned(), uid);
    check(&pod)?;
    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(node.to_owned());
    // It is not evicted from a node that has problems.
    let all = json!({"operator": "Exists", "effect": "NoExecute"});
    if let Ok(all) = serde_json::from_value(all) {
        let tolerations = spec.tolerations.get_or_insert_default();
        if !tolerations.contains(&all) {
            tolerations.push(all);
        }
    }
    Ok(pod)
}

/// 128 bits over the manifest's content and place, by FNV-1a as in the kubelet.
fn hash(pod: &Value, file: &Path, node: &str) -> String {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let place = format!("host:{node}file:{}", file.display());
    let content = pod.to_string();
    let bytes = content.bytes().chain(place.bytes());
    let hash = bytes.fold(BASIS, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(PRIME)
    });
    format!("{hash:032x}")
}

/// Checks what names files and containers on the node. The API server checks everything else, when it gets the pod's mirror.
fn check(pod: &Pod) -> Result<(), Fault> {
    let of = |path: &str, value: &str, faults: Vec<String>| match faults.first() {
        Some(fault) => Err(invalid(format!("{path}: {value:?}: {fault}"))),
        None => Ok(()),
    };
    let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
    of("metadata.name", &name, names::dns1123_subdomain(&name))?;
    let faults = names::dns1123_label(&namespace);
    of("metadata.namespace", &namespace, faults)?;
    let Some(spec) = pod.spec.as_ref().filter(|spec| !spec.containers.is_empty()) else {
        return Err(invalid("spec.containers: at least one is needed"));
    };
    if spec.ephemeral_containers.iter().flatten().next().is_some() {
        return Err(invalid("spec.ephemeralContainers: a new pod has none"));
    }
    let mut known = BTreeSet::new();
    for container in spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers)
    {
        let name = &container.name;
        of("name of a container", name, names::dns1123_label(name))?;
        if !known.insert(name) {
            return Err(invalid(format!("container {name:?} is defined twice")));
        }
        if container.image.as_ref().is_none_or(String::is_empty) {
            return Err(invalid(format!("container {name:?}: image is needed")));
        }
    }
    let mut known = BTreeSet::new();
    for volume in spec.volumes.iter().flatten() {
        let name = &volume.name;
        of("name of a volume", name, names::dns1123_label(name))?;
        if !known.insert(name) {
            return Err(invalid(format!("volume {name:?} is defined twice")));
        }
    }
    Ok(())
}

/// What a pod needs that only the API server has; volumes of unknown types may do so. The API server refuses the mirrors of
/// such pods, because a node could read any secret by them.
fn forbidden_reference(spec: &Value) -> Option<String> {
    /// Sources of volumes without references.
    const SELF_CONTAINED: [&str; 4] = ["downwardAPI", "emptyDir", "hostPath", "image"];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let named = |key: &str| spec[key].as_str().is_some_and(|name| !name.is_empty());
    if named("serviceAccountName") || named("serviceAccount") {
        return Some("serviceaccounts".to_owned());
    }
    if !list(&spec["imagePullSecrets"]).is_empty() {
        return Some("secrets".to_owned());
    }
    let containers = ["initContainers", "containers", "ephemeralContainers"];
    for container in containers.iter().flat_map(|key| list(&spec[key])) {
        let values = list(&container["env"]).into_iter();
        let values = values.map(|variable| variable["valueFrom"].clone());
        for from in values.chain(list(&container["envFrom"])) {
            if from["secretKeyRef"].is_object() || from["secretRef"].is_object() {
                return Some("secrets".to_owned());
            }
            if from["configMapKeyRef"].is_object() || from["configMapRef"].is_object() {
                return Some("configmaps".to_owned());
            }
        }
    }
    if !list(&spec["resourceClaims"]).is_empty() {
        return Some("resourceclaims".to_owned());
    }
    let from_api = |source: &str, of: &str| match source {
        "configMap" => format!("configmaps (via {of} volumes)"),
        "secret" => format!("secrets (via {of} volumes)"),
        "serviceAccountToken" => format!("serviceaccounts (via {of} volumes)"),
        "persistentVolumeClaim" => "persistentvolumeclaims".to_owned(),
        "ephemeral" => "persistentvolumeclaims (via ephemeral volumes)".to_owned(),
        other => format!("other objects, as by volumes of the type {other}"),
    };
    for volume in list(&spec["volumes"]) {
        for (source, value) in volume.as_object().into_iter().flatten() {
            if source == "name" || SELF_CONTAINED.contains(&source.as_str()) {
                continue;
            }
            if source != "projected" {
                return Some(from_api(source, &source.to_lowercase()));
            }
            for part in list(&value["sources"]) {
                let mut parts = part.as_object().into_iter().flatten();
                if let Some((part, _)) = parts.find(|(part, _)| *part != "downwardAPI") {
                    return Some(from_api(part, "projected"));
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests;
