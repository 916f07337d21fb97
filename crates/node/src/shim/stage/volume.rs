//! Opens volumes and devices of a container without following links out of their directories.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use allot_cdi::DeviceNode;
use allot_images::openat2;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fchmod, fstat, mkdirat};
use rustix::io::Errno;

use super::{Result, Source, StageError, Step};
use crate::shim::spec::Mount;
use crate::spec::staged::Device;

/// What messages about paths that lead out of a volume begin with.
pub(crate) const SUB_PATH: &str = "failed to prepare subPath";

/// Why a path in a volume cannot be opened or created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SubPathError {
    /// It has `..`, or a link that leads elsewhere.
    #[error("the path leads out of the volume")]
    Outside,
    /// The kernel refuses.
    #[error(transparent)]
    Kernel(#[from] Errno),
}

/// Never out of the directory it starts in, not even for a moment.
const INSIDE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// Opens the source of a mount; a path below it is created if it does not exist.
pub(super) fn open(mount: &Mount) -> Result<Source> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = rustix::fs::open(&mount.source, flags, Mode::empty())
        .step(|| format!("mount {}", mount.source.display()))?;
    let fd = match &mount.sub_path {
        None => root,
        Some(path) => below(root, path, mount.layers.is_empty()).map_err(|source| {
            eprintln!("{}: subPath {}: {source}", mount.name, path.display());
            let mount = mount.name.clone();
            StageError::SubPath { mount, source }
        })?,
    };
    let kind = FileType::from_raw_mode(fstat(&fd).step(|| "fstat".into())?.st_mode);
    Ok(Source {
        is_dir: kind == FileType::Directory,
        fd,
    })
}

/// Walks down from a directory. Links are followed as long as they stay inside; every step starts from a descriptor of
/// a directory that was inside when it was opened, so that renaming directories meanwhile cannot lead outside.
/// `create`: what is missing is created. Not in an image, which is that of other containers as well.
fn below(root: OwnedFd, path: &Path, create: bool) -> std::result::Result<OwnedFd, SubPathError> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = openat2(&root, path, flags, Mode::empty(), INSIDE);
    match found {
        Ok(fd) => return Ok(fd),
        Err(Errno::NOENT) if create => {}
        Err(Errno::XDEV) => return Err(SubPathError::Outside),
        Err(error) => return Err(error.into()),
    }
    // New directories get the permissions of the volume, independent of the umask.
    let mode = fstat(&root)?.st_mode & 0o7777;
    let mask = rustix::process::umask(Mode::empty());
    let made = make_below(root, path, Mode::from_raw_mode(mode), false);
    rustix::process::umask(mask);
    made
}

/// The same for a process with several threads, in which what is masked is not to be changed.
pub(crate) fn open_below(root: OwnedFd, path: &Path) -> std::result::Result<OwnedFd, SubPathError> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match openat2(&root, path, flags, Mode::empty(), INSIDE) {
        Err(Errno::NOENT) => {}
        Err(Errno::XDEV) => return Err(SubPathError::Outside),
        found => return Ok(found?),
    }
    let mode = fstat(&root)?.st_mode & 0o7777;
    make_below(root, path, Mode::from_raw_mode(mode), true)
}

/// Creates the missing part of a path, and opens it. Every step is looked up from the root, where links and ".." cannot
/// lead out; only the last part is created, below a directory that was inside when it was opened.
/// `change`: permissions are masked, and have to be given afterwards.
fn make_below(
    root: OwnedFd,
    path: &Path,
    mode: Mode,
    change: bool,
) -> std::result::Result<OwnedFd, SubPathError> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let open = |path: &Path| openat2(&root, path, flags, Mode::empty(), INSIDE);
    let mut at = open(Path::new("."))?;
    let mut so_far = PathBuf::new();
    for part in path.components() {
        let Component::Normal(name) = part else {
            return Err(SubPathError::Outside);
        };
        so_far.push(name);
        at = match open(&so_far) {
            Err(Errno::NOENT) => {
                match mkdirat(&at, name, mode) {
                    Ok(()) if change => {
                        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                        let made = openat2(&at, name, flags, Mode::empty(), INSIDE);
                        made.and_then(|made| fchmod(made, mode))?;
                    }
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                open(&so_far)
            }
            found => found,
        }?;
    }
    Ok(at)
}

/// What is known of a device: the numbers of the host's node, or those that were told if the host has no such node.
pub(super) fn device(node: &DeviceNode) -> Result<Device> {
    match (of_the_host(node), told(node)) {
        (Ok(found), Some(told)) if found.kind != told.kind => Ok(told),
        (Err(_), Some(told)) => Ok(told),
        (found, _) => found,
    }
}

/// A device whose kind and numbers were told.
fn told(node: &DeviceNode) -> Option<Device> {
    let kind = match node.kind.as_deref()? {
        "c" | "u" => "c",
        "b" => "b",
        _ => return None,
    };
    let number = |number: Option<i64>| u32::try_from(number?).ok();
    Some(Device {
        source: PathBuf::from(node.host_path.as_deref().unwrap_or(&node.path)),
        kind,
        numbers: (number(node.major)?, number(node.minor)?),
        mode: 0o666,
        owner: (0, 0),
    })
}

/// Reads the numbers of a device node of the host.
fn of_the_host(node: &DeviceNode) -> Result<Device> {
    let source = Path::new(node.host_path.as_deref().unwrap_or(&node.path));
    let fd = rustix::fs::open(source, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .step(|| format!("device {}", node.path))?;
    let metadata = std::fs::File::from(fd.as_fd().try_clone_to_owned().step(|| "dup".into())?)
        .metadata()
        .step(|| format!("device {}", node.path))?;
    let kind = metadata.file_type();
    let kind = if kind.is_char_device() {
        "c"
    } else if kind.is_block_device() {
        "b"
    } else if kind.is_fifo() {
        "p"
    } else {
        return Err(StageError::NotADevice(node.path.clone()));
    };
    let numbers = metadata.rdev();
    Ok(Device {
        source: source.to_owned(),
        kind,
        numbers: (rustix::fs::major(numbers), rustix::fs::minor(numbers)),
        mode: metadata.mode() & 0o7777,
        owner: (metadata.uid(), metadata.gid()),
    })
}
