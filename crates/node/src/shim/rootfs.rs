//! The file system that a container sees.
//!
//! The host's root file system is the lower layer of an overlay whose upper layer is in memory: everything can be read
//! and, inside of the container, written; nothing reaches the host. Other file systems of the host are
//! visible read-only. `/proc`, `/dev`, `/tmp` and `/dev/shm` are the container's own.
//!
//! A user namespace may not use the host's root as a layer: that would uncover what its other file systems are mounted
//! on. There the root is a [`skeleton`] in memory with the host's directories mounted into it, read-only.

mod skeleton;

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive,
    mount_change, mount_remount, unmount,
};

use super::spec::{ContainerSpec, Mount};
use super::sys;

/// Where the host's root file system is while the container's is being set up.
const OLD: &str = "/.allot-host";

type Result<T = ()> = std::result::Result<T, String>;

/// Names the step that failed.
trait Step<T> {
    fn step(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: std::fmt::Display> Step<T> for std::result::Result<T, E> {
    fn step(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| format!("{}: {error}", what()))
    }
}

/// Sets everything up and makes it the root directory. Called by the init of the new namespaces.
pub(super) fn enter(spec: &ContainerSpec, directory: &Path) -> Result {
    // What happens here must not reach the host.
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).step(|| "making mounts private".into())?;
    let others = other_mounts()?;
    let (root, layered) = match overlay(directory) {
        Ok(root) => (root, true),
        Err(reason) => match skeleton::root(directory) {
            Ok(root) => (root, false),
            Err(other) => return Err(format!("{reason}; {other}")),
        },
    };
    let old = root.join(&OLD[1..]);
    fs::create_dir_all(&old).step(|| old.display().to_string())?;
    rustix::process::pivot_root(&root, &old).step(|| "pivot_root".into())?;
    std::env::set_current_dir("/").step(|| "/".into())?;

    for target in &others {
        // A file system that is in nobody's way may stay out: mounts of other users, removed directories.
        let _ = bind(&host(target), target, true);
    }
    proc_and_sys()?;
    devices(spec)?;
    tmpfs(Path::new("/tmp"), "mode=1777")?;
    let shared_tmp = Path::new("/var/tmp");
    if !layered && shared_tmp.is_dir() {
        tmpfs(shared_tmp, "mode=1777")?;
    }
    for hidden in spec.hidden.iter().filter(|hidden| hidden.is_dir()) {
        tmpfs(hidden, "mode=0755,size=4k")?;
    }
    for Mount {
        source,
        target,
        read_only,
    } in &spec.mounts
    {
        if !layered {
            skeleton::make_room(target)?;
        }
        bind(&host(source), target, *read_only).map_err(|error| {
            format!(
                "mount {} on {}: {error}",
                source.display(),
                target.display()
            )
        })?;
    }
    unmount(OLD, UnmountFlags::DETACH).step(|| "unmounting the host's root".into())?;
    let _ = fs::remove_dir(OLD);
    rustix::system::sethostname(spec.hostname.as_bytes()).step(|| "sethostname".into())
}

/// A path of the host after `pivot_root`.
fn host(path: &Path) -> PathBuf {
    Path::new(OLD).join(path.strip_prefix("/").unwrap_or(path))
}

/// A directory in memory below the container's own.
fn layer(directory: &Path) -> Result<PathBuf> {
    let layer = directory.join("layer");
    fs::create_dir_all(&layer).step(|| layer.display().to_string())?;
    mount("tmpfs", &layer, "tmpfs", MountFlags::empty(), c"mode=0755")
        .step(|| "tmpfs for the container's layer".into())?;
    Ok(layer)
}

/// Mounts the overlay below the container's directory and returns its path.
fn overlay(directory: &Path) -> Result<PathBuf> {
    // In memory: the upper layer of an overlay must not be an overlay itself, which the host's root may well be.
    let layer = layer(directory)?;
    let [upper, work, root] = ["upper", "work", "root"].map(|name| layer.join(name));
    for directory in [&upper, &work, &root] {
        fs::create_dir(directory).step(|| directory.display().to_string())?;
    }
    let text = |path: &Path| path.display().to_string().replace(['\\', ',', ':'], "?");
    for extra in ["", ",userxattr"] {
        let options = format!(
            "lowerdir=/,upperdir={},workdir={}{extra}\0",
            text(&upper),
            text(&work)
        );
        let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes())
            .step(|| "overlay options".into())?;
        match mount("overlay", &root, "overlay", MountFlags::empty(), options) {
            Ok(()) => return Ok(root),
            Err(error) if !extra.is_empty() => {
                return Err(format!("overlay on the root file system: {error}"));
            }
            Err(_) => {}
        }
    }
    Err("overlay on the root file system".into())
}

