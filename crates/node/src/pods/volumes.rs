//! Volumes as directories on the host.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{self as v1, Pod};

use super::certificates;
use crate::config::ImageMode;
use crate::disk::{self, Used};
use crate::error::{AtPath as _, PathError};

mod content;
mod host_path;
mod memory;
mod mounts;
mod subpath;
#[cfg(test)]
mod tests;
mod writer;

pub(super) use content::{Contents, Tokens};
pub(super) use memory::is_mounted;
pub(super) use mounts::{count, mounts};
pub(super) use subpath::mount_all as mount_sub_paths;

/// Where volumes are, below the directory of their pod.
pub(super) const DIRECTORY: &str = "volumes";

/// Unmounts what is mounted for a pod whose containers have ended, so that its directory can be removed. `directory` is the
/// pod's.
pub(crate) fn unmount_all(directory: &Path) {
    subpath::unmount_all(directory);
    memory::unmount_all(directory);
}

/// Why a volume cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub(super) enum VolumeError {
    /// The volume of this name; the text is the kubelet's.
    #[error("MountVolume.SetUp failed for volume \"{volume}\" : {source}")]
    SetUp {
        volume: String,
        source: Box<VolumeError>,
    },
    /// An image volume, and the node does not pull images.
    #[error("images are not pulled on this node")]
    NoImages,
    /// The medium of an `emptyDir`.
    #[error("emptyDir in huge pages is not supported by this node")]
    HugePages,
    /// A kind of volume that the node does not have.
    #[error("volumes of this type are not supported by this node")]
    Unsupported,
    /// A path on the host.
    #[error(transparent)]
    HostPath(#[from] host_path::HostPathError),
    /// Its content cannot be fetched.
    #[error(transparent)]
    Content(#[from] content::ContentError),
    /// It cannot be in memory.
    #[error("{}: tmpfs: {source}", .path.display())]
    Memory {
        path: PathBuf,
        source: std::io::Error,
    },
    /// Its private keys would be on a disk.
    #[error(
        "the keys of pod certificates are kept in memory: the agent has to run as root, or its directory has to be on a tmpfs"
    )]
    KeysOnDisk,
    /// A name of a file that leads out of it.
    #[error(transparent)]
    Path(#[from] InvalidPath),
    /// A name of a file that the layout of volumes has itself.
    #[error("invalid path {0:?}: must not start with \"..\"")]
    ReservedPath(String),
    /// Its directory or a file cannot be written.
    #[error(transparent)]
    File(#[from] PathError),
}

/// A path that is not one below a volume.
#[derive(Debug, thiserror::Error)]
#[error("invalid path {0:?}")]
pub(super) struct InvalidPath(String);

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
) -> Result<BTreeMap<String, Volume>, VolumeError> {
    let mut made = BTreeMap::new();
    for volume in volumes(contents.downward.pod) {
        let path = one(contents, directory, volume)
            .await
            .map_err(|error| set_up(volume, error))?;
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

/// The size limit of an `emptyDir` in bytes and as it was written, by the name of the volume.
pub(super) fn size_limits(pod: &Pod) -> impl Iterator<Item = (&str, u64, &str)> {
    volumes(pod).filter_map(|volume| {
        let empty = volume.empty_dir.as_ref()?;
        let shown = empty.size_limit.as_ref()?.0.as_str();
        Some((volume.name.as_str(), memory::limit(empty)?, shown))
    })
}

/// What the local volumes of a pod use of the disk, by their names: those that go with the pod, as far as they are not in memory.
/// `directory` is the pod's.
pub(super) fn on_disk(pod: &Pod, directory: &Path) -> BTreeMap<String, Used> {
    let directory = directory.join(DIRECTORY);
    let local =
        volumes(pod).filter(|volume| volume.empty_dir.is_some() || volume.config_map.is_some());
    let local = local.filter(|volume| !memory::is_mounted(&directory.join(&volume.name)));
    local
        .map(|volume| (volume.name.clone(), disk::of(&directory.join(&volume.name))))
        .collect()
}

/// Updates what volumes hold: config maps and secrets may have changed, tokens grow old. Returns the first error.
pub(super) async fn refresh(
    contents: &mut Contents<'_>,
    directory: &Path,
) -> Result<(), VolumeError> {
    let mut first = Ok(());
    for volume in volumes(contents.downward.pod).filter(|volume| content::comes_from_api(volume)) {
        let made = one(contents, directory, volume).await;
        let made = made.map_err(|error| set_up(volume, error));
        // A volume whose content is refused keeps none of the others from its update.
        first = first.and(made.map(drop));
    }
    first
}

fn volumes(pod: &Pod) -> impl Iterator<Item = &v1::Volume> {
    let spec = pod.spec.iter();
    spec.flat_map(|spec| spec.volumes.iter().flatten())
}

fn set_up(volume: &v1::Volume, error: VolumeError) -> VolumeError {
    VolumeError::SetUp {
        volume: volume.name.clone(),
        source: Box::new(error),
    }
}

async fn one(
    contents: &mut Contents<'_>,
    directory: &Path,
    volume: &v1::Volume,
) -> Result<PathBuf, VolumeError> {
    let path = directory.join(DIRECTORY).join(&volume.name);
    if let Some(host) = &volume.host_path {
        let own = contents.node.config.own_path(Path::new(&host.path));
        let kind = host.type_.as_deref().unwrap_or_default();
        return Ok(host_path::prepare(&own, kind)?);
    }
    if volume.image.is_some() {
        if contents.node.delegated.is_none() && contents.node.config.images.mode == ImageMode::Host
        {
            return Err(VolumeError::NoImages);
        }
        return Ok(PathBuf::new());
    }
    if let Some(empty) = &volume.empty_dir {
        if empty
            .medium
            .as_deref()
            .is_some_and(|medium| !matches!(medium, "" | "Memory"))
        {
            return Err(VolumeError::HugePages);
        }
        make_empty(&path, group(contents.downward.pod))?;
        if memory::is_wanted(empty) {
            contents.memory(volume, empty, &path)?;
        }
        return Ok(path);
    }
    if !content::comes_from_api(volume) {
        return Err(VolumeError::Unsupported);
    }
    let files = contents.of(volume).await?;
    make_dir(&path, 0o755)?;
    if certificates::is_in(volume) && contents.certificates.is_some() {
        memory::for_keys(&path)?;
        make_dir(&path, 0o755)?;
    }
    let group = group(contents.downward.pod);
    writer::write(&path, files.entries(), group)?;
    give(&path, group)?;
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

/// Gives the directory of a volume to a group, if there is one.
fn give(path: &Path, group: Option<u32>) -> Result<(), PathError> {
    let Some(group) = group else {
        return Ok(());
    };
    let given = || {
        std::os::unix::fs::lchown(path, None, Some(group))?;
        let mode = fs::symlink_metadata(path)?.permissions().mode() & 0o7777;
        fs::set_permissions(path, fs::Permissions::from_mode(mode | GROUP.0))
    };
    given().at(path)
}

/// Creates the directory of an `emptyDir`, for any user that the containers have. Afterwards it is the containers': permissions that
/// they have changed stay as they are when the volume is prepared again, such as by the next agent.
fn make_empty(path: &Path, group: Option<u32>) -> Result<(), PathError> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        return Ok(());
    }
    // It gets its name when it is complete. Names of volumes have no dots.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let incomplete = path.with_file_name(format!(".{name}.new"));
    make_dir(&incomplete, 0o777)?;
    give(&incomplete, group)?;
    fs::rename(&incomplete, path).at(path)
}

fn make_dir(path: &Path, mode: u32) -> Result<(), PathError> {
    fs::create_dir_all(path).at(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).at(path)
}

/// A relative path that stays inside of the volume.
fn inside(name: &str) -> Result<&Path, InvalidPath> {
    let path = Path::new(name);
    let plain = path
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if plain && !name.is_empty() {
        Ok(path)
    } else {
        Err(InvalidPath(name.to_owned()))
    }
}
