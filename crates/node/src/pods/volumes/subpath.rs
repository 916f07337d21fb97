//! `subPath` mounts for a runtime that accepts paths but not file descriptors. Each `subPath` is opened without leaving the
//! volume and bind-mounted on a directory or file that the node owns, so that replacing it in the volume by a symbolic link
//! afterwards has no effect.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat};
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_change, unmount};

use crate::error::{AtPath as _, PathError};
use crate::shim::spec::Mount;
use crate::shim::{SUB_PATH, SubPathError, open_below};

/// Directory of the `subPath` bind mounts, below the pod's directory.
const DIRECTORY: &str = "volume-subpaths";

/// A `subPath` that is not a path in its volume; the texts are the kubelet's.
#[derive(Debug, thiserror::Error)]
pub(in crate::pods) enum InvalidSubPath {
    #[error("error SubPath `{0}` must not be an absolute path")]
    Absolute(String),
    #[error("unable to provision SubPath `{0}`: must not contain '..'")]
    ParentDir(String),
}

/// Parses a `subPath`, without the parts that are `.`; the result is empty for the whole volume.
pub(super) fn parse(text: &str) -> Result<PathBuf, InvalidSubPath> {
    let path = Path::new(text);
    if path.is_absolute() {
        return Err(InvalidSubPath::Absolute(text.to_owned()));
    }
    let mut parsed = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => return Err(InvalidSubPath::ParentDir(text.to_owned())),
            Component::CurDir => {}
            part => parsed.push(part),
        }
    }
    Ok(parsed)
}

/// A `subPath` that cannot be mounted, and the name of its mount. The reason is in the node's log; the text is the kubelet's.
#[derive(Debug, thiserror::Error)]
#[error("{} for {mount}", SUB_PATH)]
pub(crate) struct SubPathMountError {
    mount: String,
    source: BindError,
}

/// Why a `subPath` cannot be bind-mounted.
#[derive(Debug, thiserror::Error)]
enum BindError {
    /// It cannot be opened in the volume.
    #[error(transparent)]
    Open(#[from] SubPathError),
    /// The volume, or the file or directory to mount on.
    #[error(transparent)]
    File(#[from] std::io::Error),
    /// The kernel does not mount it.
    #[error(transparent)]
    Mount(#[from] PathError),
}

/// Bind-mounts each `subPath` and replaces the source of the mount by the bind mount. `directory` is the pod's directory.
pub(crate) fn mount_all(
    directory: &Path,
    container: &str,
    mounts: &mut [Mount],
) -> Result<(), SubPathMountError> {
    // An image has no directory here: its runtime opens the path.
    let of_node = |(_, mount): &(usize, &mut Mount)| !mount.source.as_os_str().is_empty();
    for (index, mount) in mounts.iter_mut().enumerate().filter(of_node) {
        let Some(path) = mount.sub_path.take() else {
            continue;
        };
        let place = directory
            .join(DIRECTORY)
            .join(container)
            .join(index.to_string());
        one(&mount.source, &path, &place).map_err(|source| {
            tracing::warn!(mount = mount.name, path = %path.display(), error = %source, "subPath");
            let mount = mount.name.clone();
            SubPathMountError { mount, source }
        })?;
        mount.source = place;
    }
    Ok(())
}

fn one(volume: &Path, path: &Path, place: &Path) -> Result<(), BindError> {
    let root = rustix::fs::open(volume, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(std::io::Error::from)?;
    let found: OwnedFd = open_below(root, path)?;
    // Unmount what an earlier run of the container has left.
    let _ = unmount(place, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    if let Some(parent) = place.parent() {
        fs::create_dir_all(parent)?;
    }
    let found_stat = fstat(&found).map_err(std::io::Error::from)?;
    let kind = FileType::from_raw_mode(found_stat.st_mode);
    let is_directory = kind == FileType::Directory;
    // The path may have been of the other kind for an earlier run of the container.
    match fs::symlink_metadata(place) {
        Ok(earlier) if earlier.is_dir() && !is_directory => fs::remove_dir(place)?,
        Ok(earlier) if !earlier.is_dir() && is_directory => fs::remove_file(place)?,
        _ => {}
    }
    if is_directory {
        fs::create_dir_all(place)?;
    } else if !place.exists() {
        fs::File::create(place)?;
    }
    let source = PathBuf::from(format!("/proc/self/fd/{}", found.as_fd().as_raw_fd()));
    mount_bind(&source, place).at(place)?;
    let private = mount_change(place, MountPropagationFlags::PRIVATE);
    Ok(private.map_err(std::io::Error::from)?)
}

/// Unmounts the `subPath` bind mounts of all containers of a pod.
pub(crate) fn unmount_all(directory: &Path) {
    let containers = fs::read_dir(directory.join(DIRECTORY));
    for container in containers.into_iter().flatten().flatten() {
        let places = fs::read_dir(container.path());
        for place in places.into_iter().flatten().flatten() {
            // Fails if the path is not mounted, which is fine.
            let _ = unmount(place.path(), UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The attack: a symbolic link to the host in the volume, as the `subPath` itself or as one of its parent directories.
    #[test]
    fn links_do_not_lead_out_of_the_volume() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let volume = directory.path().join("volume");
        fs::create_dir_all(volume.join("inside")).expect("a directory");
        fs::write(volume.join("inside/file"), "own").expect("a file");
        std::os::unix::fs::symlink("/etc", volume.join("out")).expect("a link");
        std::os::unix::fs::symlink("inside", volume.join("in")).expect("a link");
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let check = |path: &str, expected: Option<&str>| {
            let mut mounts = [Mount {
                source: volume.clone(),
                sub_path: Some(path.into()),
                name: "m".into(),
                ..Mount::default()
            }];
            let pod = directory.path().join("pod");
            let result = mount_all(&pod, "c", &mut mounts);
            let content =
                result.map(|()| fs::read_to_string(&mounts[0].source).unwrap_or_default());
            assert_eq!(content.ok().as_deref(), expected, "{path}");
            unmount_all(&pod);
        };
        check("inside/file", Some("own"));
        check("in/file", Some("own"));
        check("out/passwd", None);
        check("out", None);
        check("new/directory", Some(""));
        check("inside/file", Some("own"));
        assert!(volume.join("new/directory").is_dir());
    }
}