/// Mount points of the host that hold files of their own, outermost first.
fn other_mounts() -> Result<Vec<PathBuf>> {
    const OWN: [&str; 4] = ["/proc", "/sys", "/dev", "/tmp"];
    let table =
        fs::read_to_string("/proc/self/mountinfo").step(|| "/proc/self/mountinfo".into())?;
    let mut targets: Vec<PathBuf> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|target| PathBuf::from(target.replace("\\040", " ")))
        .filter(|target| target != Path::new("/") && !OWN.iter().any(|own| target.starts_with(own)))
        .collect();
    targets.sort();
    targets.dedup();
    Ok(targets)
}

/// Creates what a file or directory can be mounted on.
fn target(source: &Path, target: &Path) -> Result {
    let is_dir = fs::metadata(source)
        .step(|| source.display().to_string())?
        .is_dir();
    let directory = if is_dir {
        Some(target)
    } else {
        target.parent()
    };
    if let Some(directory) = directory {
        fs::create_dir_all(directory).step(|| directory.display().to_string())?;
    }
    if !is_dir && fs::symlink_metadata(target).is_err() {
        fs::write(target, "").step(|| target.display().to_string())?;
    }
    Ok(())
}

fn bind(source: &Path, onto: &Path, read_only: bool) -> Result {
    target(source, onto)?;
    mount_bind_recursive(source, onto).step(|| "bind".into())?;
    if read_only {
        sys::read_only(onto).step(|| "read-only".into())?;
    }
    Ok(())
}

fn tmpfs(target: &Path, options: &str) -> Result {
    fs::create_dir_all(target).step(|| target.display().to_string())?;
    let options = std::ffi::CString::new(options).step(|| options.to_owned())?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", target, "tmpfs", flags, options.as_c_str())
        .step(|| format!("tmpfs on {}", target.display()))
}

fn proc_and_sys() -> Result {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    if let Err(error) = mount("proc", "/proc", "proc", flags, None::<&std::ffi::CStr>) {
        // Where parts of /proc are covered, as in containers, a user namespace may not uncover them with its own; with
        // the host's a program still finds itself.
        let proc = host(Path::new("/proc"));
        mount_bind_recursive(&proc, "/proc").step(|| format!("proc: {error}; bind"))?;
    }
    let sys = host(Path::new("/sys"));
    mount_bind_recursive(&sys, "/sys").step(|| "sys".into())?;
    // Without a network namespace of our own this may be refused; then it is what the host has.
    let _ = mount_remount("/sys", MountFlags::BIND | MountFlags::RDONLY | flags, c"");
    Ok(())
}

/// A `/dev` with what every program expects, and the container's own devices.
fn devices(spec: &ContainerSpec) -> Result {
    let dev = Path::new("/dev");
    mount(
        "tmpfs",
        dev,
        "tmpfs",
        MountFlags::NOSUID,
        c"mode=0755,size=64k",
    )
    .step(|| "tmpfs on /dev".into())?;
    for name in ["null", "zero", "full", "random", "urandom", "tty"] {
        let target = dev.join(name);
        fs::write(&target, "").step(|| target.display().to_string())?;
        mount_bind(host(&target), &target).step(|| target.display().to_string())?;
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        std::os::unix::fs::symlink(target, dev.join(name)).step(|| name.into())?;
    }
    fs::create_dir(dev.join("pts")).step(|| "/dev/pts".into())?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    if mount(
        "devpts",
        "/dev/pts",
        "devpts",
        flags,
        c"newinstance,ptmxmode=0666,mode=0620",
    )
    .is_ok()
    {
        std::os::unix::fs::symlink("pts/ptmx", dev.join("ptmx")).step(|| "/dev/ptmx".into())?;
    }
    tmpfs(&dev.join("shm"), "mode=1777")?;
    for device in &spec.devices {
        let inside = Path::new(&device.path);
        let outside = host(Path::new(
            device.host_path.as_deref().unwrap_or(&device.path),
        ));
        let kind = fs::metadata(&outside)
            .step(|| format!("device {}", device.path))?
            .file_type();
        if !kind.is_char_device() && !kind.is_block_device() && !kind.is_fifo() {
            return Err(format!(
                "device {}: not a device node on the host",
                device.path
            ));
        }
        target(&outside, inside)?;
        mount_bind(&outside, inside).step(|| format!("device {}", device.path))?;
    }
    Ok(())
}
