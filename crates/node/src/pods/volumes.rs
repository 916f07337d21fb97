//! Volumes as directories on the host.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{self as v1, Container, Pod};

use super::env::Problem;
use crate::shim::spec::Mount;

mod content;
mod writer;

pub(super) use content::{Contents, Tokens};

/// A volume that has been made.
#[derive(Debug, Clone)]
pub(super) struct Volume {
    path: PathBuf,
    /// Its content is the API server's: containers cannot change it.
    read_only: bool,
}

/// Makes all volumes of a pod; returns them by name.
pub(super) async fn prepare(
    contents: &mut Contents<'_>,
    directory: &Path,
) -> Result<BTreeMap<String, Volume>, Problem> {
    let mut made = BTreeMap::new();
    for volume in volumes(contents.downward.pod) {
        let path = one(contents, directory, volume)
            .await
            .map_err(|error| problem(volume, error))?;
        let read_only = content::comes_from_api(volume);
        made.insert(volume.name.clone(), Volume { path, read_only });
    }
    Ok(made)
}

/// Whether a pod has volumes that [`refresh`] could change.
pub(super) fn may_change(pod: &Pod) -> bool {
    volumes(pod).any(content::comes_from_api)
}

/// Brings what volumes hold up to date: config maps and secrets may have changed, tokens grow old.
pub(super) async fn refresh(contents: &mut Contents<'_>, directory: &Path) -> Result<(), Problem> {
    for volume in volumes(contents.downward.pod).filter(|volume| content::comes_from_api(volume)) {
        one(contents, directory, volume)
            .await
            .map_err(|error| problem(volume, error))?;
    }
    Ok(())
}

fn volumes(pod: &Pod) -> impl Iterator<Item = &v1::Volume> {
    let spec = pod.spec.iter();
    spec.flat_map(|spec| spec.volumes.iter().flatten())
}

fn problem(volume: &v1::Volume, error: Problem) -> Problem {
    let name = &volume.name;
    format!("MountVolume.SetUp failed for volume \"{name}\" : {error}")
}

async fn one(
    contents: &mut Contents<'_>,
    directory: &Path,
    volume: &v1::Volume,
) -> Result<PathBuf, Problem> {
    let path = directory.join("volumes").join(&volume.name);
    if let Some(host) = &volume.host_path {
        return host_path(&host.path, host.type_.as_deref().unwrap_or_default());
    }
    if volume.empty_dir.is_some() {
        make_dir(&path, 0o777)?;
        for_group(contents.downward.pod, &path, false)?;
        return Ok(path);
    }
    if !content::comes_from_api(volume) {
        return Err("volumes of this type are not supported by this node".into());
    }
    let files = contents.of(volume).await?;
    make_dir(&path, 0o755)?;
    writer::write(&path, &files)?;
    // Containers cannot change these files, so that they can be walked through.
    for_group(contents.downward.pod, &path, true)?;
    Ok(path)
}

/// Gives a volume to the pod's `fsGroup`, with the permissions that a kubelet adds. An agent that is not root has one
/// group, which is that of the volumes already.
fn for_group(pod: &Pod, path: &Path, deep: bool) -> Result<(), Problem> {
    let spec = pod.spec.as_ref();
    let context = spec.and_then(|spec| spec.security_context.as_ref());
    let group = context.and_then(|context| context.fs_group);
    let Some(group) = group.and_then(|group| u32::try_from(group).ok()) else {
        return Ok(());
    };
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    give(path, group, deep).map_err(|error| format!("{}: {error}", path.display()))
}

fn give(path: &Path, group: u32, deep: bool) -> std::io::Result<()> {
    std::os::unix::fs::lchown(path, None, Some(group))?;
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_symlink() {
        return Ok(());
    }
    let mode = metadata.permissions().mode() & 0o7777;
    let more = if metadata.is_dir() { 0o2550 } else { 0o440 };
    fs::set_permissions(path, fs::Permissions::from_mode(mode | more))?;
    if deep && metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), group, deep)?;
        }
    }
    Ok(())
}

fn make_dir(path: &Path, mode: u32) -> Result<(), Problem> {
    let fail = |error: std::io::Error| format!("{}: {error}", path.display());
    fs::create_dir_all(path).map_err(fail)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(fail)
}

/// A relative path that stays inside of the volume.
fn inside(name: &str) -> Result<&Path, Problem> {
    let path = Path::new(name);
    let plain = path
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if plain && !name.is_empty() {
        Ok(path)
    } else {
        Err(format!("invalid path {name:?}"))
    }
}

fn host_path(path: &str, kind: &str) -> Result<PathBuf, Problem> {
    let path = Path::new(path);
    match kind {
        "DirectoryOrCreate" => make_dir(path, 0o755)?,
        "FileOrCreate" if !path.exists() => {
            fs::write(path, "").map_err(|error| format!("{}: {error}", path.display()))?;
        }
        _ => {}
    }
    let metadata = fs::metadata(path).map_err(|_| {
        format!(
            "hostPath type check failed: {} does not exist",
            path.display()
        )
    });
    let metadata = match (metadata, kind) {
        // Without a type nothing is checked; a missing directory is made, as a container runtime would.
        (Err(_), "") => {
            make_dir(path, 0o755)?;
            fs::metadata(path).map_err(|error| error.to_string())?
        }
        (result, _) => result?,
    };
    let fits = match kind {
        "Directory" | "DirectoryOrCreate" => metadata.is_dir(),
        "File" | "FileOrCreate" => metadata.is_file(),
        _ => true,
    };
    if !fits {
        return Err(format!(
            "hostPath type check failed: {} is not a {kind}",
            path.display()
        ));
    }
    path.canonicalize()
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// How many of a container's mounts are volumes; they are the first.
pub(super) fn count(container: &Container) -> usize {
    container.volume_mounts.as_ref().map_or(0, Vec::len)
}

/// The mounts of a container.
pub(super) fn mounts(
    container: &Container,
    volumes: &BTreeMap<String, Volume>,
    env: &[(String, String)],
) -> Result<Vec<Mount>, Problem> {
    let mut mounts = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let volume = volumes
            .get(&mount.name)
            .ok_or_else(|| format!("volume {:?} not found", mount.name))?;
        let expanded = mount
            .sub_path_expr
            .as_deref()
            .map(|text| super::env::expand(text, env));
        let source = volume
            .path
            .canonicalize()
            .map_err(|error| format!("{}: {error}", volume.path.display()))?;
        let sub_path = expanded
            .as_deref()
            .or(mount.sub_path.as_deref())
            .filter(|path| !path.is_empty())
            // Opened by the helper, which does not follow links out of the volume.
            .map(|path| inside(path).map(Path::to_owned))
            .transpose()?;
        let name = format!(
            "volumeMount \"{}\" of container \"{}\"",
            mount.name, container.name
        );
        let follow = match mount.mount_propagation.as_deref() {
            Some("Bidirectional") => {
                return Err(format!(
                    "{name}: mountPropagation Bidirectional is not supported on this node"
                ));
            }
            other => other == Some("HostToContainer"),
        };
        let read_only = volume.read_only || mount.read_only.unwrap_or(false);
        mounts.push(Mount {
            source,
            sub_path,
            target: PathBuf::from(&mount.mount_path),
            read_only,
            shallow: mount.recursive_read_only.as_deref() == Some("Disabled"),
            follow,
            options: Vec::new(),
            name,
        });
    }
    Ok(mounts)
}
