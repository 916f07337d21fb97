//! What a pod asks for, read alike for every runtime: the place of its logs, security profiles.

use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{AppArmorProfile, Container, Pod, SeccompProfile};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;

/// Bytes from which on a container's log is put aside: the kubelet's `containerLogMaxSize`.
pub(crate) const LOG_SIZE: u64 = 10 << 20;
/// Files of a container's log, with the current one: the kubelet's `containerLogMaxFiles`.
pub(crate) const LOG_FILES: usize = 5;

/// The owner reference of objects that a node creates for itself: its Node.
pub(crate) fn owned_by_node(name: String, uid: String) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name,
        uid,
        controller: Some(true),
        block_owner_deletion: None,
    }
}

/// Directory of a pod's logs; `root` is the node's directory.
pub(crate) fn log_directory(root: &Path, pod: &Pod) -> PathBuf {
    let namespace = pod.namespace().unwrap_or_default();
    let (name, uid) = (pod.name_any(), pod.uid().unwrap_or_default());
    log_directory_of(root, &namespace, &name, &uid)
}

/// [`log_directory`] of a pod of which only this is known.
pub(crate) fn log_directory_of(root: &Path, namespace: &str, name: &str, uid: &str) -> PathBuf {
    root.join("logs").join(format!("{namespace}_{name}_{uid}"))
}

/// Name of a container's log, below [`log_directory`].
pub(crate) fn log_name(container: &str, attempt: u32) -> String {
    format!("{container}/{attempt}.log")
}

/// An init container that keeps running.
pub(crate) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// A seccomp profile that a pod or a container names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seccomp {
    /// All system calls are permitted.
    Unconfined,
    /// The runtime's own profile.
    RuntimeDefault,
    /// This file.
    Localhost(PathBuf),
}

/// A seccomp profile that the node cannot have.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SeccompError {
    /// The path of a file that leads out of the directory of profiles.
    #[error("invalid seccomp profile {0:?}")]
    Path(String),
    /// A type that is newer than the node.
    #[error("unknown seccomp profile type {0:?}")]
    Type(String),
}

/// Reads a seccomp profile. Files are below `seccomp` of the node's directory `root`, as with a kubelet.
///
/// # Errors
/// The type is unknown, or the file's name leads out of the directory.
pub(crate) fn seccomp(
    root: &Path,
    asked: Option<&SeccompProfile>,
) -> Result<Option<Seccomp>, SeccompError> {
    let Some(asked) = asked else { return Ok(None) };
    Ok(Some(match asked.type_.as_str() {
        "Unconfined" => Seccomp::Unconfined,
        "RuntimeDefault" => Seccomp::RuntimeDefault,
        "Localhost" => {
            let name = asked.localhost_profile.as_deref().unwrap_or_default();
            let mut parts = Path::new(name).components();
            if name.is_empty() || !parts.all(|part| matches!(part, Component::Normal(_))) {
                return Err(SeccompError::Path(name.to_owned()));
            }
            Seccomp::Localhost(root.join("seccomp").join(name))
        }
        other => return Err(SeccompError::Type(other.to_owned())),
    }))
}

/// The AppArmor profile of a container: its own, else its pod's, else that of the older annotation.
pub(crate) fn apparmor(pod: &Pod, container: &Container) -> Option<AppArmorProfile> {
    let own = container.security_context.as_ref();
    let own = own.and_then(|it| it.app_armor_profile.clone());
    let of_pod = || {
        let spec = pod.spec.as_ref()?;
        spec.security_context.as_ref()?.app_armor_profile.clone()
    };
    let annotated = || {
        let prefix = "container.apparmor.security.beta.kubernetes.io";
        let text = pod
            .annotations()
            .get(&format!("{prefix}/{}", container.name))?;
        let (kind, name) = match text.strip_prefix("localhost/") {
            Some(name) => ("Localhost", Some(name.to_owned())),
            None if text == "runtime/default" => ("RuntimeDefault", None),
            None => ("Unconfined", None),
        };
        Some(AppArmorProfile {
            type_: kind.into(),
            localhost_profile: name,
        })
    };
    own.or_else(of_pod).or_else(annotated)
}
