//! Root directories and volumes from the layers of images.
//!
//! The layers are the node's, shared by all containers of an image, and are only read. Their content is not trusted: no
//! code here follows a path inside of them.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, mount};

use super::{Result, Source, Step, clone_onto, make, private, size, tmpfs};
use crate::shim::spec::{ContainerSpec, Isolation, Mount};
use crate::shim::sys;

/// A file system of layers, with a writable one in memory above them.
pub(super) fn writable(spec: &ContainerSpec, stage: &Path, root: &Path) -> Result {
    let memory = stage.join("layer");
    make(&memory)?;
    tmpfs(&memory, &format!("mode=0755,{}", size(spec)))?;
    for name in ["upper", "work"] {
        make(&memory.join(name))?;
    }
    // Relative to the directory with the links to the layers.
    let above = ",upperdir=../layer/upper,workdir=../layer/work";
    overlay(spec, &spec.root.lower, &stage.join("lower"), above, root)
}

/// A directory with all layers as a root directory.
pub(super) fn bind(copy: &Path, root: &Path) -> Result {
    let source = open(copy)?;
    clone_onto(source.fd.as_fd(), root).step(|| copy.display().to_string())?;
    private(root)
}

/// An image as a volume: the source that replaces the one of the mount.
pub(super) fn volume(
    spec: &ContainerSpec,
    mount: &Mount,
    stage: &Path,
    number: usize,
) -> Result<Option<Mount>> {
    let source = match mount.layers.as_slice() {
        [] => return Ok(None),
        [only] => only.clone(),
        several => {
            let place = stage.join(format!("image-{number}"));
            make(&place)?;
            let links = stage.join(format!("lower-{number}"));
            overlay(spec, several, &links, "", &place)?;
            sys::read_only(&place).step(|| format!("{}: read-only", mount.name))?;
            place
        }
    };
    Ok(Some(Mount {
        source,
        ..mount.clone()
    }))
}

fn open(path: &Path) -> Result<Source> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).step(|| path.display().to_string())?;
    Ok(Source { fd, is_dir: true })
}

/// Mounts layers as an overlay, the topmost first. Mount options are limited to one page, which the paths of many
/// layers would exceed: short links in `links` replace them.
fn overlay(
    spec: &ContainerSpec,
    layers: &[PathBuf],
    links: &Path,
    above: &str,
    place: &Path,
) -> Result {
    make(links)?;
    let mut names = Vec::new();
    for (number, layer) in layers.iter().enumerate() {
        let name = number.to_string();
        symlink(layer, links.join(&name)).step(|| links.display().to_string())?;
        names.push(name);
    }
    let mut options = format!("lowerdir={}{above}", names.join(":"));
    if spec.isolation == Isolation::UserNamespace {
        options.push_str(",userxattr");
    }
    let options = std::ffi::CString::new(options).step(|| "overlay options".into())?;
    let flags = MountFlags::NODEV;
    std::env::set_current_dir(links).step(|| links.display().to_string())?;
    let mounted = mount("overlay", place, "overlay", flags, options.as_c_str());
    std::env::set_current_dir("/").step(|| "/".into())?;
    mounted.step(|| "overlay of the image's layers".into())?;
    // The mount has found them; containers do not get to see this directory.
    let _ = fs::remove_dir_all(links);
    private(place)
}
