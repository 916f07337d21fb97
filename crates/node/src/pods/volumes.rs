//! Volumes as directories on the host.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{self as v1, Container, Pod};

use super::env::{Problem, Room, Variables};
use crate::config::ImageMode;
use crate::images::Files;
use crate::shim::spec::Mount;

mod content;
mod memory;
mod subpath;
#[cfg(test)]
mod tests;
mod usage;
mod writer;

pub(super) use content::{Contents, Tokens};
pub(super) use memory::is_mounted;
pub(super) use subpath::mount_all as mount_sub_paths;

/// Unmounts what is mounted for a pod whose containers have ended, so that its directory can be removed. `directory` is the
/// pod's.
pub(crate) fn unmount_all(directory: &Path) {
    subpath::unmount_all(directory);
    memory::unmount_all(directory);
}

/// A prepared volume.
#[derive(Debug, Clone)]
pub(super) struct Volume {
    path: PathBuf,
    /// Its content is the API server's or an image's: containers cannot change it.
    read_only: bool,
    /// It is an image, which is pulled when a container needs it.
    image: bool,
}

/// Prepares all volumes of a pod; returns them by name.
pub(super) async fn prepare(
    contents: &mut Contents<'_>,
    directory: &Path,
) -> Result<BTreeMap<String, Volume>, Problem> {
    let mut made = BTreeMap::new();
    for volume in volumes(contents.downward.pod) {
        let path = one(contents, directory, volume)
            .await
            .map_err(|error| problem(volume, error))?;
        let image = volume.image.is_some();
        let made_here = Volume {
            path,
            read_only: image || content::comes_from_api(volume),
            image,
        };
        made.insert(volume.name.clone(), made_here);
    }
    Ok(made)
}

/// Whether a pod has volumes that [`refresh`] could change.
pub(super) fn may_change(pod: &Pod) -> bool {
    volumes(pod).any(content::comes_from_api)
}

/// Whether a pod has volumes that may hold only so much.
pub(super) fn has_size_limits(pod: &Pod) -> bool {
    volumes(pod).any(|volume| volume.empty_dir.as_ref().and_then(memory::limit).is_some())
}

/// The kubelet's message if one of a pod's volumes exceeds its size limit.
pub(super) fn too_large(pod: &Pod, directory: &Path) -> Option<String> {
    volumes(pod).find_map(|volume| {
        let empty = volume.empty_dir.as_ref()?;
        let limit = memory::limit(empty)?;
        let used = usage::of(&directory.join("volumes").join(&volume.name));
        let within = used.is_some_and(|used| used <= limit);
        let shown = &empty.size_limit.as_ref()?.0;
        (!within).then(|| {
            format!(
                "Usage of EmptyDir volume \"{}\" exceeds the limit \"{shown}\". ",
                volume.name
            )
        })
    })
}

/// Updates what volumes hold: config maps and secrets may have changed, tokens grow old.
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
        let own = contents.node.config.own_path(Path::new(&host.path));
        return host_path(&own, host.type_.as_deref().unwrap_or_default());
    }
    if volume.image.is_some() {
        if contents.node.delegated.is_none() && contents.node.config.images.mode == ImageMode::Host
        {
            return Err("images are not pulled on this node".into());
        }
        return Ok(PathBuf::new());
    }
    if let Some(empty) = &volume.empty_dir {
        if empty
            .medium
            .as_deref()
            .is_some_and(|medium| !matches!(medium, "" | "Memory"))
        {
            return Err("emptyDir in huge pages is not supported by this node".into());
        }
        make_dir(&path, 0o777)?;
        if memory::is_wanted(empty) {
            contents.memory(volume, empty, &path)?;
        }
        give(&path, group(contents.downward.pod), false)?;
        return Ok(path);
    }
    if !content::comes_from_api(volume) {
        return Err("volumes of this type are not supported by this node".into());
    }
    let files = contents.of(volume).await?;
    make_dir(&path, 0o755)?;
    let group = group(contents.downward.pod);
    writer::write(&path, files.entries(), group)?;
    give(&path, group, false)?;
    Ok(path)
}

/// The pod's `fsGroup`, which its volumes are given to. An agent that is not root has one group, which is that of the
/// volumes already.
fn group(pod: &Pod) -> Option<u32> {
    let context = pod.spec.as_ref()?.security_context.as_ref()?;
    let group = u32::try_from(context.fs_group?).ok()?;
    rustix::process::geteuid().is_root().then_some(group)
}

/// The user that all containers of a pod run as, if the pod says so: its tokens are for no other. Without root all files
/// have one user.
fn user(pod: &Pod) -> Option<u32> {
    let spec = pod.spec.as_ref()?;
    let of_pod = spec.security_context.as_ref().and_then(|it| it.run_as_user);
    let containers = spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers);
    let mut users = containers.map(|container| {
        let own = container.security_context.as_ref();
        own.and_then(|it| it.run_as_user).or(of_pod)
    });
    let first = users.next()??;
    let same = users.all(|user| user == Some(first));
    let user = u32::try_from(first).ok().filter(|_| same)?;
    rustix::process::geteuid().is_root().then_some(user)
}

