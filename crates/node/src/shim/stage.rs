//! The helper's own view of the file system, in which a container's root directory and volumes are put together.
//!
//! The shim leaves the mount namespace of the host (and, without root, its user namespace) before it touches anything.
//! Its mounts are private, disappear when it ends, and are never visible inside of the container: the container's root
//! directory is a separate mount, and libcontainer makes it the root of a further mount namespace from which the rest
//! is detached.
//!
//! Everything that a container may have had its hands on is opened by descriptors that cannot leave the volume, and is
//! mounted from the descriptor: there is no moment between a check and a mount.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change,
    move_mount, open_tree,
};

use super::spec::staged::{Account, Staged};
use super::spec::{ContainerSpec, Isolation};
use super::sys;
use crate::error::PathError;
use crate::oci;

mod account;
mod cgroups;
mod host;
mod layers;
mod volume;

pub(crate) use volume::{SUB_PATH, SubPathError, open_below};

/// Why the files, mounts, namespaces or account of a container cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StageError {
    /// A step that failed, and why.
    #[error("{step}: {source}")]
    Step {
        step: String,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// `/dev` of the image could lead to the host.
    #[error("/dev of the image is not a directory")]
    DevIsNoDirectory,
    /// The container's user is a name that the container does not have.
    #[error("unable to find user {0}: no matching entries in passwd file")]
    NoUser(String),
    /// The container's group is a name that the container does not have.
    #[error("unable to find group {0}: no matching entries in group file")]
    NoGroup(String),
    /// The `subPath` of a mount; the reason is in the shim's log, and the text is the kubelet's.
    #[error("{} for {mount}", SUB_PATH)]
    SubPath { mount: String, source: SubPathError },
    /// The path of a device that is another kind of file on the host.
    #[error("device {0}: not a device node on the host")]
    NotADevice(String),
    /// The limits of the container's cgroup cannot be written.
    #[error(transparent)]
    Cgroup(#[from] PathError),
}

pub(super) type Result<T = ()> = std::result::Result<T, StageError>;

/// Names the step that failed.
pub(super) trait Step<T> {
    fn step(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Box<dyn std::error::Error + Send + Sync>>> Step<T> for std::result::Result<T, E> {
    fn step(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| StageError::Step {
            step: what(),
            source: error.into(),
        })
    }
}

/// Leaves the host's mounts, and without root also its users. The process must have one thread.
///
/// # Errors
/// The step that failed and the kernel's answer.
pub(super) fn enter(spec: &ContainerSpec) -> Result {
    if spec.isolation == Isolation::UserNamespace {
        let ids = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        oci::pids::limit_user();
        let inside = account::single(&spec.security, &spec.root);
        sys::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS).step(|| "user namespace".into())?;
        let put = |file: &str, text: String| fs::write(file, text).step(|| file.to_owned());
        put("/proc/self/setgroups", "deny".into())?;
        // A single id needs no helper program and no entry in /etc/subuid. The container's user is this one.
        put("/proc/self/uid_map", format!("{} {} 1\n", inside.0, ids.0))?;
        put("/proc/self/gid_map", format!("{} {} 1\n", inside.1, ids.1))?;
    } else {
        sys::unshare(libc::CLONE_NEWNS).step(|| "mount namespace".into())?;
        // The groups of the agent are not those of its containers.
        sys::set_groups(&[]).step(|| "setgroups".into())?;
    }
    // Mounts of the host still propagate, so that volumes can follow it; nothing propagates to the host.
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", slave).step(|| "making mounts private".into())
}

/// The account of a container's program.
///
/// # Errors
/// A name that does not exist in the container.
pub(super) fn account(spec: &ContainerSpec, root: &Path) -> Result<Account> {
    let found = account::find(&spec.security, root)?;
    if spec.isolation != Isolation::UserNamespace {
        return Ok(found);
    }
    // There are no other ids.
    let (user, group) = account::single(&spec.security, &spec.root);
    Ok(Account {
        user,
        group,
        groups: Vec::new(),
        ..found
    })
}

/// Puts a container together below its directory, after [`enter`].
///
/// # Errors
/// A path could not be opened, created or mounted.
pub(super) fn prepare(spec: &ContainerSpec, directory: &Path) -> Result<Staged> {
    let (stage, root) = begin(directory)?;
    if let Some(copy) = &spec.root.copy {
        layers::bind(copy, &root)?;
    } else if !spec.root.lower.is_empty() {
        layers::writable(spec, &stage, &root)?;
    } else {
        root_in_memory(spec, &root)?;
        let targets: Vec<&Path> = spec.mounts.iter().map(|it| it.target.as_path()).collect();
        host::fill(&root, &targets)?;
    }
    check_dev(&root)?;
    let mut mounts = Vec::new();
    for (number, mount) in spec.mounts.iter().enumerate() {
        let place = stage.join(format!("mount-{number}"));
        let image = layers::volume(spec, mount, &stage, number)?;
        let source = volume::open(image.as_ref().unwrap_or(mount))?;
        attach(&source, &place).step(|| format!("mount {}", mount.source.display()))?;
        if !mount.follow {
            private(&place)?;
        }
        mounts.push(place);
    }
    let devices = spec.devices.iter().map(volume::device);
    Ok(Staged {
        mounts,
        devices: devices.collect::<Result<_>>()?,
        cgroups: cgroups::prepare(spec)?,
        root,
    })
}

/// Refuses an image whose `/dev` is a link: libcontainer mounts on what it leads to inside of the root directory, but creates
/// links and device nodes below that path as it is, where it leads to the host.
fn check_dev(root: &Path) -> Result {
    match fs::symlink_metadata(root.join("dev")) {
        Ok(found) if !found.is_dir() => Err(StageError::DevIsNoDirectory),
        _ => Ok(()),
    }
}

/// Creates the working directory, as container runtimes do, also in a volume. If that fails the program is not started.
pub(super) fn working_directory(spec: &ContainerSpec, staged: &Staged) {
    let Some(cwd) = spec.cwd.as_deref().filter(|cwd| cwd.starts_with('/')) else {
        return;
    };
    let volumes = spec.mounts.iter().zip(&staged.mounts);
    let above = volumes.filter_map(|(mount, source)| {
        let target = Path::new("/").join(&mount.target);
        let below = Path::new(cwd).strip_prefix(&target).ok()?;
        Some((target.components().count(), mount, source, below))
    });
    let (root, path) = match above.max_by_key(|(depth, ..)| *depth) {
        None => (&staged.root, Path::new(cwd)),
        Some((_, mount, source, below)) if !mount.read_only && mount.layers.is_empty() => {
            (source, below)
        }
        Some(_) => return,
    };
    if path.as_os_str().is_empty() {
        return;
    }
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let _ = pathrs::Root::open(root).and_then(|root| root.mkdir_all(path, &mode));
}

/// Removes what stood in for cgroups that cannot be written.
pub(super) fn forget_cgroups(spec: &ContainerSpec) {
    cgroups::forget(spec);
}

/// A root directory that ends with the container. Its size is bounded: the memory is the machine's.
fn root_in_memory(spec: &ContainerSpec, root: &Path) -> Result {
    tmpfs(root, &format!("mode=0755,{}", size(spec)))?;
    private(root)
}

fn size(spec: &ContainerSpec) -> String {
    /// Of a container that names no limit.
    const DEFAULT: u64 = 512 << 20;
    format!(
        "size={},nr_inodes=128k",
        spec.limits.root.unwrap_or(DEFAULT)
    )
}

/// A directory for mount points only, with one for the root directory.
fn begin(directory: &Path) -> Result<(PathBuf, PathBuf)> {
    let stage = directory.join("stage");
    fs::create_dir_all(&stage).step(|| stage.display().to_string())?;
    tmpfs(&stage, "mode=0700,size=4m")?;
    private(&stage)?;
    let root = stage.join("root");
    make(&root)?;
    Ok((stage, root))
}

/// Whether layers can be laid over each other here, tried below a directory after [`enter`].
///
/// # Errors
/// Why they cannot.
pub(super) fn try_layers(spec: &ContainerSpec, directory: &Path) -> Result {
    let lower = ["a", "b"].map(|name| directory.join("layers").join(name));
    for layer in &lower {
        fs::create_dir_all(layer).step(|| layer.display().to_string())?;
    }
    let (stage, root) = begin(directory)?;
    let mut spec = spec.clone();
    spec.root.lower = lower.into();
    layers::writable(&spec, &stage, &root)?;
    fs::write(root.join("file"), "content").step(|| "layer in memory".into())
}

pub(super) fn make(path: &Path) -> Result {
    fs::create_dir(path).step(|| path.display().to_string())
}

/// Mounts the file behind a descriptor, with everything mounted below it, on a new path.
fn attach(source: &Source, place: &Path) -> Result {
    if source.is_dir {
        make(place)?;
    } else {
        fs::write(place, "").step(|| place.display().to_string())?;
    }
    clone_onto(source.fd.as_fd(), place)
}

/// A file of the host, opened only to be mounted.
struct Source {
    fd: OwnedFd,
    is_dir: bool,
}

/// Mounts the file behind a descriptor on an existing path.
fn clone_onto(source: std::os::fd::BorrowedFd<'_>, place: &Path) -> Result {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(source, "", flags).step(|| "open_tree".into())?;
    let empty = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(&tree, "", rustix::fs::CWD, place, empty).step(|| "move_mount".into())
}

/// Cuts a mount and those below it off from the host's.
pub(super) fn private(place: &Path) -> Result {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change(place, private).step(|| place.display().to_string())
}

fn tmpfs(target: &Path, options: &str) -> Result {
    let options = std::ffi::CString::new(options).step(|| options.to_owned())?;
    mount(
        "tmpfs",
        target,
        "tmpfs",
        MountFlags::NODEV,
        options.as_c_str(),
    )
    .step(|| format!("tmpfs on {}", target.display()))
}
