//! The volume mounts of a container.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Container;

use super::super::env::{Budget, EnvError, Variables};
use super::Volume;
use super::subpath::{self, InvalidSubPath};
use crate::error::{AtPath as _, PathError};
use crate::images::Files;
use crate::shim::spec::Mount;

/// Why a volume cannot be mounted in a container.
#[derive(Debug, thiserror::Error)]
pub(in crate::pods) enum MountError {
    /// The pod has no volume of this name.
    #[error("volume {0:?} not found")]
    NoVolume(String),
    /// The image of the volume was not pulled.
    #[error("volume {0:?} has no image")]
    NoImage(String),
    /// The mounts of the container would have to appear on the host.
    #[error("{0}: mountPropagation Bidirectional is not supported on this node")]
    Bidirectional(String),
    /// As [`Self::Bidirectional`], for a container that is not privileged.
    #[error("{0}: mountPropagation Bidirectional is available only to privileged containers")]
    NotPrivileged(String),
    /// The `subPath` leads out of the volume.
    #[error(transparent)]
    SubPath(#[from] InvalidSubPath),
    /// The variables of `subPathExpr`.
    #[error(transparent)]
    Expand(#[from] EnvError),
    /// The directory of the volume is gone.
    #[error(transparent)]
    File(#[from] PathError),
}

/// How many of a container's mounts are volumes; they are the first.
pub(in crate::pods) fn count(container: &Container) -> usize {
    container.volume_mounts.as_ref().map_or(0, Vec::len)
}

/// The mounts of a container.
pub(in crate::pods) fn mounts(
    container: &Container,
    volumes: &BTreeMap<String, Volume>,
    files: &Files,
    env: &Variables,
) -> Result<Vec<Mount>, MountError> {
    let (mut mounts, mut budget) = (Vec::new(), Budget::default());
    for mount in container.volume_mounts.iter().flatten() {
        let volume = volumes
            .get(&mount.name)
            .ok_or_else(|| MountError::NoVolume(mount.name.clone()))?;
        let expanded = mount
            .sub_path_expr
            .as_deref()
            .map(|text| env.expand_known(text, &mut budget))
            .transpose()?;
        let (mut source, mut layers, mut options) = (PathBuf::new(), Vec::new(), Vec::new());
        if volume.image && files.delegated.is_some() {
            // The runtime mounts it.
            if !files.delegated_volumes.contains_key(&mount.name) {
                return Err(MountError::NoImage(mount.name.clone()));
            }
        } else if volume.image {
            let ready = files.volumes.get(&mount.name);
            let ready = ready.ok_or_else(|| MountError::NoImage(mount.name.clone()))?;
            layers.clone_from(&ready.rootfs.lower);
            options.extend(["noexec".to_owned(), "nosuid".to_owned()]);
        } else {
            source = volume.path.canonicalize().at(&volume.path)?;
        }
        let sub_path = expanded
            .as_deref()
            .or(mount.sub_path.as_deref())
            // Opened by the helper, which does not follow links out of the volume.
            .map(subpath::parse)
            .transpose()?
            .filter(|path| !path.as_os_str().is_empty());
        let name = format!(
            "volumeMount \"{}\" of container \"{}\"",
            mount.name, container.name
        );
        let propagation = mount.mount_propagation.as_deref();
        let both_ways = propagation == Some("Bidirectional");
        if both_ways {
            // The API server validates this, but does not see static pods before they run.
            let context = container.security_context.as_ref();
            match context.and_then(|it| it.privileged) {
                Some(true) if files.delegated.is_some() => {}
                Some(true) => return Err(MountError::Bidirectional(name)),
                _ => return Err(MountError::NotPrivileged(name)),
            }
        }
        let follow = propagation == Some("HostToContainer");
        let read_only = volume.read_only || mount.read_only.unwrap_or(false);
        mounts.push(Mount {
            source,
            layers,
            sub_path,
            target: PathBuf::from(&mount.mount_path),
            read_only,
            shallow: mount.recursive_read_only.as_deref() == Some("Disabled"),
            follow,
            both_ways,
            options,
            name,
        });
    }
    Ok(mounts)
}