/// Permissions that the group of a volume has, of directories and of files, as with a kubelet.
const GROUP: (u32, u32) = (0o2550, 0o440);

/// Gives a directory to a group, if there is one. `deep`: with all that is in it. Only where containers cannot change it
/// meanwhile.
fn give(path: &Path, group: Option<u32>, deep: bool) -> Result<(), Problem> {
    let Some(group) = group else {
        return Ok(());
    };
    change_group(path, group, deep).map_err(|error| format!("{}: {error}", path.display()))
}

fn change_group(path: &Path, group: u32, deep: bool) -> std::io::Result<()> {
    std::os::unix::fs::lchown(path, None, Some(group))?;
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_symlink() {
        return Ok(());
    }
    let mode = metadata.permissions().mode() & 0o7777;
    let more = if metadata.is_dir() { GROUP.0 } else { GROUP.1 };
    fs::set_permissions(path, fs::Permissions::from_mode(mode | more))?;
    if deep && metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            change_group(&entry?.path(), group, deep)?;
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

/// A `subPath` without dots; it is empty for the whole volume. The messages are the kubelet's.
fn sub_path_inside(text: &str) -> Result<PathBuf, Problem> {
    let path = Path::new(text);
    if path.is_absolute() {
        return Err(format!(
            "error SubPath `{text}` must not be an absolute path"
        ));
    }
    let parts = || path.components();
    if parts().any(|part| part == Component::ParentDir) {
        return Err(format!(
            "unable to provision SubPath `{text}`: must not contain '..'"
        ));
    }
    Ok(parts().filter(|it| *it != Component::CurDir).collect())
}

fn host_path(path: &Path, kind: &str) -> Result<PathBuf, Problem> {
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
        // Without a type nothing is checked; a missing directory is created, as a container runtime would.
        (Err(_), "") => {
            make_dir(path, 0o755)?;
            fs::metadata(path).map_err(|error| error.to_string())?
        }
        (result, _) => result?,
    };
    let fits = match kind {
        "Directory" | "DirectoryOrCreate" => metadata.is_dir(),
        "File" | "FileOrCreate" => metadata.is_file(),
        "Socket" => metadata.file_type().is_socket(),
        "CharDevice" => metadata.file_type().is_char_device(),
        "BlockDevice" => metadata.file_type().is_block_device(),
        // The API server permits no other.
        other => other.is_empty(),
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
    files: &Files,
    env: &Variables,
) -> Result<Vec<Mount>, Problem> {
    let (mut mounts, mut room) = (Vec::new(), Room::default());
    for mount in container.volume_mounts.iter().flatten() {
        let volume = volumes
            .get(&mount.name)
            .ok_or_else(|| format!("volume {:?} not found", mount.name))?;
        let expanded = mount
            .sub_path_expr
            .as_deref()
            .map(|text| env.expand_known(text, &mut room))
            .transpose()?;
        let (mut source, mut layers, mut options) = (PathBuf::new(), Vec::new(), Vec::new());
        if volume.image && files.delegated.is_some() {
            // The runtime mounts it.
            if !files.delegated_volumes.contains_key(&mount.name) {
                return Err(format!("volume {:?} has no image", mount.name));
            }
        } else if volume.image {
            let ready = files.volumes.get(&mount.name);
            let ready = ready.ok_or_else(|| format!("volume {:?} has no image", mount.name))?;
            layers.clone_from(&ready.rootfs.lower);
            options.extend(["noexec".to_owned(), "nosuid".to_owned()]);
        } else {
            source = volume
                .path
                .canonicalize()
                .map_err(|error| format!("{}: {error}", volume.path.display()))?;
        }
        let sub_path = expanded
            .as_deref()
            .or(mount.sub_path.as_deref())
            // Opened by the helper, which does not follow links out of the volume.
            .map(sub_path_inside)
            .transpose()?
            .filter(|path| !path.as_os_str().is_empty());
        let name = format!(
            "volumeMount \"{}\" of container \"{}\"",
            mount.name, container.name
        );
        let propagation = mount.mount_propagation.as_deref();
        let both_ways = propagation == Some("Bidirectional");
        if both_ways {
            // The rule of the API, for manifests that it does not see before they run.
            let context = container.security_context.as_ref();
            let why = match context.and_then(|it| it.privileged) {
                Some(true) if files.delegated.is_some() => None,
                Some(true) => Some("is not supported on this node"),
                _ => Some("is available only to privileged containers"),
            };
            if let Some(why) = why {
                return Err(format!("{name}: mountPropagation Bidirectional {why}"));
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
